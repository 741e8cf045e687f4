"""A ladder on its page: the code of each rung from wherever it lies, what changes between two, reasons and gains."""

import difflib

import pytest

from academy.book.layout import ROOT
from academy.results import ladder, store
from academy.site import ladder_page, markdown_copies, rung_code

FIRST = '''"""# First

Slow. **Predict:** it.
"""

import triton
from annotated_examples.common.rows import as_rows


@triton.jit
def kernel(x_ptr):  # a comment
    """A docstring."""
    # Another comment.
    load(x_ptr)

    store("#", x_ptr)


def sizes(x):
    return 4


def double(x):
    """Launch it."""
    return kernel[(sizes(x),)](as_rows(x))
'''
SECOND = '''"""# Second

**What was slow?** Half of it. **What changes?** One line. See [it](../../classics/other.py).
"""

import triton
from annotated_examples.ladders.double.rung_1_first import sizes
from annotated_examples.classics.helper import halve


@triton.jit
def kernel(x_ptr):
    halve(x_ptr)
    store("#", x_ptr)


def double(x):
    return kernel[(sizes(x),)](x)
'''
HELPER = "import triton\n\n\n@triton.jit\ndef halve(x_ptr):\n    pass\n"
TRIED = '"""# Third\n\nTwice as slow.\n"""\n\nfrom annotated_examples.ladders.double.rung_2_second import double\n'


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ladder.FOLDER / "double"
    folder.mkdir(parents=True)
    for name, text in (("rung_1_first", FIRST), ("rung_2_second", SECOND), ("tried_third", TRIED)):
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "annotated_examples/classics").mkdir()
    (tmp_path / "annotated_examples/classics/helper.py").write_text(HELPER)
    (tmp_path / ladder.BENCHMARKS).mkdir(parents=True)
    (tmp_path / ladder.BENCHMARKS / "double.py").write_text('FUNCTION = "double"\n')
    return tmp_path


def text_of(lines):
    return [line.mark + line.text for line in lines]


def test_the_code_of_a_rung_has_its_helpers_and_no_notes(root):
    first, second = (
        rung_code.code_of(rung.path, "double", root) for rung in ladder.rungs("double", root) if rung.number
    )
    assert text_of(first) == [
        " @triton.jit",
        " def kernel(x_ptr):",
        "     load(x_ptr)",
        '     store("#", x_ptr)',
        " ",
        " def double(x):",
        "     return kernel[(sizes(x),)](as_rows(x))",
    ]
    assert " def halve(x_ptr):" in text_of(second), "imported, and new in this rung"


def test_code_of_a_module_that_is_imported_whole(root):
    rung = root / ladder.FOLDER / "double/rung_2_second.py"
    text = rung.read_text().replace("classics.helper import halve", "classics import helper as other")
    rung.write_text(text.replace("halve(x_ptr)", "other.halve(x_ptr)"))
    assert " def halve(x_ptr):" in text_of(rung_code.code_of(rung.relative_to(root).as_posix(), "double", root))


def test_a_difference_is_the_one_that_difflib_finds(root):
    before, after = (
        rung_code.code_of(rung.path, "double", root) for rung in ladder.rungs("double", root) if rung.number
    )
    theirs = list(difflib.unified_diff([x.text for x in before], [x.text for x in after], n=2, lineterm=""))[3:]
    mine = [line for line in text_of(rung_code.difference(before, after)) if line]
    assert mine == theirs
    assert "-    load(x_ptr)" in mine and "+    halve(x_ptr)" in mine
    assert rung_code.difference(before, before) in ([], [rung_code.Line("", "", "")])


def test_the_page_says_reason_change_and_gain(root):
    times = {"first": 4.0, "second": 2.0, "third": 8.0, "pytorch": 1.0}
    case = {"shape": [4, 8], "dtype": "float32", "pass": "forward", "limit_ms": 0.5, "notes": {}}
    case["providers"] = {word: {"ms": ms} for word, ms in times.items()}
    record = {"ladder": "double", "device": "NVIDIA H200", "date": "2026-01-01", "cases": [case]}
    record |= {"versions": {"torch": "2", "triton": "3"}, "rungs": ["first", "second"], "tried": ["third"]}
    record |= {"sources": ladder.sources("double", root)}
    folder = root / "benchmarks/results/nvidia-h200"
    store.write(folder / "ladders/double.json", record)
    old = {"date": "2025-01-01", "shape": [2, 2], "rungs": [{"name": "Upside down", "what": "x", "forward_ms": 0.5}]}
    store.write(
        folder / "ladder/double.json", old | {"rungs": [old["rungs"][0] | {"tried": "double"}, {"name": "kept"}]}
    )
    text = "\n".join(ladder_page.pieces("double", root))
    assert "### 1. First" in text and "### 2. Second" in text and "Stale" not in text
    assert "<strong>2 ms</strong>, 2.00x as fast as the rung before, 25 % of the limit" in text
    assert "What changes in the code: 5 lines added, 2 removed" in text
    assert '<ins class="r-add">+' in text and '<del class="r-cut">-' in text
    assert "[it](../classics/other.py)" in text, "a link of a rung is one folder deeper than the page"
    assert "**Third**: 8 ms" in text and "**Upside down** (2025-01-01): 0.5 ms (forward at 2x2)" in text
    assert "**kept**" not in text
    rung = root / ladder.FOLDER / "double/rung_1_first.py"
    rung.write_text(rung.read_text().replace("return 4", "return 5"))
    assert "**Stale:** the code of 3 of these has changed since" in "\n".join(ladder_page.pieces("double", root))


def test_an_unmeasured_ladder_claims_nothing(root):
    text = "\n".join(ladder_page.pieces("double", root))
    assert "isn't measured yet" in text and "as fast as" not in text and "ms" not in text.replace("ms at", "")


def test_a_difference_in_markdown_can_be_copied(root):
    html = "".join(piece for piece in ladder_page.pieces("double", root) if piece.startswith("<details"))
    copy = markdown_copies.converted(html)
    assert "```diff\n" in copy and "\n-    load(x_ptr)\n" in copy and "> " not in copy and "~~" not in copy


@pytest.mark.parametrize("name", ladder.names(ROOT))
def test_every_ladder_of_the_project_can_be_shown(name):
    assert len(ladder_page.pieces(name, ROOT)) > 5
    fast = [
        path for path in (ROOT / "annotated_examples/fast").rglob("*.py") if f"[[ladder: {name}]]" in path.read_text()
    ]
    assert len(fast) == 1, "one page shows it"
