"""The learning path: the order in which a new reader takes the pages, and what to have read before each of them.

One table holds both, in the front matter of docs/learn/index.md. From it come the map on that page (`[[path]]`),
previous and next in the footer (academy/site/reader.py), and the line under each title: reading time, step, what to
read before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from academy.cache import question
from academy.site.library import Library, front_matter, read
from academy.site.reading import minutes
from academy.site.titles import heading

if TYPE_CHECKING:
    from academy.site.extension import AcademyExtension

HOME = "learn/index.md"
KINDS = {"kernels": "kernel", "derivations": "derivation", "learn": "chapter", "guides": "guide"}


@dataclass(frozen=True)
class Stage:
    """A part of the path: its title, a sentence about it, and its pages (uris under docs/)."""

    title: str
    about: str
    pages: tuple[str, ...]


@dataclass(frozen=True)
class LearningPath:
    """`before`: page -> the pages to read first, for every page in the table, also those beside the path."""

    stages: tuple[Stage, ...]
    before: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, docs: Path) -> LearningPath:
        """The table of a project's docs/ folder; empty where there is none."""
        home = docs / HOME
        meta = front_matter(read(home)) if home.is_file() else {}
        stages, before = [], {}
        for stage in meta.get("path", ()):
            stages.append(Stage(stage["stage"], stage["about"], tuple(stage["pages"])))
            before |= {page: tuple(first or ()) for page, first in stage["pages"].items()}
        before |= {page: tuple(first or ()) for page, first in meta.get("beside", {}).items()}
        return cls(tuple(stages), before)

    @property
    def pages(self) -> list[str]:
        """The path from end to end."""
        return [page for stage in self.stages for page in stage.pages]


def kind(uri: str) -> str:
    """What a page is: kernel, derivation, chapter, guide; "" for other pages."""
    return KINDS.get(uri.partition("/")[0], "")


@question
def place(index: Library, docs: str, uri: str) -> tuple[int, int, tuple[str, ...]] | None:
    """A page's step (0: beside the path), how many steps there are, what to read before; None: not in the table."""
    path = LearningPath.read(index.root / docs)
    steps = path.pages
    return (steps.index(uri) + 1 if uri in steps else 0, len(steps), path.before[uri]) if uri in path.before else None


@question
def steps(index: Library, docs: str) -> dict[str, int]:
    """Page -> its step of the path."""
    return {uri: step for step, uri in enumerate(LearningPath.read(index.root / docs).pages, 1)}


@question
def title(index: Library, docs: str, uri: str) -> str:
    """A page's title, without what follows its colon."""
    stub = index.page_at(uri)
    if stub:
        return heading(index, stub)[0].partition(":")[0]
    path = index.root / docs / uri
    text = read(path) if path.is_file() else ""
    found = re.search(r"^# # (.+)$" if path.suffix == ".py" else r"^# (.+?)(?: \{.*)?$", text, re.M)
    return front_matter(text).get("title") or (found[1].partition(":")[0] if found else uri)


def named(index: Library, docs: str, uri: str) -> str:
    """A title that also tells a kernel from its derivation."""
    words = re.sub(r"^(\d+\.) ", "\\1\N{NO-BREAK SPACE}", title(index, docs, uri))
    return f"{words} ({kind(uri)})" if kind(uri) in ("kernel", "derivation") else words


def path_map(index: Library, docs: str) -> list[str]:
    """`[[path]]`: Markdown of the map, stage by stage."""
    path = LearningPath.read(index.root / docs)
    out: list[str] = []
    number = 1
    for stage in path.stages:
        out += ["", f"## {stage.title}", "", stage.about, "", f'<ol class="path" start="{number}" markdown="1">']
        for uri in stage.pages:
            about = f"{kind(uri) or 'page'} · {minutes(index, docs, uri)} min"
            link = f"[{title(index, docs, uri)}](/{uri})"
            out.append(f'<li markdown="span">{link} <span class="path-kind">{about}</span></li>')
        out += ["</ol>", ""]
        number += len(stage.pages)
    return out


class PageFacts(Treeprocessor):
    """The line under the title: how long the page takes, its step of the path, what to read before it."""

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md)
        self.extension = extension

    def run(self, root: Element) -> None:
        docs, index, uri = self.extension.getConfig("docs"), self.extension.index, self.extension.uri
        found = place(index, docs, uri)
        parent = next((element for element in root.iter() if element.find("h1") is not None), None)
        if found is None or parent is None:
            return
        step, of, before = found
        line = Element("p", {"class": "page-facts", "data-search-exclude": ""})
        line.text = AtomicString(f"{minutes(index, docs, uri)} min")
        if step:
            _link(line, f" · step {step} of {of} on the ", HOME, "learning path")
        for number, page in enumerate(before):
            _link(line, ", " if number else " · before this: ", page, named(index, docs, page))
        parent.insert(list(parent).index(parent.find("h1")) + 1, line)


def _link(line: Element, joint: str, page: str, words: str) -> None:
    """Put a link at the end of the line, behind some text."""
    if len(line):
        line[-1].tail = AtomicString((line[-1].tail or "") + joint)
    else:
        line.text = AtomicString(line.text + joint)
    SubElement(line, "a", {"href": f"/{page}"}).text = AtomicString(words)
