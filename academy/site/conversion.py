"""What one conversion of a page's Markdown knows: the library, the page's place, and the text that it is made from."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from markupsafe import Markup

from academy.book import front_matter
from academy.book.directives import fenced, on_line, places
from academy.book.splitter import Module, SourceError, split
from academy.book.texts import read
from academy.site import addresses
from academy.site.library import Library, Page
from academy.site.variables import Variables

#: Directives that show a whole file.
KINDS = ("kernel", "derivation", "exercise")
log = logging.getLogger("mkdocs.academy.site")


class Conversion:
    """`page`: what is shown, where it is made from a file of the repository. Filled by `begin`, before any step runs;
    `sources` grows with the files whose text is put in."""

    def __init__(self, md: Markdown, settings: dict):
        self.md = md
        self.root, self.docs = Path(settings["root"]), settings["docs"]
        self.repo_url, self.branch = settings["repo_url"], settings["branch"]
        self.given = settings["index"]
        self.reset()

    def reset(self) -> None:
        self.page: Page | None = None
        self._variables: Variables | None = None
        self.sources: list[tuple[str, list[tuple[int, str]]]] = []
        self.told: Counter[tuple[str, str]] = Counter()

    def begin(self, lines: list[str]) -> None:
        self.index: Library = self.given or Library.read(self.root.resolve(), self.docs)
        self.uri, self.meta = engines_page(self.md)
        self.page = self.index.page_at(self.uri) if self.uri else self._shown(lines)
        path = self.index.file_at(self.uri)
        if self.uri and not self.page and path.is_file():
            self.uri = path.relative_to(self.index.root / self.index.docs).as_posix()
            text, cut = front_matter.below(read(path))
            texts = notes(text) if path.suffix == ".py" else text.split("\n")
            source = [(cut + i, line) for i, line in enumerate(texts, 1)]
        else:
            source = [(0, line) for line in lines]
        self.sources = [(f"{self.docs}/{self.uri}" if self.uri else "a docstring", source)]

    def _shown(self, lines: list[str]) -> Page | None:
        """What a text shows that is no page of the site."""
        found = [directive for line, part in fenced(lines) if not part and (directive := on_line(line))]
        return next((self.index.page_of(each.argument) for each in found if each.name in KINDS), None)

    @property
    def module(self) -> Module | None:
        """The kernel file whose page this is; None on another page, or where the file can't be shown."""
        if self.page is None or self.page.kind != "kernel":
            return None
        with suppress(SourceError):
            return split(read(self.root / self.page.source), self.page.source)
        return None

    @property
    def variables(self) -> Variables:
        """The variables of the page."""
        if self._variables is None:
            self._variables = Variables.of(self.index, self.page)
        return self._variables

    def problem(self, message: str, needle: str = "", path: str = "", line: int = 0) -> None:
        """Report a mistake. If no place is given: where the page's text has `needle`, or has it the next time."""
        if not path:
            path, line = self._find(needle)
        log.warning("%s: %s", f"{path}:{line}" if line else path, message)

    def _find(self, needle: str) -> tuple[str, int]:
        for path, lines in reversed(self.sources):
            if found := list(filter(None, places(lines, needle))) if needle else []:
                self.told[path, needle] += 1
                return path, found[min(self.told[path, needle], len(found)) - 1]
        return self.sources[-1][0] if self.sources else "", 0

    def blob(self, path: str) -> str:
        return addresses.file_address(self.repo_url, path, self.branch)

    def link(self, path: str, fragment: str = "") -> str:
        """A link to a file of the repository: its page on the site if it has one, else the file in the repository, or
        a copy of it."""
        page = self.index.page_of(path)
        if page is None and not self.repo_url and path in self.index.linked:
            return f"/{path}"
        return (page.href if page else self.blob(path)) + (f"#{fragment}" if fragment else "")


def engines_page(md: Markdown) -> tuple[str, dict]:
    """The place of the page that an engine converts, and its front matter: MkDocs', Zensical's, none in a docstring."""
    if "relpath" in md.treeprocessors:
        file = md.treeprocessors["relpath"].file
        return file.src_uri, file.page.meta
    if "rendering_context" in md.preprocessors and "mkdocstrings_ids" not in md.treeprocessors:
        page = md.preprocessors["rendering_context"].page
        return page.path, page.meta
    return "", {}


def notes(chapter: str) -> list[str]:
    """The lines of a notebook in the percent format: Markdown as it is meant, and "" in the place of code."""
    lines, shown = [], False
    for line in chapter.split("\n"):
        starts = line.startswith("# %%")
        shown = "[markdown]" in line if starts else shown
        lines.append(line.removeprefix("#").removeprefix(" ") if shown and not starts else "")
    return lines


def element(markup: str, **texts: object) -> Element:
    """Markup, in which `{name}` stands for a text, as an element of a page's tree."""
    return fromstring(Markup(markup).format(**texts))


class TreeStep(Treeprocessor):
    """A step on a page's tree."""

    def __init__(self, conversion: Conversion):
        super().__init__(conversion.md)
        self.conversion = conversion
