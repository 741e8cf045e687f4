"""The GPT writes: logits are those of the whole text at once, and neither company nor pages change a text."""

import dataclasses

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.mutants import import_source
from annotated_examples.attention import decode, mla_decode, quantized_decode
from annotated_examples.capstone import generate, gpt, options
from annotated_examples.common.codes import decoded
from tests.capstone.test_options import EXACT
from tests.kernels.harness import ROOT

SOURCE = (ROOT / "annotated_examples/capstone/generate.py").read_text("utf-8")
MIXERS = generate.MIXERS
KINDS = pytest.mark.parametrize(("mixer", "bits"), generate.KEPT)
WANTED = generate.Options(tokens=5, page_size=3)
LENGTHS = (4, 1, 7)


def mutant(old, new):
    assert SOURCE.count(old) == 1, SOURCE.count(old)
    return import_source(SOURCE.replace(old, new), "mutant_of_generate")


def models(mixer):
    """Ours, the plain one and one in float64. Attention decides: the weights are large."""
    config = dataclasses.replace(options.SMALL, mixer=mixer)
    ours, plain = gpt.pair(config, plain=EXACT, kernels=options.OURS)
    with torch.no_grad():
        for weight in ours.blocks.parameters():
            weight.mul_(8.0 if weight.dim() == 2 else 1.0)
        ours.embedding.mul_(20.0)
    exact = gpt.GPT(config, EXACT, torch.float64).to(device.DEVICE).double()
    for other in (plain, exact):
        other.load_state_dict(ours.state_dict())
        other.eval()
    return ours, plain, exact


def prompts():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(256, (length,), generator=generator).to(device.DEVICE) for length in LENGTHS]


def written(module, model, wanted=WANTED, which=(0, 1, 2), bits=None, along=None):
    """Tokens (B, tokens) and logits (tokens, B, vocabulary) of some of the prompts."""
    wanted, given = dataclasses.replace(wanted, bits=bits), [prompts()[at] for at in which]
    logits, draw = [], module.draw
    try:
        module.draw = lambda found, *rest: logits.append(found.clone()) or draw(found, *rest)
        texts = torch.stack(list(module.generate(model, given, wanted, list(which), along)), 1)
    finally:
        module.draw = draw
    return texts, torch.stack(logits)


def of_whole_texts(model, texts):
    """The logits of the same places, from all tokens at once, without a cache."""
    found = []
    for prompt, text in zip(prompts(), texts):
        y, _ = model.outputs(torch.cat([prompt, text])[None, :-1], model.operations)
        found.append((y @ model.embedding.T)[len(prompt) - 1 :])
    return torch.stack(found, 1).detach()


def check_logits(module, mixer):
    ours, plain, exact = models(mixer)
    texts, logits = written(module, ours)
    assert texts.shape == (len(LENGTHS), WANTED.tokens) and logits.std() > 1
    accuracy.check("logits", logits, *(of_whole_texts(model, texts) for model in (plain, exact)))


@pytest.mark.parametrize("mixer", MIXERS)
def test_logits_are_those_of_the_whole_text(mixer):
    check_logits(generate, mixer)


def check_logits_of_codes(module, bits):
    """Where the last bit decides between two codes, an error is a whole step. So the models that ours is compared with
    read the rows that ours has kept, once these are found to be near their own."""
    ours, plain, exact = models("attention")
    caches, cache = [], module.Cache
    try:
        module.Cache = lambda *given: caches.append(cache(*given)) or caches[0]
        texts, logits = written(module, ours, bits=bits)
    finally:
        module.Cache = cache

    def of_codes(model, sequence, prompt):
        text, P = torch.cat([prompt, texts[sequence]])[None, :-1], len(prompt)
        pages, layers = caches[0].table[sequence].long().clamp(min=0), iter(caches[0].layers)

        def attend(q, k, v):
            kept, rows = next(layers).rows, []
            for codes, steps, true in zip(kept[:2], kept[2:], (k, v)):
                row = decoded(codes[pages], steps[pages], "token", q.dtype).flatten(0, 1)[: text.shape[1]]
                rows.append(row.transpose(0, 1)[None])
                if model is exact:
                    step = true.abs().amax(3) / 127 if bits == 8 else (true.amax(3) - true.amin(3)) / 15
                    assert ((rows[-1] - true).abs() <= 0.501 * step[..., None]).all()
            usual, coded = (model.operations.attend(q, *both) for both in ((k, v), rows))
            return torch.cat([usual[:, :, :P], coded[:, :, P:]], 2)

        y, _ = model.outputs(text, dataclasses.replace(model.operations, attend=attend))
        return (y @ model.embedding.T)[P - 1 :].detach()

    expected = [torch.stack([of_codes(model, *each) for each in enumerate(prompts())], 1) for model in (plain, exact)]
    accuracy.check("logits", logits, *expected)


