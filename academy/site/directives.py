"""Lines that stand for a file, a list or results: `[[kernel: PATH]]`, `[[derivations]]`, `[[benchmark: OP]]` …"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from markdown.preprocessors import Preprocessor

from academy.site import kernel_page, lint, plugs
from academy.site.autodoc import public_functions
from academy.site.library import STUB, Library, front_matter, read, without_front_matter
from academy.site.path import path_map
from academy.site.splitter import SourceError, split
from academy.site.titles import heading

if TYPE_CHECKING:
    from academy.site.extension import AcademyExtension

FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
OVERVIEW = re.compile(r"^\[\[(kernels|derivations|reference|path)\]\]\s*$")
VERIFIED = re.compile(r"^\[\[verified\]\]\s*$")
CODE = re.compile(r"^\[\[code: (\S+\.py) (\w+)\]\]\s*$")
RESULTS = re.compile(r"^\[\[benchmark(?:s|: *(\w+) *)\]\]\s*$")


def fenced(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line, and its part in a fenced block: "opens", "inside", "closes", or "" for a line outside of one."""
    fence = ""
    for line in lines:
        marker = FENCE.match(line.lstrip("> "))
        if marker and (not fence or marker[1].startswith(fence)):
            part, fence = ("closes", "") if fence else ("opens", marker[1])
            yield line, part
        else:
            yield line, "inside" if fence else ""


class Directives(Preprocessor):
    """Lines that stand for a file or a list. Also the checks of the text as it is written."""

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md)
        self.extension = extension

    def run(self, lines: list[str]) -> list[str]:
        index = self.extension.begin(lines)
        out: list[str] = []
        for line, part in fenced(lines):
            if part:
                out.append(line)
            elif found := STUB.match(line):
                out += self.stub(found[1], found[2])
            elif found := OVERVIEW.match(line):
                out += self.overview(index, found[1])
            elif found := RESULTS.match(line):
                out += plugs.results(found[1], self.md.htmlStash.store)
            elif VERIFIED.match(line):
                out += plugs.verified(index.home)
            elif found := CODE.match(line):
                out += self.code(found[1], found[2])
            else:
                out.append(line)
        for path, source in self.extension.sources:
            for number, message in lint.lists_after_text(source) if source and source[0][0] else ():
                self.extension.problem(message, path=path, line=number)
        return out

    def overview(self, index: Library, what: str) -> list[str]:
        if what == "path":
            return path_map(index, self.extension.getConfig("docs"))
        return reference(index) if what == "reference" else overview_list(index, what)

    def stub(self, kind: str, name: str) -> list[str]:
        path = self.extension.root / name
        if not path.is_file():
            self.extension.problem(f"{name} does not exist", f"[[{kind}: {name}]]")
            return [f'!!! failure "{name} does not exist"']
        if self.extension.page is None:
            self.extension.page = self.extension.index.page_of(name)
        return self.kernel(name, read(path)) if kind == "kernel" else self.derivation(name, read(path))

    def kernel(self, name: str, text: str) -> list[str]:
        try:
            module = self.extension.module = split(text, name)
        except SourceError as error:
            self.extension.problem(error.problem.message, path=name, line=error.problem.line)
            place = textwrap.indent(f"```text\n{error.problem}\n```", "    ")
            return [f'!!! failure "{name} cannot be shown"', "", *place.split("\n")]
        page = self.extension.page
        lines = kernel_page.markdown(module, (page.meta.get("title") if page else "") or Path(name).stem)
        self.extension.sources.append((name, lines))
        return [text.expandtabs(4) for _, text in lines]

    def code(self, path: str, name: str) -> list[str]:
        """`[[code: PATH NAME]]`: a function of a kernel file as plain code, without its notes."""
        lines = code_of(self.extension.root / path, path, name)
        if not lines:
            self.extension.problem(f"{path} has no {name}", f"[[code: {path} {name}]]")
            return [f"no {name} in {path}"]
        return ["", "```python", *lines, "```", ""]

    def derivation(self, name: str, text: str) -> list[str]:
        body, cut = without_front_matter(text)
        lines = body.split("\n")
        self.extension.sources.append((name, [(cut + i, line) for i, line in enumerate(lines, 1)]))
        if not any(line.startswith("# ") for line in lines):
            lines = [f"# {front_matter(text).get('title', Path(name).stem)}", "", *lines]
        return lines


def code_of(file: Path, path: str, name: str) -> list[str]:
    """The code lines of a function of a kernel file; none where there is no such function."""
    module = split(read(file), path) if file.is_file() else None
    lines = [module.lines[n - 1] for n in module.lines_of(name)] if module else []
    return textwrap.dedent("\n".join(line for line in lines if line.strip())).split("\n") if lines else []


def overview_list(index: Library, what: str) -> list[str]:
    """Markdown for the list of all kernels, by section, or of all derivations."""
    out: list[str] = []
    group = None
    for page in index.shown(what[:-1]):
        title, description = heading(index, page)
        if what == "kernels" and index.section(page.uri) != group:
            group = index.section(page.uri)
            out += ["", f"## {group}", ""]
        out += ["", f"[{title}]({page.href}){{ .k-entry }}", f": {description}", ""]
    return out or ["", "Nothing here yet.", ""]


def reference(index: Library) -> list[str]:
    """Markdown for mkdocstrings: the public functions of all kernels that have a page, by section."""
    out: list[str] = []
    group = None
    for page in index.shown("kernel"):
        names = public_functions(str(index.root / page.source))
        if names and index.section(page.uri) != group:
            group = index.section(page.uri)
            out += ["", f"## {group}", ""]
        if names:
            module = page.source.removesuffix(".py").replace("/", ".")
            out += ["", f"### [{heading(index, page)[0]}]({page.href})", ""]
            for name in names:
                out += ["", f"::: {module}.{name}", "    options: {heading_level: 4}", ""]
    return out
