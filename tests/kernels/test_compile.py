"""Every public function inside a compiled model, and inside a CUDA graph.

`torch.compile(fullgraph=True)` raises where it would have to leave the compiled program, so passing means no graph
break, forward and backward. A CUDA graph is captured once and replayed on other values: passing means that nothing on
the way waits for the GPU, and that nothing is decided from values on the CPU. Without a GPU both are skipped by name:
Dynamo can't trace Triton's interpreter, so there it must leave the graph for each launch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from academy.runtime import device
from academy.book import layout
from academy.judge import public
from academy.judge.public import Call
from tests.kernels.harness import needs_torchs_own_triton

CASES, ALL = public.calls(), public.calls(more=True)
#: Compiled in every run of the tests, without a GPU: a plain launch, and operators forward and backward.
ALWAYS = ("tutorials.vector_add.vector_add()", "fast.grouped_matmul.grouped_matmul()", "moe.moe_mlp.moe_mlp()")
ALWAYS += ("classics.rope.rope(interleaved=True)", "gemlite.gemm_splitK.gemm_splitK(W_nbits=4,group_size=128)")
ALWAYS += ("tutorials.matmul_autotuned.matmul(activation=gelu)",)
ALWAYS += (
    "fp8.scaled_matmul.scaled_matmul(recipe=block)",
    "attention.flash_attention.flash_attention_varlen(causal=True)",
    "recurrences.causal_conv1d.causal_conv1d_step_(activation=silu)",  # it writes to its state
)
EVERY_TIME = {str(case): case for case in reversed(ALL) if str(case) in ALWAYS}.values()


@pytest.fixture
def loaded(request) -> tuple[Callable, dict, bool]:
    """(function, inputs, whether it is differentiable) of a case."""
    return request.param.load(), request.param.inputs(), request.param.differentiable


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
@needs_torchs_own_triton
@pytest.mark.parametrize("loaded", ALL, indirect=True, ids=str)
def test_compiles_without_a_graph_break(loaded):
    function, inputs, differentiable = loaded
    torch.compiler.reset()
    expected = results(function, *leaves(inputs, differentiable))
    compiled = torch.compile(function, fullgraph=True)
    actual = results(compiled, *leaves(inputs, differentiable))
    for mine, theirs in zip(actual, expected):
        torch.testing.assert_close(mine, theirs)


class Asserted(torch.fx.Interpreter):
    """Runs a compiled graph, and asserts that our operators return what they had told the compiler, and do what their
    schema says (PyTorch's check of that adds, which codes of eight bits can't)."""

    def run_node(self, n):
        out = super().run_node(n)
        if str(n.target).startswith("annotated_examples"):
            given, options = self.fetch_args_kwargs_from_env(n)
            if not any(getattr(x, "itemsize", 4) == 1 for x in torch.utils._pytree.tree_leaves(given)):
                torch.library.opcheck(n.target, given, options, test_utils="test_schema")
            for real, fake in zip(*map(torch.utils._pytree.tree_leaves, (out, n.meta["val"])), strict=True):
                told, got = ((x.dtype, x.shape, x.stride()) for x in (fake, real))
                assert got == told or not real.numel(), f"{n.target}: told {told}, got {got}"
        return out


EAGER = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(Asserted(graph).run))


@pytest.mark.skipif(not device.INTERPRET, reason="about Triton's interpreter")
@pytest.mark.parametrize(
    "loaded",
    [pytest.param(case, marks=[] if case in EVERY_TIME else pytest.mark.nightly) for case in ALL],
    indirect=True,
    ids=str,
)
def test_an_interpreted_kernel_breaks_the_graph(loaded, request):
    """Without `fullgraph` a compiled function that launches kernels gives the very same results. Before it runs, the
    compiler has asked each operator, also those of the backward pass, for the shapes and strides of its results."""
    function, inputs, differentiable = loaded
    torch.compiler.reset()
    expected = results(function, *leaves(inputs, differentiable))
    actual = results(torch.compile(function, backend=EAGER), *leaves(inputs, differentiable))
    for mine, theirs in zip(actual, expected):
        if "fast.linear_cross_entropy" in request.node.name:  # compiled, it is the lesson's operators
            torch.testing.assert_close(mine, theirs)
        else:
            assert torch.equal(mine, theirs)


def test_forward_returns_nothing_that_may_be_what_it_keeps():
    """`x.float()` of a float32 tensor is that tensor. If it is kept for backward, too, torch 2.11's compiler loses the
    gradient of what is returned, and says nothing."""
    seen = 0
    for path in (layout.ROOT / layout.KERNELS).rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name != "forward":
                continue
            calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
            kept = {ast.unparse(x) for c in calls if ast.unparse(c.func) == "ctx.save_for_backward" for x in c.args}
            for node in ast.walk(function):
                value = getattr(node, "value", None) if isinstance(node, ast.Return) else None
                for each in value.elts if isinstance(value, ast.Tuple) else [value]:
                    method = each.func if isinstance(each, ast.Call) else None
                    assert not (isinstance(method, ast.Attribute) and ast.unparse(method.value) in kept), (
                        f"{path}: {ast.unparse(node)}"
                    )
            seen += bool(kept)
    assert seen > 15


@pytest.mark.skipif(not device.INTERPRET, reason="about Triton's interpreter")
def test_a_full_graph_of_interpreted_kernels_is_refused():
    from annotated_examples.tutorials.vector_add import vector_add

    torch.compiler.reset()
    with pytest.raises(Exception, match="on a CPU kernels run in Triton's interpreter"):
        torch.compile(vector_add, fullgraph=True, backend="eager")(torch.ones(4), torch.ones(4))


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Codes of eight bits have no arithmetic of their own: they are decoded, and made again."""
    return (x.float() * 2).to(x.dtype) if x.dtype.itemsize == 1 and x.is_floating_point() else x * 2


