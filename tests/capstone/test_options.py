"""The GPT with experts, eight bits, latents and a state: against plain models, and mistakes that these would share."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.mutants import import_source
from annotated_examples.capstone import gpt, options, parallel
from tests.capstone.test_gpt import SAME_MASKS, trained
from tests.kernels.harness import ROOT

SOURCE = (ROOT / "annotated_examples/capstone/options.py").read_text("utf-8")
#: Plain models without a rounding of their own, which can run in float64.
EXACT = dataclasses.replace(options.PLAIN, drop=SAME_MASKS.drop, loss=SAME_MASKS.loss)
#: What an option brings is ours, the rest PyTorch's, which is interpreted in less time.
OPTIONS_OURS = dataclasses.replace(
    EXACT, **{name: value for name, value in vars(options.OURS).items() if name not in vars(gpt.OURS)}
)
SMALL = dataclasses.replace(options.SMALL, layers=1, experts=4)
EXPERTS = dataclasses.replace(SMALL, feed_forward="experts")
RECIPES = ("tensor", "row", "row_gw_hp", "block")
#: Those of `make test` differ in each of the three products; at night all.
SOME_RECIPES = [
    recipe if recipe in ("tensor", "row_gw_hp") else pytest.param(recipe, marks=pytest.mark.nightly)
    for recipe in RECIPES
]


def mutant(old, new):
    assert SOURCE.count(old) == 1
    return import_source(SOURCE.replace(old, new), "mutant_of_options")


def models(config, kernels=OPTIONS_OURS, seed=0):
    """Ours, the plain one and one in float64, with the same weights."""
    ours, plain = gpt.pair(config, seed=seed, plain=EXACT, kernels=kernels)
    exact = gpt.GPT(config, EXACT, torch.float64).to(device.DEVICE)
    exact.load_state_dict(ours.state_dict())
    return ours, plain, exact.double()


def gradients(model):
    tokens, labels = next(gpt.batches(model.config, 2))
    model(tokens, labels, 0).backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def assert_right(config):
    """All operations ours, dropout on, and two steps, so that the second loss shows what the optimizer made of the
    gradients. Losses and the gradient of every parameter are no further from float64 than twice the plain model's.

    Each operation keeps that rule for itself, in its own tests. After ten of them the worst element of a gradient is a
    matter of luck. So three models are taken together, and the mean of their squared errors. Returns the parameters'
    names.
    """
    runs = [[trained(model, 2) for model in models(config, options.OURS, seed)] for seed in range(3)]
    ours, plain, exact = ({name: torch.stack([run[i][name] for run in runs]) for name in runs[0][i]} for i in range(3))
    for name in ours:
        mine, theirs = (accuracy.errors(each[name], exact[name]).rms for each in (ours, plain))
        floor = accuracy.RMS_FLOOR * torch.finfo(torch.float32).eps
        assert mine <= max(2 * theirs, floor), f"{name}: {mine:.3g}, the plain model's {theirs:.3g}"
    return set(ours)


# ---------------------------------------------------------------- experts


def test_losses_and_gradients_with_experts():
    names = assert_right(dataclasses.replace(EXPERTS, layers=2))
    assert {"blocks.1.feed_forward.router", "blocks.0.feed_forward.gate_up", "blocks.0.feed_forward.down"} <= names


def written_out(y, part, c):
    """The layer of experts with every expert for every token, and its two losses: written apart from the others."""
    logits = y @ part.router.T
    p = logits.softmax(1)
    chosen = torch.zeros_like(p).scatter(1, logits.topk(c.top_k, 1).indices, 1.0)
    share = p * chosen / (p * chosen).sum(1, keepdim=True)
    gate, up = torch.einsum("th,enh->ten", y, part.gate_up).chunk(2, 2)
    each = torch.einsum("ten,ehn->teh", gate * gate.sigmoid() * up, part.down)
    load = chosen.sum(0) / chosen.sum()
    balance = c.experts * (load * p.mean(0)).sum()
    return (share[:, :, None] * each).sum(1), 0.01 * balance, 0.001 * logits.logsumexp(1).square().mean()


def check_layer_of_experts(module):
    """Values and all gradients of the layer in float64."""
    config = module.Config(**vars(EXPERTS))
    torch.manual_seed(1)
    part = module.Experts(config).double()
    for weight in part.parameters():
        weight.data.mul_(20.0)
    y = torch.randn(33, config.width, dtype=torch.float64)
    upstream = torch.randn_like(y)
    found = []
    for result, *terms in ((lambda r: (r[0], *r[1]))(part(y, module.PLAIN)), written_out(y, part, config)):
        total = (result * upstream).sum() + sum(terms)
        found.append([result, *terms, *torch.autograd.grad(total, list(part.parameters()))])
    assert [len(each) for each in found] == [6, 6], "the result, two terms, and three gradients"
    for mine, expected in zip(*found):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-12)


def check_terms_are_part_of_the_loss(module):
    config = module.Config(**vars(EXPERTS) | dict(layers=2, p=0.0))
    model = gpt.GPT(config, module.PLAIN).to(device.DEVICE)
    tokens, labels = next(gpt.batches(config, 2))
    first, *terms = model.losses(tokens, labels)
    assert len(terms) == 2 * config.layers and all(term > 0 for term in terms)
    torch.testing.assert_close(model(tokens, labels), first + sum(terms))


def check_logits_of_a_router_are_float32(module):
    seen = []
    operations = dataclasses.replace(
        module.PLAIN, route=lambda logits, k: seen.append(logits) or options.route_reference(logits, k)
    )
    part = module.Experts(module.Config(**vars(EXPERTS)))
    y = torch.randn(9, EXPERTS.width).bfloat16()
    part(y, operations)
    assert torch.equal(seen[0], F.linear(y.float(), part.router))


def check_as_many_weights_as_before_are_active(module):
    with torch.device("meta"):
        dense = gpt.GPT(module.GPT_124M, module.OURS)
        config = dataclasses.replace(module.GPT_124M, feed_forward="experts")
        experts = gpt.GPT(config, module.OURS)
    size = lambda module: sum(weight.numel() for weight in module.parameters())  # noqa: E731
    assert 124e6 <= size(dense) < 125e6 and 293e6 < size(experts) < 296e6
    unit, part = dense.blocks[0].feed_forward, experts.blocks[0].feed_forward
    assert size(unit) == config.top_k * (part.gate_up[0].numel() + part.down[0].numel())


# ---------------------------------------------------------------- eight bits


def recorded(module, config):
    """(recipe, input, weight, upstream gradient) of each product in eight bits; and the model after a step."""
    found = []

    def quantized(x, weight, recipe):
        y = module.OURS.quantized(x, weight, recipe)
        entry = [recipe, x.detach(), weight.detach()]
        found.append(entry)
        y.register_hook(lambda dy: entry.append(dy.clone()))
        return y

    model = gpt.GPT(config, dataclasses.replace(OPTIONS_OURS, quantized=quantized)).to(device.DEVICE)
    gradients(model)
    return found, model


def product_and_gradients(function, x, weight, dy, recipe):
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = function(x, weight, recipe)
    return [y.detach(), *torch.autograd.grad(y, (x, weight), dy.to(y.dtype))]


@pytest.mark.parametrize("recipe", SOME_RECIPES)
def test_every_product_in_eight_bits(recipe):
    """Each product of the model with the inputs that it has there: the result and both gradients, by the rule of every
    kernel. And the weight's gradient is what the model has in the end."""
    torch.manual_seed(0)
    found, model = recorded(options, dataclasses.replace(SMALL, linear=recipe))
    block = model.blocks[0]
    kept = [block.mixer.qkv, block.mixer.out, block.feed_forward.gate_up, block.feed_forward.down]
    assert len(found) == 4 and all(entry[0] == recipe for entry in found)
    for weight, (_, x, w, dy) in zip(kept, found):
        assert torch.equal(weight, w)
        plain = product_and_gradients(EXACT.quantized, x, w, dy, recipe)
        exact = product_and_gradients(EXACT.quantized, x.double(), w.double(), dy.double(), recipe)
        mine = product_and_gradients(OPTIONS_OURS.quantized, x, w, dy, recipe)
        for name, *values in zip(("y", "dx", "dw"), mine, plain, exact):
            accuracy.check(name, *values)
        assert torch.equal(mine[2], weight.grad)


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30)).item()


