"""A page's tree, made right: the two columns of a kernel file, formulas, links, headings."""

from __future__ import annotations

import html
import itertools
import re
from posixpath import dirname, join, normpath
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement

from markdown.extensions.toc import slugify
from markdown.util import STX, AtomicString
from markupsafe import Markup

from academy.book.splitter import Module
from academy.book.tex import TAG
from academy.site import katex, kernel_page, project_parts
from academy.site.conversion import TreeStep
from academy.site.conversion import element as made
from academy.site.library import Page

IN_REPOSITORY = re.compile(r"^(?:\.\./)+((?:annotated_examples|backprop_math|academy|benchmarks|tests)/.*)$")
CODE = re.compile(r'<div class="[^"]*\bhighlight"')
RUN = re.compile(r"(?:pid|line|launch)=")
CLOSING = re.compile(r"([)\].,;:!?’”]*)(.*)", re.S)
OPENING = re.compile(r"[(\[‘“]+$")
#: Longer formulas may be broken, and what stands around them too.
SHORT = 40


class PageTree(TreeStep):
    """Puts the kernel page together, sets the formulas, resolves links of files that live outside docs/."""

    def run(self, root: Element) -> None:
        if self.conversion.module:
            self.kernel(root, self.conversion.module)
        self.links(root)
        for element in list(root.iter()):
            if re.fullmatch(r"h[1-6]", element.tag):
                self.heading(element)
            elif element.tag == "th" and not len(element) and not (element.text or "").strip():
                element.tag = "td"  # the corner of a table heads nothing
            elif element.tag == "code" and re.fullmatch(r"--?\w[^\n]{,25}", element.text or ""):
                element.set("class", "option")  # which no line breaks after its dashes
        self.sizes(root)
        neighbours = [(parent, *pair) for parent in root.iter() for pair in zip([None, *parent], parent)]
        for parent, before, element in neighbours:
            if element.get("class") == "arithmatex" and element.text:
                self.formula(element)
                if "data-tight" in element.attrib:
                    _take_opening(parent, before, element)

    def sizes(self, root: Element) -> None:
        """The characters of paragraphs and lists and the lines of code, as `--n`. What is out of sight isn't laid
        out, and site.css calculates its height from these."""
        sections = itertools.dropwhile(lambda element: element.tag != "h2", root)
        for element in sections:
            if element.tag not in ("p", "ul", "ol") or (element.text or "").startswith(STX):  # of finished HTML
                continue
            tex = [part.text or "" for part in element.iter() if part.get("class") == "arithmatex"]
            shown = len("".join(element.itertext())) - len("".join(tex)) * 2 // 3  # much of LaTeX is names of signs
            items = sum(1 for item in element.iter("li"))
            element.set("style", f"--n:{shown + 60 * items}")
        stash = self.md.htmlStash.rawHtmlBlocks
        for place, block in enumerate(stash):
            if isinstance(block, str) and CODE.match(block):
                stash[place] = block.replace("<div ", f'<div style="--n:{block.rstrip().count(chr(10)) + 1}" ', 1)

    def kernel(self, root: Element, module: Module) -> None:
        try:
            kernel_page.KernelPage(self.conversion, module).assemble(root)
        except kernel_page.UnclosedNote as error:
            line = next((n for row in module.rows[: error.row] for n in row.note.numbers[-1:]), 1)
            message = "this note swallows what follows (an HTML tag that is not closed, or a fence)"
            self.conversion.problem(message, path=module.path, line=line)

    def links(self, root: Element) -> None:
        """Links as they work in the repository, made to work on the site."""
        page = self.conversion.page
        docs = self.conversion.root / self.conversion.docs
        for element in root.iter("a"):
            self.moment(element)
            href = element.get("href", "")
            parts = urlsplit(href)
            if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
                continue
            if page:
                path = normpath(join(dirname(page.source), parts.path))
            elif (found := IN_REPOSITORY.match(parts.path)) and not (docs / found[1]).exists():
                path = normpath(found[1])
            else:
                continue
            self.resolve(element, path, href, parts.fragment)

    def moment(self, element: Element) -> None:
        """`#pid=13&line=79&k=1`, a moment of a recorded run: the link leads to the line (without one, to the example),
        the viewer's script leads on."""
        href, _, fragment = element.get("href", "").partition("#")
        if not RUN.match(fragment):
            return
        line = re.search(r"\bline=(\d+)", fragment)
        element.set("href", f"{href}#L{line[1]}" if line else f"{href}#EXAMPLE")
        element.set("data-run", fragment)

    def resolve(self, element: Element, path: str, href: str, fragment: str) -> None:
        docs = self.conversion.docs + "/"
        if not (self.conversion.root / path).exists():
            kernel = path.removesuffix(".md") + ".py"
            hint = f": write {href.partition('#')[0][:-3]}.py" if (self.conversion.root / kernel).exists() else ""
            self.conversion.problem(f"link to {path}, which does not exist{hint}", f"]({href}")
        elif path.startswith(docs) and path.endswith(".md"):
            element.set("href", "/" + path.removeprefix(docs) + (f"#{fragment}" if fragment else ""))
        else:
            element.set("href", self.conversion.link(path, fragment))

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
                yield katex.plain(_tex(element))
            except katex.TexError:
                yield _tex(element)
        else:
            yield element.text or ""
            for child in element:
                yield from self.words(child)
        yield element.tail or ""

    def formula(self, element: Element) -> None:
        tex, display = _tex(element), element.tag == "div"
        tags = TAG.findall(tex)
        tex = TAG.sub("", tex).strip()
        try:
            rendered = self.conversion.variables.render(tex, display)
        except katex.TexError as error:
            self.conversion.problem(f"KaTeX cannot set this formula: {error}", tex.split("\n")[0])
            element.set("class", "academy-problem")
            element.text = AtomicString(tex)
            return
        element.set("data-search-exclude", "")
        element.text = self.md.htmlStash.store(rendered)
        if not display and len(tex) < SHORT:  # no line may begin with the comma or bracket that follows
            element.set("data-tight", "")
            closing, element.tail = CLOSING.findall(element.tail or "")[0]
            element.text += closing
        page = self.conversion.page
        if display and page and page.kind == "derivation":
            self.home(element, page, tex, tags)

    def home(self, element: Element, page: Page, tex: str, tags: list[str]) -> None:
        """A display equation of a derivation: its tag, the kernel lines that cite it, what was checked."""
        tag = tags[0] if tags else None
        if len(tags) > 1:
            self.conversion.problem("one equation, one \\tag", f"\\tag{{{tags[1]}}}")
        mark = project_parts.check_mark(page.source, tex, tag)
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
        cites = self.cites(tag) if tag else []
        if mark or cites:
            foot = SubElement(element, "div", {"class": "eq-foot", "data-search-exclude": ""})
            foot.extend(cites)
            if mark:
                SubElement(foot, "div", {"class": "eq-mark"}).text = self.md.htmlStash.store(mark)

    def cites(self, tag: str) -> list[Element]:
        """The lines of kernels that cite a tag, file by file."""
        by_file: dict[str, list[Markup]] = {}
        for path, line in self.conversion.index.citations.get(tag, ()):
            link = Markup('<a href="{}">{}</a>').format(self.conversion.link(path, f"L{line}"), line)
            by_file.setdefault(path, []).append(link)
        ends = [path.rpartition("/")[2] for path in by_file]
        names = ["/".join(path.split("/")[-2:]) if ends.count(end) > 1 else end for path, end in zip(by_file, ends)]
        row = '<span class="eq-cites">{joint}{file} {links}</span>'
        joints = ["used in ", *[""] * len(by_file)]
        return [
            made(row, joint=joint, file=name, links=Markup(", ").join(links))
            for joint, name, links in zip(joints, names, by_file.values())
        ]


