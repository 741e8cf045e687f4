"""Every public function with inputs for it: what tests that walk all of them go through."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.kernels.harness import DEVICE, randn

BF16, FP16 = torch.bfloat16, torch.float16


def labels(rows: int, vocabulary: int) -> torch.Tensor:
    values = torch.randint(0, vocabulary, (rows,), device=DEVICE)
    values[1] = -100
    return values


def quantized(M: int, N: int = 256, K: int = 256) -> dict:
    from annotated_examples.gemlite import gemm

    words, scales, zeros = gemm.quantize(randn(K, N, dtype=FP16), 4, 128)
    return dict(a=randn(M, K, dtype=FP16), words=words, scales=scales, zeros=zeros)


@dataclass(frozen=True)
class Case:
    """A public function: where it is, a function that makes inputs for it, its options.

    `wrap(function)` is called instead, where something has to be around the function.
    """

    module: str
    function: str
    inputs: Callable[[], dict]
    options: dict
    wrap: Callable[[Callable], Callable]

    @property
    def differentiable(self) -> bool:
        return self.module not in FORWARD_ONLY

    def load(self) -> Callable:
        """The function with its options."""
        module = importlib.import_module(f"annotated_examples.{self.module}")
        function = self.wrap(getattr(module, self.function))
        return lambda **inputs: function(**inputs, **self.options)

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.module}.{self.function}({options})"


def as_it_is(function: Callable) -> Callable:
    return function


def case(module: str, function: str, inputs: Callable[[], dict], wrap=as_it_is, **options) -> Case:
    return Case(module, function, inputs, options, wrap)


def matrices(first: str, second: str) -> Callable[[], dict]:
    return lambda: {first: randn(96, 160, dtype=BF16), second: randn(160, 64, dtype=BF16)}


def gate_and_up() -> dict:
    return dict(gate=randn(5, 300, dtype=BF16), up=randn(5, 300, dtype=BF16))


def logits() -> dict:
    return dict(logits=randn(6, 1000, dtype=BF16), labels=labels(6, 1000))


def hidden_states(bias: bool = False) -> Callable[[], dict]:
    def inputs():
        tensors = dict(x=randn(6, 64, dtype=BF16), weight=randn(1000, 64, dtype=BF16) / 8, labels=labels(6, 1000))
        return tensors | (dict(bias=randn(1000, dtype=BF16)) if bias else {})

    return inputs


def of_a_module(apply: Callable) -> Callable:
    return functools.partial(apply, torch.nn.LayerNorm(1000, device=DEVICE, dtype=BF16))


def on_a_copy(loss: Callable) -> Callable:
    """The loss may overwrite its logits, and a leaf must not be overwritten."""
    return lambda logits, labels: loss(logits * 1.0, labels)


def both(lesson: str, fast: str, function: str, inputs, wrap=as_it_is, **options) -> list[Case]:
    """The lesson's function and the fast file's."""
    return [case(module, function, inputs, wrap, **options) for module in (lesson, fast)]


LAYERNORM = ("classics.layernorm", "fast.layernorm")
CROSS_ENTROPY = ("classics.cross_entropy", "fast.cross_entropy")
MATMUL = ("tutorials.matmul_autotuned", "fast.matmul")
LINEAR_CROSS_ENTROPY = ("classics.linear_cross_entropy", "fast.linear_cross_entropy")
LOW_BIT = ("gemlite.gemm_splitK", "fast.low_bit")

CASES = [
    case("tutorials.vector_add", "vector_add", lambda: dict(x=randn(1000, dtype=BF16), y=randn(1000, dtype=BF16))),
    *both("tutorials.softmax", "fast.softmax", "softmax", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    case("tutorials.matmul_blocked", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y"), activation="relu"),
    *both(*MATMUL, "matmul", matrices("a", "b")),
    *both(*MATMUL, "matmul", matrices("a", "b"), activation="leaky_relu"),
    case("classics.matmul", "matmul", matrices("a", "b")),
    case("classics.matmul", "matmul", matrices("a", "b"), activation="gelu"),
    *both(
        *LAYERNORM,
        "layernorm",
        lambda: dict(x=randn(6, 1000, dtype=BF16), weight=randn(1000, dtype=BF16), bias=randn(1000, dtype=BF16)),
    ),
    *both(*LAYERNORM, "layernorm", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    *both(*LAYERNORM, "apply_layernorm", lambda: dict(x=randn(6, 1000, dtype=BF16)), of_a_module),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits, logit_softcapping=30.0, logit_scaling=0.5),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits, n_items=4),
    *both(*CROSS_ENTROPY, "cross_entropy_loss_", logits, on_a_copy),
    *both(*LINEAR_CROSS_ENTROPY, "linear_cross_entropy", hidden_states()),
    *both(
        *LINEAR_CROSS_ENTROPY, "linear_cross_entropy", hidden_states(True), logit_softcapping=30.0, logit_scaling=0.5
    ),
    case("fast.linear_cross_entropy", "linear_cross_entropy_lean", hidden_states(), n_items=4),
    case("classics.geglu", "geglu", gate_and_up),
    case("classics.geglu", "geglu", gate_and_up, approximate="tanh"),
    case("classics.geglu", "geglu_packed", lambda: dict(x=randn(5, 600, dtype=BF16))),
    case("classics.swiglu", "swiglu", gate_and_up),
    case("classics.swiglu", "swiglu_packed", lambda: dict(x=randn(5, 600, dtype=BF16))),
    case("classics.dropout", "dropout", lambda: dict(x=randn(5, 300, dtype=BF16)), p=0.3, seed=7),
    case("gemlite.gemm", "gemm", lambda: quantized(24), W_nbits=4, group_size=128),
    case("gemlite.gemm_splitK", "gemm_splitK", lambda: quantized(4), W_nbits=4, group_size=128),
    *both(*LOW_BIT, "low_bit_matmul", lambda: quantized(1), W_nbits=4, group_size=128),
    *both(*LOW_BIT, "low_bit_matmul", lambda: quantized(64), W_nbits=4, group_size=128),
]
FORWARD_ONLY = {"tutorials.matmul_blocked", "gemlite.gemm", "gemlite.gemm_splitK", "fast.low_bit"}
#: They run before a model is compiled, or show what another function does.
HELPERS = {"classics.dropout.dropout_mask", "gemlite.gemm.pack", "gemlite.gemm.unpack", "gemlite.gemm.quantize"}
