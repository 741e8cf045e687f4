"""What the parts of academy that make the site promise about themselves."""

import ast
import re
from functools import cache

import pytest

from tests.site.conftest import ROOT

FILES = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in sorted((ROOT / "academy").rglob("*.py"))}
MODULES = {name.replace("/", ".").removesuffix(".__init__"): path for name, path in FILES.items()}
OURS = [name for name in MODULES if re.match(r"academy\.(site|bench|traces|cache|directives|syntax)\b", name)]


@cache
def imported(name: str) -> set[str]:
    """The modules of academy that this one imports, anywhere in its text."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {module if module in MODULES else node.module for module in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in MODULES and module != name}


@pytest.mark.parametrize("name", OURS)
def test_no_module_comes_back_to_itself(name):
    seen, queue = set(), list(imported(name))
    while queue:
        module = queue.pop()
        if module not in seen:
            seen.add(module)
            queue += imported(module)
    assert name not in seen


def test_no_private_fields_of_others_no_forks_and_the_collector_stays_on():
    for path in (ROOT / "academy/site").rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"\b(?:import gc|os\.fork|gc\.disable)\b", text), path
        private = re.findall(r"\b(?:page|file|config|files|nav|md)\._(?!_)\w+", text)
        assert private == [], (path, private)


def test_directives_are_written_in_one_place():
    for name in OURS:
        patterns = re.findall(r"re\.compile\([^)]*\\\[\\\[", MODULES[name].read_text("utf-8"))
        assert not patterns or name in ("academy.book.directives", "academy.site.lint", "academy.traces.comments"), name
