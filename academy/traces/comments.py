"""The comments of a kernel file, and numbers in them that stand where nothing can check them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from academy.book import comments as reader
from academy.traces.literals import NUMBER

_LIST = re.compile(rf"\[\s*{NUMBER}(?:\s*,\s*(?:{NUMBER}|\.\.\.|…))+\s*\]")
_BARE_ASSIGNMENT = re.compile(rf"(?<![=<>!+\-*/%&|^:\w])(\w+)\s*=\s*({NUMBER})(?![\w.%])")
_PROGRAM_NUMBER = r"(?:\d+|\(\s*\d+(?:\s*,\s*\d+)+\s*\))"
_PROGRAMS = re.compile(rf"\b[Pp]rograms?\s+{_PROGRAM_NUMBER}(?:\s*(?:,|and|or|to|,\s*and)\s*{_PROGRAM_NUMBER})*")
_BARE_NUMBER = re.compile(r"(?<![\w.\-²³×·^/])\d+(?:\.\d+)?(?![\w\-²³%×·^/]|\.\d)")


@dataclass
class Comment:
    """A run of whole-line comments, or one after code. text: without `#`. places: (line, column) of each character."""

    text: str
    places: list[tuple[int, int]]
    line: int
    trailing: bool


def comments(text: str) -> list[Comment]:
    """The comments of a file; neighbouring whole-line ones in one piece. Text inside ``` fences is blanked out."""
    found: list[Comment] = []
    fenced = False
    for each in reader.comments(text):
        body = each.text.lstrip("#")
        indent = len(each.text) - len(body)
        if not found or not each.alone or found[-1].trailing or found[-1].places[-1][0] != each.line - 1:
            fenced = False
            found.append(Comment("", [], each.line, not each.alone))
        if body.strip().startswith("```"):
            fenced, body = not fenced, ""
        found[-1].text += " " + (" " * len(body) if fenced else body)
        start = each.column + indent + 1
        found[-1].places += [(each.line, each.column + 1), *((each.line, start + i) for i in range(len(body)))]
    return found


def bare_numbers(comment: Comment) -> Iterator[tuple[tuple[int, int], str]]:
    """Numbers about a program outside backticks, where nothing can check them."""

    def quiet(match: re.Match) -> str:
        return " " * len(match[0])

    text = re.sub(r"`[^`]*`|\$[^$]*\$|\[\[[^\]]*\]\]|\]\([^)]*\)|<[^>]*>", quiet, comment.text)
    for pattern, what in ((_LIST, "a list of numbers"), (_BARE_ASSIGNMENT, "a value")):
        for match in pattern.finditer(text):
            yield comment.places[match.start()], f"{what} outside backticks can't be checked: {match[0]}"
    for sentence in re.finditer(r"(?:[^.!?]|[.!?](?=\S))+", text):
        number = _BARE_NUMBER.search(_PROGRAMS.sub(quiet, sentence[0])) if _PROGRAMS.search(sentence[0]) else None
        if number:
            message = f"a number about a program outside backticks can't be checked: {number[0]}"
            yield comment.places[sentence.start() + number.start()], message