def check_whole_model_in_eight_bits(module, recipe):
    """Every parameter's gradient is that of the plain model in eight bits. Not by the rule of every kernel: where a
    number lies between two codes, the last bit of float32 chooses one, and the results part by what a code is apart. So
    they must be ten times closer than eight bits are to none, which another recipe, or a product without, is not."""
    torch.manual_seed(0)
    config = module.Config(**vars(SMALL) | dict(linear=recipe))
    ours, plain, _ = models(config)
    ours.operations = dataclasses.replace(OPTIONS_OURS, quantized=module.OURS.quantized)
    unquantized = gpt.GPT(SMALL, EXACT).to(device.DEVICE)
    unquantized.load_state_dict(plain.state_dict())
    mine, theirs, without = (gradients(model) for model in (ours, plain, unquantized))
    for name in theirs:
        apart = distance(theirs[name], without[name])
        assert apart > 1e-3 and distance(mine[name], theirs[name]) < apart / 10, name


@pytest.mark.parametrize("recipe", SOME_RECIPES)
def test_a_whole_model_in_eight_bits(recipe):
    check_whole_model_in_eight_bits(options, recipe)


def check_only_attention_with_experts(module):
    """The router's product, those of the experts and the one that makes the logits are as they were."""
    seen = []
    operations = dataclasses.replace(
        module.PLAIN, quantized=lambda x, weight, recipe: seen.append(tuple(weight.shape)) or F.linear(x, weight)
    )
    config = module.Config(**vars(EXPERTS) | dict(linear="row"))
    model = gpt.GPT(config, operations).to(device.DEVICE)
    gradients(model)
    assert seen == [(64, 32), (32, 32)]


