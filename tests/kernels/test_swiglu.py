"""classics/swiglu, and common/gated, on which geglu stands as well: values, gradients, hostile inputs, errors, mutants.
Most tests come from `GatedUnitTests`.
"""

import functools

import torch

from academy import compiler
from annotated_examples.classics import swiglu as lesson
from annotated_examples.common import gated
from tests.kernels import harness
from tests.kernels.gated_units import GatedUnitTests
from tests.kernels.harness import Mutant, randn

SHARED_MUTANTS = [
    Mutant("row strides taken for multiples of eight", "any([size % 8 for size in sizes])", "N % 8"),
    Mutant("no overflow in float16", "value = value.to(tl.float16).to(tl.float32)", "pass"),
]  # fmt: skip
PARTS_MUTANTS = [
    Mutant("too few programs for the rows", "cdiv(M, most_rows))", "max(M // most_rows, 1))"),
    Mutant("the rest of a long row starts too early", "t.view(-1)[N:]", "t.view(-1)[N - 1 :]"),
    Mutant("a long row without its rest", "[t.view(-1)[N:] for t in", "[t.view(-1)[:rest] for t in"),
]


def check(module):
    """Rows as far apart as no vector is long, in one tensor; and what overflows in float16."""
    right = functools.partial(harness.assert_right, module.swiglu, lesson.swiglu_reference)
    right(dict(gate=harness.sliced(randn(3, 24)), up=randn(3, 24)), randn(3, 24))
    right(dict(gate=randn(3, 48)[:, :24], up=randn(3, 24)), randn(3, 24))
    gate, up, upstream = (randn(5, 9, scale=1e4).half() for _ in range(3))
    right(dict(gate=gate, up=up), upstream)


def test_check_passes():
    check(lesson)


test_mutant_of_the_shared_file_is_caught = harness.mutant_test(gated, SHARED_MUTANTS, check, within=lesson)


class TestSwiGLU(GatedUnitTests):
    lesson, name = lesson, "swiglu"


def check_parts(shared):
    """A dimension of the grid ends at 65,535, here at 3; and long rows are those of more than 32 elements."""
    for rows, columns in ((1, 10), (3, 10), (4, 10), (7, 10), (1, 64), (1, 70)):
        gate, up = randn(rows, 2 * columns).chunk(2, dim=-1)
        out = torch.full((rows, columns), float("nan"), device=harness.DEVICE)
        shared.launch_rows(
            lesson.swiglu_forward_kernel, *gate.shape, [gate, up, out], None, {}, most_rows=3, long_row=32
        )
        assert torch.equal(out, lesson.swiglu(gate, up))


def test_launched_in_parts():
    check_parts(gated)


test_mutant_of_the_parts_is_caught = harness.mutant_test(gated, PARTS_MUTANTS, check_parts)


def test_wide_loads():
    """16 bytes at a time wherever the layout allows it, seen in the code for a GPU; 2 bytes where it doesn't."""
    pair = """
import torch
from annotated_examples.classics import swiglu
gate = torch.empty({rows}, {columns} + {more}, dtype=torch.bfloat16, device="cuda")[:, :{columns}]
up = torch.empty({rows}, {columns}, dtype=torch.bfloat16, device="cuda")
swiglu.swiglu_forward(gate, up)
swiglu.swiglu_backward(up, gate, up)
"""
    packed = """
import torch
from annotated_examples.classics import swiglu
x = torch.empty({rows}, 2 * {columns}, dtype=torch.bfloat16, device="cuda")
swiglu.swiglu_forward(*x.chunk(2, dim=-1))
swiglu.swiglu_packed_backward(x[:, :{columns}].contiguous(), x)
"""
    load, store = "global load, 16 bytes", "global store, 16 bytes"
    for code, rows, columns, more in (
        (pair, 1001, 4097, 0), (packed, 64, 1000, 0), (pair, 64, 1000, 8)
    ):  # fmt: skip
        kernels = compiler.compile_code(code.format(rows=rows, columns=columns, more=more)).kernels
        found = {kernel.name: moved(kernel) for kernel in kernels}  # of a launch in parts, the last
        assert found["swiglu_forward_kernel"] == {load: 2, store: 1}, (rows, columns)
        assert found["swiglu_backward_kernel"] == {load: 3, store: 2}, (rows, columns)
    kernels = compiler.compile_code(packed.format(rows=64, columns=1001)).kernels
    assert len(kernels) > 1 and not any({load, store} & set(moved(kernel)) for kernel in kernels)


def moved(kernel):
    """How often a compiled kernel loads and stores so many bytes."""
    return {kind: count for kind, count in kernel.ptx.items() if kind.startswith("global ")}
