"""MkDocs hook: every page as Markdown, beside its HTML as index.md, and the list of them, llms.txt.

For readers, programs and language models that want the text and not the page: directives are written out, so that a
kernel's page holds its notes, its formulas and its code.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from posixpath import dirname, join, normpath

from markdown import Markdown
from mkdocs.plugins import event_priority
from mkdocs.structure.nav import Section
from mkdocs.utils import get_relative_url

from academy.cache import building, digest, kept
from academy.site import plugs
from academy.site.directives import CODE, OVERVIEW, RESULTS, VERIFIED, code_of, fenced, overview_list, reference
from academy.site.kernel_page import google_sections
from academy.site.library import SNIPPET, STUB, Library, exists, read, without_front_matter
from academy.site.path import path_map
from academy.site.signatures import documented
from academy.site.splitter import SourceError, split

ROOT = Path(__file__).resolve().parents[2]
EQUATION = re.compile(r"^([ >]*)\[\[eq: *([^\]\s]+) *\]\][ \t]*$", re.M)
TAGGED = re.compile(r"\[\[tag: *([^\]\s]+) *\]\]")
MEASURED = re.compile(r"\[\[bench: *([^\]]+?) *\]\]")
RECORDED = re.compile(r"\[\[run: *(.+?) *\]\](?!\])")
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

_nav = None
_places = ""  # where links lead
_pages: dict[str, tuple[str, str]] = {}  # address of a page -> its description, its Markdown


def on_nav(nav, config, files):
    global _nav, _places
    _nav = nav
    _places = digest(sorted((file.src_uri, file.url) for file in files))
    _pages.clear()
    return nav


@event_priority(-100)  # what the other hooks make of it
def on_page_markdown(markdown, page, config, files):
    key = [page.file.src_uri, markdown, page.url, config.repo_url, _places]
    text = kept("plain", key, lambda: Plain(page, config, files).text(markdown))
    title = page.meta.get("title") or page.title
    description = page.meta.get("description") or ""
    if not re.search(r"^# ", text, re.M):
        text = f"# {title}\n\n{text}"
    head = f"<!-- {page.canonical_url} -->\n\n"
    _pages[page.url] = (description, re.sub(r"\n{3,}", "\n\n", head + text.strip()) + "\n")


def on_post_build(config):
    for url, (_, text) in _pages.items():
        path = Path(config.site_dir) / url / "index.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (Path(config.site_dir) / "llms.txt").write_text(overview(_nav, config), "utf-8")


def overview(nav, config) -> str:
    """llms.txt: what the site is, and each page with its description, in the order of the navigation."""
    out = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    out += [
        f"Each page below is Markdown. Its HTML is at the same address without `index.md`. Source: {config.repo_url}"
    ]
    for item in nav.items:
        out += ["", f"## {item.title}", ""]
        out += [_entry(page, config) for page in (_pages_of(item) if isinstance(item, Section) else [item])]
    return "\n".join(out) + "\n"


def _pages_of(section: Section):
    for child in section.children:
        if isinstance(child, Section):
            yield from _pages_of(child)
        elif child.is_page:
            yield child


def _entry(page, config) -> str:
    description = _pages[page.url][0]
    return f"- [{page.title}]({config.site_url}{page.url}index.md)" + (f": {description}" if description else "")


class Plain:
    """One page's way from the site's Markdown to Markdown that anything reads."""

    def __init__(self, page, config, files):
        self.page, self.config, self.files = page, config, files
        self.docs = Path(config.docs_dir).relative_to(ROOT).as_posix()
        self.library = building(ROOT) or Library.read(ROOT, self.docs)
        self.source = f"{self.docs}/{page.file.src_uri}"

    def text(self, markdown: str) -> str:
        lines = self.snippets(markdown.split("\n"))
        return self.prose(boxes(self.directives(lines)))

    def snippets(self, lines: list[str]) -> list[str]:
        """`--8<-- "FILE:SECTION"`, as the site's own extension puts it in."""
        if not any("--8<--" in line for line in lines):
            return lines
        for found in SNIPPET.finditer("\n".join(lines)):
            read(ROOT / found[1])  # the text depends on it
        settings = dict(self.config.mdx_configs["pymdownx.snippets"], auto_append=[])
        markdown = Markdown(extensions=["pymdownx.snippets"], extension_configs={"pymdownx.snippets": settings})
        return markdown.preprocessors["snippet"].run(lines)

    # Lines that stand for something

    def directives(self, lines: list[str]) -> list[str]:
        return [text for line, part in fenced(lines) for text in ([line] if part else self.directive(line))]

    def directive(self, line: str) -> list[str]:
        if found := STUB.match(line):
            return self.shown(found[1], found[2])
        if found := OVERVIEW.match(line):
            return self.list(found[1])
        if found := CODE.match(line):
            return ["```python", *code_of(ROOT / found[1], found[1], found[2]), "```"]
        if VERIFIED.match(line):
            return plugs.verified(self.library.home)
        if found := RESULTS.match(line):
            return self.directives(plugs.results(found[1], tables))
        if found := OBJECT.match(line):
            return documented(ROOT, found[1])
        return [] if line.startswith("    options: {") else [line]

    def list(self, what: str) -> list[str]:
        if what == "path":
            return path_map(self.library, self.docs)
        lines = reference(self.library) if what == "reference" else overview_list(self.library, what)
        return self.directives(lines)

    def shown(self, kind: str, name: str) -> list[str]:
        self.source = name
        text = read(ROOT / name) if (ROOT / name).is_file() else ""
        return self.kernel(name, text) if kind == "kernel" else without_front_matter(text)[0].split("\n")

    def kernel(self, name: str, text: str) -> list[str]:
        """The file as prose and code by turns."""
        try:
            module = split(text, name)
        except SourceError:
            return ["```python", *text.split("\n"), "```"]  # the page itself reports it
        intro = str(module.intro).split("\n")
        file = f"{self.config.repo_url}/blob/main/{name}"
        facts = ["", f"File: [{name}]({file}). Run it: `.venv/bin/python {name}`.", ""]
        out = [intro[0], *facts, *intro[1:]]
        for row in module.rows:
            out += ["", *(line for _, line in google_sections(row.note).lines), ""]
            if row.code:
                out += ["```python", *(module.lines[number - 1] for number in row.code), "```"]
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

        text = RECORDED.sub(self.recorded, text)  # the key may hold code
        text = CODE_SPAN.sub(keep, text)
        text = TAGGED.sub(lambda found: f"[({found[1]})]({self.library.home(found[1]) or ''})", text)
        text = MEASURED.sub(lambda found: plugs.measured(found[1]) or found[0], text)
        text = DRAWING.sub("*(A drawing, on the page.)*", text)
        text = ATTRIBUTES.sub("", MARKUP.sub("", SUMMARY.sub(r"**\1**", ITEM.sub("- ", text))))
        text = LINK.sub(self.link, text)
        return re.sub(r"\0(\d+)\0", lambda found: spans[int(found[1])], text)

    def equation(self, found: re.Match) -> str:
        tex = self.library.tex(found[2]) or ""
        lines = ["$$", *tex.split("\n"), rf"\tag{{{found[2]}}}", "$$"]
        return "\n".join(found[1] + line for line in lines)

    def recorded(self, found: re.Match) -> str:
        try:
            number = plugs.recorded_number(found[1])
        except ValueError:
            return found[0]  # the page itself reports it
        return f"`{number[0]}`" if number else "(not recorded here: triton is missing)"

    def link(self, found: re.Match) -> str:
        return f"{found[1]}]({self.address(found[2])}{found[3]})"

    def address(self, href: str) -> str:
        """A link as it works from the copy: to another copy if the site has one, else to the file."""
        target, mark, fragment = href.partition("#")
        if re.match(r"[a-z]+:", target) or not target:
            return href
        page = self.library.page_of(self.path(target))
        file = self.files.get_file_from_path(page.uri if page else self.path(target).removeprefix(f"{self.docs}/"))
        if file is None:
            repository = f"{self.config.repo_url}/blob/main/{self.path(target)}"
            return repository + mark + fragment
        url = file.url + "index.md" if file.is_documentation_page() and file.url.endswith("/") else file.url
        url = "index.md" if file.url in ("", "./", ".") else url
        return get_relative_url(url, self.page.url) + mark + fragment

    def path(self, target: str) -> str:
        """The file in the repository that a link of the shown file means."""
        if target.startswith("/"):
            inside = target.lstrip("/")
            return inside if exists(str(ROOT / inside)) else f"{self.docs}/{inside}"
        path = normpath(join(dirname(self.source), target))
        outside = re.sub(r"^(?:\.\./)+", "", target)
        return path if exists(str(ROOT / path)) or not exists(str(ROOT / outside)) else outside


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
