"""The numbered traps at the head of the tests of kernels: what they name exists."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EVERYWHERE = "\n".join(path.read_text("utf-8") for path in HERE.parent.rglob("*.py"))


def traps(path: Path) -> str:
    """The numbered part of the file's docstring, or "" if it has none."""
    found = re.search(r"^1\. .*", ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "", re.M | re.S)
    return found[0] if found else ""


LISTS = [path for path in sorted(HERE.glob("test_*.py")) if len(re.findall(r"^\d+\. ", traps(path), re.M)) >= 3]


def test_there_are_lists():
    assert {"test_quantize", "test_scaled_matmul", "test_linear", "test_microscaling"} <= {path.stem for path in LISTS}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_checks_and_mutants_of_traps_exist(path):
    """`a_check` is a name in the file, or a test; "a mutant" the name of one, or its end. Numbers follow each other."""
    text, source = traps(path), path.read_text("utf-8").partition('"""\n')[2]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
    for name in re.findall(r"`([a-z]\w+)`", text):
        if "_" in name and not name.startswith(("float", "max_num")):
            known = re.search(rf"\b(test_)?{name}\b", source) or f"def {name}(" in EVERYWHERE
            assert known, f"{path.name}: nothing is called {name}"
    for name in re.findall(r'"([a-z0-9][^"`]+)"', " ".join(text.split())):
        assert f'{name}"' in source, f"{path.name}: no mutant is called {name}"
