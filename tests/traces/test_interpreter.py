"""The repairs of Triton's interpreter: right with them, wrong without, a clear message where they can't go."""

import json
import os
import re
import warnings
from pathlib import Path

import pytest
import torch

from academy.runtime import device
from academy import interpreter

if not device.INTERPRET:
    pytest.skip("compiled kernels don't pass through the interpreter", allow_module_level=True)

from tests import python
from tests.traces import interpreter_cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Right without repairs too, at least on some version of Triton: these guard the repaired code against going wrong.
GUARDS = {
    "a_fused_multiply_add_rounds_once",
    "bf16_maximum",
    "bf16_minimum",
    "bf16_clamp",
    "bf16_argmax",
    "bf16_max",
    "bf16_min",
    "cast_bf16_to_fp16",
    "cast_bf16_to_int32",
    "float_atomic_min",
    "inverted_mask",
    "lanes_with_other_or_padding_keep_it",
    "maximum_ignores_nan",
    "python_min_and_max_of_numbers",
}


@pytest.fixture(scope="module")
def right_without_repairs() -> dict[str, bool]:
    finished = python.run([HERE / "interpreter_cases.py"], timeout=120, check=True)
    return json.loads(finished.stdout)["right"]


@pytest.mark.parametrize("name", interpreter_cases.CASES)
def test_right_with_repairs(name):
    assert interpreter_cases.CASES[name]()


@pytest.mark.parametrize("name", sorted(set(interpreter_cases.CASES) - GUARDS))
def test_wrong_without_repairs(name, right_without_repairs):
    assert not right_without_repairs[name], "the repair is no longer needed, or the case can't show it"


def test_right_with_repairs_where_nothing_is_quick():
    """Only `academy.interpreter.quick` is left out: no result depends on it."""
    code = """
from academy.runtime import device
from triton.runtime import interpreter
from tests.traces import interpreter_cases
assert interpreter._patch_lang.__module__ == "triton.runtime.interpreter"
print([name for name, case in interpreter_cases.CASES.items() if not case()])
"""
    environment = {**os.environ, "ACADEMY_QUICK": "0"}
    done = python.run(["-c", code], ROOT, environment)
    assert done.stdout == "[]\n", done.stderr


def test_install_twice_changes_nothing():
    before = {**vars(interpreter.interpreter.InterpreterBuilder)}
    interpreter.install()
    assert before == {**vars(interpreter.interpreter.InterpreterBuilder)}


def test_a_grid_that_is_no_tuple_is_refused():
    with pytest.raises(TypeError, match=r"kernel\[1\]: a grid is a tuple .* write kernel\[\(1,\)\]"):
        interpreter_cases.kernel_of("x + y")[1](torch.ones(4), torch.ones(4), torch.ones(4), 0, 4)


def test_used_names_what_a_kernel_needed():
    interpreter.used(reset=True)
    x = torch.ones(8)
    interpreter_cases.run("x + y", x)
    assert interpreter.used(reset=True) == []
    interpreter_cases.run("x + y", x.bfloat16())
    assert interpreter.used(reset=True) == ["bf16"]
    interpreter_cases.run("x", x, out_dtype=torch.bfloat16)
    assert interpreter.used(reset=True) == ["bf16 cast"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_a_gpu_refuses_is_refused(dtype):
    with pytest.raises(Exception, match="KeyError"):
        interpreter_cases.run("libdevice.tanh(x)", torch.ones(64, dtype=dtype))


def test_unknown_internals_are_named(monkeypatch):
    monkeypatch.delattr(interpreter.interpreter, "_academy_repairs")
    monkeypatch.delattr(interpreter.interpreter.InterpreterBuilder, "create_masked_store")
    interpreter.internals.check()  # the repairs don't build on that one
    monkeypatch.delattr(interpreter.interpreter.InterpreterBuilder, "create_dot")
    before = {**vars(interpreter.interpreter.InterpreterBuilder)}
    checked = re.escape(", ".join(interpreter.CHECKED_VERSIONS))
    with pytest.raises(RuntimeError, match=rf"create_dot.*checked versions: {checked}"):
        interpreter.install()
    assert before == {**vars(interpreter.interpreter.InterpreterBuilder)}


def test_triton_imported_for_a_gpu_is_named():
    code = "import triton; from academy import interpreter; interpreter.install()"
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    finished = python.run(["-c", code], HERE.parents[1], environment)
    assert "triton was imported without TRITON_INTERPRET=1" in finished.stderr


def test_python_max_of_blocks_is_computed_as_compiled_with_a_warning_at_its_line():
    with pytest.warns(UserWarning, match=r"max\(…\) of blocks is deprecated in Triton: write tl\.maximum") as caught:
        assert interpreter_cases.run_python_min_max(False)
    path = Path(interpreter_cases.__file__)
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "min(max(x" in text)
    assert {(warning.filename, warning.lineno) for warning in caught} == {(str(path), line)}


def test_a_block_of_undefined_lanes_warns_of_nothing():
    x, out = torch.ones(4), torch.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interpreter_cases.largest_kernel[(1,)](x, out, 0, N=4)
    assert out.isnan().all()


@pytest.mark.parametrize(
    "deep, line, message",
    [
        (False, "tl.store(x_ptr + tl.arange(0, 2 * N), x)", "ValueError: Cannot make"),
        (True, "return x * factor.missing", "AttributeError: 'tensor' object has no attribute 'missing'"),
    ],
    ids=["kernel", "helper"],
)
@pytest.mark.parametrize("traceable", [False, True])
def test_an_error_in_a_kernel_ends_with_its_place(monkeypatch, deep, line, message, traceable):
    if traceable:
        monkeypatch.setitem(vars(interpreter_cases), "EXAMPLE", None)
    with pytest.raises(Exception) as caught:
        interpreter_cases.failing_kernel[(1,)](torch.ones(4), N=4, DEEP=deep)
    path = Path(interpreter_cases.__file__)
    place = f"{path.name}:{path.read_text().split(chr(10)).index('    ' + line) + 1}: {message}"
    _, first, source, *hint = caught.value.__notes__[0].split("\n")
    assert place in first and source.strip() == line
    assert ["academy trace" in text for text in hint] == [True] * traceable


@pytest.mark.parametrize(("grid", "message"), [
    ((1, 65_536), "kernel: 65,536 programs on axis 1 of the grid, and a GPU takes at most 65,535 there"),
    (lambda arguments: (2, 1, 70_000), "kernel: 70,000 programs on axis 2"),
    ((2**31,), "kernel: 2,147,483,648 programs on axis 0 of the grid, and a GPU takes at most 2,147,483,647"),
])  # fmt: skip
def test_more_programs_than_a_gpu_takes_are_refused(grid, message):
    with pytest.raises(RuntimeError, match=message):
        interpreter_cases.kernel_of("x + y")[grid](torch.ones(4), torch.ones(4), torch.ones(4), 0, 4)
