"""Every kernel file runs as a script, and its exit status tells whether the kernel is right.

Most run in this process: importing torch and triton anew for each of them would take most of the time. For the same
reason the interpreter takes the last dtype only, of 16 bits, for which a fast file has kernels of its own; what they
compute in each dtype is the business of other tests.
"""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from academy.runtime import checks, device, script
from academy.book import layout
from academy.judge import public
from tests.kernels.harness import ROOT

FILES = layout.kernels(ROOT)
#: Folders of files that are no scripts; `academy bench --ladder` runs the rungs of ladders.
NO_SCRIPTS = {*layout.WITHOUT_PAGES, "capstone"}
SCRIPTS = [path for path in FILES if layout.group(ROOT, path) not in NO_SCRIPTS]
#: Python shows the line of an import that fails.
ADVICE = "# missing? Run make in the clone, then .venv/bin/python"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a file as a script: `run(path, *arguments)` -> (exit status, what it printed). cases: how many, at most."""
    main, whole = script.main, public.of_script

    def run(path, *arguments, cases=None):
        def shortened(function, reference, *every, dtypes=checks.FLOATS, **options):
            dtypes = dtypes[-1:] if device.INTERPRET else dtypes
            main(function, reference, *every[:cases], dtypes=dtypes, **options)

        def of_script(*arguments):
            if not (found := whole(*arguments)):
                return None
            said, subject, tried = found
            subject.dtypes = subject.dtypes[-1:] if device.INTERPRET else subject.dtypes
            return said, subject, [tried[0], tried[-1]] if cases else tried

        monkeypatch.setattr(script, "main", shortened)
        monkeypatch.setattr(public, "of_script", of_script)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
        return end.value.code, capsys.readouterr().out

    return run


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "annotated_examples").as_posix()


def with_the_rest_at_night(paths: list[Path]) -> list:
    """In `make test` one of each folder: all run through the same function, and their examples are recorded anyhow."""
    chosen = {path.parent: path for path in reversed(paths)}.values()
    return [pytest.param(path, marks=[pytest.mark.nightly] * (path not in chosen)) for path in paths]


def test_there_are_scripts():
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("path", with_the_rest_at_night(SCRIPTS), ids=relative)
def test_exit_status_0(run, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, printed = run(path, cases=2)
    assert status == 0, printed
    first = printed.splitlines()[0]
    assert "interpreter" in first or "(compiled)" in first, "the first line says where it runs"
    assert not list(tmp_path.iterdir()), "a script leaves nothing behind"


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_its_first_import_says_what_to_do_where_academy_is_missing(path):
    text = path.read_text("utf-8")
    first = next(node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom))
    line = text.splitlines()[first.lineno - 1]
    assert line.startswith("from academy.runtime") and line.endswith(f"  {ADVICE}"), line


def test_that_advice_is_shown():
    """Without the packages of an environment, as a system's own Python."""
    command = [sys.executable, "-I", "-S", str(ROOT / "annotated_examples/tutorials/softmax.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "No module named 'academy'" in done.stderr and ADVICE in done.stderr


@pytest.mark.parametrize(
    "name", ["tutorials/vector_add.py", pytest.param("fast/softmax.py", marks=pytest.mark.nightly)]
)
def test_a_process_of_its_own_in_another_folder(name, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")}
    command = [sys.executable, str(ROOT / "annotated_examples" / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none wrong" in done.stdout


def test_a_copy_under_another_name_runs_its_example(run, tmp_path):
    copy = tmp_path / "mine.py"
    copy.write_text((ROOT / "annotated_examples/tutorials/vector_add.py").read_text("utf-8"), "utf-8")
    status, printed = run(copy)
    assert status == 0 and "operations/ says nothing of vector_add in mine.py" in printed


def test_a_copy_that_was_downloaded_is_compared(run, tmp_path):
    copy = tmp_path / "vector_add.py"
    copy.write_text((ROOT / "annotated_examples/tutorials/vector_add.py").read_text("utf-8"), "utf-8")
    status, printed = run(copy)
    assert status == 0 and "none wrong" in printed


#: Numbers of eight bits have no arithmetic of their own. `tl.where` makes a tensor of a constant, which has no dtype.
OFF_BY_ONE = """

@triton.jit
def off_by_one(value):
    value = tl.where(True, value, value)
    return 1 + (value.to(tl.float32) if value.dtype.is_fp8() else value)

"""


def with_stores_broken(source):
    """The same module with one added to every value that a kernel stores or adds (a sign could cancel another)."""
    lines = source.splitlines(keepends=True)
    stores = re.compile(r"tl\.(store|atomic_add)|\w*desc\.store|store_(tile|block|numbers|rows|matrix_in_halves)")
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    calls = [call for call in calls if stores.fullmatch(ast.unparse(call.func))]
    values = sorted((call.args[1] for call in calls), key=lambda v: (v.lineno, v.col_offset), reverse=True)
    assert values, "no store was found"
    for value in values:
        for row, column, text in (
            (value.end_lineno - 1, value.end_col_offset, ")"),
            (value.lineno - 1, value.col_offset, "off_by_one("),
        ):
            line = lines[row].encode()
            lines[row] = (line[:column] + text.encode() + line[column:]).decode()
    lines.insert(lines.index("import triton.language as tl\n") + 1, OFF_BY_ONE)
    return "".join(lines)


#: Those with kernels of their own.
WITH_KERNELS = with_the_rest_at_night([path for path in SCRIPTS if "@triton.jit" in path.read_text("utf-8")])


@pytest.mark.parametrize("path", WITH_KERNELS, ids=relative)
def test_exit_status_1_when_the_kernel_is_broken(run, path, tmp_path):
    """Every value that a jitted kernel stores is off by one."""
    copy = tmp_path / path.relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    copy.write_text(with_stores_broken(path.read_text("utf-8")), "utf-8")
    status, printed = run(copy, cases=1)
    assert status == 1 and "wrong" in printed, printed


def test_help(run):
    """Each calls the same function, as `test_exit_status_0` shows."""
    status, printed = run(SCRIPTS[0], "--help")
    assert status == 0 and "--device" in printed
