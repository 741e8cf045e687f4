"""What the kernel tests share beside `academy.judge`: parameters and fixtures of pytest, random tensors.

The judge's functions have their names here too.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy
import pytest
import torch

from academy.runtime import device
from academy.judge import verdict
from academy.judge.compare import (  # noqa: F401
    assert_bitwise_repeatable,
    assert_gradient_penalty_raises,
    assert_right,
    gradients,
    leaf,
    unchanged,
)
from academy.judge.fences import fenced_allocations  # noqa: F401
from academy.judge.layouts import LAYOUTS, nan_fenced, offset, sliced, strided, transposed  # noqa: F401
from academy.judge.mutants import Mutant, assert_caught, code_of, import_source, mutated, upon  # noqa: F401
from tests import python

DEVICE = device.DEVICE
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROOT = Path(__file__).resolve().parents[2]
#: How often a call is made that has to give the same bits: on a card often enough for a race to show.
TIMES = [3, pytest.param(100, marks=pytest.mark.gpu)]

# A failure is the kernel's: pytest shows no function that says `__tracebackhide__`, but the test that called it. Where
# that is a context manager, contextlib calls its end.
contextlib.__tracebackhide__ = True


def modules(*files: ModuleType):
    """A fixture `module`: each test that takes it runs for the lesson and for the fast file."""
    ids = ["fast" if ".fast." in file.__name__ else "lesson" for file in files]
    return pytest.fixture(params=files, ids=ids, name="module")(lambda request: request.param)


def dtype_name(value: object) -> str:
    """For `pytest.mark.parametrize(ids=…)`."""
    return str(value).removeprefix("torch.")


def randn(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


@contextlib.contextmanager
def tensor_cores():
    """In the interpreter, products in TF32 as a card makes them: the last 13 bits of float32 factors are dropped."""
    if not device.INTERPRET:
        yield
        return
    from triton._C.libtriton import ir
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def cut(factor):
        bits = numpy.ascontiguousarray(factor.data).view(numpy.uint32) & numpy.uint32(0xFFFFE000)
        return TensorHandle(bits.view(numpy.float32), factor.dtype.scalar)

    def create_dot(self, a, b, accumulator, precision, *arguments):
        if precision == ir.INPUT_PRECISION.TF32 and a.data.dtype == b.data.dtype == numpy.float32:
            a, b = cut(a), cut(b)
        return exact(self, a, b, accumulator, precision, *arguments)

    exact, InterpreterBuilder.create_dot = InterpreterBuilder.create_dot, create_dot
    try:
        yield
    finally:
        InterpreterBuilder.create_dot = exact


def random_layer(kind: type, *arguments, **options):
    """A module of PyTorch, such as `torch.nn.LayerNorm`, whose parameters are random numbers."""
    layer = kind(*arguments, device=DEVICE, **options)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def expanded(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One row shown many times: stride 0 in every dimension but the last."""
    return randn(shape[-1], dtype=dtype).expand(shape)


def without_gpu(script: str, *arguments: str) -> object:
    """What a script of this folder prints last, read as JSON. In its process kernels are not interpreted."""
    return python.told(Path(__file__).with_name(script), *arguments)


def grids(monkeypatch, module: ModuleType) -> list[tuple[int, ...]]:
    """The grids of a module's kernels from now on, in the order of their launches; none of them runs."""
    found: list[tuple[int, ...]] = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: found.append(grid)

    for name in [name for name in vars(module) if name.endswith("_kernel")]:
        monkeypatch.setattr(module, name, Kernel())
    return found


def assert_nobody_waits(*calls: Callable[[], object]) -> None:
    """Once compiled, a call hands the GPU its work and returns: PyTorch raises where it would wait. Needs a GPU."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for call in calls:
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def forward_and_backward(function: Callable, inputs: dict[str, torch.Tensor]) -> None:
    """Without a look at the results, for which the GPU would be waited for."""
    given, asked = verdict.leaves(inputs)
    out = function(**given)
    torch.autograd.grad(out, list(asked.values()), torch.ones_like(out))


TRITON = device.triton.__version__


def _made_for() -> str | None:
    """The version of triton that this torch was built with, or None where it doesn't say (a build for CPUs)."""
    for requirement in importlib.metadata.requires("torch") or []:
        if found := re.match(r"triton==(\d+\.\d+)", requirement):
            return found[1]
    return None


