"""CONTRIBUTING.md against the files: sizes, imports, paths and commands. It is a page of the site too."""

import ast
import re

import pytest

from academy import cli
from academy.compiler.rules.house_rules import FAST_SIZE, LESSON_SIZE
from academy.compiler.rules.linter import sizes
from tests.guides.test_best_practice import FILES
from tests.kernels.harness import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
WORDS = " ".join(TEXT.split())
QUOTED = set(re.findall(r"`([^`\n]+)`", TEXT))


def test_sizes_are_those_that_are_checked():
    for kernel, file, *_ in (LESSON_SIZE, FAST_SIZE):
        assert f"A kernel has at most {kernel} lines of code and a file at most {file}" in WORDS
    listed = sizes(ROOT / "annotated_examples/practice.toml")
    lessons = [size for file, size in listed.items() if not str(file).startswith("fast/")]
    most = [max(size[part] for size in lessons) for part in ("kernel", "code")]
    pages = [WORDS] + [
        (ROOT / "docs" / page).read_text("utf-8") for page in ("guides/best-practice.md", "kernels/index.md")
    ]
    for page in pages:
        numbers = re.search(r"may\shave\smore, up to (\d+) and (\d+)", page).groups()
        assert [int(number) for number in numbers] == most


def test_kernels_import_the_modules_that_it_names():
    imported = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
    folders = {".".join(name.split(".")[:2]) for name in imported if name.partition(".")[0] == "academy"}
    rule = TEXT.partition("- **Imports point one way.**")[2].partition("\n- **")[0]
    assert folders == {"academy.runtime"} == set(re.findall(r"`(academy\.[\w.]+)`", rule))


@pytest.mark.parametrize("place", sorted(name for name in QUOTED if re.fullmatch(r"[\w<>./]+/[\w<>./]*", name)))
def test_every_path_exists(place):
    pattern = re.sub(r"<\w+>", "*", place.rstrip("/"))
    places = [ROOT, ROOT / "annotated_examples"]  # `gemlite/gemm.py` is short for a kernel file
    made = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split()}  # by a build
    assert pattern in made or any(next(folder.glob(pattern), None) for folder in places), place


def test_every_command_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"\bmake (?:[A-Z]+=\S+ )*([\w-]+)", TEXT)
    missing = [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)]
    assert targets and not missing, f"make {missing[0]} is no target of the Makefile; in prose use another verb"
    commands = re.findall(r"`academy (\w+)[^`]*`", TEXT)
    assert commands and all(command in cli._parser().format_help() for command in commands)


def test_the_map_of_the_readme_has_every_folder_of_kernels_and_every_command():
    readme = (ROOT / "README.md").read_text("utf-8")
    folders = {path.parent.name for path in (ROOT / "annotated_examples").glob("*/__init__.py")}
    commands = re.findall(r"^    (\w+) ", cli._parser().format_help(), re.M)
    assert len(folders) > 10 and len(commands) > 6
    assert not [name for name in [*folders, *commands] if f"`{name}`" not in readme]
