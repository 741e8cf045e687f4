"""Which part of academy may import which: no circles, no kernel by name, nothing below the site leans on the site."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import triton

from academy.files import dependencies

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "academy").rglob("*.py"))
    if "vendor" not in path.parts
}


@functools.cache
def imports(name: str, path: Path) -> frozenset[str]:
    """Modules of academy (and kernels) that a module imports, at its top and inside of functions: an import that waits
    makes the start quick, and the arrow is no other. One for types alone is none."""
    tree, found = ast.parse(path.read_text("utf-8")), set()
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            block.body = [ast.Pass()]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
                continue
            package = path.name == "__init__.py"
            base = name.split(".")[: len(name.split(".")) - node.level + package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            found |= {each if each in MODULES else source for each in names}
    return frozenset(found - {name})


@functools.cache
def graph() -> dict[str, frozenset[str]]:
    return {name: imports(name, path) & set(MODULES) for name, path in MODULES.items()}


def test_no_import_circles():
    graphlib.TopologicalSorter(graph()).prepare()  # which raises CycleError, with the modules


def test_academy_imports_no_kernel():
    named = {
        name for name, path in MODULES.items() if any("annotated_examples" in each for each in imports(name, path))
    }
    assert not named


#: Folder of academy -> the folders that it may use, from the bottom to the top.
ARROWS: dict[str, set[str]] = {
    "book": set(),
    "files": {"book"},
    "command": {"files"},
    "interpreter": {"command"},
    "runtime": {"interpreter"},
    "exact": {"gluon", "interpreter", "runtime"},
    "results": {"book", "files"},
    "compiler": {"book", "command", "files", "runtime"},
    "gluon": {"command", "compiler", "files", "runtime"},
    "traces": {"book", "command", "compiler", "files", "gluon", "interpreter", "runtime"},
    "judge": {"book", "command", "compiler", "exact", "files", "gluon", "interpreter", "runtime", "traces"},
    "bench": {"book", "command", "files", "judge", "results", "runtime"},
    "formulas": {"book", "command", "exact", "files", "interpreter", "judge", "results", "runtime"},
    "exercises": {
        "book",
        "command",
        "compiler",
        "exact",
        "files",
        "gluon",
        "interpreter",
        "judge",
        "runtime",
        "traces",
    },
    "playground": {"book", "command", "compiler", "exact", "exercises", "files", "interpreter", "runtime", "traces"},
    "site": {"book", "command", "compiler", "files", "formulas", "playground", "results", "traces"},
}


def test_every_folder_has_its_arrows():
    assert set(ARROWS) == {name.split(".")[1] for name in MODULES if name.count(".") > 1}
    graphlib.TopologicalSorter(ARROWS).prepare()


def test_the_root_holds_the_command_and_folders():
    assert {name for name, path in MODULES.items() if path.parent == ROOT / "academy"} == {"academy", "academy.cli"}


@pytest.mark.parametrize("folder", ARROWS)
def test_folders_depend_on_each_other_in_one_direction(folder):
    """As the picture of the page Architecture shows them, which is drawn from the same."""
    assert dependencies.folders()[folder] <= ARROWS[folder]


STAGES = ["reading", "meaning", "comparing", "mutation"]


@pytest.mark.parametrize("stage", STAGES)
def test_formulas_go_from_text_to_verdict(stage):
    """Each folder of academy.formulas uses its own modules and those of the stages before it."""
    later = [f"academy.formulas.{name}." for name in STAGES[STAGES.index(stage) + 1 :]]
    for name, others in graph().items():
        if name.startswith(f"academy.formulas.{stage}"):
            assert not [other for other in others if other.startswith(tuple(later))], name


#: What Triton's `__all__` names, and the packages that its documentation describes. All else is private: it changes
#: without notice.
PUBLIC = ["triton.__version__", "triton.language", "triton.testing", "triton.tools", "triton.experimental.gluon"]
PUBLIC += [f"triton.{name}" for name in triton.__all__ if name != "runtime"]
PUBLIC += [f"triton.runtime.{name}" for name in triton.runtime.__all__ if name != "driver"]
#: Where private names may be: each of them compares what it finds with the versions that it knows. Others take the
#: module of Triton's interpreter from `academy.interpreter.internals`.
INSIDE = ("academy.runtime.launch", "academy.interpreter", "academy.compiler", "academy.playground.runtime")


def private_names(text: str) -> set[str]:
    """The names of Triton that a text imports, or reads from the package, and that aren't public."""
    found, tree = {"triton"}, ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    triton_s = {name for name in found if name.startswith("triton.") and re.fullmatch(r"[\w.]+", name)}
    return {name for name in triton_s if not is_below(name, PUBLIC) and name != "triton.runtime"}


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("from triton.runtime import interpreter", True),
        ("from triton.runtime.jit import JITFunction", True),
        ("import triton._C.libtriton", True),
        ("import triton; triton.knobs.runtime.debug = True", True),
        ("from triton.runtime import driver", True),
        ("def f():\n    from triton.compiler import ASTSource", True),
        ("import triton, triton.language as tl\nfrom triton.runtime import Autotuner\ntriton.cdiv(1, 2)", False),
        ("import triton\ntriton.runtime.Autotuner.run\nfrom triton.experimental.gluon.nvidia import hopper", False),
    ],
)
def test_a_private_name_is_seen(line, private):
    assert bool(private_names(line)) == private


def test_triton_s_private_names_are_in_three_places():
    found = {
        name: private_names(path.read_text("utf-8")) for name, path in MODULES.items() if not is_below(name, INSIDE)
    }
    assert not {name: names for name, names in found.items() if names}


def test_kernels_take_nothing_private_of_triton():
    paths = sorted((ROOT / "annotated_examples").rglob("*.py"))
    found = {path.name: private_names(path.read_text("utf-8")) for path in paths}
    # A sum by the TMA, which Gluon has no function for.
    assert {name: names for name, names in found.items() if names} == {"hopper_sums.py": {"triton._C.libtriton.ir"}}


def is_below(name: str, places: Iterable[str]) -> bool:
    return f"{name}.".startswith(tuple(f"{place}." for place in places))


def test_the_switch_for_checks_of_values_is_read_in_one_place():
    files = [*MODULES.values(), *sorted((ROOT / "annotated_examples").rglob("*.py"))]
    reads = [path for path in files if re.search(r"environ[^\n]*ACADEMY_DEBUG", path.read_text("utf-8"))]
    assert reads == [ROOT / "academy/runtime/checks.py"]


MODE = """
import sys, torch
from academy.runtime.modes import DispatchMode
class Mode(DispatchMode):
    __torch_dispatch__ = lambda self, function, types, args=(), kwargs=None: function(*args, **kwargs or {})
with Mode():
    torch.ones(2) + 1
assert "torch._dynamo" not in sys.modules
"""


def test_no_mode_imports_pytorchs_compiler():
    """As those of PyTorch do: two seconds in each forked process. So one module names them, for all to inherit from."""
    pattern = r"import .*Torch(Dispatch|Function)Mode"
    naming = [path for path in MODULES.values() if re.search(pattern, path.read_text("utf-8"))]
    assert naming == [ROOT / "academy/runtime/modes.py"]
    subprocess.run([sys.executable, "-c", MODE], check=True, cwd=ROOT)