# ---------------------------------------------------------------- a state


@pytest.mark.parametrize("mixer", ["hybrid", pytest.param("kda", marks=pytest.mark.nightly)])
def test_losses_and_gradients_with_a_state(mixer):
    names = {
        name.rsplit(".", 1)[1] for name in assert_right(dataclasses.replace(SMALL, mixer=mixer)) if "mixer" in name
    }
    assert names == {"project", "filters", "log_rate", "step", "norm", "out"}


def token_by_token(y, part, c):
    """The layer with a state, written apart from the others: one sequence, one token and one head at a time."""
    head = c.width // c.heads
    rows = y @ part.project.T
    channels = head if c.mixer == "kda" else 1  # that decay by themselves
    sizes = [c.key_heads * head, c.key_heads * head, c.width, c.width, c.heads, c.heads * channels]
    *mixed, gate, b, a = rows.split(sizes, 1)
    a, steps, rates = a.view(len(y), c.heads, channels), part.step.view(c.heads, -1), part.log_rate.view(c.heads)
    padded = F.pad(torch.cat(mixed, 1), (0, 0, 3, 0))
    mixed = sum(padded[j : j + len(y)] * part.filters[:, j] for j in range(4))
    q, k, v = (mixed * mixed.sigmoid()).split(sizes[:3], 1)
    results = []
    for h in range(c.heads):
        of = h // (c.heads // c.key_heads)  # this head's queries and keys
        state, found = torch.zeros(head, head, dtype=y.dtype), []
        for t in range(len(y)):
            query, key = (x[t, of * head : (of + 1) * head] for x in (q, k))
            query, key = (x / (x.square().sum() + 1e-6).sqrt() for x in (query, key))
            value = v[t, h * head : (h + 1) * head]
            decay = torch.exp(-rates[h].exp() * torch.log1p(torch.exp(a[t, h] + steps[h])))
            state = decay[:, None] * state
            state = state + key[:, None] * b[t, h].sigmoid() * (value - key @ state)[None, :]
            read = query @ state / head**0.5
            found.append(read / (read.square().mean() + gpt.EPS).sqrt() * part.norm)
        results.append(torch.stack(found))
    return (torch.cat(results, 1) * gate * gate.sigmoid()) @ part.out.T


def check_layer_with_a_state(module, mixer="hybrid"):
    """Values and all gradients of the layer in float64, and two sequences apart from each other."""
    config = module.Config(**vars(SMALL) | dict(mixer=mixer, heads=4, key_heads=2))
    torch.manual_seed(2)
    part = module.Recurrence(config).double()
    for weight in (part.project, part.out):
        weight.data.mul_(20.0)
    part.norm.data.add_(torch.randn_like(part.norm) / 4)
    y = torch.randn(18, config.width, dtype=torch.float64)
    upstream, found = torch.randn_like(y), []
    for result in (
        part(y, module.PLAIN, 2, None, None),
        torch.cat([token_by_token(sequence, part, config) for sequence in y.chunk(2)]),
    ):
        found.append([result, *torch.autograd.grad((result * upstream).sum(), list(part.parameters()))])
    for mine, expected in zip(*found):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)


