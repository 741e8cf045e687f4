"""Lines that stand for a file, a list or results: `[[kernel: PATH]]`, `[[derivations]]`, `[[benchmark: OP]]` …"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from posixpath import dirname
from typing import TYPE_CHECKING

from markdown.preprocessors import Preprocessor

from academy.site import kernel_page, lint, plugs
from academy.site.library import STUB, Library, Page, front_matter, read, without_front_matter
from academy.site.splitter import SourceError, split

if TYPE_CHECKING:
    from academy.site.extension import AcademyExtension

FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
OVERVIEW = re.compile(r"^\[\[(kernels|derivations|reference)\]\]\s*$")
VERIFIED = re.compile(r"^\[\[verified\]\]\s*$")
CODE = re.compile(r"^\[\[code: (\S+\.py) (\w+)\]\]\s*$")
RESULTS = re.compile(r"^\[\[benchmark(?:s|: *(\w+) *)\]\]\s*$")


class Directives(Preprocessor):
    """Lines that stand for a file or a list. Also the checks of the text as it is written."""

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md)
        self.extension = extension

    def run(self, lines: list[str]) -> list[str]:
        index = self.extension.begin(lines)
        out: list[str] = []
        fence = ""
        for line in lines:
            marker = FENCE.match(line)
            if marker and (not fence or marker[1].startswith(fence)):
                fence = "" if fence else marker[1]
            stub = STUB.match(line) if not fence else None
            overview = OVERVIEW.match(line) if not fence else None
            results = RESULTS.match(line) if not fence else None
            code = CODE.match(line) if not fence else None
            if stub:
                out += self.stub(stub[1], stub[2])
            elif overview:
                out += reference(index) if overview[1] == "reference" else overview_list(index, overview[1])
            elif results:
                out += plugs.results(results[1], self.md.htmlStash.store)
            elif not fence and VERIFIED.match(line):
                out += plugs.verified(index.home)
            elif code:
                out += self.code(code[1], code[2])
            else:
                out.append(line)
        for path, source in self.extension.sources:
            for number, message in lint.lists_after_text(source) if source and source[0][0] else ():
                self.extension.problem(message, path=path, line=number)
        return out

    def stub(self, kind: str, name: str) -> list[str]:
        path = self.extension.root / name
        if not path.is_file():
            self.extension.problem(f"{name} does not exist", f"[[{kind}: {name}]]")
            return [f'!!! failure "{name} does not exist"']
        if self.extension.page is None:
            self.extension.page = self.extension.index.pages.get(name)
        return self.kernel(name, read(path)) if kind == "kernel" else self.derivation(name, read(path))

    def kernel(self, name: str, text: str) -> list[str]:
        try:
            module = self.extension.module = split(text, name)
        except SourceError as error:
            self.extension.problem(error.problem.message, path=name, line=error.problem.line)
            return [f'!!! failure "{error.problem}"']
        page = self.extension.page
        lines = kernel_page.markdown(module, (page.meta.get("title") if page else "") or Path(name).stem)
        self.extension.sources.append((name, lines))
        return [text.expandtabs(4) for _, text in lines]

    def code(self, path: str, name: str) -> list[str]:
        """`[[code: PATH NAME]]`: a function of a kernel file as plain code, without its notes."""
        file = self.extension.root / path
        module = split(read(file), path) if file.is_file() else None
        numbers = module.lines_of(name) if module else []
        if not numbers:
            self.extension.problem(f"{path} has no {name}", f"[[code: {path} {name}]]")
            return [f"no {name} in {path}"]
        lines = [module.lines[n - 1] for n in numbers if module.lines[n - 1].strip()]
        return ["", "```python", *textwrap.dedent("\n".join(lines)).split("\n"), "```", ""]

    def derivation(self, name: str, text: str) -> list[str]:
        body, cut = without_front_matter(text)
        lines = body.split("\n")
        self.extension.sources.append((name, [(cut + i, line) for i, line in enumerate(lines, 1)]))
        if not any(line.startswith("# ") for line in lines):
            lines = [f"# {front_matter(text).get('title', Path(name).stem)}", "", *lines]
        return lines


def overview_list(index: Library, what: str) -> list[str]:
    """Markdown for the list of all kernels, by folder, or of all derivations."""
    out: list[str] = []
    group = None
    for page in index.shown(what[:-1]):
        title, description = heading(index, page)
        if what == "kernels" and dirname(page.uri) != group:
            group = dirname(page.uri)
            out += ["", f"## {group.rsplit('/', 1)[-1].replace('_', ' ').capitalize()}", ""]
        out += ["", f"[{title}]({page.href}){{ .k-entry }}", f": {description}", ""]
    return out or ["", "Nothing here yet.", ""]


def reference(index: Library) -> list[str]:
    """Markdown for mkdocstrings: the public functions of all kernels that have a page, by folder."""
    out: list[str] = []
    group = None
    for page in index.shown("kernel"):
        names = public_functions(read(index.root / page.source))
        if names and dirname(page.uri) != group:
            group = dirname(page.uri)
            out += ["", f"## {group.rsplit('/', 1)[-1].capitalize()}", ""]
        if names:
            module = page.source.removesuffix(".py").replace("/", ".")
            out += ["", f"### [{heading(index, page)[0]}]({page.href})", ""]
            for name in names:
                out += ["", f"::: {module}.{name}", "    options: {heading_level: 4}", ""]
    return out


def public_functions(text: str) -> list[str]:
    """Functions that a reader calls: documented with arguments or errors, and no launcher of one direction."""
    found = []
    for node in ast.parse(text).body:
        doc = ast.get_docstring(node) or "" if isinstance(node, ast.FunctionDef) else ""
        is_launcher = doc and re.search(r"_(forward|backward|reference)_?$", node.name)
        if re.search(r"^(Args|Raises):", doc, re.M) and not is_launcher and not node.name.startswith("_"):
            found.append(node.name)
    return found


def heading(index: Library, page: Page) -> tuple[str, str]:
    """Title and one-line description: the stub's front matter, else what the file itself says."""
    text = read(index.root / page.source)
    if page.kind == "kernel":
        intro = split(text, page.source).intro
        lines = str(intro).split("\n")
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
