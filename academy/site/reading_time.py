"""How long a page takes to read: words, lines of code and display equations, counted in the files it is made from."""

from __future__ import annotations

import re
from pathlib import Path

from academy.book import front_matter
from academy.book.directives import EQUATION, SNIPPET, fenced
from academy.book.maths import DISPLAY
from academy.book.splitter import SourceError, split
from academy.book.texts import read
from academy.site.library import Library

#: What a reader takes in per minute: words of technical prose, lines of code, display equations.
WORDS, CODE_LINES, EQUATIONS = 200, 25, 4


def minutes(index: Library, uri: str) -> int:
    """Minutes for the page at this place under docs/, at least one."""
    page = index.page_at(uri)
    path = index.root / (page.source if page else f"{index.docs}/{uri}")
    if not path.is_file():
        return 1
    prose, code = _kernel(read(path), page.source) if page and page.kind == "kernel" else _other(path)
    words = []
    for line, part in fenced(prose.split("\n")):
        if not part:
            words.append(line)
        elif part == "inside":
            snippet = SNIPPET.search(line)
            code += _lines(_snippet(index.root, snippet)) if snippet else _lines(line)
    text = "\n".join(words)
    equations = len(DISPLAY.findall(text)) + len(EQUATION.findall(text))
    text = DISPLAY.sub("", EQUATION.sub("", text))
    text = re.sub(r"\]\([^)]*\)|<[^>]+>|\$[^$\n]+\$", "", text)
    count = len(re.findall(r"[^\W\d_][\w'’-]*", text))
    return max(1, round(count / WORDS + code / CODE_LINES + equations / EQUATIONS))


def _kernel(text: str, source: str) -> tuple[str, int]:
    """A kernel file's notes, and how many lines of code it has."""
    try:
        module = split(text, source)
    except SourceError:
        return "", 0
    notes = "\n\n".join(str(note) for note in [module.intro, *(row.note for row in module.rows)])
    return notes, sum(bool(module.lines[number - 1].strip()) for row in module.rows for number in row.code)


def _other(path: Path) -> tuple[str, int]:
    """A page's Markdown; of a notebook in the percent format also the number of lines of its code cells."""
    if path.suffix != ".py":
        return front_matter.below(read(path))[0], 0
    prose, code = "", 0
    for cell in re.split(r"^# %%", read(path), flags=re.M)[1:]:
        first, _, body = cell.partition("\n")
        if "[markdown]" in first:
            prose += re.sub(r"^# ?", "", body, flags=re.M) + "\n"
        else:
            code += _lines(body)
    return prose, code


def _snippet(root: Path, found: re.Match) -> str:
    """The text that pymdownx.snippets puts in: a file, or the section of it with this name."""
    path = root / found[1]
    text = read(path) if path.is_file() else ""
    section = re.search(rf"\[start:{found[2]}\][^\n]*\n(.*?)^[^\n]*\[end:{found[2]}\]", text, re.M | re.S)
    return section[1] if section else text


def _lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.split("\n"))
