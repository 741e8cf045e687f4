"""Texts of the repository and what stands in them: front matter, titles, tagged equations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from academy.book.directives import without_fences

DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
TAG = re.compile(r"\s*\\tag\{([^{}]+)\}")
FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*\n", re.S)


@dataclass(frozen=True)
class Equation:
    """A tagged display equation. `tex` has no \\tag; `path` is the derivation's file."""

    tag: str
    tex: str
    path: str
    line: int


def read(path: Path) -> str:
    """A file's text, read again only when its size or time has changed."""
    stat = path.stat()
    return _read(str(path), stat.st_mtime_ns, stat.st_size)


@cache
def _read(path: str, _time: int, _size: int) -> str:
    return Path(path).read_text("utf-8")


def equations(text: str, path: str) -> Iterator[Equation]:
    """The tagged display equations of a derivation's text, in order. Fenced code is skipped."""
    text = without_fences(text)
    for display in DISPLAY.finditer(text):
        for tag in TAG.finditer(display[1]):
            line = text.count("\n", 0, display.start(1) + tag.start(1)) + 1
            yield Equation(tag[1], TAG.sub("", display[1]).strip(), path, line)


@cache
def front_matter(text: str) -> dict:
    """The YAML between the first two `---` lines; empty when there is none or it is not a mapping."""
    found = FRONT_MATTER.match(text)
    try:
        meta = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}  # MkDocs reports it for the page
    return meta if isinstance(meta, dict) else {}


def without_front_matter(text: str) -> tuple[str, int]:
    """The text below the front matter, and how many lines were cut off above it."""
    found = FRONT_MATTER.match(text)
    return (text[found.end() :], found[0].count("\n")) if found else (text, 0)


def heading(text: str) -> str:
    """The first `# heading`; in a chapter, which is a Python file, after another `#`. "" if there is none."""
    found = re.search(r"^# # (.+)$", text, re.M) or re.search(r"^# (.+?)(?: \{.*)?$", text, re.M)
    return found[1] if found else ""


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph of prose, without links and without a colon at its end."""
    text = re.sub(r"\[([^\[\]]+)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.split())
        if paragraph and paragraph[0] not in "#$|!<[":
            return re.sub(r"[:.]$", "", re.split(r"(?<=[.!?])\s", paragraph)[0]) + "."
    return ""


def summary(title: str, description: str, kind: str) -> str:
    """The description for search engines and links: plain text that stands by itself, without the page's title."""
    text = re.sub(r"\s*\(\$[^$]*\$\)|[*`$]", "", description)
    if kind == "kernel":
        return f"{title.partition(':')[0]}: an annotated Triton kernel. {text}"
    return f"{title}: {text[:1].lower()}{text[1:]}" if len(text) < 60 else text
