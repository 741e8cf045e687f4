"""Sizes that fit into no memory: offsets that need 64 bits, and grids of more programs than an axis takes."""

import pytest

from academy.runtime import device
from academy.judge.session import File, Session

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="tensors without memory go through the interpreter")

KERNEL = """
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "index": "picks: int32 below rows"}


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, total, COLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = pid.to(tl.int64)
    picked = tl.load(index_ptr + pid).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + picked * n + offs, mask=mask, other=0.0)
    tl.store(out_ptr + row * n + offs, x, mask=mask)


def gather(x, index):
    if x.requires_grad:
        raise ValueError("forward only")
    x, index = x.contiguous(), index.contiguous()
    out = torch.empty(len(index), x.shape[1], dtype=x.dtype, device=x.device)
    n = x.shape[1]
    gather_kernel[(len(index), 1)](x, index, out, n, out.numel(), COLS=n, BLOCK=triton.next_power_of_2(max(n, 1)))
    return out


def gather_reference(x, index):
    return x[index.long()]
"""
FLAT = """    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + picked * n + offs, mask=mask, other=0.0)
    tl.store(out_ptr + row * n + offs, x, mask=mask)
"""
LOOP = """    for at in range(0, n, BLOCK):
        offs = {} + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + picked * n + offs, mask=offs < n, other=0.0)
        tl.store(out_ptr + row * n + offs, x, mask=offs < n)
"""


def judged(tmp_path, *edits, right=True):
    """In this process, unless it may read or write memory that is somebody else's."""
    source = KERNEL
    for before, after in edits:
        assert before in source
        source = source.replace(before, after)
    path = tmp_path / "kernel.py"
    path.write_text(source)
    report = Session(File(path, here=right), ["offsets"], 0).run()
    assert not report.broken, report.broken
    told = [each for each in report.judged[0].outcomes if each.trial.how == "unbacked" and each.state != "right"]
    return told, source.split("\n")


@pytest.mark.parametrize("edits", [
    [],
    [(FLAT, LOOP.format("at"))],
    [("picked * n + offs", "(picked * n + offs).to(tl.int64)")],
    [("total, COLS", "total: tl.int64, COLS")],
], ids=["in rows", "in a loop", "cast as well", "a size of 64 bits"])  # fmt: skip
def test_offsets_of_64_bits_are_right(tmp_path, edits):
    assert not judged(tmp_path, *edits)[0]


@pytest.mark.parametrize(("edits", "code"), [
    ([("row * n", "pid * n")], "pid * n"),
    ([("row * n", "n * pid")], "n * pid"),
    ([("row * n", "pid * COLS")], "pid * COLS"),
    ([("index_ptr + pid).to(tl.int64)", "index_ptr + pid)")], "picked * n"),
    ([("(len(index), 1)", "(1, len(index))"), ("program_id(0)", "program_id(1)")], None),
], ids=["a product", "the factors the other way", "a size as a constant", "an index", "the grid"])  # fmt: skip
def test_what_overflows_is_named(tmp_path, edits, code):
    told, lines = judged(tmp_path, *edits, right=False)
    assert all(each.state == "wrong" for each in told) and told
    if code is None:
        assert "70,001 programs on axis 1 of the grid, and a GPU takes at most 65,535" in told[0].message
        assert "gather_kernel[(1" in lines[told[0].line - 1]
    else:
        assert f"the int32 product `{code}` overflows" in told[0].message
        assert code in lines[told[0].line - 1]


def test_a_tile_of_a_flat_tensor_is_a_remark(tmp_path):
    """No size or stride is a factor of its offsets: below 2³¹ elements there is nothing to say."""
    flat = "    offs = pid * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + offs, mask=offs < total)\n"
    flat += "    tl.store(out_ptr + offs, x, mask=offs < total)\n"
    whole = [
        ("[(len(index), 1)]", "[(triton.cdiv(x.numel(), 64),)]"),
        ("BLOCK=triton.next_power_of_2(max(n, 1))", "BLOCK=64"),
    ]
    whole += [
        ("out = torch.empty(len(index), x.shape[1], dtype=x.dtype, device=x.device)", "out = torch.empty_like(x)")
    ]
    whole += [
        ("return x[index.long()]", "return x.clone()"),
        ("    picked = tl.load(index_ptr + pid).to(tl.int64)\n", ""),
    ]
    told, lines = judged(tmp_path, (FLAT, flat), *whole)
    assert {each.state for each in told} == {"remark"}
    assert "the int32 product `pid * BLOCK` overflows" in told[0].message


PAIRS = """
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols 2"}


@triton.jit
def copy_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * cols * 2 + offs
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=offs < 2 * cols), mask=offs < 2 * cols)


def copy(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        copy_kernel[(x.shape[0], triton.cdiv(2 * x.shape[1], 1024))](x, out, x.shape[1], BLOCK=1024)
    return out


def copy_reference(x):
    return x.clone()
"""


def test_a_size_times_a_power_of_two_is_no_tile(monkeypatch, tmp_path):
    monkeypatch.setitem(globals(), "KERNEL", PAIRS)
    told, _ = judged(tmp_path, right=False)
    assert any("`row * cols * 2` overflows" in each.message and each.state == "wrong" for each in told), told
    assert not judged(tmp_path, ("tl.program_id(0)", "tl.program_id(0).to(tl.int64)"))[0]


def test_a_function_that_refuses_such_sizes_is_not_wrong(tmp_path):
    check = '    if x.numel() >= 2**31:\n        raise ValueError("x must have less than 2**31 elements")\n    x, index'
    told, _ = judged(tmp_path, ("    x, index", check), ("picked * n", "picked.to(tl.int32) * n"), right=False)
    assert {each.state for each in told} == {"refused"}


def test_a_check_of_numbers_passes(tmp_path):
    check = "    if bool((index < 0).any()) or int(index.max()) >= len(x):\n        raise ValueError()\n    x, index"
    assert not judged(tmp_path, ("    x, index", check))[0]


def test_a_function_whose_sizes_hang_on_numbers_is_not_tried(tmp_path):
    told, _ = judged(tmp_path, ("    n = x.shape[1]", "    n = x.shape[1] + 0 * len(index.nonzero())"))
    assert {each.state for each in told} == {"skipped"} and "sizes alone" in told[0].message