@pytest.mark.gpu
@needs_torchs_own_triton
@pytest.mark.parametrize("loaded", CASES, indirect=True, ids=str)
def test_compiles_in_a_model(loaded):
    """Between other operations, whose results the compiler would like to fuse with ours."""
    function, inputs, differentiable = loaded
    torch.compiler.reset()

    def model(**values):
        first, *rest = values
        values = {first: doubled(values[first]), **{name: values[name] for name in rest}}
        return function(**values) * 3

    expected = results(model, *leaves(inputs, differentiable))
    actual = results(torch.compile(model, fullgraph=True), *leaves(inputs, differentiable))
    for mine, theirs in zip(actual, expected):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)  # the compiler keeps fp32 between operations


ROW_WISE = ("softmax", "layernorm", "rmsnorm", "cross_entropy_loss", "geglu", "swiglu")
SIZED = [each for each in public.functions() if each.name in ROW_WISE]


def assert_right_at_shapes(each, *shapes):
    torch.compiler.reset()
    plain, compiled = each.function(), torch.compile(each.function(), fullgraph=True)
    for shape in shapes:
        inputs = Call(replace(each, at=shape), {}).inputs()
        expected = results(plain, *leaves(inputs, True))
        for mine, theirs in zip(results(compiled, *leaves(inputs, True)), expected):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.gpu
@needs_torchs_own_triton
def test_more_rows_than_a_grid_holds():
    """The rows of packed tensors are a dimension of the grid, which ends at 65,535."""
    (packed,) = [each for each in public.functions() if each.name == "swiglu_packed"]
    assert_right_at_shapes(packed, (65_537, 24), (70_000, 24), (70_001, 40))


#: At the second size of a dim Dynamo has a symbol for it. The last columns are long enough for softmax's chunks.
OTHER_SHAPES = {
    "rows": [(6, 1000), (9, 1000), (3, 1000)],
    "columns": [(6, 1000), (6, 600), (6, 601), (6, 20000), (6, 50257)],
    "both": [(6, 1000), (9, 600), (4, 601), (7, 20000)],
}


@pytest.mark.gpu
@needs_torchs_own_triton
@pytest.mark.parametrize("shapes", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
@pytest.mark.parametrize("each", SIZED, ids=str)
def test_other_shapes(each, shapes):
    assert_right_at_shapes(each, *shapes)


@pytest.mark.gpu
@pytest.mark.parametrize("loaded", [case for case in CASES if not case.public.uncaptured], indirect=True, ids=str)
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
    kept = ("words", "scales", "zeros", "cu_seqlens")
    other = {name: value if name.startswith(kept) else value.flip(0) for name, value in inputs.items()}
    with torch.no_grad():
        for name, value in static.items():
            value.copy_(other[name])
    graph.replay()
    torch.cuda.synchronize()
    expected = results(function, *leaves(other, differentiable))
    for mine, theirs in zip(captured, expected):
        torch.testing.assert_close(mine, theirs)
