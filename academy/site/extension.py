"""The Python-Markdown extension `academy.site`.

    [[kernel: annotated_examples/classics/layernorm.py]]   the page of a kernel file
    [[derivation: backprop_math/layernorm.md]]             a derivation
    [[kernels]]  [[derivations]]                           lists of all of them
    [[eq: LN-X]]                                           a tagged equation, drawn from its derivation, with a link
    [[tag: LN-X]]                                          a link to it, within a sentence
    [[bench: KEY]]                                         a measured number

A mistake is logged as a warning, `path:line: message`, which fails `mkdocs build --strict`; `mkdocs serve` goes on and shows
the page, so that it can be mended while looking at it.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension
from markdown.blockprocessors import BlockProcessor
from markdown.extensions.toc import slugify
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from academy.site import katex, kernel_page, lint, plugs
from academy.site.library import STUB, TAG, Library, Page, front_matter, read, without_front_matter
from academy.site.splitter import Module, SourceError, split

log = logging.getLogger("mkdocs.academy.site")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
OVERVIEW = re.compile(r"^\[\[(kernels|derivations)\]\]\s*$")
IN_REPOSITORY = re.compile(r"^(?:\.\./)+((?:annotated_examples|backprop_math|academy|benchmarks|tests)/.*)$")


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
        self.sources: list[tuple[str, list[tuple[int, str]]]] = []

    def extendMarkdown(self, md):
        self.md = md
        md.registerExtension(self)
        md.preprocessors.register(Directives(self), "academy_directives", 29)  # before fenced code and raw HTML
        md.parser.blockprocessors.register(CitedEquation(self), "academy_equation", 95)
        md.inlinePatterns.register(TagLink(r"\[\[tag: *([^\]\s]+) *\]\]", self), "academy_tag", 185)
        md.inlinePatterns.register(Measured(r"\[\[bench: *([^\]]+?) *\]\]", self), "academy_bench", 184)
        # After inline patterns (20), before the table of contents and MkDocs's links and anchors (5 and below).
        md.treeprocessors.register(Finish(self), "academy_finish", 7)
        md.treeprocessors.register(Contents(self), "academy_contents", 4)

    # What the parts below share

    @property
    def root(self) -> Path:
        return Path(self.getConfig("root"))

    def library(self) -> Library:
        return Library.read(self.root, self.getConfig("docs"))

    def begin(self, lines: list[str]) -> Library:
        self.index = self.library()
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
        page = self.index.pages.get(path)
        end = f"#{fragment}" if fragment else ""
        return (page.href if page else self.blob(path)) + end


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
            if stub:
                out += self.stub(stub[1], stub[2])
            elif overview:
                out += overview_list(index, overview[1])
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


def heading(index: Library, page: Page) -> tuple[str, str]:
    """Title and one-line description: the stub's front matter, else what the file itself says."""
    text = read(index.root / page.source)
    if page.kind == "kernel":
        intro = split(text, page.source).intro
        lines = str(intro).split("\n")
        own = {"title": lines[0].removeprefix("# ") if lines[0].startswith("# ") else Path(page.source).stem}
        own["description"] = first_sentence("\n".join(lines[1:]))
    else:
        own = front_matter(text)
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


class CitedEquation(BlockProcessor):
    """`[[eq: LN-X]]` on a line of its own."""

    PATTERN = re.compile(r"(?:^|\n) {0,3}\[\[eq: *([^\]\s]+) *\]\] *(?:\n|$)")

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md.parser)
        self.extension = extension

    def test(self, parent, block):
        return bool(self.PATTERN.search(block))

    def run(self, parent, blocks):
        block = blocks.pop(0)
        found = self.PATTERN.search(block)
        before, after = block[: found.start()], block[found.end() :]
        if before.strip():
            self.parser.parseBlocks(parent, [before])
        parent.append(self.element(found[1]))
        if after.strip():
            blocks.insert(0, after)

    def element(self, tag: str) -> Element:
        href = self.extension.index.home(tag)
        if not href:
            self.extension.problem(f"no derivation prints \\tag{{{tag}}}", f"[[eq: {tag}]]")
            return _failure(f"no derivation prints ({tag})")
        box = Element("div", {"class": "eq eq-cited"})
        maths = SubElement(box, "div", {"class": "arithmatex"})
        maths.text = AtomicString("\\[" + self.extension.index.equations[tag].tex + "\\]")
        SubElement(box, "a", {"class": "eq-tag", "href": href, "title": "See its derivation"}).text = AtomicString(
            f"({tag})"
        )
        return box


