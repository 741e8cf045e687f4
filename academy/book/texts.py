"""Texts of the repository, and what they say of themselves: titles, first sentences."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path


def read(path: Path) -> str:
    """A file's text, read again only when its size or time has changed."""
    stat = path.stat()
    return _read(str(path), stat.st_mtime_ns, stat.st_size)


def digest(path: Path) -> str:
    """Of a file's text, for keys: much shorter than that."""
    return _digest(read(path))


@cache
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _read(path: str, _time: int, _size: int) -> str:
    return Path(path).read_text("utf-8")


def heading(text: str) -> str:
    """The first `# heading`; in a chapter, which is a Python file, after another `#`. "" if there is none."""
    found = re.search(r"^# # (.+)$", text, re.M) or re.search(r"^# (.+?)(?: \{.*)?$", text, re.M)
    return found[1] if found else ""


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph of prose, without links, cited formulas and a colon at its end."""
    text = re.sub(r"\[([^\[\]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(r",?\s*\[\[tag: [^\]]*\]\]", "", text)
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.split())
        if paragraph and paragraph[0] not in "#$|!<[":
            return re.sub(r"(?<![?!])$", ".", re.sub(r"[:,.]+$", "", re.split(r"(?<=[.!?])\s", paragraph)[0]))
    return ""


def summary(title: str, description: str, kind: str) -> str:
    """The description for search engines and links: plain text that stands by itself, without the page's title."""
    text = re.sub(r"\s*\(\$[^$]*\$\)|[*`$]", "", description).replace('"', "'")  # it stands between such quotes
    if kind == "kernel":
        return f"{title.partition(':')[0]}: an annotated Triton kernel. {text}"
    return f"{title}: {text[:1].lower()}{text[1:]}" if len(text) < 60 else text