@pytest.mark.parametrize("bits", [8, 4])
def test_logits_are_those_of_codes(bits):
    check_logits_of_codes(generate, bits)


def check_same_text(module, mixer, bits=None):
    """Alone, in other company, in other pages or none: the same bits of all logits, and so the same tokens."""
    model = models(mixer)[0]
    texts, logits = written(module, model, bits=bits)
    for wanted, which in (
        (WANTED, [2]),
        (WANTED, [1, 2]),
        (dataclasses.replace(WANTED, page_size=None), [0, 1, 2]),
        (dataclasses.replace(WANTED, page_size=1), [0]),
    ):
        others, other_logits = written(module, model, wanted, which, bits=bits)
        assert torch.equal(other_logits, logits[:, which]), (wanted, which)
        assert torch.equal(others, texts[which]), (wanted, which)


#: Of the codes in `make test` those of four bits, which are kept and read by what eight bits' are.
@pytest.mark.parametrize(
    ("mixer", "bits"), [pytest.param(*kind, marks=[pytest.mark.nightly] * (kind[1] == 8)) for kind in generate.KEPT]
)
def test_a_text_is_the_same_alone_and_in_company_and_in_any_pages(mixer, bits):
    check_same_text(generate, mixer, bits)


def test_fewer_bits_are_further_off_along_the_same_text():
    """The first token comes from the prompt, of which no code is read."""
    model = models("attention")[0]
    text, usual = written(generate, model)
    off = {bits: written(generate, model, bits=bits, along=text)[1] - usual for bits in (None, 8, 4)}
    assert not off[None].any() and not off[8][0].any() and not off[4][0].any()
    rms = {bits: each[1:].square().mean().sqrt() for bits, each in off.items()}
    assert 0 < rms[8] < 0.02 < 0.04 < rms[4] < 0.2


def test_a_text_that_is_given_is_followed():
    """Whatever is drawn: the logits are those of that text."""
    _, plain, exact = models("attention")
    along = torch.arange(15, device=device.DEVICE).view(3, 5) * 7
    drawn, logits = written(generate, models("attention")[0], along=along)
    assert (drawn != along).any()
    accuracy.check("logits", logits, *(of_whole_texts(model, along) for model in (plain, exact)))


def test_agreement_counts_all_tokens(monkeypatch):
    drawn = {None: torch.tensor([[1, 2], [3, 4]]), 4: torch.tensor([[1, 2], [3, 5]])}

    def generated(model, prompts, asked, seeds, along=None):
        assert asked.bits is None or torch.equal(along, drawn[None].T)
        return iter(drawn[asked.bits])

    monkeypatch.setattr(generate, "generate", generated)
    assert generate.agreement(None, [], dataclasses.replace(WANTED, bits=4)) == 3 / 4


def check_a_number_for_every_draw(module, mixer):
    """Of each sequence and each place."""
    seeds, sample = [], module.sample
    try:
        module.sample = lambda row, seed, **how: seeds.append(seed) or sample(row, seed, **how)
        written(module, models(mixer)[0])
    finally:
        module.sample = sample
    assert len(seeds) == len(set(seeds)) == len(LENGTHS) * WANTED.tokens


@pytest.mark.parametrize(
    ("check", "mixer", "old", "new"),
    [
        (check_logits, "attention", ", positions=at.positions)", ")"),
        (check_logits, "attention", "[:, -1], model.embedding)", "[:, 0], model.embedding)"),
        (check_logits, "latent", "(q.shape[3] + q_pe.shape[3]) ** -0.5", "absorbed.shape[2] ** -0.5"),
        (check_logits, "latent", "q[:, :, 0], w_uk.mT)", "q[:, :, 0], w_uv.mT)"),
        (check_a_number_for_every_draw, "attention", "(seed << 32) + length, **how)", "seed << 32, **how)"),
        (check_same_text, "attention", "zip(logits, lengths, seeds)", "zip(logits, lengths, range(9))"),
        (check_same_text, "attention", "self.free.pop(0)", "page"),
        (
            check_logits_of_codes,
            4,
            "zip(self.rows[:2], self.rows[2:], rows)",
            "zip(self.rows, self.rows[2:], rows[::-1])",
        ),
        (check_logits_of_codes, 8, "new.flatten(0, 1), slots)", "new.flatten(0, 1).bfloat16(), slots)"),
    ],
    ids=["all at position 0", "the prompt's first token", "scale of latents", "values for keys"]
    + [
        "one number for all places",
        "noise by the row",
        "somebody else's page",
        "values as keys",
        "rounded twice",
    ],
)
def test_mutant(check, mixer, old, new):
    broken = mutant(old, new)
    with pytest.raises(AssertionError):
        check(broken, mixer)


