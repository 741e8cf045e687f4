"""The page "Error messages" from `academy.compiler.errors`: for each text why it comes, and what to write instead."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby

from academy.compiler.errors import Entry, entries

#: So long may a heading be; the whole text stands below it.
_HEADING = 72


def markdown() -> list[str]:
    out: list[str] = []
    for group, found in groupby(entries(), key=lambda entry: entry.group):
        out += ["", f"## {group}", ""]
        for entry in found:
            out += _shown(entry)
    return out


def anchor(entry: Entry) -> str:
    return re.sub(r"[^a-z0-9]+", "-", entry.known_by.lower()).strip("-")


def _shown(entry: Entry) -> list[str]:
    heading = textwrap.shorten(entry.says, _HEADING, placeholder=" …")
    out = [f"### {_code(heading)} {{ #{anchor(entry)} }}", ""]
    if heading != entry.says:
        out += ["```text", *textwrap.wrap(entry.says, 100, break_long_words=False), "```", ""]
    notes, advice = [entry.why, entry.wording], entry.advice()
    if entry.on == "real card":
        notes.append("(Only a real card prints it.)")
    out += [*" ".join(filter(None, notes)).split("\n"), "", f"**Instead:** {advice[:1].upper()}{advice[1:]}.", ""]
    if entry.before:
        on = {"card 80": ", on an A100", "real card": ", on a card"}.get(entry.on, "")
        out += [
            '??? example "The smallest code that prints it' + on + (', and the same mended"' if entry.after else '"')
        ]
        out += ["", *_fence(entry.before), *(_fence(entry.after) if entry.after else [])]
    return out


def _code(text: str) -> str:
    mark = "``" if "`" in text else "`"
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{mark}{space}{text}{space}{mark}"


def _fence(code: str) -> list[str]:
    return [f"    {line}".rstrip() for line in ["```python", *code.strip().split("\n"), "```", ""]]
