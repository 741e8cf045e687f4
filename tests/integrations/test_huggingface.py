"""Patched models of transformers: results and gradients, what falls back, and that nothing else is changed."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.integrations import huggingface
from tests.integrations.models import LAYERS, MODELS, build, in_float64, step, tokens, transformers
from tests.kernels.harness import DEVICE

WITH_EXPERTS = ("mixtral", "qwen3_moe")
#: The others take half a minute more, and differ in little: they run at night.
EVERY_TIME = ("llama", "gemma2", "mixtral", "gpt2")
each_model = pytest.mark.parametrize(
    "name", [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.nightly) for name in MODELS]
)


def whole_error(results, exact):
    """Relative error of all gradients together, where the luck of a single parameter evens out."""
    names = list(results)[2:]
    return sum(accuracy.errors(results[name], exact[name]).rms ** 2 for name in names) ** 0.5


def bits(model):
    return [value.clone() for value in model.state_dict().values()]


@pytest.fixture
def calls(monkeypatch):
    """How often each of our functions ran."""
    count = {}
    for name in ("rmsnorm", "apply_layernorm", "rope", "route", "moe_mlp", "flash_attention", "linear_cross_entropy"):
        original = getattr(huggingface, name)

        def counted(*args, original=original, name=name, **kwargs):
            count[name] = count.get(name, 0) + 1
            return original(*args, **kwargs)

        monkeypatch.setattr(huggingface, name, counted)
    return count


@each_model
def test_results_and_gradients(name, calls):
    """Against float64, no worse than twice the model itself; and every part really ran."""
    model, ids = build(name), tokens()
    exact, before = step(in_float64(model), ids), step(model, ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing falls back
        with huggingface.patch(model):
            patched = step(model, ids)
    for what, value in patched.items():
        accuracy.check(what, value, before[what], exact[what], depth=LAYERS)
    assert whole_error(patched, exact) <= 1.5 * whole_error(before, exact)
    wanted = {"rmsnorm", "rope"} if name != "gpt2" else {"apply_layernorm"}
    wanted |= {"route", "moe_mlp"} if name in WITH_EXPERTS else set()
    assert set(calls) == wanted | {"flash_attention", "linear_cross_entropy"}
    assert calls["flash_attention"] == 4 and calls["linear_cross_entropy"] == 1


@each_model
def test_unpatched_to_the_bit(name):
    model, ids = build(name), tokens()
    before, names = step(model, ids), {module: set(vars(module)) for module in model.modules()}
    config = copy.deepcopy(model.config.__dict__)
    huggingface.unpatch(huggingface.patch(model).model)
    assert {module: set(vars(module)) for module in model.modules()} == names
    assert model.config.__dict__ == config
    assert all(torch.equal(a, b) for a, b in zip(before.values(), step(model, ids).values()))


@pytest.mark.parametrize("name", ["llama", "mixtral", pytest.param("gemma3", marks=pytest.mark.nightly), "gpt2"])
def test_bf16(name):
    model, ids = build(name, torch.bfloat16), tokens()
    exact, before = step(in_float64(model), ids), step(model, ids)
    with huggingface.patch(model):
        patched = step(model, ids)
    assert patched["logits"].dtype == torch.bfloat16
    for what in ("logits", "loss"):  # the loss is one number: in float32, luck would decide who is closer
        accuracy.check(what, patched[what].bfloat16(), before[what].bfloat16(), exact[what], depth=LAYERS)
    assert whole_error(patched, exact) <= 1.5 * whole_error(before, exact)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.nightly)])
def test_padding_falls_back_and_says_so(name):
    model, ids = build(name), tokens()
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    exact, before = step(in_float64(model), ids, attention_mask=mask), step(model, ids, attention_mask=mask)
    with huggingface.patch(model):
        with pytest.warns(UserWarning, match="falls back: a mask, of padding or of the user"):
            patched = step(model, ids, attention_mask=mask)
        assert "fell back: " in huggingface.report(model)
    for what, value in patched.items():
        seen = (slice(None), slice(4, None)) if what == "logits" else ...
        accuracy.check(what, value[seen], before[what][seen], exact[what][seen])


@pytest.mark.parametrize(
    "name", ["mistral", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("llama", "gemma2", "gpt2"))]
)
def test_generation_with_a_cache(name):
    """A prompt, then token by token: one query against all the keys so far."""
    model, ids = build(name).eval(), tokens(2, 9)
    options = dict(max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(ids))
    expected = model.generate(ids, **options)
    with huggingface.patch(model):
        assert torch.equal(model.generate(ids, **options), expected)


def test_another_model_is_not_touched(calls):
    patched, other = build("llama"), build("llama")
    before = step(other, tokens())
    with huggingface.patch(patched):
        after = step(other, tokens())
    assert not calls and all(torch.equal(a, b) for a, b in zip(before.values(), after.values()))


@pytest.mark.parametrize("part", huggingface.PARTS)
def test_one_part_alone(part, calls):
    model = build("mixtral" if part == "experts" else "llama")
    with huggingface.patch(model, **{name: name == part for name in huggingface.PARTS}):
        text = huggingface.report(model)
        output = model.train()(tokens(), labels=tokens())
    ours = dict(norm="rmsnorm", rope="rope", attention="flash_attention", loss="linear_cross_entropy")
    both = {"route", "moe_mlp"} if part == "experts" else set()
    assert set(calls) == ({ours[part]} if part in ours else both)
    assert (output.logits is None) == (part == "loss")
    assert text.count("replaced: ") == (len(both) or 1)
    assert f"replaced: {part}: " in text and "(not chosen)" in text


def test_report():
    model = build("gpt2")
    huggingface.patch(model)
    assert huggingface.report(model).splitlines() == [
        "GPT2LMHeadModel (gpt2)",
        "  replaced: norm: LayerNorm x5",
        "  replaced: attention: GPT2Attention x2",
        "  replaced: loss: GPT2LMHeadModel x1",
        "  left: rope: GPT2Attention (it has no rotary embedding) x2",
        "  left: mlp: GPT2MLP (it has no gate) x2",
    ]


@pytest.mark.parametrize("norm_topk_prob", [True, False])
def test_qwen_may_renormalize(norm_topk_prob):
    """Whether the selected scores are divided by their sum is the model's choice."""
    model, ids = build("qwen3_moe", norm_topk_prob=norm_topk_prob).eval(), tokens()
    expected = model(ids).logits
    with huggingface.patch(model, **dict.fromkeys(huggingface.PARTS, False) | dict(experts=True)):
        torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-5)
        assert huggingface.report(model).splitlines()[1:3] == [
            "  replaced: experts: Qwen3MoeExperts x1",
            "  replaced: experts: Qwen3MoeTopKRouter x1",
        ]


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_the_routers_loss_is_added(name):
    """`output_router_logits`: the model's loss, its additional one and the logits of all routers; and gradients."""
    model, ids = build(name, output_router_logits=True, router_aux_loss_coef=0.5).train(), tokens()
    mask = torch.ones_like(ids)
    results = []
    for patched in (False, True):
        if patched:
            huggingface.patch(model)
        model.zero_grad()
        output = model(ids, labels=ids, attention_mask=mask)
        output.loss.backward()
        gates = [weight.grad.clone() for key, weight in model.named_parameters() if key.endswith("mlp.gate.weight")]
        results.append([output.loss, output.aux_loss, *output.router_logits, *gates])
    assert len(results[0]) == len(results[1]) == (4 if name == "qwen3_moe" else 6)
    assert output.logits is None and output.aux_loss > 0.5
    for mine, theirs in zip(*results):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_experts_that_are_left():
    """Another activation, and weights that are no plain floats: the layer stays, the rest is replaced."""
    ids = tokens()
    other = build("mixtral", hidden_act="gelu").eval()
    expected = other(ids).logits
    with huggingface.patch(other):
        assert "left: experts: MixtralExperts (activation GELUActivation) x2" in huggingface.report(other)
        assert "replaced: experts: MixtralTopKRouter x2" in huggingface.report(other)
        torch.testing.assert_close(other(ids).logits, expected, rtol=1e-4, atol=1e-5)
    quantized = build("mixtral")
    for module in quantized.modules():
        if type(module).__name__ == "MixtralExperts":
            module.down_proj = torch.nn.Parameter(module.down_proj.data.to(torch.int8), requires_grad=False)
    with huggingface.patch(quantized):
        assert "left: experts: MixtralExperts (quantized or sharded weights) x2" in huggingface.report(quantized)


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_gradient_checkpointing(name):
    model, ids = build(name), tokens()
    with huggingface.patch(model):
        expected = step(model, ids)
        model.gradient_checkpointing_enable()
        again = step(model, ids)
    assert all(torch.equal(a, b) for a, b in zip(expected.values(), again.values()))


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_autocast(name):
    model, ids = build(name), tokens()
    exact = step(in_float64(model), ids)

    def cast():
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return step(model, ids)

    before = cast()
    with huggingface.patch(model):
        patched = cast()
    error = lambda results, what: (results[what].double() - exact[what]).norm() / exact[what].norm()  # noqa: E731
    assert all(error(patched, what) <= 2 * error(before, what) + 4e-3 for what in exact)


