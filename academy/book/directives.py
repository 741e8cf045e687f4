"""The directives of this project's Markdown, `[[name: argument]]`, and the fenced blocks in which they are only text.

This is the only place that knows their syntax. What they stand for on the site: `academy.site.extension`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: What stands on a line of its own (`eq`: also within a list or a quotation), and what stands within a sentence.
LINES = (
    *("kernel", "derivation", "kernels", "operations", "derivations", "reference"),
    *(
        "path",
        "tracks",
        "language",
        "errors",
        "verified",
        "code",
        "playground",
        "live",
        "benchmark",
        "benchmarks",
        "ladder",
        "figure",
        "training",
        "experiment",
        "exercise",
        "exercises",
    ),
)
SPANS = ("tag", "bench", "changes", "run")
FENCE = re.compile(r"[ >]*(`{3,}|~{3,})")
# A file that pymdownx.snippets puts in, and the name of a section of it, if any.
SNIPPET = re.compile(r"""-{1,}8<-{1,} +["']([^"':]+)(?::(\w+))?""")


class Directive(NamedTuple):
    name: str
    argument: str


def pattern(*names: str) -> str:
    """A regular expression for these directives, with the groups `name` and `argument`."""
    return rf"\[\[(?P<name>{'|'.join(names)})(?::\s*(?P<argument>[^\s\]](?:.*?\S)??))? *\]\](?!\])"


_LINE = re.compile(pattern(*LINES) + r"\s*")
#: `[[eq: TAG]]` with what indents it.
EQUATION = re.compile(rf"^(?P<indent>[ >]*){pattern('eq')}[ \t]*$", re.M)
CITATION = re.compile(pattern("eq", "tag"))


def on_line(line: str) -> Directive | None:
    """The directive that this line consists of."""
    found = _LINE.fullmatch(line)
    return Directive(found["name"], found["argument"] or "") if found else None


def cited(text: str) -> list[str]:
    """The tags that a text cites, in order."""
    return [found["argument"] for found in CITATION.finditer(text)]


def fenced(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line, and its part in a fenced block: "opens", "inside", "closes", or "" for a line outside of one."""
    fence = ""
    for line in lines:
        marker = FENCE.match(line)
        if marker and (not fence or marker[1].startswith(fence)):
            part, fence = ("closes", "") if fence else ("opens", marker[1])
            yield line, part
        else:
            yield line, "inside" if fence else ""


def places(lines: Iterable[tuple[int, str]], words: str) -> list[int]:
    """The number of the line of each place where `words` stand outside of fenced blocks. lines: number and text."""
    numbers, texts = zip(*lines)
    found = zip(numbers, fenced(texts))
    return [number for number, (text, part) in found if not part for _ in range(text.count(words))]


def without_fences(text: str) -> str:
    """A text with its fenced blocks replaced by spaces: every other character stays where it is."""
    return "\n".join(" " * len(line) if part else line for line, part in fenced(text.split("\n")))
