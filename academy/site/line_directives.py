"""Directives that stand for lines of Markdown, for both renderers: HTML (`extension`) and Markdown (`markdown_copies`).

A renderer has a method for each name of `academy.directives.LINES`; those that differ are in the renderers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from academy.directives import fenced, on_line
from academy.site import project_parts
from academy.site.api_reference import public_functions
from academy.site.learning_path import kind
from academy.site.library import Library, Page
from academy.site.page_facts import title
from academy.site.reading_time import minutes
from academy.site.splitter import split
from academy.site.texts import read


class LineDirectives:
    """`index`: the library that the lists are made from."""

    index: Library

    def rendered(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, those outside of fences that are directives replaced by what they stand for."""
        for line, part in fenced(lines):
            directive = None if part else on_line(line)
            yield from getattr(self, directive.name)(directive.argument) if directive else self.other(line, part)

    def other(self, line: str, part: str) -> list[str]:
        """Any other line; part: where it stands in a fenced block, "" outside of one."""
        return [line]

    def kernels(self, _: str) -> list[str]:
        """All kernels, by group."""
        return self.overview("kernel")

    def derivations(self, _: str) -> list[str]:
        return self.overview("derivation")

    def overview(self, what: str) -> list[str]:
        out: list[str] = []
        group = None
        for page in self.index.shown(what):
            if what == "kernel" and page.group != group:
                group = page.group
                out += ["", f"## {self.index.group_title(page)}", ""]
            about = f"{page.description} {self.lacking(page)}".rstrip()
            out += ["", f"[{page.title}]({page.href}){{ .k-entry }}", f": {about}", ""]
        return out or ["", "Nothing here yet.", ""]

    def lacking(self, page: Page) -> str:
        """What the list says of a derivation with which no kernel is compared."""
        cases = self.index.root / "tests/formulas/cases" / Path(page.source).with_suffix(".py").name
        return "" if page.kind != "derivation" or cases.is_file() else "No kernel yet: the formulas alone are checked."

    def reference(self, _: str) -> list[str]:
        """The public functions of all kernels that have a page, by group, for mkdocstrings."""
        out: list[str] = []
        group = None
        for page in self.index.shown("kernel"):
            names = public_functions(read(self.index.root / page.source))
            if names and page.group != group:
                group = page.group
                out += ["", f"## {self.index.group_title(page)}", ""]
            if names:
                module = page.source.removesuffix(".py").replace("/", ".")
                out += ["", f"### [{page.title}]({page.href})", ""]
                for name in names:
                    out += ["", f"::: {module}.{name}", "    options: {heading_level: 4}", ""]
        return out

    def path(self, _: str) -> list[str]:
        """The map of the learning path, stage by stage."""
        out: list[str] = []
        number = 1
        for stage in self.index.path.stages:
            out += ["", f"## {stage.title}", "", stage.about, "", f'<ol class="path" start="{number}" markdown="1">']
            for uri in stage.pages:
                about = f"{kind(uri) or 'page'} · {minutes(self.index, uri)} min"
                link = f"[{title(self.index, uri)}](/{uri})"
                out.append(f'<li markdown="span">{link} <span class="path-kind">{about}</span></li>')
            out += ["</ol>", ""]
            number += len(stage.pages)
        return out

    def verified(self, _: str) -> list[str]:
        return project_parts.verified(self.index.home)

    def benchmarks(self, _: str) -> list[str]:
        return self.benchmark("")


def code_of(file: Path, path: str, name: str) -> list[str]:
    """The code lines of a function of a kernel file; none where there is no such function."""
    module = split(read(file), path) if file.is_file() else None
    lines = [module.lines[n - 1] for n in module.lines_of(name)] if module else []
    return textwrap.dedent("\n".join(line for line in lines if line.strip())).split("\n") if lines else []
