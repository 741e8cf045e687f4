"""Where everything of a project lies. No other module spells a folder's name to find files in it.

Every function takes the project's root, and returns paths below it, sorted.
"""

from __future__ import annotations

from pathlib import Path

#: The repository; where `academy` is installed without one, the folder that holds it.
ROOT = Path(__file__).resolve().parents[2]
#: The repository's facts and results, inside the package: a link, which becomes a folder where that is installed.
BROUGHT = Path(__file__).resolve().parents[1] / "bench" / "brought"
#: The package of the kernel files.
KERNELS = "annotated_examples"
DERIVATIONS = "backprop_math"
OPERATIONS = "operations"
EXERCISES = "exercises"
DOCS = "docs"
FIGURES = "docs/figures"
BENCHMARKS = "benchmarks"
RESULTS = "benchmarks/results"
TESTS = "tests/kernels"
#: The page whose front matter holds the learning path.
LEARNING_PATH = "docs/learn/index.md"

#: Groups whose files are parts of other pages, or of no page.
WITHOUT_PAGES = frozenset({"common", "integrations", "ladders"})
#: Groups whose files build on a lesson, and are none.
NO_LESSONS = frozenset({*WITHOUT_PAGES, "fast", "gluon"})


def kernels(root: Path) -> list[Path]:
    """Every module with kernels: lessons, fast versions, rungs of ladders and what they share.

    A package, such as fast/low_bit, is itself a module if its `__init__.py` has functions; others are only folders.
    """
    return [path for path in sorted((root / KERNELS).rglob("*.py")) if is_module(path)]


def is_module(path: Path) -> bool:
    """Whether a file of kernels is more than the mark of a folder."""
    return path.name != "__init__.py" or "\ndef " in path.read_text("utf-8")


def pages(root: Path) -> list[Path]:
    """The kernel files that have a page of their own."""
    return [path for path in kernels(root) if group(root, path) not in WITHOUT_PAGES]


def lessons(root: Path) -> list[Path]:
    """The lessons. What a fast version has beside its lesson is not among them."""
    return [path for path in kernels(root) if group(root, path) not in NO_LESSONS]


def group(root: Path, kernel: Path) -> str:
    """The folder of a kernel file, such as `classics`; "" for one that lies in none."""
    parts = kernel.relative_to(root / KERNELS).parts
    return parts[0] if len(parts) > 1 else ""


def module_name(root: Path, kernel: Path) -> str:
    """`classics.layernorm` of annotated_examples/classics/layernorm.py."""
    return dotted(kernel.relative_to(root / KERNELS).as_posix())


def module_path(root: Path, name: str) -> Path:
    """The file of a kernel module: the other way round."""
    path = root.joinpath(KERNELS, *name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def dotted(path: str) -> str:
    """`fast.matmul` of fast/matmul.py, and `fast.low_bit` of fast/low_bit/__init__.py."""
    return path.removesuffix(".py").removesuffix("/__init__").strip("/").replace("/", ".")


def derivations(root: Path) -> list[Path]:
    return sorted((root / DERIVATIONS).glob("*.md"))


def operations(root: Path) -> list[Path]:
    """One file for each operation: the calls that are compared with formulas, and what is measured."""
    return sorted((root / OPERATIONS).glob("[!_]*.py"))


def exercises(root: Path) -> list[Path]:
    return sorted((root / EXERCISES).glob("*/*.py"))


def chapters(root: Path) -> list[Path]:
    """The chapters of the learning path, which are notebooks in the form of Python files."""
    return sorted((root / DOCS).glob("learn/*.py"))


def documents(root: Path) -> list[Path]:
    """Hand-written pages and chapters, and the texts at the root."""
    docs = root / DOCS
    return sorted([*docs.rglob("*.md"), *docs.rglob("*.py"), *root.glob("*.md")])


def facts(root: Path, name: str) -> Path:
    """The file about an operation (`softmax`) or a ladder (`ladders/softmax`), whether it is there or not."""
    return root / (BENCHMARKS if "/" in name else OPERATIONS) / f"{name}.py"


def results(root: Path, name: str = "*") -> list[Path]:
    """What was measured, on every device: of an operation, or below it, as in `ladders/softmax`."""
    return sorted((root / RESULTS).glob(f"*/{name}.json"))


def tests(root: Path) -> list[Path]:
    """The tests of kernels."""
    return sorted((root / TESTS).glob("test_*.py"))
