"""What is recorded: every statement, value and access of an unchanged kernel, and errors where a kernel goes wrong."""

import contextlib
import gc
import os

import numpy as np
import pytest
import torch

from academy.book import syntax
from academy.traces import observer, recorder, worker
from academy.traces.faults import of_recording
from academy.traces.recording import Pointer

COPY = """
@triton.jit
def double(value):
    twice = value * 2
    return twice

@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, 3):
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        total += double(x)
        if k == 1:
            total += 1.0
    tl.store(y_ptr + offsets, total, mask=offsets < n)
"""
FORWARD = """
def EXAMPLE():
    x = torch.arange(10, dtype=torch.{dtype})
    y = torch.empty_like(x)
    copy_kernel[(3,)](x, y, 10, BLOCK=4)
"""


def steps(recording, pid=(0, 0, 0), launch=0):
    return recording.steps(recording.launches[launch], pid)


def values(recording, name, pid=(0, 0, 0), launch=0):
    found = [recording.value(step.values[name]) for step in steps(recording, pid, launch) if name in step.values]
    return [value.offsets.tolist() if isinstance(value, Pointer) else np.asarray(value).tolist() for value in found]


@pytest.fixture
def copied(record):
    return record(COPY + FORWARD.format(dtype="float32"))


def test_every_statement_and_iteration(copied):
    path, recording = copied
    lines = path.read_text().split("\n")
    load = next(i for i, text in enumerate(lines, 1) if "tl.load" in text)
    assert recording.data["error"] is None and recording.data["findings"] == []
    assert [step.loops for step in steps(recording) if step.line == load] == [((load - 1, k),) for k in range(3)]
    assert values(recording, "k") == [0, 1, 2]
    assert values(recording, "offsets", (2, 0, 0)) == [[8, 9, 10, 11]]
    executed = {step.line for step in steps(recording)}
    code = {i for i, text in enumerate(lines, 1) if text.startswith("    ") and "EXAMPLE" not in text}
    example = next(i for i, text in enumerate(lines, 1) if "EXAMPLE" in text)
    assert executed >= {line for line in code if line < example}


def test_helper_calls_are_nested(copied):
    _, recording = copied
    inner = [step for step in steps(recording) if step.function == "double"]
    assert {step.depth for step in inner} == {1} and len(inner) == 9  # three calls: arguments, statement, return
    assert values(recording, "return")[0] == values(recording, "twice")[0] == [0, 2, 4, 6]


def test_values_after_each_assignment(copied):
    _, recording = copied
    # Before the loop, twice in round 0 and 2 (the addition), three times in round 1.
    assert values(recording, "total", (1, 0, 0)) == [
        [0] * 4,
        [8, 10, 12, 14],
        [16, 20, 24, 28],
        [17, 21, 25, 29],
        [25, 31, 37, 43],
    ]


def test_accesses_name_tensor_elements_and_mask(copied):
    _, recording = copied
    (store,) = [access for step in steps(recording, (2, 0, 0)) for access in step.accesses if access[0] == "store"]
    assert recording.launches[0]["tensors"][store[1]]["name"] == "y_ptr"
    assert recording.value(store[2]).tolist() == [8, 9, -1, -1]
    assert recording.value(store[3]).tolist() == [49, 55, 1, 1]


