"""Every public function inside a compiled model, and inside a CUDA graph.

`torch.compile(fullgraph=True)` raises where it would have to leave the compiled program, so passing means no graph
break, forward and backward. A CUDA graph is captured once and replayed on other values: passing means that nothing on
the way waits for the GPU, and that nothing is decided from values on the CPU. Without a GPU both are skipped by name:
Dynamo can't trace Triton's interpreter.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from academy.site.autodoc import public_functions
from tests.kernels.harness import DEVICE, ROOT, randn

BF16, FP16 = torch.bfloat16, torch.float16


def labels(rows: int, vocabulary: int) -> torch.Tensor:
    values = torch.randint(0, vocabulary, (rows,), device=DEVICE)
    values[1] = -100
    return values


def quantized(module, M: int, N: int = 256, K: int = 256) -> dict:
    words, scales, zeros = module.quantize(randn(K, N, dtype=FP16), 4, 128)
    return dict(a=randn(M, K, dtype=FP16), words=words, scales=scales, zeros=zeros)


@dataclass(frozen=True)
class Case:
    """A public function: where it is, inputs for it (a function of its module), its options.

    `wrap(function)` is called instead, where something has to be around the function.
    """

    module: str
    function: str
    inputs: Callable[[object], dict]
    options: dict
    wrap: Callable[[Callable], Callable]

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.module}.{self.function}({options})"


def as_it_is(function: Callable) -> Callable:
    return function


def case(module: str, function: str, inputs: Callable[[object], dict], wrap=as_it_is, **options) -> Case:
    return Case(module, function, inputs, options, wrap)


def matrices(first: str, second: str) -> Callable[[object], dict]:
    return lambda _: {first: randn(96, 160, dtype=BF16), second: randn(160, 64, dtype=BF16)}


def gate_and_up(_) -> dict:
    return dict(gate=randn(5, 300, dtype=BF16), up=randn(5, 300, dtype=BF16))


def logits(_) -> dict:
    return dict(logits=randn(6, 1000, dtype=BF16), labels=labels(6, 1000))


def of_a_module(apply: Callable) -> Callable:
    return functools.partial(apply, torch.nn.LayerNorm(1000, device=DEVICE, dtype=BF16))


def on_a_copy(loss: Callable) -> Callable:
    """The loss may overwrite its logits, and a leaf must not be overwritten."""
    return lambda logits, labels: loss(logits * 1.0, labels)


CASES = [
    case("tutorials.vector_add", "vector_add", lambda _: dict(x=randn(1000, dtype=BF16), y=randn(1000, dtype=BF16))),
    case("tutorials.softmax", "softmax", lambda _: dict(x=randn(6, 1000, dtype=BF16))),
    case("tutorials.matmul_blocked", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y"), activation="relu"),
    case("tutorials.matmul_autotuned", "matmul", matrices("a", "b")),
    case("tutorials.matmul_autotuned", "matmul", matrices("a", "b"), activation="leaky_relu"),
    case("classics.matmul", "matmul", matrices("a", "b")),
    case("classics.matmul", "matmul", matrices("a", "b"), activation="gelu"),
    case(
        "classics.layernorm",
        "layernorm",
        lambda _: dict(x=randn(6, 1000, dtype=BF16), weight=randn(1000, dtype=BF16), bias=randn(1000, dtype=BF16)),
    ),
    case("classics.layernorm", "layernorm", lambda _: dict(x=randn(6, 1000, dtype=BF16))),
    case("classics.layernorm", "apply_layernorm", lambda _: dict(x=randn(6, 1000, dtype=BF16)), of_a_module),
    case("classics.cross_entropy", "cross_entropy_loss", logits),
    case("classics.cross_entropy", "cross_entropy_loss", logits, logit_softcapping=30.0, logit_scaling=0.5),
    case("classics.cross_entropy", "cross_entropy_loss", logits, n_items=4),
    case("classics.cross_entropy", "cross_entropy_loss_", logits, on_a_copy),
    case("classics.geglu", "geglu", gate_and_up),
    case("classics.geglu", "geglu", gate_and_up, approximate="tanh"),
    case("classics.geglu", "geglu_packed", lambda _: dict(x=randn(5, 600, dtype=BF16))),
    case("classics.swiglu", "swiglu", gate_and_up),
    case("classics.swiglu", "swiglu_packed", lambda _: dict(x=randn(5, 600, dtype=BF16))),
    case("gemlite.gemm", "gemm", lambda module: quantized(module, 24), W_nbits=4, group_size=128),
    case("gemlite.gemm_splitK", "gemm_splitK", lambda module: quantized(module, 4), W_nbits=4, group_size=128),
    case("gemlite.gemm_splitK", "low_bit_matmul", lambda module: quantized(module, 1), W_nbits=4, group_size=128),
    case("gemlite.gemm_splitK", "low_bit_matmul", lambda module: quantized(module, 64), W_nbits=4, group_size=128),
]
FORWARD_ONLY = {"tutorials.matmul_blocked", "gemlite.gemm", "gemlite.gemm_splitK"}


@pytest.fixture
def loaded(request) -> tuple[Callable, dict, bool]:
    """(function, inputs, whether it is differentiable) of a case."""
    wanted = request.param
    module = importlib.import_module(f"annotated_examples.{wanted.module}")
    maker = importlib.import_module("annotated_examples.gemlite.gemm") if "gemlite" in wanted.module else module
    function = wanted.wrap(getattr(module, wanted.function))
    return (
        lambda **inputs: function(**inputs, **wanted.options),
        wanted.inputs(maker),
        wanted.module not in FORWARD_ONLY,
    )


def leaves(inputs: dict, differentiable: bool) -> tuple[dict, list[torch.Tensor]]:
    """Clones, and those of them that get a gradient."""
    cloned = {name: value.clone() for name, value in inputs.items()}
    wanted = [v.requires_grad_() for v in cloned.values() if v.is_floating_point()] if differentiable else []
    return cloned, wanted


def results(function: Callable, inputs: dict, wanted: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output and its gradients, the upstream gradient being fixed values that are not all the same."""
    out = function(**inputs)
    if not wanted:
        return [out]
    upstream = (
        torch.linspace(0.5, 1.5, out.numel(), device=out.device, dtype=torch.float32).to(out.dtype).view(out.shape)
    )
    return [out.detach(), *torch.autograd.grad(out, wanted, upstream)]