def test_loss_options():
    """What a Trainer passes: the number of tokens over several batches, and labels that are shifted already."""
    model, ids = build("llama").train(), tokens()
    shifted = torch.nn.functional.pad(ids, (0, 1), value=-100)[:, 1:].contiguous()
    calls = [
        dict(labels=ids, num_items_in_batch=50),
        dict(labels=ids, shift_labels=shifted),
        dict(labels=ids, return_dict=False),
    ]
    expected = [model(ids, **options) for options in calls]
    with huggingface.patch(model):
        actual = [model(ids, **options) for options in calls]
    for ours, theirs in zip(actual, expected):
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    assert isinstance(actual[2], tuple)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_compile(name):
    model, ids = build(name, torch.bfloat16, head_dim=64), tokens()
    with huggingface.patch(model):
        expected = step(model, ids)
        actual = step(torch.compile(model, fullgraph=True), ids)
    torch.testing.assert_close(actual["loss"], expected["loss"], rtol=1e-2, atol=1e-2)


# ---------------------------------------------------------------- errors


def test_unknown_architecture_is_left_alone():
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=61)
    config = transformers.BertConfig(**sizes)
    model = transformers.BertModel(config)
    before = {module: set(vars(module)) for module in model.modules()}
    with pytest.raises(ValueError, match="got model_type 'bert'; modules looked at: .*BertLayer"):
        huggingface.patch(model)
    assert {module: set(vars(module)) for module in model.modules()} == before


def test_nothing_is_half_patched(monkeypatch):
    """An error in the middle of the plan, and nothing of it is carried out."""
    model = build("llama")
    before = {module: set(vars(module)) for module in model.modules()}

    def broken(*args):
        raise RuntimeError("in the middle")

    monkeypatch.setitem(huggingface.KINDS, "norm", huggingface.KINDS["norm"]._replace(look=broken))
    with pytest.raises(RuntimeError):
        huggingface.patch(model)
    assert {module: set(vars(module)) for module in model.modules()} == before


def test_bad_calls():
    model = build("llama")
    with pytest.raises(TypeError, match="model must be a transformers.PreTrainedModel, got Linear"):
        huggingface.patch(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="norm must be a bool, got int"):
        huggingface.patch(model, norm=1)
    with pytest.raises(ValueError, match="model has nothing to replace"):
        huggingface.patch(model, **dict.fromkeys(huggingface.PARTS, False))
    with pytest.raises(ValueError, match="model is not patched"):
        huggingface.unpatch(model)
    with pytest.raises(ValueError, match="model is not patched"):
        huggingface.report(model)
    huggingface.patch(model)
    with pytest.raises(ValueError, match="model is patched already"):
        huggingface.patch(model)
