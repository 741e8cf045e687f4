"""Split an annotated Python module into the rows of its page: a note on the left, the code it explains on the right.

Nothing is lost: every line that is neither a comment of its own, a docstring nor blank is the code of exactly one row,
in the order of the file (tests/book/test_splitter.py).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import cast

from academy.book import syntax
from academy.book.comments import Comment, comments
from academy.book.problems import Problem

HEADING = re.compile(r"#{2,4} \S")


class SourceError(ValueError):
    """The module cannot be shown as a page. `problem` says where and why."""

    def __init__(self, problem: Problem):
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class Text:
    """Markdown from comments or docstrings, with the line of the file that each of its lines came from (0: none)."""

    lines: tuple[tuple[int, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __add__(self, other: Text) -> Text:
        gap = ((0, ""),) if self and other else ()
        return Text(self.lines + gap + other.lines)

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines)

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.lines if number]


@dataclass
class Row:
    """One row of the page. `wide` rows have no code: a heading or an interlude across both columns."""

    note: Text = Text()
    code: list[int] = field(default_factory=list)
    wide: bool = False
    name: str = ""  # of the function or class that starts here


@dataclass
class Module:
    """A kernel file as a page. `text` is the source; `intro` the module's docstring; line numbers count from 1."""

    path: str
    text: str
    intro: Text
    rows: list[Row]

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def lines_of(self, name: str) -> list[int]:
        """The code lines of a top-level function or class, without comments of their own and docstrings."""
        for node in syntax.tree(self.text).body:
            if isinstance(node, syntax.DEFINITION) and node.name == name:
                inside = range(syntax.first_line(node), syntax.last_line(node) + 1)
                return [number for row in self.rows for number in row.code if number in inside]
        return []


def introduction(text: str) -> str:
    """The module's docstring; "" where the file does not parse, which its own page reports."""
    try:
        return ast.get_docstring(syntax.tree(text)) or ""
    except SyntaxError:
        return ""


@lru_cache(256)
def split(text: str, path: str) -> Module:
    """Split a module's source. SourceError: it does not parse, or a docstring with a backslash is not raw."""
    if problem := syntax.problem(text, path):
        raise SourceError(problem)
    tree, lines = syntax.tree(text), text.split("\n")
    docs = list(_docstrings(tree, lines, path))
    intro = next((doc for doc in docs if doc.owner is tree), _Note(0, 0, Text()))
    notes = {note.first: note for note in [*docs, *_comments(text, after=intro.first)]}
    definitions = {syntax.first_line(node): node.name for node in tree.body if isinstance(node, syntax.DEFINITION)}
    return Module(path, text, intro.text, _Rows(lines, notes, definitions).build())


@dataclass(frozen=True)
class _Note:
    """The docstring of `owner`, or a run of comment lines, one under the other. `hidden`: for tools, not shown."""

    first: int
    last: int
    text: Text
    owner: ast.AST | None = None
    hidden: bool = False


def _docstrings(tree: ast.Module, lines: list[str], path: str) -> Iterator[_Note]:
    for owner in [tree, *syntax.statements(tree)]:
        if not isinstance(owner, (ast.Module, *syntax.DEFINITION)) or ast.get_docstring(owner, clean=False) is None:
            continue
        node = cast(ast.Expr, owner.body[0])
        last = syntax.last_line(node)
        source = "\n".join(lines[node.lineno - 1 : last])
        if "\\" in source and not source.lstrip()[0].lower() == "r":
            message = 'this docstring has a backslash but is not raw: write r""" in front of it'
            raise SourceError(Problem(path, node.lineno, node.col_offset + 1, message, lines[node.lineno - 1]))
        before = lines[node.lineno - 1][: node.col_offset].strip()
        after = lines[last - 1].encode()[node.end_col_offset :].strip()
        if not before and not after:  # it has its lines to itself
            yield _Note(node.lineno, last, _docstring_text(ast.literal_eval(node.value), node.lineno), owner)


def _docstring_text(value: str, first: int) -> Text:
    """`inspect.cleandoc`, remembering the line of the file that each line came from."""
    raw = value.split("\n")
    clean = inspect.cleandoc(value).split("\n") if value.strip() else []
    skipped = next((i for i, line in enumerate(raw) if line.strip()), 0)
    return Text(tuple((first + skipped + i, line) for i, line in enumerate(clean)))


def _comments(text: str, after: int) -> Iterator[_Note]:
    """The comments on lines of their own outside brackets. Those above line `after` are not shown."""
    runs: list[list[Comment]] = []
    for each in comments(text):
        if each.inside or not each.alone:
            continue
        before = runs[-1][-1] if runs else None
        if before and (before.line, before.column, before.for_tools) == (each.line - 1, each.column, each.for_tools):
            runs[-1].append(each)
        else:
            runs.append([each])
    for run in runs:
        body = Text(tuple((each.line, each.body) for each in run))
        yield _Note(run[0].line, run[-1].line, body, hidden=run[0].line < after or run[0].for_tools)


class _Rows:
    """Walks the file once and fills the rows."""

    def __init__(self, lines: list[str], notes: dict[int, _Note], definitions: dict[int, str]):
        self.lines, self.notes, self.definitions = lines, notes, definitions
        self.rows: list[Row] = []
        self.row = Row()

    def build(self) -> list[Row]:
        number = 1
        while number <= len(self.lines):
            if note := self.notes.get(number):
                self.comment(note) if note.owner is None else self.docstring(note)
                number = note.last + 1
            else:
                self.code(number)
                number += 1
        self.close()
        return self.rows

    def code(self, number: int) -> None:
        if self.lines[number - 1].strip() or self.row.code:
            if number in self.definitions:
                if self.row.code:
                    self.close()
                self.row.name = self.definitions[number]
            self.row.code.append(number)

    def docstring(self, doc: _Note) -> None:
        """A function's docstring stands beside its signature, and the code below it goes on in the same row."""
        if isinstance(doc.owner, syntax.DEFINITION):
            start = syntax.first_line(doc.owner)
            before = [n for n in self.row.code if n < start]
            if start in self.row.code and any(self.lines[n - 1].strip() for n in before):
                signature = [n for n in self.row.code if n >= start]
                self.row.code = before
                self.close()
                self.row = Row(Text(), signature, name=doc.owner.name)
            self.row.note += doc.text

    def comment(self, comment: _Note) -> None:
        if comment.hidden:
            return
        self.close()
        lines = comment.text.lines
        if HEADING.match(lines[0][1]):
            self.rows.append(Row(Text(lines[:1]), wide=True))
            lines = lines[1:]
            while lines and not lines[0][1].strip():
                lines = lines[1:]
        if (
            lines and not "".join(self.lines[comment.last : comment.last + 1]).strip()
        ):  # a blank line or the end follows
            self.rows.append(Row(Text(lines), wide=True))
        elif lines:
            self.row.note = Text(lines)

    def close(self):
        row, self.row = self.row, Row()
        while row.code and not self.lines[row.code[-1] - 1].strip():
            row.code.pop()
        if row.note or row.code:
            self.rows.append(row)
