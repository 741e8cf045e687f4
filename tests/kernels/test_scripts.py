"""Every kernel file runs as a script, and its exit status tells whether the kernel is right."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.harness import ROOT

FILES = sorted(p for p in (ROOT / "annotated_examples").rglob("*.py") if p.name != "__init__.py")
SCRIPTS = [path for path in FILES if path.parent.name not in ("common", "integrations", "capstone")]


def run(path, *arguments, folder=ROOT):
    # The repository is found by the script itself: PYTHONPATH is not set, and another folder is the current one.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "annotated_examples").as_posix()


def test_there_are_scripts():
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_exit_status_0(path, tmp_path):
    done = run(path, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert "interpreter" in first or "(compiled)" in first, "the first line says where it runs"
    assert not list(tmp_path.iterdir()), "a script leaves nothing behind"


def with_stores_broken(source):
    """The same module with one added to every value that a kernel stores or adds (a sign could cancel another)."""
    lines = source.splitlines(keepends=True)
    stores = re.compile(r"tl\.(store|atomic_add)|\w*desc\.store")
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    calls = [call for call in calls if stores.fullmatch(ast.unparse(call.func))]
    values = sorted((call.args[1] for call in calls), key=lambda v: (v.lineno, v.col_offset), reverse=True)
    assert values, "no store was found"
    for value in values:
        for row, column, text in (
            (value.end_lineno - 1, value.end_col_offset, ")"),
            (value.lineno - 1, value.col_offset, "1 + ("),
        ):
            line = lines[row].encode()
            lines[row] = (line[:column] + text.encode() + line[column:]).decode()
    return "".join(lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_exit_status_1_when_the_kernel_is_broken(path, tmp_path):
    """Every value that a jitted kernel stores is off by one; the folder around the copy is like the repository's."""
    broken = with_stores_broken(path.read_text("utf-8"))
    copy = tmp_path / path.relative_to(ROOT)
    shutil.copytree(ROOT / "annotated_examples", tmp_path / "annotated_examples")
    copy.write_text(broken, "utf-8")
    (tmp_path / "academy").symlink_to(ROOT / "academy")
    done = run(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wrong" in done.stdout + done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_help(path):
    done = run(path, "--help")
    assert done.returncode == 0
    assert "--device" in done.stdout