def test_result_of_the_recorded_run(copied):
    _, recording = copied
    after = recording.value(recording.launches[0]["tensors"][1]["after"])
    assert after.tolist() == [6 * i + 1 for i in range(10)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_dtypes_are_shown_as_numbers(record, dtype):
    _, recording = record(COPY + FORWARD.format(dtype=dtype))
    assert recording.data["error"] is None
    assert values(recording, "x", (1, 0, 0))[0] == [4, 5, 6, 7]
    repairs = recording.launches[0]["repairs"]
    assert any("bfloat16" in text for text in repairs) == (dtype == "bfloat16")


def test_bf16_values_have_their_own_rounding(record):
    source = COPY + FORWARD.format(dtype="bfloat16").replace(
        "torch.arange(10, dtype=torch.bfloat16)", "torch.full((10,), 1 / 3).bfloat16()"
    )
    _, recording = record(source)
    assert values(recording, "x")[0][0] == torch.tensor(1 / 3).bfloat16().item()


def test_strided_views_name_their_own_elements(record):
    _, recording = record(
        """
@triton.jit
def rows_kernel(x_ptr, y_ptr, stride_xm, stride_xn, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride_xm + columns * stride_xn)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + columns, x)

def EXAMPLE():
    x = torch.arange(24.0).view(4, 6)[1:, ::3].t()
    y = torch.empty(2, 3)
    rows_kernel[(2,)](x, y, *x.stride(), BLOCK=4 if False else 2)
    rows_kernel[(2,)](x.expand(1, 2, 3)[0], torch.empty(2, 2), *x.stride(), BLOCK=2)
"""
    )
    assert recording.data["error"] is None
    (load,) = [a for step in steps(recording, (1, 0, 0)) for a in step.accesses if a[0] == "load"]
    assert recording.value(load[2]).tolist() == [3, 4]
    assert recording.value(load[3]).tolist() == [9, 15]


def test_autotune_and_heuristics_are_seen_through(record):
    _, recording = record(
        """
from academy.runtime import device

@device.autotune(configs=[triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

def EXAMPLE():
    tuned_kernel[(1,)](torch.zeros(3), 3)
"""
    )
    assert recording.data["error"] is None
    assert values(recording, "BLOCK") == [4] and values(recording, "EVEN") == [False]


def test_tensor_descriptors(record):
    _, recording = record(
        """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def tile_kernel(x_desc, y_ptr, BLOCK: tl.constexpr):
    x = x_desc.load([2, 4 * tl.program_id(0)])
    offsets = tl.arange(0, 2)[:, None] * 8 + tl.program_id(0) * 4 + tl.arange(0, 4)[None, :]
    tl.store(y_ptr + offsets, x)

def EXAMPLE():
    x = torch.arange(24.0).view(3, 8)
    tile_kernel[(2,)](TensorDescriptor.from_tensor(x, [2, 4]), torch.empty(2, 8), BLOCK=4)
"""
    )
    assert recording.data["error"] is None
    (load,) = [a for step in steps(recording, (1, 0, 0)) for a in step.accesses if a[0] == "load"]
    assert recording.launches[0]["tensors"][load[1]]["name"] == "x_desc"
    assert recording.value(load[2]).tolist() == [[20, 21, 22, 23], [-1, -1, -1, -1]]  # a row past the end is masked off
    assert values(recording, "x", (1, 0, 0)) == [[[20, 21, 22, 23], [0, 0, 0, 0]]]
    assert values(recording, "x_desc") == ["descriptor of x_desc, block 2×4"]


def test_atomics(record):
    _, recording = record(
        """
@triton.jit
def count_kernel(x_ptr, total_ptr, largest_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    before = tl.atomic_add(total_ptr, tl.sum(x, axis=0))
    tl.atomic_max(largest_ptr, tl.max(x, axis=0))
    tl.atomic_cas(largest_ptr, 7, 8)

def EXAMPLE():
    x, total, largest = (torch.arange(8), torch.zeros(1), torch.zeros(1))
    count_kernel[(2,)](x.int(), total.int(), largest.int(), BLOCK=4)
"""
    )
    assert recording.data["error"] is None and recording.data["findings"] == []
    assert [a[0] for s in steps(recording) for a in s.accesses] == ["load", "atomic_add", "atomic_max", "atomic_cas"]
    assert values(recording, "before", (1, 0, 0)) == [6]
    assert [recording.value(t["after"]).tolist() for t in recording.launches[0]["tensors"][1:]] == [[28], [8]]


def test_masked_lanes_without_other_are_undefined(record):
    _, recording = record(
        """
@triton.jit
def sum_kernel(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    i = tl.load(i_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr, tl.sum(x, axis=0))

def EXAMPLE():
    sum_kernel[(1,)](torch.ones(3), torch.empty(1), torch.ones(3, dtype=torch.int32), 3, BLOCK=4)
"""
    )
    x, i = values(recording, "x")[0], values(recording, "i")[0]
    assert x[:3] == [1, 1, 1] and np.isnan(x[3]) and i[3] not in (0, 1)
    assert np.isnan(recording.value(recording.launches[0]["tensors"][1]["after"])).all()  # the sum is poisoned


OUTSIDE = """
@triton.jit
def shift_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets + {shift}, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, x, mask=offsets < n)

def EXAMPLE():
    {example}
"""


@pytest.mark.parametrize(
    "shift, example, element",
    [
        (
            1,
            "shift_kernel[(3,)](torch.ones(10), torch.empty(10), 10, BLOCK=4)",
            "program 2 of shift_kernel does a load outside a tensor: element 10 of x_ptr, which has shape (10,)",
        ),
        (
            -3,
            "shift_kernel[(3,)](torch.ones(10), torch.empty(10), 10, BLOCK=4)",
            "program 0 of shift_kernel does a load outside a tensor: element -3 of x_ptr",
        ),
        (  # Far away the nearest tensor is named, and which one that is depends on where memory was mapped.
            10**7,
            "shift_kernel[(3,)](torch.ones(10), torch.empty(10), 10, BLOCK=4)",
            "program 0 of shift_kernel does a load outside a tensor: element ",
        ),
        # The neighbour in the same storage: gate and up packed side by side.
        (
            5,
            "both = torch.ones(2, 10); shift_kernel[(1,)](both[:, :5], torch.empty(10), 5, BLOCK=4)",
            "element 5 of x_ptr, which has shape (2, 5) and strides (10, 1)",
        ),
    ],
)
def test_access_outside_a_tensor(record, shift, example, element):
    path, recording = record(OUTSIDE.format(shift=shift, example=example))
    (problem,) = of_recording(path, recording, quoted=False)
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "tl.load" in text)
    assert problem.line == line and problem.path == str(path)
    assert element in problem.message


