"""A new operation is four things, and nothing else: a lesson, a derivation, facts, a place in the learning path.

A copy of the repository gets those of the vector addition a second time, under another name and other tags.
"""

import json
import os
import re
import shutil

import markdown
import pytest

from academy.book import layout, operations
from academy.book.splitter import split
from academy.site import generated_pages, kernel_page
from academy.site.extension import AcademyExtension
from academy.site.library import Library
from tests import python

LESSON, DERIVATION, FACTS, PATH = FILES = (
    "annotated_examples/tutorials/vector_sum.py",
    "backprop_math/vector_sum.md",
    "operations/vector_sum.py",
    layout.LEARNING_PATH,
)
BEFORE = "      guides/how-a-gpu-runs-triton.md: [learn/first_kernel.py]\n"
PLACE = """\
      derivations/vector_sum.md: [derivations/vector_add.md]
      kernels/tutorials/vector_sum.md: [derivations/vector_sum.md]
"""
COPIED = ("academy", "annotated_examples", "backprop_math", "docs", "operations", "tests/judge", "tests/kernels")
WITHOUT = shutil.ignore_patterns("__pycache__", "vendor", "brought")
WALKS = ("derivatives", "compile", "hostile_arguments", "non_finite", "changed_arguments", "grids")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    for folder in COPIED:
        shutil.copytree(layout.ROOT / folder, root / folder, ignore=WITHOUT)
    for file in ("pyproject.toml", "tests/python.py"):
        shutil.copy(layout.ROOT / file, root / file)
    path = root / PATH
    assert BEFORE in path.read_text()
    path.write_text(path.read_text().replace(BEFORE, PLACE + BEFORE))
    for file in FILES[:3]:
        old = (layout.ROOT / file.replace("vector_sum", "vector_add")).read_text("utf-8")
        renamed = re.sub(r"(?<!bench: )vector_add", "vector_sum", old)
        (root / file).write_text(re.sub(r"\bVA\b", "VS", renamed), "utf-8")
    return root


@pytest.fixture
def run(project):
    """What a command of Python prints in the copy; it ends with status 0."""

    def run(*arguments):
        done = python.run(arguments, project, os.environ | {"PYTHONPATH": str(project)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_nothing_is_missing(project):
    assert operations.unfinished(project) == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (LESSON, "annotated_examples/tutorials/vector_sum.py, which this names, isn't there"),
        (DERIVATION, "tutorials.vector_sum cites no tag of a derivation: write backprop_math/vector_sum.md"),
        (FACTS, "tutorials.vector_sum is LESSON, FAST or part of no operation: write operations/vector_sum.py"),
        (PATH, "tutorials.vector_sum has no place in the learning path: add kernels/tutorials/vector_sum.md to"),
    ],
)
def test_what_is_missing_is_named(project, missing, said):
    file = project / missing
    text = file.read_text()
    file.write_text(text.replace(PLACE, "")) if missing == PATH else file.unlink()
    try:
        assert any(said in problem.message for problem in operations.unfinished(project))
    finally:
        file.write_text(text)


def test_academy_check_compares_it(run):
    printed = run("-m", "academy.cli", "check", *FILES)
    assert "kernels: 1 case compared" in printed and "all is well" in printed


def test_the_file_is_a_script(run):
    assert "none wrong" in run(LESSON)


@pytest.mark.nightly  # collecting them takes as long as all else here
def test_the_judge_and_every_walk_have_it(run):
    files = ["tests/judge/test_public.py", *(f"tests/kernels/test_{name}.py" for name in WALKS)]
    every = ("-m", "nightly or not nightly", "-k", "tutorials.vector_sum", "--collect-only", "-q")
    found = run("-m", "pytest", "-p", "no:cacheprovider", *every, *files)
    assert [file for file in files if f"{file}::" not in found] == []
    assert "test_it_passes[tutorials.vector_sum.vector_sum]" in found


@pytest.mark.nightly
def test_academy_bench_knows_it(run):
    assert LESSON in run("-m", "academy.cli", "bench", "--list", "--only", "vector_sum")


def test_the_site_has_its_pages(project):
    index = Library.read(project)
    pages = {page.source: page.uri for page in index.pages.values()}
    made = ["kernels/tutorials/vector_sum.md", "derivations/vector_sum.md", "benchmarks/vector_sum.md"]
    assert [pages[file] for file in FILES[:3]] == made
    nav = json.dumps(generated_pages.completed([{"K": ["kernels/index.md"]}], index))
    assert "kernels/tutorials/vector_sum.md" in nav
    assert index.path.before["kernels/tutorials/vector_sum.md"] == ("derivations/vector_sum.md",)
    lines = kernel_page.markdown(split((project / LESSON).read_text(), LESSON), "vector_sum")
    assert "# Vector addition: the first kernel" in [text for _, text in lines]
    convert = markdown.Markdown(extensions=["tables", AcademyExtension(root=str(project))]).convert
    assert 'href="/benchmarks/vector_sum.md"' in convert("[[operations]]")
    assert 'href="/kernels/tutorials/vector_sum.md' in convert(f"[[derivation: {DERIVATION}]]")