class TagLink(InlineProcessor):
    """`[[tag: LN-X]]` within a sentence."""

    def __init__(self, pattern: str, extension: AcademyExtension):
        super().__init__(pattern, extension.md)
        self.extension = extension

    def handleMatch(self, m, data):
        href = self.extension.index.home(m[1])
        if not href:
            self.extension.problem(f"no derivation prints \\tag{{{m[1]}}}", m[0])
            return _failure(f"({m[1]})", "span"), m.start(0), m.end(0)
        link = Element("a", {"class": "eq-ref", "href": href})
        link.text = AtomicString(f"({m[1]})")
        return link, m.start(0), m.end(0)


class Measured(TagLink):
    """`[[bench: KEY]]`: a number from the committed results."""

    def handleMatch(self, m, data):
        number = plugs.measured(m[1])
        if number is None:
            self.extension.problem(f"no committed result has {m[1]!r}", m[0])
            return _failure(m[1], "span"), m.start(0), m.end(0)
        element = Element("span", {"class": "measured", "title": f"measured: {m[1]}"})
        element.text = AtomicString(number)
        return element, m.start(0), m.end(0)


def _failure(text: str, tag: str = "p") -> Element:
    element = Element(tag, {"class": "academy-problem"})
    element.text = AtomicString(text)
    return element


class Finish(Treeprocessor):
    """Puts the kernel page together, sets the formulas, resolves links of files that live outside docs/."""

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md)
        self.extension = extension

    def run(self, root: Element) -> None:
        if self.extension.module:
            self.kernel(root, self.extension.module)
        self.links(root)
        for element in list(root.iter()):
            if re.fullmatch(r"h[1-6]", element.tag):
                self.heading(element)
        for element in list(root.iter()):
            if element.get("class") == "arithmatex" and element.text:
                self.formula(element)

    def kernel(self, root: Element, module: Module) -> None:
        store = self.md.htmlStash.store
        card = fact_card(self.extension, module)
        try:
            kernel_page.assemble(root, module, store, card, plugs.recorded_run(module.path))
        except kernel_page.UnclosedNote as error:
            line = next((n for row in module.rows[: error.row] for n in row.note.numbers[-1:]), 1)
            message = "this note swallows what follows (an HTML tag that is not closed, or a fence)"
            self.extension.problem(message, path=module.path, line=line)

    def links(self, root: Element) -> None:
        """Links as they work in the repository, made to work on the site."""
        page = self.extension.page
        for element in root.iter("a"):
            href = element.get("href", "")
            parts = urlsplit(href)
            if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
                continue
            if page:
                path = normpath(join(dirname(page.source), parts.path))
            elif found := IN_REPOSITORY.match(parts.path):
                path = normpath(found[1])
            else:
                continue
            self.resolve(element, path, href, parts.fragment)

    def resolve(self, element: Element, path: str, href: str, fragment: str) -> None:
        docs = self.extension.getConfig("docs") + "/"
        if not (self.extension.root / path).exists():
            self.extension.problem(f"link to {path}, which does not exist", f"]({href}")
        elif path.startswith(docs) and path.endswith(".md"):
            element.set("href", "/" + path.removeprefix(docs) + (f"#{fragment}" if fragment else ""))
        else:
            element.set("href", self.extension.link(path, fragment))

    def heading(self, element: Element) -> None:
        """A heading with maths: its name in the table of contents and its anchor are plain text."""
        if not any(child.get("class") == "arithmatex" for child in element.iter()):
            return
        text = "".join(self.words(element)).strip()
        element.set("data-toc-label", text)
        element.attrib.setdefault("id", slugify(text, "-", unicode=True))

    def words(self, element: Element):
        if element.get("class") == "arithmatex":
            try:
                yield katex.plain(element.text[2:-2].strip())
            except katex.TexError:
                yield element.text[2:-2]
        else:
            yield element.text or ""
            for child in element:
                yield from self.words(child)
        yield element.tail or ""

    def formula(self, element: Element) -> None:
        tex = element.text[2:-2].strip()
        display = element.text.startswith("\\[")
        tags = TAG.findall(tex)
        tex = TAG.sub("", tex).strip()
        try:
            html = katex.render(tex, display)
        except katex.TexError as error:
            self.extension.problem(f"KaTeX cannot set this formula: {error}", tex.split("\n")[0])
            element.set("class", "academy-problem")
            element.text = AtomicString(tex)
            return
        element.set("data-search-exclude", "")
        element.text = self.md.htmlStash.store(html)
        page = self.extension.page
        if display and page and page.kind == "derivation":
            self.home(element, tex, tags)

    def home(self, element: Element, tex: str, tags: list[str]) -> None:
        """A display equation of a derivation: its tag, the kernel lines that cite it, what was checked."""
        page = self.extension.page
        tag = tags[0] if tags else None
        if len(tags) > 1:
            self.extension.problem("one equation, one \\tag", f"\\tag{{{tags[1]}}}")
        mark = plugs.check_mark(page.source, tex, tag)
        if not (tag or mark):
            return
        maths = Element("div", dict(element.attrib))
        maths.text = element.text
        element.attrib = {"class": "eq"}
        element.text = None
        element.append(maths)
        if tag:
            element.set("id", tag)
            SubElement(element, "a", {"class": "eq-tag", "href": f"#{tag}"}).text = AtomicString(f"({tag})")
        if mark or self.extension.index.citations.get(tag):
            foot = SubElement(element, "div", {"class": "eq-foot", "data-search-exclude": ""})
            self.cited(foot, tag)
            if mark:
                SubElement(foot, "div", {"class": "eq-mark"}).text = self.md.htmlStash.store(mark)

    def cited(self, foot: Element, tag: str | None) -> None:
        by_file: dict[str, list[int]] = {}
        for citation in self.extension.index.citations.get(tag, ()):
            by_file.setdefault(citation.path, []).append(citation.line)
        for path, lines in by_file.items():
            line = SubElement(foot, "span", {"class": "eq-cites"})
            line.text = AtomicString(f"used in {path.rsplit('/', 1)[-1]}, line{'s' if len(lines) > 1 else ''} ")
            for i, number in enumerate(lines):
                link = SubElement(line, "a", {"href": self.extension.link(path, f"L{number}")})
                link.text = AtomicString(str(number))
                link.tail = ", " if i + 1 < len(lines) else ""


