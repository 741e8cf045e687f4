"""No line of a kernel file is lost on its page, none is shown twice, and every note arrives."""

import ast
import io
import sysconfig
import tokenize
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from academy.book import layout
from academy.book.comments import DIRECTIVE
from academy.book.splitter import SourceError, split

ROOT = Path(__file__).resolve().parents[2]
KERNELS = layout.kernels(ROOT)
STDLIB = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::4]
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}


def docstring_lines(text: str) -> set[int]:
    """Lines that hold a docstring and nothing else, by the rules of Python alone."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                lines |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def lines_with_code(text: str) -> set[int]:
    """Lines with at least one token that is neither layout nor comment."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            found |= set(range(token.start[0], token.end[0] + 1))
    return found


def comment_lines(text: str) -> set[int]:
    """Lines outside brackets that hold only a comment meant for readers."""
    found, depth = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        if token.type == tokenize.COMMENT and not depth and token.line.strip() == token.string.strip():
            if not DIRECTIVE.match(token.string):
                found.add(token.start[0])
    return found


def check(text: str, name: str) -> None:
    module = split(text, name)
    shown = [number for row in module.rows for number in row.code]
    assert shown == sorted(set(shown)), "a line is shown twice or out of order"
    noted = [number for part in (module.intro, *(row.note for row in module.rows)) for number in part.numbers]
    assert len(noted) == len(set(noted)), "a note is shown twice"
    assert not set(shown) & set(noted)
    docs = docstring_lines(text)
    code = lines_with_code(text)
    assert code - docs <= set(shown)
    lines = text.split("\n")
    first = min(module.intro.numbers, default=0)
    comments = {n for n in comment_lines(text) - docs if n > first and lines[n - 1].strip(" #:")}
    assert comments <= set(noted)
    without_code = {n for n in shown if n not in code and lines[n - 1].strip()}
    assert without_code <= bracketed_comments(text) | docs


def bracketed_comments(text: str) -> set[int]:
    return {n for n, line in enumerate(text.split("\n"), 1) if line.strip().startswith("#")} - comment_lines(text)


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_every_line_of_a_kernel_is_shown_once(path):
    check(path.read_text("utf-8"), path.name)


def test_every_line_of_foreign_code_is_shown_once():
    checked = 0
    for path in STDLIB:
        text = path.read_text("utf-8")
        try:
            check(text, path.name)
            checked += 1
        except SourceError as error:
            assert "not raw" in error.problem.message
        except AssertionError as error:
            raise AssertionError(f"{path}: {error}") from error
    assert checked > 30


PIECES = [
    "# a note\n",
    "# ## A heading\n#\n# text\n",
    "\n",
    "x = 1\n",
    "y = (  # first\n    1,\n    # inside\n    2,\n)\n",
    "# fmt: off\n",
    "def f(a):\n    '''Say.\n\n    More.\n    '''\n    # why\n    return a\n",
    "def g(a): 'one line'\n",
    "@property\ndef h():\n    # only a note\n    pass  # behind\n",
    "class C:\n    r'''\\alpha'''\n\n    z = '''\n# no comment\n'''\n\n    def m(self):\n        pass\n",
    "if True:\n    # in a block\n\n    w = 2\n",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.booleans())
def test_every_line_of_any_mixture_is_shown_once(pieces, has_intro):
    check(("'''Intro.'''\n" if has_intro else "") + "".join(pieces), "mixture.py")


def test_a_docstring_with_a_backslash_must_be_raw():
    with pytest.raises(SourceError) as caught:
        split('def f():\n    """$\\alpha$"""\n', "kernel.py")
    assert str(caught.value).startswith("kernel.py:2:5: ")
    assert split('def f():\n    r"""$\\alpha$"""\n', "kernel.py").rows[0].note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# an interlude\n\n# a note\nx = 1\n", [("an interlude", True, []), ("a note", False, [4])]),
        ("# ## Forward\n#\n# why\nx = 1\n", [("## Forward", True, []), ("why", False, [4])]),
        ('def f(x):\n    """Say."""\n    return x\n', [("Say.", False, [1, 3])]),
    ],
)
def test_where_a_note_stands(text, expected):
    """An interlude and a heading span both columns."""
    rows = split(text, "kernel.py").rows
    assert [(str(row.note), row.wide, row.code) for row in rows] == expected
