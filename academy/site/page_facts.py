"""What stands at a page's title: reading time, step of the learning path, what to read before; and, on the pages of an
operation, the tabs that make them one place: lesson, fast version, derivation, benchmark, exercises."""

from __future__ import annotations

import re
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
    """Puts the line under the title, and the tabs above it."""

    def run(self, root: Element) -> None:
        found = (
            (parent, place) for parent in root.iter() for place, child in enumerate(parent, 1) if child.tag == "h1"
        )
        parent, place = next(found, (root, 0))
        if not place:
            return
        for line, where in ((self.reading(), place), (self.operation(), place - 1)):
            if line is not None:
                parent.insert(where, line)

    def reading(self) -> Element | None:
        index, uri = self.conversion.index, self.conversion.uri
        if uri not in index.path.before:
            return None
        facts = [Markup("{} min").format(minutes(index, uri))]
        step = index.path.steps.get(uri)
        if step:
            path = Markup('step {} of {} on the <a href="/{}">learning path</a>')
            facts.append(path.format(step, len(index.path.pages), HOME))
        if before := index.path.before[uri]:
            links = (Markup('<a href="/{}">{}</a>').format(page, named(index, page)) for page in before)
            facts.append(Markup("before this: ") + Markup(", ").join(links))
        line = '<p class="page-facts" data-search-exclude="" data-step="{step}">{facts}</p>'
        return element(line, step=step or "", facts=Markup(" · ").join(facts))

    def operation(self) -> Element | None:
        """The tabs; None on pages that belong to no operation."""
        page, index = self.conversion.page, self.conversion.index
        groups = links(index, page.source) if page else []
        if not page or not groups:
            return None

        def link(path: str, words: str) -> Markup:
            here = Markup(' aria-current="page"') if path == page.source else ""
            return Markup('<a href="{}"{}>{}</a>').format(self.conversion.link(path), here, words)

        tabs = []
        for label, paths in groups:
            if len(paths) == 1:
                tabs.append(link(paths[0], label))
            else:
                named = (link(path, index.pages[path].name.removesuffix(": benchmark")) for path in paths)
                words = label if label in ("Fast", "Exercises") else f"{label}s"
                tabs.append(Markup(MENU).format(words=words, inside=Markup().join(named)))
        if page.kind == "kernel":
            tabs.append(Markup('<a class="op-all" href="/kernels/index.md">All kernels</a>'))
        row = '<nav class="op-links" aria-label="Pages of this operation" data-search-exclude="">{tabs}</nav>'
        return element(row, tabs=Markup().join(tabs))


#: A tab that leads to several pages.
MENU = '<details class="op-menu" name="op-menu"><summary>{words}</summary><div>{inside}</div></details>'


def links(index: Library, source: str) -> list[tuple[str, list[str]]]:
    """Label -> files, for the operations of this file; for an exercise, those of the page that it belongs to."""
    exercise = index.exercises.get(source)
    page = index.page_at(exercise.page) if exercise else None
    operations = index.operations_of(page.source if page else source)
    found = {kind: [getattr(operation, kind) for operation in operations] for kind in KINDS}
    found["fast"] += [part for operation in operations for part in operation.parts]
    uris = [index.pages[path].uri for operation in operations for path in operation.files]
    tried = [path for path, each in index.exercises.items() if each.page in uris]
    found["exercises"] = sorted(
        tried, key=lambda path: (uris.index(index.exercises[path].page), index.exercises[path].order)
    )
    return [
        (kind.capitalize(), list(dict.fromkeys(filter(None, paths)))) for kind, paths in found.items() if any(paths)
    ]


KINDS = ("lesson", "fast", "derivation", "benchmark")
