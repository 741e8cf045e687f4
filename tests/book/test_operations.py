"""An operation that lacks something is told what, and where to write it."""

import shutil

import pytest

from academy.book import operations
from tests.kernels.harness import ROOT

FILES = {
    "annotated_examples/classics/half.py": (
        '"""\n# Half: by [[eq: HALF]]\n\n[[figure: work/half]]\n"""\n\n\ndef EXAMPLE():\n    pass\n'
        '\n\ndef half(x):\n    """Raises: ValueError: never."""\n'
    ),
    "annotated_examples/fast/half.py": '"""\n# Half, fast: by [[tag: HALF]]\n"""\n\n\ndef EXAMPLE():\n    pass\n',
    "backprop_math/halving.md": "$$y := x / 2 \\tag{HALF}$$\n",
    "docs/figures/work.py": "",
    "operations/half.py": 'LESSON = "classics.half"\nFAST = "fast.half"\nPUBLIC = [Public("half")]\nBENCH = {}\n',
    "docs/learn/index.md": (
        "---\nbeside:\n  kernels/classics/half.md:\n  kernels/fast/half.md:\n  derivations/halving.md:\n---\n"
    ),
}
LESSON, FAST = "annotated_examples/classics/half.py", "annotated_examples/fast/half.py"


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_complete_operation(project):
    assert operations.unfinished(project) == []


@pytest.mark.parametrize(
    ("name", "old", "path", "message"),
    [
        (
            "backprop_math/halving.md",
            "\\tag{HALF}",
            LESSON,
            "cites no tag of a derivation: write backprop_math/",
        ),
        ("operations/half.py", '"half"', LESSON, "what half takes: add it to PUBLIC in operations/half.py"),
        (LESSON, "[[figure: work/half]]", LESSON, "classics.half shows no picture: put [[figure: script/name]] on"),
        (
            "operations/half.py",
            "fast.half",
            FAST,
            "fast.half is LESSON, FAST or part of no operation: write operations/",
        ),
        ("docs/learn/index.md", "kernels/fast/half.md", FAST, "add kernels/fast/half.md to docs/learn/index.md"),
        ("docs/learn/index.md", "derivations", "backprop_math/halving.md", "add derivations/halving.md to"),
    ],
)
def test_what_is_missing_is_told_with_its_place(project, name, old, path, message):
    file = project / name
    file.write_text(file.read_text().replace(old, ""))
    found = operations.unfinished(project)
    assert any(problem.path == path and problem.line == 1 and message in problem.message for problem in found), found


def test_a_project_without_docs_lacks_none(project):
    shutil.rmtree(project / "docs")
    assert not operations.incomplete(project)


def test_every_operation_of_this_project_is_complete():
    found = operations.unfinished(ROOT)
    assert not found, "\n".join(map(str, found))
