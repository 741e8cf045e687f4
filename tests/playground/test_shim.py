"""The browser's torch, function by function, against PyTorch: values, dtype, shape, strides, and gradients."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from academy.runtime import checks
from academy.playground.bundle import RUNTIME
from tests.playground.shim import shim

# Each is evaluated with both libraries. x: (3, 4) float32, y: (4,), m: (4, 4), i: int64, b: bool, h: bfloat16, c: (3, 4)
# transposed, p: positive.
EXPRESSIONS = """
x + y; x + 1; 1 + x; x - y; 2 - x; x * y; x * 2.5; x / y; 1 / p; i / 2; i // 3; i % 3; -i % 3; 7 % i; x ** 2; p ** 0.5; 2 ** i
x == y; x != y; x < y; x <= 0; x > y; x >= 0; i & 3; i | 4; i ^ 5; i << 2; i >> 1; ~b; -x; abs(x); +i - 1; b & (x > 0); 3 - i
x @ m; m @ m; y @ y; m @ y; t.matmul(x, m); t.mm(x, m); t.bmm(m.expand(2, 4, 4), m.expand(2, 4, 4)); t.addmm(y, x, m); t.outer(y, y)
t.einsum('ij,jk->ik', x, m); h + 1; h * h; h / 3; h.sum(); h @ h.t(); (h + x).dtype is t.float32; i + 1.5; i * x; b * 2; h.half()
x.exp(); t.exp2(x); t.log(p); t.log2(p); t.log1p(p); t.sqrt(p); t.rsqrt(p); p.reciprocal(); t.sin(x); t.cos(x); t.tanh(x)
t.sigmoid(x); t.erf(x); t.relu(x); x.square(); x.floor(); x.ceil(); t.round(x * 3); t.sign(x); x.abs(); i.float().exp(); h.exp()
t.special.erf(x); t.erfc(x); t.special.erfcx(x); t.special.ndtr(x); t.special.ndtri(p / 9); t.erfinv(x / 9); t.lgamma(p)
t.isnan(n); t.isinf(n); t.isfinite(n); t.isposinf(n); t.isneginf(n); t.nonzero(b); b.nonzero()
t.clamp(x, -1, 1); x.clamp(min=0); x.clamp(max=y); t.maximum(x, y); t.minimum(x, y); t.logaddexp(x, y)
t.where(b, x, y); t.where(b, x, 0.0); x.masked_fill(b, -1.0); x.gather(1, i % 4); t.gather(x, 1, i % 4); t.logical_not(b)
t.index_select(x, 1, t.tensor([2, 0])); m.tril(); m.triu(1); t.tril(m, -1); t.triu(m); x.roll(1, 0); t.roll(x, (1, 2), (0, 1))
t.flip(x, [0]); x.flip(0, 1); x.repeat_interleave(2, 1); t.repeat_interleave(x, 2, dim=0); t.cat([x, x], 1); t.cat([i, x]); t.stack([x, x], 1)
x.sum(); x.sum(0); x.sum(1, keepdim=True); i.sum(); b.sum(); t.sum(x, dim=(0, 1)); x.sum(0, dtype=t.float64); t.mean(x, 1); x.mean()
t.var(x, 1); x.var(-1, unbiased=False); x.var(0, correction=0); t.std(x, 1); x.std(-1, unbiased=False); t.prod(p); p.prod(1); t.amax(x, 1); x.amax((0, 1)); t.amin(x, 0, True)
x.sum(axis=1, keepdims=True); t.amax(x, axis=0); t.mean(x, axis=(0, 1)); x.max(axis=1).values; t.cumsum(x, axis=0)
x.argmax(); t.argmax(x, 1); x.argmin(0); t.argmin(x); x.max(); x.min(); t.max(x, 1).values; t.max(x, 1).indices; x.min(0)[0]; t.min(x, 0)[1]
t.sort(x).values; x.sort(0).indices; t.sort(i % 3, stable=True).indices; t.sort(i % 3, dim=1, descending=True, stable=True).indices; t.sort(n, descending=True, stable=True).indices
t.searchsorted(y.sort().values, x[0].contiguous()); t.searchsorted(t.tensor([0, 1, 1, 3]), t.arange(5), out_int32=True); t.searchsorted(t.tensor([0, 1, 1, 3]), t.arange(5), right=True)
t.max(x, y); t.min(x, y); t.all(b); b.any(); b.all(1); t.any(b, 0); t.cumsum(x, 1); i.cumsum(0); t.logsumexp(x, 1); x.logsumexp(0, True)
t.softmax(x, -1); x.softmax(0); t.log_softmax(x, 1); h.softmax(-1); x.norm(); t.norm(p); t.diagonal(m); m.diagonal(1); m.diagonal(-2)
t.allclose(x, x + 1e-9); t.isclose(x, x * (1 + 1e-6)); t.equal(x, x); t.equal(x, y); t.is_tensor(x); t.result_type(i, 1.0) is t.float32
x.sum_to_size(1, 4); x.sum_to_size((3, 1)); t.result_type(h, 1.5) is t.bfloat16; t.promote_types(t.float16, t.bfloat16) is t.float32
t.tensor(3); t.tensor([1.5, 2]); t.tensor([[1, 2], [3, 4]]); t.tensor([True]); t.tensor([]); t.tensor([1.0], dtype=t.bfloat16); t.tensor(x[0, 0].item())
t.as_tensor([1, 2]); t.as_tensor(x); t.from_numpy(a); t.full((2, 3), 7); t.full((2,), 0.5, dtype=t.float16); t.full_like(x, 3); t.zeros(2, 3)
t.zeros((2,), dtype=t.int32); t.ones(3); t.zeros_like(i); t.ones_like(h); t.eye(3); t.eye(2, 3); t.arange(5); t.arange(1, 4.0); t.arange(0, 9, 2, dtype=t.int32)
t.linspace(0, 1, 5); t.empty(2, 3).shape; t.empty_like(c).stride(); t.empty_strided((2, 3), (1, 2)).stride(); t.empty((2, 0)).shape
t.add(x, y, alpha=2); t.sub(x, y, alpha=3); t.mul(x, y); t.div(x, y); t.remainder(i, 3); t.floor_divide(i, 2); t.pow(x, 3); t.neg(x); t.abs(x); t.exp(x)
t.eq(x, y); t.ne(x, y); t.lt(x, y); t.le(x, y); t.gt(x, y); t.ge(x, y); t.bitwise_and(i, 3); t.bitwise_or(i, 3); t.bitwise_xor(i, 3); t.bitwise_not(i)
t.bitwise_left_shift(i, 1); t.bitwise_right_shift(i, 1); t.square(x); t.floor(x); t.ceil(x); t.reciprocal(p); t.masked_fill(x, b, 0.0)
x.view(4, 3); x.view(-1); x.view(2, 6).stride(); x.reshape(12); c.reshape(-1); x.flatten(); t.flatten(x); x.unflatten(1, (2, -1)); c.unflatten(-1, (2, 2)).stride(); t.reshape(x, (2, 6)); x.view_as(x)
x.t(); x.T; x.mT; x.transpose(0, 1); t.transpose(x, 0, 1); x.permute(1, 0); x.unsqueeze(0); t.unsqueeze(x, 2); x[:, :1].squeeze(1); t.squeeze(x[:1], 0)
x.movedim(0, 1); x.movedim(1, 0).stride(); x.movedim(-1, 0); y.movedim(0, -1); x[None].movedim(1, -1); x.repeat(2, 1); y.repeat(2, 3); x.repeat(2, 1, 2); y.repeat(1)
x.unsqueeze(0).stride(); y.unsqueeze(1).stride(); x[None].stride(); x[:, None].stride(); x[..., None].stride(); x[:1].stride(); x[:1].expand(1, 1, 4).stride(); c[None, :, None].stride()
y.expand(3, 4); y.expand(3, -1).stride(); y.expand_as(x); x.chunk(2, 1); t.chunk(x, 2)[1]; x.split(2); t.split(x, [1, 3], 1)[1]; x.unbind()[1]
x.narrow(1, 1, 2); x.select(0, 1); x[1]; x[1, 2]; x[:, 1:3]; x[::2]; x[None]; x[..., 0]; x[b]; x[t.tensor([2, 0])]; x[0, -1]; x[:, None].shape
x.contiguous(); c.contiguous(); c.clone(); t.clone(x); x.expand(2, 3, 4).clone().stride(); c.exp().stride(); (c + 1).stride(); (c * c).stride(); c.is_contiguous()
x.detach(); x.data; x.cpu(); x.to(t.float16); x.to('cpu'); x.to(t.device('cpu'), t.float64); x.to(i); x.float(); x.double(); x.half(); x.bfloat16(); x.int(); x.long()
x.bool(); x.type_as(i); x.resolve_neg(); x.as_strided((2, 2), (1, 2)); h.view(t.int16); i.view(t.int32); x.new_zeros(2); x.new_ones(2, 2); x.new_full((2,), 3.0); x.new_tensor([1, 2])
x.new_empty(2, 3).shape; x.dim(); x.ndim; x.numel(); x.size(); x.size(1); x.stride(); x.stride(0); x[1:, 1:].storage_offset(); x.element_size(); x.itemsize; len(x); x.shape.numel()
x.is_floating_point(); i.is_floating_point(); x.is_neg(); x.is_complex(); x.is_leaf; x.requires_grad; x[0, 0].item(); x.tolist(); bool(b[0, 0]); int(i[0, 1]); float(x[0, 0])
x.shape[:-1]; t.Size([2, 3]).numel(); x.sum().item(); [r.sum().item() for r in x]; f'{x[0, 0]:.3f}'; i[0, 1] * [1]; x.untyped_storage().nbytes()
t.finfo(t.float32).eps; t.finfo(t.bfloat16).max; t.finfo(t.float16).tiny; t.finfo(t.float8_e4m3fn).max; t.iinfo(t.int32).max; t.iinfo(t.uint8).min; t.float32.itemsize; t.bfloat16.is_floating_point
t.nn.functional.relu(x); t.nn.functional.gelu(x); t.nn.functional.gelu(x, approximate='tanh'); t.nn.functional.silu(x); t.nn.functional.leaky_relu(x)
t.nn.functional.softmax(x, -1); t.nn.functional.log_softmax(x, -1); t.nn.functional.layer_norm(x, (4,), y, y); t.nn.functional.rms_norm(x, (4,), y, 1e-6)
t.nn.functional.cross_entropy(x, t.tensor([1, 3, -100])); t.nn.functional.cross_entropy(x, t.tensor([1, 3, 0]), reduction='sum'); t.nn.functional.linear(x, m, y)
t.nn.functional.pad(x, (1, 2)); t.nn.functional.pad(x, (0, 0, 1, 0), value=3.0); t.nn.functional.sigmoid(x); t.nn.functional.tanh(x)
q.clamp(-448, 448).to(t.float8_e4m3fn).float(); q.to(t.float8_e5m2).float(); q.bfloat16().float(); q.half().float(); q.clamp(-448, 448).to(t.float8_e4m3fn).view(t.uint8); n.clamp(-448, 448).to(t.float8_e4m3fn).float(); n.to(t.float8_e5m2).float(); n.bfloat16()
"""
EXPRESSIONS = [each.strip() for line in EXPRESSIONS.strip().splitlines() for each in line.split(";")]
#: Statements that change `w`, a copy of x.
IN_PLACE = [
    "w.copy_(y)",
    "w.fill_(2)",
    "w.zero_()",
    "w[0] = 1",
    "w[:, 1:2] = y[:1]",
    "w[b] = 0",
    "w.addmm_(x, m, beta=0)",
    "w.addmm_(x, m)",
    *"w += y; w -= 2; w *= y; w /= p; w //= 2; w %= 2; w **= 2".split("; "),
    "v = w.T\nv += 1",
    *"w.add_(y, alpha=2); w.sub_(1); w.mul_(x); w.div_(2); w.pow_(2); w.remainder_(2); w.floor_divide_(2)".split("; "),
    *"w.neg_().abs_(); w.sign_(); w.exp_(); w.exp2_(); w.sin_(); w.cos_(); w.tanh_(); w.sigmoid_()".split("; "),
    *"w.relu_(); w.square_(); w.floor_(); w.ceil_(); w.round_(); w.clamp_(-1, 1); w.masked_fill_(b, 0)".split("; "),
    "w = p\nw.log_()",
    "w = p\nw.sqrt_()",
    "w = p\nw.rsqrt_()",
    "w = p\nw.reciprocal_()",
    "w = h\nw += 1",
    "w = i\nw += 1\nw *= b\nw &= 6\nw |= 1\nw ^= 2\nw //= 2",
]
GRADIENTS = """
(x + y).sum(); (x - 2 * y).sum(); (x * y).sum(); (x / p).sum(); (y / x).sum(); (x ** 3).sum(); (p ** 0.5).sum(); x.exp().sum(); p.log().sum()
(x @ m).square().sum(); (m @ y).sum(); (y @ y).sum(); (m.expand(2, 4, 4) @ m).sum(); x.sum(0).square().sum(); x.mean(1).square().sum(); x.amax(1).sum()
(x.tanh() * y).sum(); x.sigmoid().sum(); p.sqrt().sum(); p.rsqrt().sum(); x.sin().sum(); x.cos().sum(); x.erf().sum(); x.relu().sum(); x.abs().sum()
x.clamp(-1, 1).sum(); t.where(b, x, y).sum(); x.masked_fill(b, 0.0).sum(); x.view(4, 3)[1].sum(); (x.t() @ x).sum(); x[:, 1:3].square().sum(); x[b].sum()
(x.reshape(-1) ** 2).sum(); y.expand(3, 4).square().sum(); x.unsqueeze(1).squeeze(1).square().sum(); t.cat([x, x * 2]).square().sum(); t.stack([y, y]).sum()
x.softmax(-1).square().sum(); x.log_softmax(-1)[:, 0].sum(); x.logsumexp(1).sum(); x.var(1).sum(); x.std(1).sum(); x.cumsum(1).square().sum(); x.gather(1, i % 4).sum()
t.nn.functional.layer_norm(x, (4,), y, y).square().sum(); t.nn.functional.gelu(x).sum(); t.nn.functional.silu(x).sum(); x.bfloat16().float().sum()
t.nn.functional.cross_entropy(x, t.tensor([1, 3, -100])); t.maximum(x, y).sum(); t.logaddexp(x, y).sum(); (x.detach() * x).sum(); x.clone().flip(0)[0].sum()
t.addmm(y, x, m).square().sum(); x.chunk(2, 1)[1].sum(); x.split(2)[0].sum(); x.transpose(0, 1).contiguous().square().sum(); (-x).sum(); (1 - x).square().sum()
t.nn.functional.pad(x, (1, 2)).square().sum(); x.repeat_interleave(2, 1).square().sum(); m.tril().sum(); x.roll(1, 0)[0].sum(); x.repeat(2, 3).square()[1:].sum(); (x.movedim(0, 1) @ x).sum(); t.outer(y, y).sum(); x.max(1).values.sum()
"""
GRADIENTS = [each.strip() for line in GRADIENTS.strip().splitlines() for each in line.split(";")]


def names(t) -> dict:
    """The same inputs in either library."""
    x = (t.arange(12, dtype=t.float32) * 0.37 - 1.9).view(3, 4)
    return {
        "t": t, "x": x, "y": t.tensor([0.5, -1.25, 2.0, 0.75]), "p": x.abs() + 0.3, "b": x > 0.2, "h": x.bfloat16(),
        "m": (t.arange(16, dtype=t.float32) % 5 - 1.5).view(4, 4), "i": t.arange(12).view(3, 4) + 1,
        "c": (t.arange(12, dtype=t.float32) * 0.37).view(4, 3).t(), "n": t.tensor([1.0, float("nan"), float("inf"), -float("inf")]),
        "q": t.tensor([0.0, -0.0, 1.06, 1.0625, -17.3, 0.0019, 3e-5, 447.0, 449.0, 500.0, 6e4, 1e-9, 70000.0, 0.4375]),
        "a": np.arange(6.0).reshape(2, 3), "w": x.clone(), "float": float, "int": int, "bool": bool,
    }  # fmt: skip


def plain(value):
    """A result as what can be compared: dtype, shape, strides and numbers, or the value itself."""
    if hasattr(value, "untyped_storage"):
        wide = value.detach().to(_of(value).float64) if str(value.dtype) != "torch.bool" else value.detach()
        strides = value.stride() if value.numel() and 1 not in value.shape else None
        return str(value.dtype), tuple(value.shape), strides, np.array(wide.tolist(), dtype=np.float64)
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value


def _of(value):
    return torch if isinstance(value, torch.Tensor) else shim()


def same(ours, theirs, rtol=2e-6):
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(same(a, b, rtol) for a, b in zip(ours, theirs))
    if isinstance(theirs, tuple):
        atol = 1e-6 if theirs[0] != "torch.bfloat16" else 0
        return ours[:3] == theirs[:3] and np.allclose(ours[3], theirs[3], rtol, atol, equal_nan=True)
    return ours == pytest.approx(theirs, rel=rtol, nan_ok=True) if isinstance(theirs, float) else ours == theirs


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(expression):
    ours, theirs = (plain(eval(expression, {}, names(t))) for t in (shim(), torch))
    assert same(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("statement", IN_PLACE)
def test_in_place(statement):
    results = []
    for t in (shim(), torch):
        inputs = names(t)
        exec(statement, {}, inputs)
        results.append(plain(inputs["w"]))
    assert same(*results)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression):
    results = []
    for t in (shim(), torch):
        inputs = names(t)
        leaves = {name: inputs[name].detach().clone().requires_grad_() for name in ("x", "y", "m", "p")}
        out = eval(expression, {}, inputs | leaves)
        out.backward()
        results.append([None if leaf.grad is None else plain(leaf.grad)[3] for leaf in leaves.values()])
    for ours, theirs in zip(*results):
        assert (ours is None) == (theirs is None)
        assert ours is None or np.allclose(ours, theirs, 1e-5, 1e-6), (ours, theirs)


def test_every_function_is_compared():
    """A function that no expression names is not tested."""
    text = "\n".join([*EXPRESSIONS, *GRADIENTS, *IN_PLACE])
    functions = set(sys_functions()) - {name for name in re.findall(r"\w+", text)}
    assert functions == set()


def sys_functions():
    from types import FunctionType

    t = shim()
    ours = {name for name, value in vars(t).items() if isinstance(value, FunctionType) and not name.startswith("_")}
    return ours - {"manual_seed", "set_num_threads", "is_grad_enabled", "compile"}


class _Tripled:
    """A custom function, made for either library."""

    def __new__(cls, t):
        class Tripled(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, y, factor):
                ctx.save_for_backward(x, y)
                ctx.factor = factor
                return x * factor, y * 2

            @staticmethod
            def backward(ctx, dx, dy):
                x, _ = ctx.saved_tensors
                assert ctx.needs_input_grad == (True, False, False) and not t.is_grad_enabled()
                return dx * ctx.factor + x, dy * 2, None

        return Tripled


def test_a_custom_function():
    results = []
    for t in (shim(), torch):
        x, y = t.arange(3.0).requires_grad_(), t.ones(3)
        a, b = _Tripled(t).apply(x, y, 3.0)
        assert a.requires_grad and a.grad_fn is not None and not a.is_leaf
        (a * a + b).sum().backward()
        results.append(x.grad.tolist())
    assert results[0] == results[1]


def test_a_block_may_go_while_a_place_is_looked_up(monkeypatch):
    """The garbage collector takes one away whenever it likes."""
    memory = sys.modules[f"{shim().__name__}._memory"]
    others, block = [memory.Block(np.zeros(8, np.uint8)) for _ in range(2)], memory.Block(np.zeros(8, np.uint8))
    look_up = memory.bisect_right

    def looked_up(*args):
        found = look_up(*args)
        others.clear()
        return found

    monkeypatch.setattr(memory, "bisect_right", looked_up)
    (found,) = memory.parts(np.array([block.start + 3]), 1)
    assert found[2].tolist() == [3]


def test_what_is_saved_for_backward_can_be_watched():
    for t in (shim(), torch):
        saved = []
        x, y = t.arange(3.0).requires_grad_(), t.ones(3)
        with t.autograd.graph.saved_tensors_hooks(
            lambda each, saved=saved: (saved.append(each.tolist()), each)[1], lambda each: each
        ):
            a, b = _Tripled(t).apply(x, y, 3.0)
        (a + b).sum().backward()
        assert saved[:2] == [[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]] and x.grad.tolist() == [3.0, 4.0, 5.0]


def test_a_gradient_too_few_is_told():
    for t in (shim(), torch):

        class Short(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x * y

            @staticmethod
            def backward(ctx, upstream):
                return upstream

        out = Short.apply(t.ones(2).requires_grad_(), t.ones(2).requires_grad_())
        with pytest.raises(RuntimeError, match="incorrect number of gradients .expected 2, got 1"):
            out.sum().backward()


def test_gradients_add_up_and_modes():
    for t in (shim(), torch):
        x = t.arange(3.0, requires_grad=True)
        (x * 2).sum().backward()
        (x * 3).sum().backward()
        assert x.grad.tolist() == [5, 5, 5]
        with t.no_grad():
            assert not (x * 2).requires_grad and not t.is_grad_enabled()
            with t.enable_grad():
                assert (x * 2).requires_grad
        assert t.no_grad()(lambda x: (x * 2).requires_grad)(x) is False
        assert t.autograd.grad((x * x).sum(), x)[0].tolist() == [0, 2, 4]
        with pytest.raises(RuntimeError):
            t.autograd.grad(x.sum(), t.ones(2, requires_grad=True))
        with pytest.raises(RuntimeError, match="scalar"):
            (x * 2).backward()
        with pytest.raises(RuntimeError, match="in-place"):
            x.zero_()
        with pytest.raises(RuntimeError, match="in-place"):
            x += 1


@pytest.mark.parametrize(
    "expression",
    [
        "x.view(5)",
        "x.T.view(12)",
        "x.item()",
        "bool(x)",
        "x @ i",
        "t.tensor([1]).requires_grad_()",
        "x.no_such_thing",
        "i.add_(0.5)",
        "b.add_(1)",
        "i.div_(2)",
        "y.add_(x)",
    ],
)
def test_what_raises_there_raises_here(expression):
    for t in (shim(), torch):
        with pytest.raises((RuntimeError, AttributeError, ValueError)):
            eval(expression, {}, names(t))


@pytest.mark.parametrize("call", ["t.relu(block)", "t.exp(block)", "t.maximum(x, block)", "t.where(block, x, y)"])
def test_a_block_of_a_kernel_says_what_becomes_of_it(call):
    class Block:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise TypeError(f"torch.{function.__name__} works on the host only")

    for t in (shim(), torch):
        with pytest.raises(TypeError, match=r"^torch\.\w+ works on the host only"):
            eval(call, {}, names(t) | {"block": Block()})


def test_what_is_missing_is_told_from_a_mistake():
    for expression in ("t.diag(y)", "x.diag()"):
        with pytest.raises(AttributeError, match=r"a small part of PyTorch, without \w+.diag"):
            eval(expression, {}, names(shim()))
    assert not hasattr(shim().ones(1), "nonsense") and not hasattr(shim(), "nonsense")


def test_second_derivatives_are_refused():
    x = shim().ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="first derivatives"):
        shim().autograd.grad(x.sum(), x, create_graph=True)


def test_fresh_memory_is_watched_and_addresses_are_apart():
    t = shim()
    tensor, memory = (__import__(f"browser_torch.{name}", fromlist="x") for name in ("_tensor", "_memory"))
    seen = []
    tensor.on_empty.append(seen.append)
    try:
        made = [t.empty(3), t.empty_like(t.ones(2)), t.ones(1).new_empty(2)]
    finally:
        tensor.on_empty.remove(seen.append)
    assert len(seen) == 3
    first, second = made[0].data_ptr(), made[1].data_ptr()
    assert abs(first - second) >= memory.SPAN
    block, lanes, offsets = next(iter(memory.parts(np.array([first, first + 4]), 4)))
    assert block.nbytes == 12 and lanes.tolist() == [0, 1] and offsets.tolist() == [0, 4]
    for wrong, message in ((first + 12, "outside"), (first - 4, "outside"), (first + 2, "multiple"), (5, "outside")):
        with pytest.raises(IndexError, match=message):
            list(memory.parts(np.array([wrong]), 4))
    start = made[0].data_ptr()
    del made, seen
    with pytest.raises(IndexError):
        list(memory.parts(np.array([start]), 4))


def test_the_shim_has_no_random_numbers():
    assert not [
        path for path in RUNTIME.rglob("*.py") if re.search(r"^import random|np\.random", path.read_text(), re.M)
    ]


def test_what_the_checks_of_arguments_read_is_there():
    """Each kernel's launcher calls them."""
    read = {
        each.attr
        for each in ast.walk(ast.parse(Path(checks.__file__).read_text("utf-8")))
        if isinstance(each, ast.Attribute)
    }
    of_tensors = {name for name in read if hasattr(torch.ones(1), name)}
    assert "is_nested" in of_tensors and sorted(name for name in of_tensors if not hasattr(shim().ones(1), name)) == []
