"""The comments of a kernel file, and numbers in them that stand where nothing can check them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

#: A number as it is written.
NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIST = re.compile(rf"\[\s*{NUMBER}(?:\s*,\s*(?:{NUMBER}|\.\.\.|…))+\s*\]")
_BARE_ASSIGNMENT = re.compile(rf"(?<![=<>!+\-*/%&|^:\w])(\w+)\s*=\s*({NUMBER})(?![\w.%])")
_PROGRAM_NUMBER = r"(?:\d+|\(\s*\d+(?:\s*,\s*\d+)+\s*\))"
_PROGRAMS = re.compile(rf"\b[Pp]rograms?\s+{_PROGRAM_NUMBER}(?:\s*(?:,|and|or|to|,\s*and)\s*{_PROGRAM_NUMBER})*")
_BARE_NUMBER = re.compile(r"(?<![\w.\-²³×·^/])\d+(?:\.\d+)?(?![\w\-²³%×·^/]|\.\d)")


@dataclass
class Comment:
    """A run of whole-line comments, or one behind code. text: without `#`. places: (line, column) of each character."""

    text: str
    places: list[tuple[int, int]]
    line: int
    trailing: bool


def comments(text: str) -> list[Comment]:
    """The comments of a file; neighbouring whole-line ones in one piece. Text inside ``` fences is blanked out."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    code = {token.start[0] for token in tokens if token.type not in blank}
    found, fenced = [], False
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        body = token.string.lstrip("#")
        indent = len(token.string) - len(body)
        trailing = line in code
        joined = found and not trailing and not found[-1].trailing and found[-1].places[-1][0] == line - 1
        if not joined:
            fenced = False
            found.append(Comment("", [], line, trailing))
        if body.strip().startswith("```"):
            fenced, body = not fenced, ""
        body = " " * len(body) if fenced else body
        found[-1].text += " " + body
        found[-1].places += [(line, column + 1), *((line, column + indent + 1 + i) for i in range(len(body)))]
    return found


def statement_line(function: ast.FunctionDef, line: int) -> int:
    starts = [n.lineno for n in ast.walk(function) if isinstance(n, ast.stmt) and n.lineno <= line <= n.end_lineno]
    return max(starts, default=line)


def bare_numbers(comment: Comment) -> list[tuple[tuple[int, int], str]]:
    """Numbers about a program outside backticks, where nothing can check them."""
    quiet = lambda match: " " * len(match[0])  # noqa: E731
    text = re.sub(r"`[^`]*`|\$[^$]*\$|\[\[[^\]]*\]\]|\]\([^)]*\)|<[^>]*>", quiet, comment.text)
    found = []
    for pattern, what in ((_LIST, "a list of numbers"), (_BARE_ASSIGNMENT, "a value")):
        found += [(m.start(), f"{what} outside backticks can't be checked: {m[0]}") for m in pattern.finditer(text)]
    for sentence in re.finditer(r"(?:[^.!?]|[.!?](?=\S))+", text):
        if _PROGRAMS.search(sentence[0]):
            rest = _PROGRAMS.sub(quiet, sentence[0])
            for match in _BARE_NUMBER.finditer(rest):
                message = f"a number about a program outside backticks can't be checked: {match[0]}"
                found.append((sentence.start() + match.start(), message))
                break
    return [(comment.places[position], message) for position, message in found]