def _tex(formula: Element) -> str:
    """What arithmatex put between `\\(` and `\\)`. It escapes `&` in blocks."""
    return html.unescape((formula.text or "")[2:-2]).strip()


class Contents(TreeStep):
    """A row of links to the sections of a kernel file, which has no room for a column with a table of contents."""

    def run(self, root: Element) -> None:
        bar = next((e for e in root if e.get("class") == "k-bar"), None)
        if bar is None:
            return
        sections = [token for top in self.md.toc_tokens for token in (top, *top["children"]) if token["level"] == 2]
        if not sections:
            return
        links = (Markup('<a href="#{}">{}</a>').format(token["id"], Markup(token["name"])) for token in sections)
        nav = made(
            '<nav class="k-contents" aria-label="Sections of this file">{links}</nav>', links=Markup().join(links)
        )
        first = root.find("./div[@class='k-file']/div[@class='k-row k-bare']")
        if first is not None and first.find("details[@class='k-code highlight k-fold']") is not None:
            first.set("class", "k-row k-first")  # the imports: the links fill the place of their note
            first[0].append(nav)
        else:
            root.insert(list(root).index(bar), nav)


def _take_opening(parent: Element, before: Element | None, formula: Element) -> None:
    """A bracket in front of a formula goes into its element, so that no line ends with it."""
    text = (parent.text if before is None else before.tail) or ""
    if opening := OPENING.search(text):
        formula.text = opening[0] + (formula.text or "")
        if before is None:
            parent.text = text[: opening.start()]
        else:
            before.tail = text[: opening.start()]
