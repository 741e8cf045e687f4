"""Results that are exponentials have all their digits, however small they are: each element against float64.

On a CPU `tl.exp` and `tl.exp2` compute what a card does: `ex2.approx` of a product that was rounded to float32. What is
left of it in a result can't be seen by a norm, and not in the interpreter, whose exponentials are exact.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from triton.runtime import interpreter

from academy.runtime.device import DEVICE, INTERPRET
from academy.book.layout import ROOT
from annotated_examples.classics import cross_entropy, geglu, matmul, swiglu
from annotated_examples.distributed.vocab_parallel_cross_entropy import vocab_parallel_cross_entropy
from annotated_examples.fast import causal_conv1d as fast_conv
from annotated_examples.fast import cross_entropy as fast_cross_entropy
from annotated_examples.fast import softmax as fast_softmax
from annotated_examples.moe.moe_mlp import moe_mlp, moe_mlp_reference
from annotated_examples.moe.router import route, route_reference
from annotated_examples.recurrences import causal_conv1d as conv
from annotated_examples.tutorials import softmax

EPS = 2.0**-23
LOG2E = np.float32(1.4426950408889634)


@pytest.fixture
def as_on_a_card(monkeypatch):
    """The exponentials of a card, in the interpreter."""
    if not INTERPRET:
        return

    def power(t: np.ndarray, flushed: bool) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            result = np.exp2(t.astype(np.float64)).astype(np.float32)
        return np.where(np.abs(result) < np.float32(2.0**-126), np.float32(0), result) if flushed else result

    def exp(self, arg):
        with np.errstate(over="ignore", invalid="ignore"):
            return interpreter.TensorHandle(power(arg.data * LOG2E, False), arg.dtype.scalar)

    def exp2(self, arg):
        return interpreter.TensorHandle(power(arg.data, True), arg.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_exp", exp)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_exp2", exp2)


def far(least: float = -80.0, most: float = 4.0, count: int = 211) -> torch.Tensor:
    """Numbers that no power of two divides; 0 is the largest that softmax subtracts."""
    return torch.linspace(least, most, count, device=DEVICE) * 0.98761


def row() -> torch.Tensor:
    return torch.cat([torch.zeros(1, device=DEVICE), far(most=-0.01)]).view(1, -1)


def alone(function):
    """`(result, its gradients)` for float tensors."""

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out.sum(), leaves)]

    return call


def gradient(loss):
    """Of the logits alone."""

    def call(x: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.detach().clone().requires_grad_()
        return [*torch.autograd.grad(loss(leaf, torch.zeros(1, dtype=torch.int64, device=x.device)), leaf)]

    return call


def of_one_tap(convolve):
    def call(z):
        weight = torch.tensor([[0.0, 1.0]], device=z.device, dtype=z.dtype)
        return convolve(z.view(1, -1, 1), weight, activation="silu").view(-1)

    return call


def silu_of_one_expert(mlp):
    """One expert whose gate is the token, and whose other factors are 1."""

    def call(gate):
        one = torch.ones(len(gate), 1, device=gate.device, dtype=gate.dtype)
        gate_up = torch.eye(2, device=gate.device, dtype=gate.dtype)[None]
        return mlp(torch.cat([gate[:, None], one], 1), 0 * one.int(), one, gate_up, gate_up[:, :, :1])[:, 0]

    return call


def routed(k: int, columns: int, **options):
    """Of both, ours and PyTorch's: the weights of `k` experts."""
    return [lambda z, of=of: of(z.view(-1, columns), k, **options)[0] for of in (route, route_reference)]


def pair() -> torch.Tensor:
    z = far(most=-20.0, count=50)
    return torch.stack([z, z - 1.7], 1).flatten()


