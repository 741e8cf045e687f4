"""Mistakes in Markdown that render as something else without a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ITEM = re.compile(r"([-*+]|\d{1,3}[.)])\s+\S")
FENCE = re.compile(r"(`{3,}|~{3,})")
# A line after which a list may begin without a blank line.
OPENER = re.compile(r"(#{1,6} |>|\||<|!!!|\?\?\?|=== |:::|\[\[)")


def lists_after_text(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(line, message) for each list that starts directly after a line of text: Markdown makes one paragraph of both."""
    fence, maths, previous, in_list = "", False, "", False
    for number, line in lines:
        text = line.strip()
        marker = FENCE.match(text)
        if fence:
            fence = "" if text.startswith(fence) and not text.strip("`~") else fence
            previous = ""
            continue
        if marker and not maths:
            fence, previous = marker[1], ""
            continue
        if text.count("$$") % 2:
            maths = not maths
            previous = "" if not maths else text
            continue
        if maths:
            continue
        if not text:
            previous, in_list = "", False
            continue
        if ITEM.match(text):
            indented = line[: len(line) - len(line.lstrip())]
            if previous and not in_list and not OPENER.match(previous) and len(indented) < 4:
                yield number, "a list needs a blank line before it, or it is shown as one paragraph with the line above"
            in_list = True
        previous = text
