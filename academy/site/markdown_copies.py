"""Every page as Markdown, beside its HTML as index.md, and the list of them, llms.txt.

For readers, programs and language models that want the text and not the page: directives are written out, so that a
kernel's page holds its notes, its formulas and its code.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import dirname, join, normpath

from markdown import Markdown
from mkdocs.structure.nav import Section
from mkdocs.utils import get_relative_url

from academy.bench.pages import Html
from academy.directives import EQUATION, SPANS, fenced, pattern
from academy.site import addresses, project_parts
from academy.site.api_reference import documented
from academy.site.helpers import first_uses
from academy.site.kernel_page import google_sections
from academy.site.library import Library
from academy.site.line_directives import LineDirectives, code_of
from academy.site.splitter import SourceError, split
from academy.site.texts import read, without_front_matter

RECORDED = re.compile(pattern("run"), re.S)
SPAN = re.compile(pattern(*SPANS), re.S)
OBJECT = re.compile(r"^::: (\S+)$")
LINK = re.compile(r"(!?)\]\(([^)\s]+)((?: \"[^\"]*\")?)\)")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.S)
#: Attributes for HTML, as in `{ .md-button }`. TeX has no braces that begin so.
ATTRIBUTES = re.compile(r"[ \t]*\{:? ?[.#][A-Za-z][^{}\n]*\}")
BOX = re.compile(r"^( *)(?:!!!|\?\?\?\+?) +[\w ]*?\w(?: +\"(.*)\")?$")
TAB = re.compile(r'^( *)===!? +"(.*)"$')
DRAWING = re.compile(r'<div class="nb-figure"[^>]*></div>')
SUMMARY = re.compile(r"<summary>(.*?)</summary>")
ITEM = re.compile(r"^ *<li\b[^>]*> *", re.M)
MARKUP = re.compile(r"<!--.*?-->\n?|</?(?:div|details|ol|ul|li|p|span|kbd|br)\b[^>]*>", re.S)


@dataclass
class Copies:
    """The copies of all pages. `pages`: address -> the page's description, its Markdown."""

    pages: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, markdown: str, page, config, files, library: Library) -> None:
        text = PageCopy(page, config, files, library).text(markdown)
        if not re.search(r"^# ", text, re.M):
            text = f"# {page.meta.get('title') or page.title}\n\n{text}"
        head = f"<!-- {page.canonical_url} -->\n\n" if page.canonical_url else ""
        copy = re.sub(r"\n{3,}", "\n\n", head + addresses.without_dead_links(text).strip()) + "\n"
        self.pages[page.url] = (page.meta.get("description") or "", copy)

    def write(self, nav, config) -> None:
        for url, (_, text) in self.pages.items():
            path = Path(config.site_dir) / url / "index.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        (Path(config.site_dir) / "llms.txt").write_text(self.overview(nav, config), "utf-8")

    def overview(self, nav, config) -> str:
        """llms.txt: what the site is, and each page with its description, in the order of the navigation."""
        out = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
        about = "Each page below is Markdown. Its HTML is at the same address without `index.md`."
        out.append(f"{about} Source: {config.repo_url}" if config.repo_url else about)
        for item in nav.items:
            out += ["", f"## {item.title}", ""]
            for page in _pages_of(item) if isinstance(item, Section) else [item]:
                description = self.pages[page.url][0]
                entry = f"- [{page.title}]({config.site_url or ''}{page.url}index.md)"
                out.append(entry + (f": {description}" if description else ""))
        return "\n".join(out) + "\n"


def _pages_of(section: Section):
    for child in section.children:
        if isinstance(child, Section):
            yield from _pages_of(child)
        elif child.is_page:
            yield child