def check_gates_of_channels(module):
    check_layer_with_a_state(module, "kda")


def check_three_layers_of_four(module):
    for mixer in ("hybrid", "kda"):
        with torch.device("meta"):
            model = gpt.GPT(dataclasses.replace(module.GPT_124M, mixer=mixer), module.OURS)
        kinds = [type(block.mixer).__name__ for block in model.blocks]
        assert kinds == ["Recurrence", "Recurrence", "Recurrence", "Attention"] * 3


# ---------------------------------------------------------------- latents


def test_losses_and_gradients_with_latents():
    names = assert_right(dataclasses.replace(SMALL, mixer="latent"))
    assert {name.rsplit(".", 1)[1] for name in names if "mixer" in name} == {"project", "norm", "up", "out"}


def head_by_head(y, part, c, cos, sin):
    """The layer with latents, written apart from the others: one sequence, one head at a time."""
    head = c.width // c.heads
    q, q_pe, latent, k_pe = (y @ part.project.T).split([c.width, c.width, c.rank, head], 1)
    latent = latent / (latent.square().mean(1, keepdim=True) + gpt.EPS).sqrt() * part.norm
    later = torch.ones(len(y), len(y), dtype=torch.bool).triu(1)

    def turned(x):
        a, b = x[:, : head // 2], x[:, head // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], 1)

    results = []
    for h, matrix in enumerate(part.up.split(2 * head)):
        mine = slice(h * head, (h + 1) * head)
        k, v = latent @ matrix[:head].T, latent @ matrix[head:].T
        s = (q[:, mine] @ k.T + turned(q_pe[:, mine]) @ turned(k_pe).T) / (2 * head) ** 0.5
        results.append(s.masked_fill(later, -torch.inf).softmax(1) @ v)
    return torch.cat(results, 1) @ part.out.T


def check_layer_of_latents(module):
    """Values and all gradients of the layer in float64, and two sequences apart from each other."""
    config = module.Config(**vars(SMALL) | dict(mixer="latent"))
    torch.manual_seed(3)
    part = module.LatentAttention(config).double()
    for weight in (part.project, part.up, part.out):
        weight.data.mul_(20.0)
    part.norm.data.add_(torch.randn_like(part.norm) / 4)
    cos, sin = (x[:9].double() for x in (lambda model: (model.cos, model.sin))(gpt.GPT(config, None)))
    y = torch.randn(18, config.width, dtype=torch.float64)
    upstream, found = torch.randn_like(y), []
    for result in (
        part(y, module.PLAIN, 2, cos, sin),
        torch.cat([head_by_head(sequence, part, config, cos, sin) for sequence in y.chunk(2)]),
    ):
        found.append([result, *torch.autograd.grad((result * upstream).sum(), list(part.parameters()))])
    for mine, expected in zip(*found):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)


# ---------------------------------------------------------------- streams


@pytest.mark.nightly
def test_losses_and_gradients_with_streams():
    names = assert_right(dataclasses.replace(SMALL, streams=3))
    assert {name.rsplit(".", 1)[1] for name in names if "streams" in name} == {"phi", "alpha", "bias"}


def stream_by_stream(x, part, streams, norm):
    """One part of a block with streams, written apart from the others: a token and a stream at a time."""
    rows = []
    for token in x:
        n, flat = len(token), token.flatten()
        mix = streams.phi @ flat / (flat.square().mean() + 1e-6).sqrt()
        factors = torch.cat([streams.alpha[0].expand(n), streams.alpha[1].expand(n), streams.alpha[2].expand(n * n)])
        z = factors * mix + streams.bias
        matrix = z[2 * n :].view(n, n).exp()
        for _ in range(20):
            matrix = matrix / matrix.sum(0, keepdim=True)
            matrix = matrix / matrix.sum(1, keepdim=True)
        read = sum(z[i].sigmoid() * token[i] for i in range(n))
        made = part(read / (read.square().mean() + gpt.EPS).sqrt() * norm)
        rows.append(torch.stack([matrix[i] @ token + 2 * z[n + i].sigmoid() * made for i in range(n)]))
    return torch.stack(rows)


