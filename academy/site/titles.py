"""Titles and descriptions of pages that show a kernel or a derivation: the stub's, else what the file itself says."""

from __future__ import annotations

import re
from pathlib import Path

from academy.cache import question
from academy.site.library import Library, Page, front_matter, read, without_front_matter
from academy.site.splitter import introduction


def heading(index: Library, page: Page) -> tuple[str, str]:
    """Title and one-line description: the stub's front matter, else what the file itself says."""
    return _heading(index, page.source)


@question
def _heading(index: Library, source: str) -> tuple[str, str]:
    page = index.pages[source]
    text = read(index.root / page.source)
    if page.kind == "kernel":
        lines = introduction(text).split("\n")
        own = {"title": lines[0].removeprefix("# ") if lines[0].startswith("# ") else Path(page.source).stem}
        own["description"] = first_sentence("\n".join(lines[1:]))
    else:
        own = dict(front_matter(text))
        body, _ = without_front_matter(text)
        title = re.search(r"^# (.+)$", body, re.M)
        own.setdefault("title", title[1] if title else Path(page.source).stem)
        own.setdefault("description", first_sentence(body))
    return page.meta.get("title") or own["title"], page.meta.get("description") or own["description"]


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph of prose, without a colon at its end."""
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
