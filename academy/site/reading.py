"""How long a page takes to read: words, lines of code and display equations, counted in the files it is made from."""

from __future__ import annotations

import re
from pathlib import Path

from academy.cache import question
from academy.site.library import DISPLAY, SNIPPET, Library, read, without_front_matter
from academy.site.splitter import SourceError, split

#: What a reader takes in per minute: words of technical prose, lines of code, display equations.
WORDS, CODE_LINES, EQUATIONS = 200, 25, 4
CITED = re.compile(r"\[\[eq: *[^\]\s]+ *\]\]")
FENCED = re.compile(r"^ {0,7}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,7}\1[^\n]*$", re.M | re.S)


@question
def minutes(index: Library, docs: str, uri: str) -> int:
    """Minutes for the page at this place under docs/, at least one."""
    stub = index.page_at(uri)
    path = index.root / (stub.source if stub else f"{docs}/{uri}")
    if not path.is_file():
        return 1
    words, code, equations = _count(read(path), path.suffix, stub.source if stub else "", index.root)
    return max(1, round(words / WORDS + code / CODE_LINES + equations / EQUATIONS))


def _count(text: str, suffix: str, source: str, root: Path) -> tuple[int, int, int]:
    if suffix == ".py":
        prose, code = _kernel(text, source) if source else _chapter(text)
    else:
        prose, code = without_front_matter(text)[0], 0
    for fence in FENCED.finditer(prose):
        code += sum(_lines(_snippet(root, found)) for found in SNIPPET.finditer(fence[2])) or _lines(fence[2])
    prose = FENCED.sub("", prose)
    equations = len(DISPLAY.findall(prose)) + len(CITED.findall(prose))
    prose = DISPLAY.sub("", CITED.sub("", prose))
    return len(re.findall(r"[^\W\d_][\w'’-]*", re.sub(r"\]\([^)]*\)|<[^>]+>|\$[^$\n]+\$", "", prose))), code, equations


def _kernel(text: str, source: str) -> tuple[str, int]:
    try:
        module = split(text, source)
    except SourceError:
        return "", 0
    notes = "\n\n".join(str(note) for note in [module.intro, *(row.note for row in module.rows)])
    return notes, sum(bool(module.lines[number - 1].strip()) for row in module.rows for number in row.code)


def _chapter(text: str) -> tuple[str, int]:
    """A notebook in the percent format: its Markdown, and how many lines of code its other cells have."""
    prose, code = "", 0
    for cell in re.split(r"^# %%", text, flags=re.M)[1:]:
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