def check_block_with_streams(module):
    """Values and all gradients of a block in float64, whose parts are matrices, which need no other token."""
    config = module.Config(**vars(SMALL) | dict(streams=3, layers=2))
    torch.manual_seed(4)
    block = config.block(0).double()
    for weight in block.streams.parameters():
        weight.data.add_(torch.randn_like(weight) / 4)
    for norm in block.norms:
        norm.data.add_(torch.randn_like(norm) / 4)
    first, second = (torch.randn(config.width, config.width, dtype=torch.float64) / 4 for _ in range(2))
    del block.mixer, block.feed_forward  # functions take the places of modules
    block.mixer, block.feed_forward = lambda y, *_: y @ first.T, lambda y, ops: ((y @ second.T).tanh(), ())
    x = torch.randn(5, 3, config.width, dtype=torch.float64)
    weights, upstream, found = [*block.norms, *block.streams.parameters()], torch.randn_like(x), []
    mine, delta, _ = block(x, torch.zeros(5, config.width), module.PLAIN, 1, None, None, lambda y: y)
    theirs = stream_by_stream(x, lambda y: first @ y, block.streams[0], block.norms[0])
    theirs = stream_by_stream(theirs, lambda y: (second @ y).tanh(), block.streams[1], block.norms[1])
    for result in (mine, theirs):
        found.append([result, *torch.autograd.grad((result * upstream).sum(), weights)])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert not delta.any(), "nothing waits to be added"


def check_streams_begin_as_one(module):
    """Where the tokens don't count yet, four streams are the model with one; the last block makes one of them."""
    config = module.Config(**vars(SMALL) | dict(streams=4, layers=2, p=0.0))
    model = gpt.GPT(config, EXACT, torch.float64).to(device.DEVICE).double()
    one = gpt.GPT(dataclasses.replace(config, streams=1), EXACT, torch.float64).to(device.DEVICE).double()
    one.load_state_dict({name: value for name, value in model.state_dict().items() if "streams" not in name})
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("alpha"):
                value.zero_()
    tokens, labels = next(gpt.batches(config, 2))
    torch.testing.assert_close(model(tokens, labels), one(tokens, labels), rtol=1e-9, atol=0)


# ---------------------------------------------------------------- all


FORMS = {
    "experts": dict(feed_forward="experts"),
    "tensor": dict(linear="tensor"),
    "block": dict(linear="block"),
    "latent": dict(mixer="latent"),
    "hybrid": dict(mixer="hybrid"),
    "kda": dict(mixer="kda"),
    "streams": dict(streams=4),
}


@pytest.mark.parametrize(
    "form", [form if form in ("experts", "tensor") else pytest.param(form, marks=pytest.mark.nightly) for form in FORMS]
)
def test_it_learns(form):
    """A few steps from scratch: the loss falls, and as far as the plain model's."""
    config = dataclasses.replace(SMALL, p=0.0, **FORMS[form])
    ours, plain, _ = models(config)
    mine, theirs = (gpt.train(model, gpt.batches(config, 2), 8, lr=1e-2) for model in (ours, plain))
    assert mine[-1] < mine[0] - 0.5 and mine[-1] == pytest.approx(theirs[-1], abs=0.02)


def test_without_options_it_is_the_gpt():
    ours, plain = gpt.pair(gpt.SMALL), gpt.pair(options.SMALL, plain=options.PLAIN, kernels=options.OURS)
    for a, b in zip(ours, plain):
        mine, theirs = a.state_dict(), b.state_dict()
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert all(getattr(options.OURS, name) is value for name, value in vars(gpt.OURS).items())
    assert all(getattr(options.OURS, name) is not getattr(options.PLAIN, name) for name in vars(options.PLAIN))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(feed_forward="moe"), "feed_forward must be "),
        (dict(linear="bf16"), "linear must be "),
        (dict(mixer="mamba"), "mixer must be "),
        (dict(rank=0), "rank must be "),
        (dict(streams=9), "streams must be "),
        (dict(top_k=9), "top_k must be "),
        (dict(top_k=0), "top_k must be "),
        (dict(top_k=3), "hidden must be a multiple of top_k, 3, got 88"),
    ],
)
def test_an_option_that_there_is_not(changes, message):
    with pytest.raises(ValueError, match=message):
        options.Config(**changes)