@KINDS
def test_nothing_hangs_on_the_number_of_sequences(mixer, bits, monkeypatch):
    """The parts of a cache are given. (A small one has one part in any case, so bits wouldn't show it here.)"""

    def asked(*_):
        raise AssertionError("parts were chosen by the number of sequences")

    chosen = {decode: "default_splits", mla_decode: "latent_splits", quantized_decode: "default_splits"}
    for module, choice in chosen.items():
        monkeypatch.setattr(module, choice, asked)
    written(generate, models(mixer)[0], dataclasses.replace(WANTED, tokens=2), bits=bits)


def test_pages_are_taken_when_they_are_needed():
    model = models("attention")[0]
    cache = generate.Cache(model, [9, 5, 2], page_size=3)
    assert len(cache.free) == 3 + 2 + 1
    for sequence, length in enumerate((4, 1, 2)):
        cache.next([sequence], length, True)
    assert cache.table.tolist() == [[0, 1, -1], [2, -1, -1], [3, -1, -1]] and cache.free == [4, 5]
    at = cache.next([0, 1], 1, False)
    assert at.positions.tolist() == [[4], [1]] and at.slots.tolist() == [4, 7] and at.lengths.tolist() == [5, 2]
    whole = generate.Cache(model, [9, 5, 2])
    assert cache.bytes() == whole.bytes() * 18 // 27 and whole.next([1], 5, True).table is None


def test_the_likeliest_token():
    model = models("attention")[0]
    texts, logits = written(generate, model, dataclasses.replace(WANTED, temperature=0))
    assert torch.equal(texts, logits.argmax(2).T)
    only = written(generate, model, dataclasses.replace(WANTED, top_k=1))[0]
    assert torch.equal(texts, only)


def test_the_model_is_left_as_it_was():
    """Also where somebody stops half-way."""
    model = models("attention")[0].train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    texts = generate.generate(model, prompts(), WANTED)
    next(texts)
    texts.close()
    assert model.training and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        (dict(tokens=0), {}, "tokens must be "),
        (dict(page_size=0), {}, "page_size must be "),
        (dict(temperature=-1), {}, "temperature must be "),
        (dict(tokens=12), {}, r"prompts\[2\] must have 1 to 4 tokens, so that 12 more fit .* 16, got 7"),
        (dict(), dict(prompts=[]), "prompts must hold at least one"),
        (dict(), dict(prompts=[torch.zeros(3, device=device.DEVICE)] * 3), r"prompts\[0\] must be one of int64"),
        (dict(), dict(prompts=[torch.zeros(1, 3, dtype=torch.int64, device=device.DEVICE)] * 3), r"prompts\[0\] must "),
        (dict(), dict(seeds=[1]), "seeds must be one for each of 3 prompts, got 1"),
        (dict(), dict(seeds=[1, 2, -3]), r"seeds\[2\] must be "),
        (dict(), dict(mixer="hybrid"), "mixer must be "),
        (dict(), dict(along=torch.zeros(3, 4, dtype=torch.int64, device=device.DEVICE)), "along must have shape"),
        (dict(bits=2), {}, "bits must be one of None, 8, 4, got 2"),
        (dict(bits=8), dict(mixer="latent"), "bits must be "),
    ],
)
def test_what_cannot_be_written_is_refused(changes, given, message):
    given = dict(prompts=prompts(), seeds=[0, 1, 2], mixer="attention", along=None) | given
    model = gpt.GPT(dataclasses.replace(options.SMALL, mixer=given["mixer"]), options.OURS).to(device.DEVICE)
    with pytest.raises((ValueError, TypeError), match=message):
        wanted = dataclasses.replace(WANTED, **changes)
        generate.generate(model, given["prompts"], wanted, given["seeds"], given["along"])


@pytest.mark.parametrize("kind", [pytest.param(["--mixer", "latent"], marks=pytest.mark.nightly), ["--bits", "4"]])
def test_the_script(kind, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["generate.py", "--steps", "1", "--tokens", "3", *kind, "--page-size", "4"])
    assert generate.main() == 0
    printed = capsys.readouterr().out
    assert ("with 4 bits: " in printed) == ("4" in kind)
    for line in ("step   1 of 1: loss", "prefill: ", "decode: ", "alone: the same tokens", "without pages: the same"):
        assert line in printed, printed