def test_example_that_fails_is_a_problem_with_its_line(record):
    path, recording = record("def EXAMPLE():\n    x = torch.ones(2)\n    raise ValueError('no such luck')\n")
    (problem,) = of_recording(path, recording, quoted=False)
    assert problem.message == "EXAMPLE fails: ValueError: no such luck"
    assert path.read_text().split("\n")[problem.line - 1].strip().startswith("raise")


def test_nothing_is_left_behind(kernel_file):
    before = [getattr(owner, name) for owner, name in observer._PATCHED]
    path = kernel_file(COPY + FORWARD.format(dtype="float32"))
    worker.record(path, [path])
    assert [getattr(owner, name) for owner, name in observer._PATCHED] == before
    module = worker.sys.modules[path.stem]
    assert observer.HOOK not in vars(module)
    x, y = torch.ones(4), torch.empty(4)
    module.copy_kernel[(1,)](x, y, 4, BLOCK=4)
    assert y.tolist() == [7.0] * 4
    gc.collect()


def test_recording_changes_the_callers_tensors_as_a_launch_does(kernel_file):
    path = kernel_file(COPY + FORWARD.format(dtype="float32"))
    from academy.traces.native_memory import NativeMemory

    module = syntax.import_file(path, worker.store.ROOT)
    base = torch.zeros(3, 8)
    with NativeMemory() as watched, recorder.Recorder([str(path)], watched).running():
        module.copy_kernel[(1,)](torch.ones(4), base[1], 4, BLOCK=4)
    assert base.sum() == 28 and base[1, :4].tolist() == [7.0] * 4


@pytest.mark.parametrize("size, ends", [(4, contextlib.nullcontext()), (2, pytest.raises(Exception, match="outside"))])
def test_no_file_stays_open(kernel_file, size, ends):
    """Not while the tensors of a launch live, each a mapping of a file, nor after a launch that ended with an error."""
    path = kernel_file(COPY + FORWARD.format(dtype="float32"))
    from academy.traces.native_memory import NativeMemory

    module, before = syntax.import_file(path, worker.store.ROOT), set(os.listdir("/proc/self/fd"))
    with NativeMemory() as watched, recorder.Recorder([str(path)], watched).running() as recording, ends:
        module.copy_kernel[(1,)](torch.ones(size), torch.empty(size), 4, BLOCK=4)
    assert len(recording.launches[0].arguments) == 2
    assert set(os.listdir("/proc/self/fd")) <= before


def test_unknown_internals_are_named(monkeypatch):
    monkeypatch.delattr(observer.triton_interpreter.GridExecutor, "_init_args_hst")
    with pytest.raises(RuntimeError, match=r"GridExecutor\._init_args_hst.*checked versions: 3\.6\.0"):
        with recorder.Recorder([], ()).running():
            pass
