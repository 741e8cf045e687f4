"""What stands under a page's title: reading time, step of the learning path, what to read before; and, on the pages of
an operation, the row of links that ties them together: lesson, fast version, derivation, benchmark, tests."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element

from markupsafe import Markup

from academy.book import front_matter
from academy.book.learning_path import HOME, kind
from academy.book.texts import heading, read
from academy.site.conversion import TreeStep, element
from academy.site.library import Library
from academy.site.reading_time import minutes


def title(index: Library, uri: str) -> str:
    """A page's title, without what follows its colon."""
    if page := index.page_at(uri):
        return page.name
    file = index.root / index.docs / uri
    text = read(file) if file.is_file() else ""
    return front_matter.values(text).get("title") or heading(text).partition(":")[0] or uri


def named(index: Library, uri: str) -> str:
    """A title that also tells a kernel from its derivation."""
    words = re.sub(r"^(\d+\.) ", "\\1\N{NO-BREAK SPACE}", title(index, uri))
    return f"{words} ({kind(uri)})" if kind(uri) in ("kernel", "derivation") else words


class PageFacts(TreeStep):
    """Puts both under the title."""

    def run(self, root: Element) -> None:
        found = (
            (parent, place) for parent in root.iter() for place, child in enumerate(parent, 1) if child.tag == "h1"
        )
        parent, place = next(found, (root, 0))
        if not place:
            return
        for line in (self.operation(), self.reading()):
            if line is not None:
                parent.insert(place, line)

    def reading(self) -> Element | None:
        index, uri = self.conversion.index, self.conversion.uri
        if uri not in index.path.before:
            return None
        facts = [Markup("{} min").format(minutes(index, uri))]
        if step := index.path.steps.get(uri):
            path = Markup('step {} of {} on the <a href="/{}">learning path</a>')
            facts.append(path.format(step, len(index.path.pages), HOME))
        if before := index.path.before[uri]:
            links = (Markup('<a href="/{}">{}</a>').format(page, named(index, page)) for page in before)
            facts.append(Markup("before this: ") + Markup(", ").join(links))
        line = '<p class="page-facts" data-search-exclude="">{facts}</p>'
        return element(line, facts=Markup(" · ").join(facts))

    def operation(self) -> Element | None:
        """The row of links; None on pages that belong to no operation."""
        page, index = self.conversion.page, self.conversion.index

        def link(path: str) -> str:
            target = index.page_of(path)
            words = target.name.removesuffix(": benchmark") if target else Path(path).name
            here = Markup(' aria-current="page"') if page and path == page.source else ""
            return Markup('<a href="{}"{}>{}</a>').format(self.conversion.link(path), here, words)

        groups = [
            Markup("<span>{} {}</span>").format(label, Markup(", ").join(map(link, paths)))
            for label, paths in (links(index, page.source) if page else ())
        ]
        row = '<nav class="op-links" aria-label="Pages of this operation" data-search-exclude="">{groups}</nav>'
        return element(row, groups=Markup().join(groups)) if groups else None


def links(index: Library, source: str) -> list[tuple[str, list[str]]]:
    """Label -> files, for the operations of this file. Tests have no page: links to them lead to the repository, where
    they are those of one operation."""
    operations = index.operations_of(source)
    kinds = ["lesson", "fast", "derivation", "benchmark", *(["tests"] if len(operations) == 1 else [])]
    found = {kind: [getattr(operation, kind) for operation in operations] for kind in kinds}
    found["fast"] += [part for operation in operations for part in operation.parts]
    return [
        (kind.capitalize(), list(dict.fromkeys(filter(None, paths)))) for kind, paths in found.items() if any(paths)
    ]
