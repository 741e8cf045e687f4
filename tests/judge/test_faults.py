"""Kernels outside of this project with one planted fault each: the judge finds it, and says where."""

import functools
import re
import textwrap
from pathlib import Path

import pytest
import torch

from academy.runtime import device
from academy.book import exercise_files
from academy.judge.mutants import Mutant
from academy.judge.process import Limits
from academy.judge.session import File, Given, Session
from academy.judge.subject import of_functions
from academy.judge.trials import GROUPS, INTERPRETED, NAMED, ON_A_CARD

KERNELS = Path(__file__).with_name("kernels")
#: A GPU is begun and a kernel compiled in each process.
FEW = Limits(1 if device.INTERPRET else 20, 1024)
interpreted = pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter shows it")

#: file, edit, group of trials that finds it, what it says
FAULTS = [
    ("scaled", Mutant("tail", "x * scale + y, mask=mask", "x * scale + y"), "sizes", "outside a tensor"),
    ("scaled", Mutant("grid", "triton.cdiv(n, 256)", "n // 256"), "sizes", r"out\[0\] was never written"),
    ("rows", Mutant("stride", "x.stride(0)", "cols"), "layouts", r"out\[1, 0\] is nan"),
    ("totals", Mutant("race", "tl.atomic_add(out_ptr + offs, above, mask=mask)",
                      "tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=mask) + above, mask=mask)"),
     "programs", r"program 0 stores out_ptr\[0\] \(line \d+\) and program 1 reads it"),
    ("product", Mutant("dtype", "tl.dot(a, b,", "tl.dot(a.to(tl.float16), b.to(tl.float16),"),
     "dtypes", r"out\[0, \d\] is"),
    ("norm", Mutant("a sum of rows", "dw = torch.zeros(cols, device", "dw = torch.zeros(cols, dtype=x.dtype, device"),
     "dtypes", r"bfloat16, long rows, a first row 512 times as large: the gradient of weight"),
    ("sums_by_block", Mutant("a sum of columns", "dtype=tl.float32)", "dtype=x_ptr.dtype.element_ty)"),
     "dtypes", r"bfloat16, more than 10⁵ elements: out\["),
    ("rows", Mutant("dtype of the result", "dtype=x.dtype, ", ""), "dtypes", "should have torch.bfloat16"),
    ("rows", Mutant("other", ', other=-float("inf")', ""), "lanes", "masked lanes hold 1e30"),
    ("rows", Mutant("grid of rows", "triton.cdiv(rows, 4)", "triton.cdiv(rows, 8)"), "sizes", r"out\[4, 0\] was never"),
    ("rows", Mutant("int32", ".to(tl.int64)", ""), "offsets", r"out\[2, 0\]"),
    ("totals", Mutant("unwritten output", "torch.zeros(cols", "torch.empty(cols"), "sizes", r"out\[0\] was never"),
    ("scaled", Mutant("in-place input", "tl.store(out_ptr", "tl.store(x_ptr + offs, y, mask)\n    tl.store(out_ptr"),
     "sizes", "writes to its argument: x"),
    ("norm", Mutant("wrong gradient", "(g - x * rstd * rstd *", "(g - x * rstd *"), "sizes", r"the gradient of x\["),
]  # fmt: skip


def judged(tmp_path, source, groups=None, mutants=0, here=False):
    """here: it neither reads nor writes what is outside of its tensors, so that no process need be lost."""
    path = tmp_path / "kernel.py"
    path.write_text(source)
    return Session(File(path, here=here), groups, mutants).run()


@interpreted
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[1].name)
def test_a_planted_fault_is_found(fault, tmp_path):
    file, mutant, group, message = fault
    report = judged(tmp_path, mutant.apply((KERNELS / f"{file}.py").read_text()), [group])
    assert not report.broken and not report.right
    said = [f"{outcome.trial}: {outcome.message}" for outcome in report.wrong]
    assert any(re.search(message, each) for each in said), said


@interpreted
@pytest.mark.parametrize("kept, right", [(2, False), (1, True)], ids=["returned", "scratch"])
def test_only_what_is_returned_has_to_be_whole(kept, right, tmp_path):
    """A row that nobody writes: an error in a result; in scratch, of which PyTorch takes the first row, it is none."""
    source = Mutant("grid", "triton.cdiv(n, 256)", "n // 512").apply((KERNELS / "scaled.py").read_text())
    taken = "out" if kept == 2 else "out[:1].clone()"
    whole = source.replace("return out", f"return {taken}").replace(
        "return x * scale + y", f"return (x * scale + y)[:{kept}]"
    )
    fixed = '\n\nSIZES = {"two": (2,), "n": (256,)}\n'
    report = judged(tmp_path, whole.replace('"n"', '"two n"') + fixed, ["programs"])
    assert report.right is right, str(report)
    assert right or "writes out_ptr[1, 0]" in str(report)


@pytest.mark.parametrize(
    "file",
    ["rows", *(pytest.param(file, marks=pytest.mark.nightly) for file in ("scaled", "totals", "product", "norm"))],
)
def test_without_its_fault_it_passes(file, tmp_path):
    report = judged(tmp_path, (KERNELS / f"{file}.py").read_text(), mutants=4)
    assert report.right, str(report)
    others = {"options", "offsets", "configurations", *NAMED, *ON_A_CARD}
    others |= set() if device.INTERPRET else set(INTERPRETED)
    assert {outcome.trial.group for one in report.judged for outcome in one.outcomes} >= set(GROUPS) - others
    assert len(report.mutants) == 4


