"""A kernel module may be a package: its `__init__.py` has the functions, and its parts are modules of their own."""

import pytest

from academy.book import facts, layout, syntax

PACKAGE = "from annotated_examples.fast.double import parts\n\n\ndef double(x): ...\n"
FILES = {
    "annotated_examples/fast/__init__.py": "",
    "annotated_examples/fast/double/__init__.py": PACKAGE,
    "annotated_examples/fast/double/parts.py": "def part(x): ...\n",
    "annotated_examples/gluon/__init__.py": '"""What lies in this folder."""\n',
    "annotated_examples/classics/half.py": "from annotated_examples.fast import double\n\n\ndef half(x): ...\n",
    "operations/half.py": 'LESSON = "classics.half"\nFAST = "fast.double"\nPARTS = ["fast.double.parts"]\nBENCH = {}\n',
}
NAMES = ["classics.half", "fast.double", "fast.double.parts"]


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_modules_and_their_names(root):
    assert [layout.module_name(root, path) for path in layout.kernels(root)] == NAMES
    assert [layout.module_path(root, name) for name in NAMES] == layout.kernels(root)
    assert {layout.group(root, path) for path in layout.kernels(root)} == {"classics", "fast"}


def test_what_it_is_made_of(root):
    half = layout.module_path(root, "classics.half")
    assert [layout.module_name(root, path) for path in syntax.built_on([half], root)] == NAMES


def test_its_facts(root):
    file = root / "operations/half.py"
    assert [facts.module_name(path) for path in facts.shown(file)] == NAMES
    assert facts.kernels(file)["fast"] == "annotated_examples/fast/double/__init__.py"