@pytest.mark.parametrize("way", parallel.WAYS)
def test_many_cards_refuse_options(way):
    with pytest.raises(ValueError, match="model must be a gpt.Config, without options, got Config"):
        parallel.Options(way=way, model=EXPERTS).check(2)


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_layer_of_experts, "c.balance * ops.balance(logits, experts)", "ops.balance(logits, experts)"),
        (check_layer_of_experts, "c.z * ops.z(logits)", "c.z * ops.z(weights)"),
        (check_terms_are_part_of_the_loss, "(c.balance * ops.balance(logits, experts), c.z * ops.z(logits))", "()"),
        (
            check_logits_of_a_router_are_float32,
            "F.linear(y.to(self.router.dtype), self.router)",
            "F.linear(y, self.router.to(y.dtype)).float()",
        ),
        (check_as_many_weights_as_before_are_active, "config.hidden // config.top_k", "config.hidden"),
        (check_only_attention_with_experts, 'if self.recipe != "unquantized":', "if False:"),
        (
            lambda module: check_whole_model_in_eight_bits(module, "row"),
            "float8_linear(x, weight.to(x.dtype), recipe=recipe)",
            'float8_linear(x, weight.to(x.dtype), recipe="block")',
        ),
        (check_layer_with_a_state, "ops.recur(ops.unit(q), ops.unit(k), v,", "ops.recur(ops.unit(q), k, v,"),
        (check_layer_with_a_state, "F.softplus(a + self.step)", "F.softplus(b + self.step)"),
        (check_layer_with_a_state, "ops.gate_by(gate, o)", "ops.gate_by(o, gate)"),
        (
            check_gates_of_channels,
            "recur(ops.unit(q), ops.unit(k), v, g,",
            "recur(ops.unit(q), ops.unit(k), v, g.flip(-1),",
        ),
        (check_three_layers_of_four, "layer % 4 == 3", "layer % 3 == 2"),
        (check_block_with_streams, "x = ops.expand(x, drop(y), res, post)", "x = ops.expand(x, drop(y), res.mT, post)"),
        (check_block_with_streams, "pre, post, res = ops.coefficients(", "post, pre, res = ops.coefficients("),
        (check_streams_begin_as_one, "-math.log(n - 1)", "math.log(n - 1)"),
        (check_layer_of_latents, "k, v = both.chunk(2, dim=3)", "v, k = both.chunk(2, dim=3)"),
        (check_layer_of_latents, "ops.norm(latents, self.norm)", "(latents * self.norm)"),
        (check_layer_of_latents, "q_pe, k_pe = ops.rotate(q_pe, k_pe, cos, sin)", "pass"),
    ],
    ids=["balance", "z", "no terms", "router in bf16", "wide experts", "no eight bits", "another recipe"]
    + ["long keys", "steps of writing", "gate and result", "another channel's gate", "two of three"]
    + [
        "the mixture turned",
        "read as written",
        "too much is read",
        "values for keys",
        "latents of any size",
        "no positions",
    ],
)
def test_what_would_make_the_comparison_meaningless(check, old, new):
    check(options)
    with pytest.raises(AssertionError):
        check(mutant(old, new))


# ---------------------------------------------------------------- on the card


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_bfloat16_on_the_card_and_in_a_cuda_graph(form):
    """A recorded step learns what one that is launched does, and the loss of ten steps falls as the plain model's."""
    from benchmarks.capstone import losses
    from benchmarks.capstone_options import FormTraining

    sizes = dict(layers=2, heads=4, key_heads=2, width=256, hidden=512, context=128, p=0.0)
    ours = FormTraining(options.Config(**sizes, **FORMS[form]), 4)
    plain = FormTraining(options.Config(**sizes, **FORMS[form]), 4)
    plain.model.operations = options.PLAIN
    ours()
    theirs, mine, replayed = (
        torch.tensor(losses(training, step, 10, 1))
        for training, step in ((plain, plain), (ours, ours), (ours, ours.captured()))
    )
    assert torch.equal(mine, replayed), "no atomics: the same bits"
    assert mine[-1] < mine[0] - 0.5 and (mine - theirs).abs().max() < 0.05
