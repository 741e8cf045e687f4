"""The Python-Markdown extension `academy.site`.

    [[kernel: annotated_examples/classics/layernorm.py]]   the page of a kernel file
    [[derivation: backprop_math/layernorm.md]]             a derivation
    [[kernels]]  [[derivations]]                           lists of all of them
    [[path]]                                               the map of the learning path
    [[code: PATH NAME]]                                    a function of a kernel file, without its notes
    [[benchmark: layernorm]]  [[benchmarks]]               committed results of an operation, of all operations
    [[eq: LN-X]]                                           a tagged equation, drawn from its derivation, with a link
    [[tag: LN-X]]                                          a link to it, within a sentence
    [[bench: KEY]]                                         a measured number
    [[run: classics/layernorm: KERNEL, pid=0: mean[0]]]    a number of a recorded run, with a link to its moment

A mistake is logged as a warning, `path:line: message`, which fails `mkdocs build --strict`; `mkdocs serve` goes on and
shows the page, so that it can be mended while looking at it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from markdown import Extension

from academy import cache
from academy.site.citations import CitedEquation, Measured, Recorded, TagLink
from academy.site.directives import Directives
from academy.site.finish import Contents, Finish
from academy.site.glossary import Mentions
from academy.site.library import Library, Page, read, without_front_matter
from academy.site.path import PageFacts
from academy.site.splitter import Module
from academy.site.variables import Names, Variables

log = logging.getLogger("mkdocs.academy.site")


class AcademyExtension(Extension):
    """Holds what one conversion knows: the library, the page's place, and the text that it is made from."""

    def __init__(self, **settings):
        self.config = {
            "root": [".", "the repository"],
            "docs": ["docs", "the folder with the site's own pages, under the repository"],
            "repo_url": ["", "where the repository is published; links to files go there"],
            "branch": ["main", "the branch that those links show"],
        }
        super().__init__(**settings)
        self.reset()

    def reset(self):
        self.page: Page | None = None  # set on the page of a kernel or derivation
        self.module: Module | None = None
        self._variables: Variables | None = None
        self.sources: list[tuple[str, list[tuple[int, str]]]] = []

    def extendMarkdown(self, md):
        self.md = md
        md.registerExtension(self)
        md.preprocessors.register(Directives(self), "academy_directives", 29)  # before fenced code and raw HTML
        md.parser.blockprocessors.register(CitedEquation(self), "academy_equation", 95)
        md.inlinePatterns.register(TagLink(r"\[\[tag: *([^\]\s]+) *\]\]", self), "academy_tag", 185)
        md.inlinePatterns.register(Measured(r"\[\[bench: *([^\]]+?) *\]\]", self), "academy_bench", 184)
        md.inlinePatterns.register(Recorded(r"\[\[run: *(.+?) *\]\](?!\])", self), "academy_run", 186)
        # After inline patterns (20), before the table of contents and MkDocs's links and anchors (5 and below).
        md.treeprocessors.register(Finish(self), "academy_finish", 7)
        md.treeprocessors.register(Names(self), "academy_names", 6)
        md.treeprocessors.register(Contents(self), "academy_contents", 4)
        md.treeprocessors.register(PageFacts(self), "academy_facts", 3)
        md.treeprocessors.register(Mentions(self), "academy_terms", 2)

    # What the parts below share

    @property
    def root(self) -> Path:
        return Path(self.getConfig("root"))

    def library(self) -> Library:
        if cache.building(self.root):  # one index for a whole build: docstrings alone are hundreds of conversions
            return cache.building(self.root)
        return Library.read(self.root, self.getConfig("docs"))

    @property
    def variables(self) -> Variables:
        """The variables of the page that is being converted."""
        if self._variables is None:
            self._variables = Variables.of(self.index, self.page)
        return self._variables

    def begin(self, lines: list[str]) -> Library:
        self.index, self._variables = self.library(), None
        relpath = self.md.treeprocessors["relpath"] if "relpath" in self.md.treeprocessors else None
        self.uri = relpath.file.src_uri if relpath else ""
        self.page = self.index.page_at(self.uri) if self.uri else None
        path = self.root / self.getConfig("docs") / self.uri
        if self.uri and path.is_file():
            text, cut = without_front_matter(read(path))
            source = [(cut + i, line) for i, line in enumerate(text.split("\n"), 1)]
        else:
            source = [(0, line) for line in lines]
        self.sources = [(f"{self.getConfig('docs')}/{self.uri}" if self.uri else "a docstring", source)]
        return self.index

    def problem(self, message: str, needle: str = "", path: str = "", line: int = 0) -> None:
        """Report a mistake, at the first place where the page's text has `needle` if no place is given."""
        if not path:
            path, line = self.find(needle)
        log.warning("%s: %s", f"{path}:{line}" if line else path, message)

    def find(self, needle: str) -> tuple[str, int]:
        for path, lines in reversed(self.sources):
            for number, text in lines:
                if number and needle and needle in text:
                    return path, number
        return self.sources[-1][0] if self.sources else "", 0

    def blob(self, path: str) -> str:
        return f"{self.getConfig('repo_url').rstrip('/')}/blob/{self.getConfig('branch')}/{path}"

    def link(self, path: str, fragment: str = "") -> str:
        """A link to a file of the repository: its page on the site if it has one, else the file in the repository."""
        page = self.index.page_of(path)
        end = f"#{fragment}" if fragment else ""
        return (page.href if page else self.blob(path)) + end
