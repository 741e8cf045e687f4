"""How much there is to read: statements of Python and lines of data, by folder, of any commit.

    python -m academy.files.size                    of HEAD
    python -m academy.files.size v0.2.0 HEAD        of two commits, side by side
    python -m academy.files.size --without academy/exact --without tests/exact

A statement is what Python's grammar calls one; docstrings don't count, nor comments, nor how a line is broken. Data is
TOML, YAML and JSON, in lines that aren't empty. Left out are what others wrote, checksums, what was measured, what npm
pins, and what stands in for something outside: the browser's torch, and Gluon's simulator with its kernels.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

from academy.book.layout import ROOT

LEFT_OUT = [
    "academy/playground/runtime/torch", "academy/playground/vendor", "academy/site/vendor", "academy/gluon",
    "annotated_examples/gluon", "tests/gluon", "benchmarks/results", "package-lock.json", "academy/files/vendored.json",
    "academy/vendored.json",
]  # fmt: skip
DATA = {".toml", ".yml", ".yaml", ".json"}
#: Folders that are counted one by one below, and not as a whole.
WIDE = {"academy", "tests"}


def statements(text: str) -> int:
    """How many statements a module has, docstrings left out."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def counted(files: dict[str, str], left_out: list[str]) -> Counter[tuple[str, str]]:
    """(folder, "statements" or "data") -> how many, of files by their path."""
    found: Counter[tuple[str, str]] = Counter()
    for name, text in files.items():
        path = Path(name)
        if any(path.is_relative_to(place) for place in left_out):
            continue
        parts = path.parts[:-1]
        folder = "/".join(parts[: 2 if parts[:1] and parts[0] in WIDE else 1]) or "."
        if path.suffix == ".py":
            found[folder, "statements"] += statements(text)
        elif path.suffix in DATA:
            found[folder, "data"] += sum(bool(line.strip()) for line in text.splitlines())
    return found


def at(commit: str, root: Path = ROOT) -> dict[str, str]:
    """The Python and data files of a commit. Raises CalledProcessError for one that isn't known."""
    archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [each for each in tar if each.isfile() and Path(each.name).suffix in DATA | {".py"}]
        return {each.name: tar.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


def table(commits: list[str], left_out: list[str]) -> str:
    """A line for each folder, and their sums: statements + data of each commit."""
    counts = [counted(at(commit), left_out) for commit in commits]
    rows = [(folder, [(c[folder, "statements"], c[folder, "data"]) for c in counts]) for folder in _folders(counts)]
    tests = [(name, pairs) for name, pairs in rows if name.partition("/")[0] == "tests"]
    sums = [(name, _sum(part)) for name, part in (("tests together", tests), ("all", rows))]
    lines = ["".join([f"{'':<28}", *(f"{commit[:14]:>18}" for commit in commits)])]
    for name, pairs in [*rows, *sums]:
        lines.append("".join([f"{name:<28}", *(f"{f'{a:,} + {b:,}':>18}" for a, b in pairs)]))
    return "\n".join(lines)


def _folders(counts: list[Counter[tuple[str, str]]]) -> list[str]:
    return sorted({folder for count in counts for folder, _ in count})


def _sum(rows: list[tuple[str, list[tuple[int, int]]]]) -> list[tuple[int, int]]:
    return [(sum(a for a, _ in column), sum(b for _, b in column)) for column in zip(*(pairs for _, pairs in rows))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="(default: HEAD)")
    parser.add_argument("--without", action="append", default=[], metavar="PATH", help="leave this out, too")
    options = parser.parse_args()
    try:
        print("Statements of Python + lines of data", table(options.commits, LEFT_OUT + options.without), sep="\n\n")
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode().strip())


if __name__ == "__main__":
    main()
