"""What stands under a page's title: reading time, step of the learning path, what to read before; and, on the pages of
an operation, the row of links that ties them together: lesson, fast version, derivation, benchmark, tests."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from academy.site.conversion import TreeStep
from academy.site.learning_path import HOME, kind
from academy.site.library import Library
from academy.site.reading_time import minutes
from academy.site.texts import front_matter, heading, read


def title(index: Library, uri: str) -> str:
    """A page's title, without what follows its colon."""
    if page := index.page_at(uri):
        return page.name
    file = index.root / index.docs / uri
    text = read(file) if file.is_file() else ""
    return front_matter(text).get("title") or heading(text).partition(":")[0] or uri


def named(index: Library, uri: str) -> str:
    """A title that also tells a kernel from its derivation."""
    words = re.sub(r"^(\d+\.) ", "\\1\N{NO-BREAK SPACE}", title(index, uri))
    return f"{words} ({kind(uri)})" if kind(uri) in ("kernel", "derivation") else words


class PageFacts(TreeStep):
    """Puts both under the title."""

    def run(self, root: Element) -> None:
        parent = next((element for element in root.iter() if element.find("h1") is not None), None)
        if parent is None:
            return
        place = list(parent).index(parent.find("h1")) + 1
        for line in (self.operation(), self.reading()):
            if line is not None:
                parent.insert(place, line)

    def reading(self) -> Element | None:
        index, uri = self.conversion.index, self.conversion.uri
        if uri not in index.path.before:
            return None
        line = Element("p", {"class": "page-facts", "data-search-exclude": ""})
        line.text = AtomicString(f"{minutes(index, uri)} min")
        if step := index.path.steps.get(uri):
            _link(line, f" · step {step} of {len(index.path.pages)} on the ", f"/{HOME}", "learning path")
        for number, page in enumerate(index.path.before[uri]):
            _link(line, ", " if number else " · before this: ", f"/{page}", named(index, page))
        return line

    def operation(self) -> Element | None:
        """The row of links; None on pages that belong to no operation."""
        page, index = self.conversion.page, self.conversion.index
        groups = links(index, page.source) if page else []
        if not groups:
            return None
        row = Element("nav", {"class": "op-links", "aria-label": "Pages of this operation", "data-search-exclude": ""})
        for label, paths in groups:
            group = SubElement(row, "span")
            group.text = AtomicString(f"{label} ")
            for path in paths:
                target = index.page_of(path)
                link = SubElement(group, "a", {"href": self.conversion.link(path)})
                link.text = AtomicString(target.name.removesuffix(": benchmark") if target else Path(path).name)
                link.tail = ", " if path != paths[-1] else ""
                if path == page.source:
                    link.set("aria-current", "page")
        return row


def links(index: Library, source: str) -> list[tuple[str, list[str]]]:
    """Label -> files, for the operations of this file. Tests have no page: links to them lead to the repository, where
    they are those of one operation."""
    operations = index.operations_of(source)
    tests = [operation.tests for operation in operations] if len(operations) == 1 else []
    found = [
        ("Lesson", [operation.lesson for operation in operations]),
        ("Fast", [operation.fast for operation in operations]),
        ("Derivation", [operation.derivation for operation in operations]),
        ("Benchmark", [operation.benchmark for operation in operations]),
        ("Tests", tests),
    ]
    return [(label, list(dict.fromkeys(filter(None, paths)))) for label, paths in found if any(paths)]


def _link(line: Element, joint: str, href: str, words: str) -> None:
    """Put a link at the end of the line, behind some text."""
    if len(line):
        line[-1].tail = AtomicString((line[-1].tail or "") + joint)
    else:
        line.text = AtomicString(line.text + joint)
    SubElement(line, "a", {"href": href}).text = AtomicString(words)
