"""Which part of academy may import which: no circles, no kernel by name, nothing below the site leans on the site."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "academy").rglob("*.py"))
    if "vendor" not in path.parts
}
#: Behind an import inside of a function: it is there only to make the start quick, so no circle may close through it
#: either, except where this mark says that one side is a plug of the other.
LAZY = "# lazy:"


@functools.cache
def imports(name: str, path: Path, everywhere: bool = True) -> frozenset[str]:
    """Modules of academy (and kernels) that a module imports, at its top and inside of functions."""
    text = path.read_text("utf-8")
    lines, found = text.split("\n"), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and (everywhere or LAZY not in lines[node.lineno - 1]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
                continue
            package = path.name == "__init__.py"
            base = name.split(".")[: len(name.split(".")) - node.level + package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            found |= {each if each in MODULES else source for each in names}
    return frozenset(found - {name})


GRAPH = {name: imports(name, path, everywhere=False) & set(MODULES) for name, path in MODULES.items()}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Each group of modules that reach one another (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return found


@pytest.mark.parametrize("part", ["site", "everything else"])
def test_no_import_circles(part):
    found = [group for group in circles(GRAPH) if any(".site" in name for name in group) == (part == "site")]
    assert not found, "\n".join(" <-> ".join(group) for group in found)


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_academy_imports_no_kernel():
    named = {
        name for name, path in MODULES.items() if any("annotated_examples" in each for each in imports(name, path))
    }
    assert not named


@pytest.mark.parametrize("part", ["formulas", "traces", "bench", "results"])
def test_what_the_site_shows_does_not_know_the_site(part):
    users = {
        name: sorted(each for each in imports(name, path) if each.startswith("academy.site"))
        for name, path in MODULES.items()
        if name.startswith(f"academy.{part}")
    }
    assert not {name: found for name, found in users.items() if found}


#: Folder of academy -> the folders that it may use, from the bottom to the top.
ARROWS: dict[str, set[str]] = {
    "book": set(),
    "files": {"book"},
    "command": {"files"},
    "interpreter": {"command"},
    "exact": {"interpreter"},
    "runtime": {"interpreter"},
    "practice": {"book", "files"},
    "results": {"book", "files"},
    "compiler": {"book", "command", "files", "runtime"},
    "gluon": {"command", "compiler", "files", "runtime"},
    "traces": {"book", "command", "compiler", "files", "gluon", "interpreter", "runtime"},
    "judge": {"book", "command", "compiler", "files", "gluon", "interpreter", "runtime", "traces"},
    "bench": {"book", "command", "files", "judge", "results", "runtime"},
    "formulas": {"book", "command", "exact", "files", "judge", "runtime"},
    "exercises": {"book", "command", "compiler", "files", "gluon", "interpreter", "judge", "runtime", "traces"},
    "playground": {"book", "exercises", "files", "interpreter", "runtime", "traces"},
    "site": {"book", "command", "compiler", "files", "formulas", "playground", "results", "traces"},
}


def test_every_folder_has_its_arrows():
    assert set(ARROWS) == {name.split(".")[1] for name in MODULES if name.count(".") > 1}
    assert not circles(ARROWS)


def test_the_root_holds_the_command_and_folders():
    assert {name for name, path in MODULES.items() if path.parent == ROOT / "academy"} == {"academy", "academy.cli"}


@pytest.mark.parametrize("folder", ARROWS)
def test_folders_depend_on_each_other_in_one_direction(folder):
    used = {
        other.split(".")[1]
        for name, path in MODULES.items()
        for other in imports(name, path)
        if name.split(".")[1:2] == [folder] and other.startswith("academy.")
    }
    assert used & set(ARROWS) <= ARROWS[folder] | {folder}


def test_the_book_stands_by_itself():
    """It is read where neither torch nor triton is installed, and by every other part."""
    used = {other for name in MODULES if name.startswith("academy.book") for other in GRAPH[name]}
    assert all(other.startswith("academy.book") for other in used), used


STAGES = ["reading", "meaning", "comparing", "mutation"]


@pytest.mark.parametrize("stage", STAGES)
def test_formulas_go_from_text_to_verdict(stage):
    """Each folder of academy.formulas uses its own modules and those of the stages before it."""
    later = [f"academy.formulas.{name}." for name in STAGES[STAGES.index(stage) + 1 :]]
    for name, others in GRAPH.items():
        if name.startswith(f"academy.formulas.{stage}"):
            assert not [other for other in others if other.startswith(tuple(later))], name