DEATHS = {
    "segmentation fault": ("    import ctypes\n    ctypes.string_at(8)\n", "died with SIGSEGV"),
    "endless loop": ("    while x.numel() == 5:\n        pass\n", "stopped after"),
    "end of the process": ("    import os\n    os._exit(0)\n", "ended the process itself, with exit status 0"),
    "sys.exit": ("    import sys\n    sys.exit(3)\n", "ended with SystemExit: 3"),
}
if device.INTERPRET:  # the driver of a GPU reserves terabytes of addresses, so there is no limit where there is one
    DEATHS["memory"] = ("    torch.zeros(1 << 32)\n", "alloc")


@pytest.mark.parametrize("line, message", DEATHS.values(), ids=DEATHS)
def test_it_survives(line, message, tmp_path):
    source = (KERNELS / "scaled.py").read_text()
    body = "    x, y = x.contiguous(), y.contiguous()\n"
    assert body in source
    path = tmp_path / "kernel.py"
    path.write_text(source.replace(body, "    if not x.requires_grad:\n" + textwrap.indent(line, "    ") + body))
    report = Session(File(path), ["sizes"], 0, limits=FEW).run()
    assert report.complete and not report.right
    assert all(re.search(message, outcome.message) for outcome in report.wrong), str(report)


def test_the_first_call_may_be_the_end(tmp_path):
    """The one that shows whether there are gradients: each trial is made all the same, and says what became of it."""
    path = tmp_path / "kernel.py"
    body = "    x, y = x.contiguous(), y.contiguous()\n"
    path.write_text((KERNELS / "scaled.py").read_text().replace(body, "    import ctypes\n    ctypes.string_at(8)\n"))
    report = Session(File(path), ["sizes"], 0, limits=FEW).run()
    assert not report.broken and report.complete and report.judged[0].gradients == "unknown"
    assert {outcome.message for outcome in report.wrong} == {"the process died with SIGSEGV"}


#: Exercise, edit of its solution that is one of its wrong ones (none: the starter), function, reference, inputs, the
#: group that finds it.
EXERCISES = [
    ("first_kernel/dropped_tail", (), "double", "2 * x", "n", "sizes"),
    ("first_kernel/unwritten_output", (), "copy", "x.clone()", "n", "sizes"),
    ("operations/race", (), "total", "x.sum().view(1)", "n", "programs"),
    ("matmul/ignored_strides", (), "row_sums", "x.sum(1)", "rows cols", "layouts"),
    ("rows/logsumexp", ('other=-float("inf")', "other=0.0"), "logsumexp", "x.logsumexp(1)", "rows cols", "sizes"),
]


@interpreted
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one[0])
def test_a_wrong_solution_of_an_exercise_is_found(exercise, tmp_path):
    name, edit, function, reference, shape, group = exercise
    found = exercise_files.named(name)
    assert edit in [each[1:] for each in found.wrong]
    few = dict.fromkeys(shape.split(), (1, 5, 37))  # an exercise asks for no empty tensors, and no long ones
    beside = (
        f'\n\nINPUTS = {{"x": "{shape}"}}\nSIZES = {few}\n\n\ndef {function}_reference(x):\n    return {reference}\n'
    )
    assert judged(tmp_path, found.edited(edit) + beside, [group]).wrong
    assert judged(tmp_path, found.solution + beside, [group]).right


def test_a_function_that_refuses_everything_is_not_right(tmp_path):
    refuses = (KERNELS / "rows.py").read_text().replace("if x.requires_grad:", "if True:")
    report = judged(tmp_path, refuses, ["sizes"])
    assert report.complete and not report.wrong and not report.right
    assert str(report) == "softmax takes none of the inputs"
    half = (KERNELS / "rows.py").read_text().replace("if x.requires_grad:", "if x.dtype != torch.float16:")
    assert judged(tmp_path, half + 'DTYPES = ("float16",)\n', ["sizes"]).right


def rounded(x, dtype, times=1.0):
    return x if x.dtype == torch.float64 else (x * times).to(dtype).to(x.dtype) / times


def loss_reference(x):
    return rounded(x, torch.float16).sum()


def cancelling(x, w, dy, dtype):
    """The gradient of an RMSNorm of one column, whose terms all but cancel. The reference computes in float32."""
    rstd = torch.rsqrt(x * x + 1e-6)
    unit, of_unit = x * rstd, dy * w
    again = unit * (unit * of_unit)
    return rstd * (of_unit - (again if x.dtype == torch.float64 else again.to(dtype).to(x.dtype)))


def cancelling_reference(x, w, dy):
    given, (x, w, dy) = x.dtype, (each.float() for each in (x, w, dy))
    rstd = torch.rsqrt(x * x + 1e-6)
    return (dy * w * rstd + dy * w * x * (-0.5 * rstd**3) * (2 * x)).to(given)


@interpreted
@pytest.mark.parametrize("dtype, right", [(torch.float32, True), (torch.bfloat16, False)])
def test_a_number_that_all_but_cancels_beside_a_reference_in_float32_is_not_left_to_luck(dtype, right):
    function = functools.partial(cancelling, dtype=dtype)
    inputs = {"x": "1 1", "w": "1 1", "dy": "1 1"}
    subject = of_functions(function, cancelling_reference, inputs, name="cancelling", dtypes=("float32",))
    report = Session(Given((subject,)), ["sizes"], 0).run()
    assert report.right == right, str(report)


@interpreted
@pytest.mark.parametrize("dtype, right", [(torch.float16, True), (torch.bfloat16, False)])
def test_the_error_of_a_single_number_is_not_left_to_luck(dtype, right):
    """Other roundings, as large as the reference's: by chance many times as large. Coarser ones are found."""

    def loss(x):
        return rounded(x, dtype, times=3.0).sum()

    subject = of_functions(loss, loss_reference, {"x": "n"}, name="loss", dtypes=("float32",))
    report = Session(Given((subject,)), ["sizes"], 0).run()
    assert report.right == right, str(report)
