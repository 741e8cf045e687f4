"""Functions that write to their arguments: right where the reference does the same, and nothing else is touched."""

import pytest
import torch

from academy.judge import writes
from academy.judge.session import File, Session

SOURCE = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, stride_x, step_x, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + offs * step_x
    x = tl.load(x_ptrs, mask=offs < n) + tl.load(y_ptr + row * n + offs, mask=offs < n)
    tl.store(x_ptrs, x, mask=MASK)

def add(x, y):
    if x.ndim != 2 or x.shape != y.shape:
        raise ValueError("two matrices")
    if x.requires_grad or y.requires_grad:
        raise ValueError("forward only")
    BEFORE
    if x.numel():
        kernel[(len(x),)](x, y.contiguous(), x.shape[1], STRIDES, BLOCK=triton.next_power_of_2(x.shape[1]))
    return GIVES

def add_reference(x, y):
    REFERENCE
"""
USUAL = {
    "MASK": "offs < n",
    "BEFORE": "pass",
    "STRIDES": "*x.stride()",
    "GIVES": "x",
    "REFERENCE": "x += y; return x",
}
PURE = {"REFERENCE": "return x + y"}
BESIDE = "\n\ndef add_(x, y):\n    kernel[(len(x),)](x, y.contiguous(), x.shape[1], {}, BLOCK=2048)\n"
#: Changes -> what the judge says; "" where it is right.
CASES = {
    "as the reference": ({}, ""),
    "nothing is returned": ({"GIVES": "None", "REFERENCE": "x += y"}, ""),
    "returned by one of them": ({"GIVES": "None"}, ""),
    "something else is returned": ({"GIVES": "x.sum()", "REFERENCE": "x += y; return x.sum()"}, ""),
    "wrong row stride": ({"STRIDES": "x.shape[1], 1"}, "between or around the elements"),
    "wrong step": ({"STRIDES": "x.stride(0), 1"}, "x afterwards["),
    "one column too many": ({"MASK": "offs <= n"}, "between or around the elements"),
    "one column too few": ({"MASK": "offs < n - 1"}, "x afterwards["),
    "into a copy": ({"BEFORE": "x = x.contiguous()"}, "the call leaves it as it was: x["),
    "into the other": ({"BEFORE": "x, y = y, x"}, "the call leaves it as it was: x["),
    "not meant": ({**PURE, "GIVES": "x.clone()"}, "the call writes to its argument: x[0, 0] is"),
    "handed back": (PURE, ""),
    "handed back where it is contiguous": (
        {**PURE, "BEFORE": "x = x.contiguous()"}, "the call writes to its argument: x[0, 0] is",
    ),
    "part of it": (
        {"BEFORE": "x = x[1:3]; y = y[1:3]", "REFERENCE": "x[1:3] += y[1:3]; return x[1:3]"}, "",
    ),
    "another part of it": (
        {"BEFORE": "x = x[2:4]; y = y[2:4]", "REFERENCE": "x[1:3] += y[1:3]; return x[1:3]"}, "writes to its argument",
    ),
}  # fmt: skip


def judged(tmp_path, changes, groups, more="", right=True):
    """In this process, unless it may write to memory that is somebody else's."""
    source = SOURCE
    for name, text in {**USUAL, **changes}.items():
        source = source.replace(name, text)
    path = tmp_path / "kernel.py"
    path.write_text(source + more + '\n\nSIZES = {"rows": (5,), "cols": (37,)}\n')
    report = Session(File(path, here=right), groups, 0).run()
    assert not report.broken, report.broken
    return report


@pytest.mark.parametrize("changes, message", CASES.values(), ids=CASES)
def test_what_is_written(changes, message, tmp_path):
    groups = ["layouts"] if message else ["layouts", "repeats", "values", "non-finite", "calls"]
    report = judged(tmp_path, changes, groups, right=not message)
    assert message in str(report) if message else report.right, str(report)


def test_programs_in_other_orders_start_from_the_same_values(tmp_path):
    assert judged(tmp_path, {}, ["programs", "lanes", "derivatives", "offsets", "ranks", "arguments"]).right


@pytest.mark.parametrize("strides, right", [("*x.stride()", True), ("x.shape[1], 1", False)])
def test_the_same_in_place_stands_beside_it(strides, right, tmp_path):
    """`add_`, which has no reference of its own."""
    changes = {**PURE, "BEFORE": "x = x.clone(memory_format=torch.contiguous_format)"}
    report = judged(tmp_path, changes, ["layouts"], BESIDE.format(strides), right)
    assert [one.name for one in report.judged] == ["add", "add_"] and not report.judged[0].wrong
    assert report.right is right, str(report)
    assert right or "add_: layouts: strided inputs" in str(report)


BACKWARD = """
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)

def double(x):
    return Double.apply(x)

def double_reference(x):
    return x * 2
"""


def test_a_backward_pass_that_writes_to_what_it_gets(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(BACKWARD)
    assert "writes to the gradient that it gets from above" in str(Session(File(path, here=True), ["repeats"], 0).run())
    path.write_text(BACKWARD.replace("g.mul_(2)", "g * 2"))
    assert Session(File(path, here=True), ["repeats"], 0).run().right


def test_a_copy_is_no_change_of_what_autograd_has_saved():
    value = torch.randn(3, requires_grad=True)
    out = value * value
    assert writes.copies({"x": value})["x"].data_ptr() != value.data_ptr()
    out.sum().backward()
    assert torch.equal(value.grad, 2 * value.detach())