#: For tests that have Inductor compile kernels: it reads Triton's own intermediate code, of the one version it was
#: built with. torch 2.11 beside triton 3.7.1 says "can't read", goes on, and in one of 60 tests the result was wrong.
needs_torchs_own_triton = pytest.mark.skipif(
    _made_for() not in (None, ".".join(TRITON.split(".")[:2])),
    reason=f"torch.compile of torch {torch.__version__} is made for triton {_made_for()}, and this is {TRITON}",
)


def mutant_parameters(mutants: list, check: Callable | None = None) -> list:
    """For `pytest.mark.parametrize("mutant", …)`; with a check for `(("check", "mutant"), …)`, where an entry may be a
    pair of both. What only a GPU shows is marked so, and skipped by name."""
    unseen = pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter shows it")
    pairs = [each if isinstance(each, tuple) else (check, each) for each in mutants]
    marks = lambda m: [pytest.mark.gpu] * m.gpu + [unseen] * m.interpreted  # noqa: E731
    return [pytest.param(*((c, m) if c else (m,)), id=str(m), marks=marks(m)) for c, m in pairs]


def on_device(value):
    """An argument: a tensor of the CPU is moved to where kernels run. What is expanded stays so, which `.to` undoes."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return value
    once = value[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in value.stride())]
    return once.to(DEVICE).expand(value.shape)


def assert_refused(error: type[Exception], message: str, function: Callable, **arguments) -> None:
    """A call with a bad argument raises this error, and says this; of values on a card where one asks for it."""
    asked = mock.patch.dict(os.environ, ACADEMY_DEBUG="1")
    with asked, pytest.raises(error, match=message if isinstance(message, re.Pattern) else re.escape(message)):
        function(**{name: on_device(value) for name, value in arguments.items()})


def refused_test(columns: str, rows: Sequence, given: dict, *calls: Callable):
    """A test: each of these functions refuses each row.

    columns: `error`; `change`, of the arguments that are given; and what is said: a `message`, `words` that are a
    regular expression, or the `name` of the argument with which the message begins.
    """

    sets = [row if hasattr(row, "marks") else pytest.param(*row) for row in rows]
    said = next(column for column in ("message", "words", "name") if column in columns)

    @pytest.mark.parametrize(
        "row",
        [pytest.param(dict(zip(columns.split(", "), each.values)), marks=each.marks) for each in sets],
        ids=lambda row: row[said][:40],
    )
    def test(row):
        words = row[said] if said == "message" else re.compile(rf"^{row[said]}\b" if said == "name" else row[said])
        for call in calls:
            assert_refused(row["error"], words, call, **given | row["change"])

    return test


def raises_test(rows: Sequence[tuple[Callable, type[Exception], str]]):
    """A test: each of these calls raises this error, with these words."""

    @pytest.mark.parametrize(("call", "error", "words"), rows, ids=[words[:40] for *_, words in rows])
    def test(call, error, words):
        with pytest.raises(error, match=words):
            call()

    return test


def check_test(module: ModuleType, checks: Sequence[Callable]):
    """A test: each of these checks, under its own name, passes for a module."""

    @pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)
    def test(check):
        check(module)

    return test


def mutant_test(module: ModuleType, mutants: list, check: Callable | None = None, within: ModuleType | None = None):
    """A test: each mutant of a module's source is caught by a check, which is handed the changed module.

    mutants: or pairs of a check and a mutant. within: the lesson that a shared module is part of; the check is handed
    that, with the changed module in it.
    """

    @pytest.mark.parametrize(("check", "mutant"), mutant_parameters(mutants, check))
    def test(check, mutant, tmp_path):
        of_lesson = lambda broken: check(upon(module, broken, within, tmp_path))  # noqa: E731
        assert_caught(module, mutant, of_lesson if within else check, tmp_path)

    return test