@pytest.mark.gpu
@pytest.mark.parametrize("loaded", CASES, indirect=True, ids=str)
def test_compiles_without_a_graph_break(loaded):
    function, inputs, differentiable = loaded
    torch.compiler.reset()
    expected = results(function, *leaves(inputs, differentiable))
    compiled = torch.compile(function, fullgraph=True)
    actual = results(compiled, *leaves(inputs, differentiable))
    for mine, theirs in zip(actual, expected):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("loaded", CASES, indirect=True, ids=str)
def test_compiles_in_a_model(loaded):
    """Between other operations, whose results the compiler would like to fuse with ours."""
    function, inputs, differentiable = loaded
    torch.compiler.reset()

    def model(**values):
        first, *rest = values
        values = {first: values[first] * 2, **{name: values[name] for name in rest}}
        return function(**values) * 3

    expected = results(model, *leaves(inputs, differentiable))
    actual = results(torch.compile(model, fullgraph=True), *leaves(inputs, differentiable))
    for mine, theirs in zip(actual, expected):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)  # the compiler keeps fp32 between operations


def sized(module: str, function: str, M: int, N: int) -> tuple[Callable, dict]:
    """(function, inputs of M rows and N columns)."""
    x = randn(M, N, dtype=BF16)
    second = {
        "softmax": {},
        "layernorm": dict(weight=randn(N, dtype=BF16), bias=randn(N, dtype=BF16)),
        "cross_entropy_loss": dict(labels=labels(M, N)),
        "geglu": dict(up=randn(M, N, dtype=BF16)),
        "swiglu": dict(up=randn(M, N, dtype=BF16)),
    }[function]
    first = {"cross_entropy_loss": "logits", "geglu": "gate", "swiglu": "gate"}.get(function, "x")
    return getattr(importlib.import_module(f"annotated_examples.{module}"), function), {first: x, **second}


SIZED = [
    ("tutorials.softmax", "softmax"),
    ("classics.layernorm", "layernorm"),
    ("classics.cross_entropy", "cross_entropy_loss"),
    ("classics.geglu", "geglu"),
    ("classics.swiglu", "swiglu"),
]


def assert_right_at_shapes(module, function, *shapes):
    torch.compiler.reset()
    compiled = None
    for shape in shapes:
        plain, inputs = sized(module, function, *shape)
        compiled = compiled or torch.compile(plain, fullgraph=True)
        expected = results(plain, *leaves(inputs, True))
        for mine, theirs in zip(results(compiled, *leaves(inputs, True)), expected):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize(("module", "function"), SIZED)
def test_other_rows(module, function):
    """At the second shape Dynamo compiles for any number of rows."""
    assert_right_at_shapes(module, function, (6, 1000), (9, 1000), (3, 1000))


@pytest.mark.gpu
@pytest.mark.parametrize(("module", "function"), SIZED)
def test_other_columns(module, function):
    """From the second width on Dynamo has a symbol for it. The last ones are long enough for softmax's chunks."""
    assert_right_at_shapes(module, function, (6, 1000), (6, 600), (6, 601), (6, 20000), (6, 50257))


@pytest.mark.gpu
@pytest.mark.parametrize(("module", "function"), SIZED)
def test_other_rows_and_columns(module, function):
    """Two symbols."""
    assert_right_at_shapes(module, function, (6, 1000), (9, 600), (4, 601), (7, 20000))


@pytest.mark.gpu
@pytest.mark.parametrize("loaded", CASES, indirect=True, ids=str)
def test_cuda_graph_replays(loaded):
    """Capture forward and backward, then put other values where the inputs are and replay."""
    function, inputs, differentiable = loaded
    static, wanted = leaves(inputs, differentiable)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            results(function, static, wanted)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results(function, static, wanted)
    other = {
        name: value.flip(0) if name not in ("words", "scales", "zeros") else value for name, value in inputs.items()
    }
    with torch.no_grad():
        for name, value in static.items():
            value.copy_(other[name])
    graph.replay()
    torch.cuda.synchronize()
    expected = results(function, *leaves(other, differentiable))
    for mine, theirs in zip(captured, expected):
        torch.testing.assert_close(mine, theirs)


#: They run before a model is compiled, and launch nothing.
HELPERS = {"gemlite.gemm.pack", "gemlite.gemm.unpack", "gemlite.gemm.quantize"}


def test_every_public_function_is_here():
    """What the API reference lists of a kernel file with a `BENCH` belongs into CASES."""
    public = set()
    for path in Path(ROOT / "annotated_examples").rglob("*.py"):
        if "\nBENCH = " in path.read_text("utf-8"):
            module = ".".join(path.relative_to(ROOT / "annotated_examples").with_suffix("").parts)
            public |= {f"{module}.{name}" for name in public_functions(str(path))}
    assert public - {f"{c.module}.{c.function}" for c in CASES} == HELPERS, "add the others to CASES"
