"""The model of our kernels against the same model in PyTorch, and mistakes that would make the comparison worthless."""

import dataclasses
import itertools
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.mutants import import_source
from annotated_examples.capstone import gpt
from tests.kernels.harness import ROOT

SOURCE = (ROOT / "annotated_examples/capstone/gpt.py").read_text("utf-8")
#: The plain model, which drops what ours drops. Nothing in it rounds to float32, so that it can also run in float64.
SAME_MASKS = dataclasses.replace(
    gpt.PLAIN,
    drop=gpt.dropout_reference,
    loss=lambda x, weight, labels: F.cross_entropy(F.linear(x, weight.to(x.dtype)), labels),
)


def mutant(old, new):
    assert SOURCE.count(old) == 1
    return import_source(SOURCE.replace(old, new), "mutant_of_gpt")


def trained(model, steps):
    """The losses of some steps, and the gradients of the first.

    The optimizer divides by the size of a gradient. With its usual `eps` a rounding error of a gradient near zero turns
    a weight's whole step around, in either model, and which one is then closer to float64 is luck: it would change with
    the text, and so with every page. With a large `eps` such a gradient makes a small step.
    """
    optimizer, losses, gradients = gpt.adamw(model, 3e-3), [], {}
    optimizer.param_groups[0]["eps"] = 1e-3
    for step, (tokens, labels) in zip(range(steps), gpt.batches(gpt.SMALL, 2)):
        loss = model(tokens[:, :7], labels[:, :7], step)  # shorter than the context, and no multiple of a tile
        loss.backward()
        gradients = gradients or {name: value.grad.clone() for name, value in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses)} | gradients


def test_losses_and_gradients_are_those_of_pytorch():
    """Two steps, so that the second loss shows what the optimizer made of the gradients; dropout is on.

    No further from float64 than twice the plain float32 model, the rule of every kernel here.
    """
    ours, plain = gpt.pair(gpt.SMALL, plain=SAME_MASKS)
    exact = gpt.GPT(gpt.SMALL, SAME_MASKS, torch.float64).to(device.DEVICE)
    exact.load_state_dict(ours.state_dict())
    results = [trained(model, 2) for model in (ours, plain, exact.double())]
    for name in results[0]:
        accuracy.check(name, *(result[name] for result in results))


def check_same_weights(module):
    ours, plain = module.pair(module.SMALL)
    mine, theirs = ours.state_dict(), plain.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert not any(a is b for a, b in zip(ours.parameters(), plain.parameters())), "two models, not one twice"


def check_a_seed_for_every_place_and_step(module):
    seeds = []
    operations = dataclasses.replace(module.PLAIN, drop=lambda x, p, seed: seeds.append(int(seed)) or x)
    model = module.GPT(module.SMALL, operations).to(device.DEVICE)
    tokens, labels = next(module.batches(module.SMALL, 2))
    for step in (0, 1, torch.tensor(2, device=device.DEVICE)):
        model(tokens, labels, step)
    model.eval()(tokens, labels)
    assert len(seeds) == len(set(seeds)) == 3 * (2 * module.SMALL.layers + 1), "and none in evaluation"


def check_labels_come_next(module):
    for config in (module.SMALL, dataclasses.replace(module.SMALL, token_bytes=2)):
        tokens, labels = next(module.batches(config, 3))
        assert tokens.shape == labels.shape == (3, config.context)
        assert torch.equal(tokens[:, 1:], labels[:, :-1]) and not torch.equal(tokens, labels)
        assert 0 <= tokens.min() and tokens.max() < config.vocabulary
        written = b"".join(int(token).to_bytes(config.token_bytes, "little") for token in tokens[0])
        assert written in module.text()


def check_nothing_looks_ahead(module):
    """The loss of the first tokens doesn't change with the later ones."""
    config, seen = dataclasses.replace(module.SMALL, p=0.0), []
    operations = dataclasses.replace(module.PLAIN, loss=lambda x, weight, labels: seen.append(x) or x.sum())
    model = module.GPT(config, operations).to(device.DEVICE)
    tokens, labels = next(module.batches(config, 1))
    for text in (tokens, torch.cat([tokens[:, :9], tokens[:, 9:].flip(1)], 1)):
        model(text, labels)
    assert torch.allclose(seen[0][:9], seen[1][:9], atol=1e-6) and not torch.allclose(seen[0][9:], seen[1][9:])


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_same_weights, "    theirs.load_state_dict(ours.state_dict())\n", ""),
        (check_a_seed_for_every_place_and_step, " + places * step)", ")"),
        (check_a_seed_for_every_place_and_step, "next(seeds)", "places * step"),
        (check_labels_come_next, "tokens[:, 1:].contiguous()", "tokens[:, :-1].contiguous()"),
        (check_nothing_looks_ahead, "is_causal=True, ", ""),
    ],
    ids=["other weights", "a seed for all steps", "a seed for all places", "labels are the tokens", "looks ahead"],
)
def test_what_would_make_the_comparison_meaningless(check, old, new):
    check(gpt)
    with pytest.raises(AssertionError):
        check(mutant(old, new))


def test_the_same_seed_draws_the_same_batches():
    first, again = (list(itertools.islice(gpt.batches(gpt.SMALL, 2, seed=5), 2)) for _ in range(2))
    other = next(gpt.batches(gpt.SMALL, 2, seed=6))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again))
    assert not torch.equal(first[0][0], first[1][0]) and not torch.equal(first[0][0], other[0])


def test_the_large_model_has_124_million_weights():
    with torch.device("meta"):
        model = gpt.GPT(gpt.GPT_124M, gpt.OURS)
    assert 124e6 <= sum(weight.numel() for weight in model.parameters()) < 125e6


def test_every_operation_of_the_model_is_ours():
    assert all(getattr(gpt.OURS, name) is not getattr(gpt.PLAIN, name) for name in vars(gpt.PLAIN))


@pytest.mark.nightly
def test_the_small_model_trains_as_the_plain_one():
    """The script, all of its steps. It learns: a byte drawn blindly has a loss of 5.55."""
    path = ROOT / "annotated_examples/capstone/gpt.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(done.stdout.splitlines()[-1].split()[3].strip(",")) < 4.5


# ---------------------------------------------------------------- compiled


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "torch.compile"])
def test_bfloat16_on_the_card_and_in_a_cuda_graph(compiled):
    """The losses of ten steps stay as close to the plain model's as those stay to float32's."""
    from benchmarks.capstone import Training, losses

    torch.compiler.reset()
    config = gpt.Config(layers=2, heads=4, key_heads=2, width=256, hidden=512, context=128, p=0.0)
    exact = Training(gpt.PLAIN, False, config, 4)
    exact.model.dtype = torch.float32
    plain, ours = Training(gpt.PLAIN, False, config, 4), Training(gpt.OURS, compiled, config, 4)
    ours()
    expected, theirs, mine, replayed = (
        torch.tensor(losses(training, step, 10, 1))
        for training, step in ((exact, exact), (plain, plain), (ours, ours), (ours, ours.captured()))
    )
    assert expected[-1] < expected[0] - 0.5
    # Two roundings of bfloat16 are independent, so they are apart by more than each is from float32.
    allowed = 4 * (theirs - expected).abs().max() + 2e-3
    assert (mine - expected).abs().max() < allowed and (replayed - mine).abs().max() < allowed