class PageCopy(LineDirectives):
    """One page's way from the site's Markdown to Markdown that anything reads."""

    def __init__(self, page, config, files, library: Library):
        self.page, self.config, self.files, self.index = page, config, files, library
        self.source = f"{library.docs}/{page.file.src_uri}"

    def text(self, markdown: str) -> str:
        lines = self.snippets(markdown.split("\n"))
        return self.prose(boxes(list(self.rendered(lines))))

    def snippets(self, lines: list[str]) -> list[str]:
        """`--8<-- "FILE:SECTION"`, as the site's own extension puts it in."""
        if not any("--8<--" in line for line in lines):
            return lines
        settings = dict(self.config.mdx_configs["pymdownx.snippets"], auto_append=[])
        markdown = Markdown(extensions=["pymdownx.snippets"], extension_configs={"pymdownx.snippets": settings})
        return markdown.preprocessors["snippet"].run(lines)

    # Lines that stand for something

    def other(self, line: str, part: str) -> list[str]:
        if not part and (found := OBJECT.match(line)):
            return documented(self.index.root, found[1])
        return [] if not part and line.startswith("    options: {") else [line]

    def reference(self, _: str) -> list[str]:
        return list(self.rendered(super().reference(_)))

    def benchmark(self, name: str) -> list[str]:
        pieces = project_parts.results(name)
        lines = [tables(piece) if isinstance(piece, Html) else piece for piece in pieces]
        return list(self.rendered("\n".join(lines).split("\n")))

    def code(self, argument: str) -> list[str]:
        path, _, name = argument.partition(" ")
        return ["```python", *code_of(self.index.root / path, path, name), "```"]

    def derivation(self, name: str) -> list[str]:
        self.source = name
        file = self.index.root / name
        return without_front_matter(read(file))[0].split("\n") if file.is_file() else []

    def kernel(self, name: str) -> list[str]:
        """The file as prose and code by turns."""
        self.source = name
        file = self.index.root / name
        text = read(file) if file.is_file() else ""
        try:
            module = split(text, name)
        except SourceError:
            return ["```python", *text.split("\n"), "```"]  # the page itself reports it
        intro = str(module.intro).split("\n")
        facts = ["", f"File: [{name}]({self.blob(name)}). Run it: `.venv/bin/python {name}`.", ""]
        out = [intro[0], *facts, *intro[1:]]
        helpers = first_uses(text, self.index.root)
        for row in module.rows:
            out += ["", *(line for _, line in google_sections(row.note).lines), ""]
            if row.code:
                out += ["```python", *(module.lines[number - 1] for number in row.code), "```"]
            for helper in (helper for line in row.code for helper in helpers.get(line, ())):
                place = f"{self.blob(helper.path)}#L{helper.lines.start}"
                out += ["", f"`{helper.name}` is in [{helper.path}]({place}).", ""]
        return out

    # What stands within text

    def prose(self, lines: list[str]) -> str:
        out: list[str] = []
        text: list[str] = []
        for line, part in fenced(lines):
            if not part:
                text.append(line)
            elif part == "opens":
                out += [self.written("\n".join(text)), re.sub(r"\{ ?\.(\w+)[^}]*\}", r"\1", line)]
                text = []
            else:
                out.append(line)
        return "\n".join([*out, self.written("\n".join(text))])

    def written(self, text: str) -> str:
        """Text between fences. Spans of code are left alone."""
        text = EQUATION.sub(self.equation, text)
        spans: list[str] = []

        def keep(found: re.Match) -> str:
            spans.append(found[0])
            return f"\0{len(spans) - 1}\0"

        text = RECORDED.sub(self.span, text)  # the key may hold code
        text = SPAN.sub(self.span, CODE_SPAN.sub(keep, text))
        text = DRAWING.sub("*(A drawing, on the page.)*", text)
        text = ATTRIBUTES.sub("", MARKUP.sub("", SUMMARY.sub(r"**\1**", ITEM.sub("- ", text))))
        text = LINK.sub(lambda found: f"{found[1]}]({self.address(found[2])}{found[3]})", text)
        return re.sub(r"\0(\d+)\0", lambda found: spans[int(found[1])], text)

    def equation(self, found: re.Match) -> str:
        tag = found["argument"]
        lines = ["$$", *(self.index.tex(tag) or "").split("\n"), rf"\tag{{{tag}}}", "$$"]
        return "\n".join(found["indent"] + line for line in lines)

    def span(self, found: re.Match) -> str:
        """A directive within a sentence. What is wrong stays as it is: the page itself reports it."""
        argument = found["argument"]
        if found["name"] == "tag":
            return f"[({argument})]({self.index.home(argument) or ''})"
        if found["name"] == "bench":
            return project_parts.measured(argument) or found[0]
        try:
            number = project_parts.recorded_number(argument)
        except ValueError:
            return found[0]
        return f"`{number[0]}`" if number else "(not recorded here: triton is missing)"

    def blob(self, path: str) -> str:
        return addresses.file_address(self.config.repo_url, path)

    def address(self, href: str) -> str:
        """A link as it works from the copy: to another copy if the site has one, else to the file."""
        target, mark, fragment = href.partition("#")
        if re.match(r"[a-z]+:", target) or not target:
            return href
        path = self.path_of(target)
        page = self.index.page_of(path)
        file = self.files.get_file_from_path(page.uri if page else path.removeprefix(f"{self.index.docs}/"))
        if file is None:
            return self.blob(path) + mark + fragment
        url = file.url + "index.md" if file.is_documentation_page() and file.url.endswith("/") else file.url
        url = "index.md" if file.url in ("", "./", ".") else url
        return get_relative_url(url, self.page.url) + mark + fragment

    def path_of(self, target: str) -> str:
        """The file in the repository that a link of the shown file means."""
        root = self.index.root
        if target.startswith("/"):
            inside = target.lstrip("/")
            return inside if (root / inside).exists() else f"{self.index.docs}/{inside}"
        path = normpath(join(dirname(self.source), target))
        outside = re.sub(r"^(?:\.\./)+", "", target)
        return path if (root / path).exists() or not (root / outside).exists() else outside


def boxes(lines: list[str]) -> list[str]:
    """Admonitions and foldable boxes as quotations, tabs one below the other."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        box, tab = BOX.match(lines[at]), TAB.match(lines[at])
        found = box or tab
        at += 1
        if not found:
            out.append(lines[at - 1])
            continue
        indent = found[1] + "    "
        inside = []
        while at < len(lines) and (lines[at].startswith(indent) or not lines[at].strip()):
            inside.append(lines[at][len(indent) :])
            at += 1
        title = [f"**{found[2]}**", ""] if found[2] else []
        body = [*title, *boxes("\n".join(inside).strip("\n").split("\n"))]
        mark = f"{found[1]}> " if box else found[1]
        out += [(mark + line).rstrip() for line in body] + [""]
    return out


def tables(markup: str) -> str:
    """Finished HTML of results as Markdown: tables and words; a plot is left to the page."""
    text = re.sub(r"<svg\b.*?</svg>", "", markup, flags=re.S)
    text = re.sub(r"<figcaption>(.*?)</figcaption>", r"\n*Plot, on the page: \1*\n", text, flags=re.S)
    text = re.sub(r"<summary>(.*?)</summary>", r"\n**\1**\n", text, flags=re.S)
    text = re.sub(r"<table.*?</table>", _table, text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", "", text)).strip("\n")


def _table(found: re.Match) -> str:
    rows = [re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.S) for row in found[0].split("</tr>")]
    rows = [[re.sub(r"<[^>]+>", "", cell).strip().replace("|", r"\|") for cell in row] for row in rows if row]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n\n" + "\n".join([*lines[:1], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n\n" if lines else ""