def fact_card(extension: AcademyExtension, module: Module) -> Element:
    """What belongs to a kernel file: where it is, how to run it, its derivation, tests and results."""
    card = Element("aside", {"class": "k-card", "aria-label": "About this file"})
    facts = SubElement(card, "dl")

    def fact(name: str) -> Element:
        SubElement(facts, "dt").text = name
        return SubElement(facts, "dd")

    def link(parent: Element, text: str, href: str, code: bool = False) -> None:
        anchor = SubElement(parent, "a", {"href": href})
        (SubElement(anchor, "code") if code else anchor).text = AtomicString(text)

    path = Path(module.path)
    link(fact("File"), module.path, extension.blob(module.path), code=True)
    SubElement(fact("Run it"), "code").text = AtomicString(f"python {module.path}")
    homes = {extension.index.equations[tag].path for tag in cited_tags(module) if tag in extension.index.equations}
    homes |= {p for p in [f"backprop_math/{path.stem}.md"] if p in extension.index.pages}
    for home in sorted(homes):
        if home in extension.index.pages:
            link(fact("Derivation"), heading(extension.index, extension.index.pages[home])[0], extension.link(home))
    for test in sorted((extension.root / "tests/kernels").glob(f"test_{path.stem}.py")):
        name = test.relative_to(extension.root).as_posix()
        link(fact("Tests"), name, extension.blob(name), code=True)
    results = f"benchmarks/{path.stem}.md"
    if (extension.root / extension.getConfig("docs") / results).is_file():
        link(fact("Measured"), "its benchmark", f"/{results}")
    return card


def cited_tags(module: Module) -> list[str]:
    from academy.site.library import CITATION

    return CITATION.findall(module.text)


class Contents(Treeprocessor):
    """A row of links to the sections of a kernel file, which has no room for a column with a table of contents."""

    def __init__(self, extension: AcademyExtension):
        super().__init__(extension.md)
        self.extension = extension

    def run(self, root: Element) -> None:
        bar = next((e for e in root if e.get("class") == "k-bar"), None)
        headings = [e for e in root.iter("h2") if e.get("id")]
        if bar is None or not headings:
            return
        nav = Element("nav", {"class": "k-contents", "aria-label": "Sections of this file"})
        for element in headings:
            words = [element.text or ""]
            for child in element:
                words += [*(child.itertext() if child.get("class") != "headerlink" else ()), child.tail or ""]
            text = element.get("data-toc-label") or "".join(words).strip()
            SubElement(nav, "a", {"href": f"#{element.get('id')}"}).text = AtomicString(text)
        root.insert(list(root).index(bar), nav)
