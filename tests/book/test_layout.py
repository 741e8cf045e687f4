"""Where everything lies is said in one place, `academy.book.layout`."""

import ast

import pytest

from academy.book import layout
from academy.book.layout import ROOT

FOLDERS = {layout.KERNELS, layout.DERIVATIONS, layout.OPERATIONS, layout.EXERCISES, layout.BENCHMARKS, layout.DOCS}
#: These run where the project isn't, or bring parts of it along.
ELSEWHERE = ("academy/playground/", "academy/command/setup_environment.py", "academy/files/vendored.py")
FILES = [path for path in sorted((ROOT / "academy").rglob("*.py")) if path != ROOT / "academy/book/layout.py"]


def spelled(text: str) -> list[tuple[int, str]]:
    """Where a path is joined with the name of a folder: `root / "benchmarks"`, `root / f"benchmarks/{name}.py"`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right.values[0] if isinstance(node.right, ast.JoinedStr) else node.right
            value = right.value if isinstance(right, ast.Constant) else None
            if isinstance(value, str) and value.split("/")[0] in FOLDERS:
                found.append((node.lineno, value))
    return found


@pytest.mark.parametrize(
    "line", ['root / "docs"', 'root / f"benchmarks/{name}.py"', '(root / "operations").glob("*.py")']
)
def test_a_spelled_folder_is_found(line):
    assert spelled(line)
    assert not spelled("root / layout.DOCS; root / name; root / 'academy/docs'; 3 / 4")


def test_no_other_module_spells_a_folder():
    read = [path for path in FILES if not path.relative_to(ROOT).as_posix().startswith(ELSEWHERE)]
    found = {path.relative_to(ROOT).as_posix(): each for path in read if (each := spelled(path.read_text("utf-8")))}
    assert len(read) > 100 and not found


def test_results_are_those_of_an_operation_or_a_ladder(tmp_path):
    for name in ("one/softmax", "two/softmax", "one/ladders/softmax", "one/layernorm"):
        path = tmp_path / layout.RESULTS / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    below = lambda name: [path.relative_to(tmp_path / layout.RESULTS).as_posix() for path in name]  # noqa: E731
    assert below(layout.results(tmp_path, "softmax")) == ["one/softmax.json", "two/softmax.json"]
    assert below(layout.results(tmp_path, "ladders/*")) == ["one/ladders/softmax.json"]
    assert below(layout.results(tmp_path)) == ["one/layernorm.json", "one/softmax.json", "two/softmax.json"]
    assert layout.facts(tmp_path, "ladders/softmax") == tmp_path / "benchmarks/ladders/softmax.py"
    assert layout.facts(tmp_path, "softmax") == tmp_path / "operations/softmax.py"