silu = lambda z: z * torch.sigmoid(z)  # noqa: E731
CASES = {
    "softmax": (softmax.softmax, functools.partial(torch.softmax, dim=-1), row),
    "softmax, fast": (fast_softmax.softmax, functools.partial(torch.softmax, dim=-1), row),
    "softmax, fast, long": (
        fast_softmax.softmax, functools.partial(torch.softmax, dim=-1), lambda: row().repeat(1, 200),
    ),
    "swiglu": (alone(lambda z: swiglu.swiglu(z, torch.ones_like(z))), alone(silu), far),
    "geglu, tanh": (
        alone(lambda z: geglu.geglu(z, torch.ones_like(z), approximate="tanh")),
        alone(functools.partial(F.gelu, approximate="tanh")),
        lambda: far(-9.0, 2.0),
    ),
    "matmul, silu": (
        lambda z: matmul.matmul(z[:, None], torch.ones(1, 1, device=DEVICE), activation="silu")[:, 0], silu, far,
    ),
    "causal_conv1d": (of_one_tap(conv.causal_conv1d), silu, far),
    "causal_conv1d, fast": (of_one_tap(fast_conv.causal_conv1d), silu, far),
    "moe_mlp": (silu_of_one_expert(moe_mlp), silu_of_one_expert(moe_mlp_reference), far),
    "route, sigmoid": (*map(alone, routed(1, 2, score="sigmoid", renormalize=False)), pair),
    "route, shares of sigmoids": (*routed(2, 2, score="sigmoid"), lambda: pair()[30:]),
    "route, softmax": (*routed(200, 212, renormalize=False), row),
    **{
        name: (gradient(loss), gradient(F.cross_entropy), row)
        for name, loss in {
            "cross entropy": cross_entropy.cross_entropy_loss,
            "cross entropy, fast": fast_cross_entropy.cross_entropy_loss,
            "cross entropy, vocab parallel": vocab_parallel_cross_entropy,
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_element(as_on_a_card, name):
    function, pytorch, inputs = CASES[name]
    x = inputs()
    mine, theirs, exact = function(x), pytorch(x), pytorch(x.double())
    for ours, other, right in zip(*(value if isinstance(value, list) else [value] for value in (mine, theirs, exact))):
        seen = right.abs() > 1e-36  # smaller ones are no normal numbers, or close to that
        errors = [((value.double() - right).abs() / right.abs())[seen].max().item() for value in (ours, other)]
        assert seen.float().mean() >= 0.5 and errors[0] <= max(2 * errors[1], 8 * EPS), errors


def test_the_rule_can_fail(as_on_a_card):
    """With the card's exponential a millionth of e⁻⁸⁰ is lost: what this file is about."""
    if INTERPRET:
        handle = interpreter.TensorHandle(np.float32([-79.3]), softmax.tl.float32)
        found = interpreter.InterpreterBuilder().create_exp(handle).data.astype(np.float64)
        assert abs(found / np.exp(np.float64(np.float32(-79.3))) - 1) > 10 * EPS


#: Files that call the card's exponential itself, and what hides its error.
HIDDEN = {
    "a weight in a sum, divided by the sum of all weights": """attention/causal_attention attention/flash_attention
        attention/decode attention/mla attention/mla_decode attention/sparse_mla attention/sparse_decode
        attention/quantized_decode common/attention common/paged fast/flash_attention fast/flash_attention_backward
        fast/decode fast/quantized_decode gluon/flash_attention gluon/flash_attention_backward gluon/sparse_mla
        classics/linear_cross_entropy sampling/sample fast/sample common/choosing ladders/flash_attention""",
    "a term of a row's sum, in which the largest is 1": """tutorials/softmax fast/softmax classics/cross_entropy
        fast/cross_entropy fast/token_logprobs moe/router model/sinkhorn common/logits
        distributed/vocab_parallel_cross_entropy""",
    "a result of 16 bits": "fast/causal_conv1d common/exponential common/halves",
    "an argument that is a whole number, or a sum beside 16 bits": "common/chunks fast/kda",
    "an argument that is a rounded square, in PyTorch too": "classics/geglu",
    "a step on the way, kept as it was measured": "ladders/softmax ladders/cross_entropy",
}


def test_who_uses_the_cards_exponential():
    """Everybody else has one with all its digits: `common/exponential.py`."""
    allowed = {name for names in HIDDEN.values() for name in names.split()}
    found = set()
    for path in sorted((ROOT / "annotated_examples").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in ("tl", "gl") and node.attr in ("exp", "exp2", "sigmoid", "softmax"):
                    assert node.attr not in ("sigmoid", "softmax"), f"{path}: {node.attr}"
                    short = Path(path).relative_to(ROOT / "annotated_examples").with_suffix("").as_posix()
                    found.add(short.rpartition("/")[0] if short.startswith("ladders") else short)
    assert found == allowed, (found - allowed, allowed - found)
