"""Mistakes in Markdown that silently render as something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from academy.book.directives import fenced

ITEM = re.compile(r"([-*+]|\d{1,3}[.)])\s+\S")
# A line after which a list may begin without a blank line.
OPENER = re.compile(r"(#{1,6} |>|\||<|!!!|\?\?\?|=== |:::|\[\[)")
MESSAGE = "a list needs a blank line before it, or it is shown as one paragraph with the line above"
NUMBER = "a sentence goes on with this number, which would begin a list: move a word to this line"


def lists_after_text(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(line, message) for each list that starts directly after a line of text: Markdown makes one paragraph of both.
    Also for a number that ends a sentence at the start of a line within a list: Markdown makes a list of it."""
    numbers, texts = zip(*lines)
    maths, previous, in_list = False, "", False
    numbered: set[int] = set()  # how far lists with numbers are indented
    for number, (line, part) in zip(numbers, fenced(texts)):
        text = "" if part else line.strip()
        if text.count("$$") % 2:
            maths = not maths
            previous = text if maths else ""
        elif maths or part:
            previous = previous if maths else ""
        elif not text:
            previous, in_list = "", False
        else:
            if item := ITEM.match(text):
                indent = len(line) - len(line.lstrip())
                if previous and not in_list and not OPENER.match(previous) and indent < 4:
                    yield number, MESSAGE
                in_list = True
                if item[1][0].isdigit():
                    if previous and indent not in numbered and not item[1].startswith("1"):
                        yield number, NUMBER
                    numbered.add(indent)
            previous = text
