"""The page of a kernel file: Markdown of its notes out, the finished two columns back together.

`markdown` writes the notes with a marker paragraph before each row, so that they are ordinary top-level Markdown
(lists, tables, admonitions, headings in the table of contents). `assemble` then moves what stands between two markers
into the row.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from markdown.util import HTML_PLACEHOLDER_RE
from markupsafe import Markup

from academy.book.directives import pattern
from academy.book.splitter import Module, Row, Text
from academy.site import pictures, playground_page, project_parts
from academy.site.conversion import Conversion, element
from academy.site.helpers import Helper, first_uses
from academy.site.highlighting import highlighted

MARKER = "academykernelrow{:04d}"
MARKED = re.compile(r"^academykernelrow(\d{4})$")
# A quoted number of the recorded run: `pid=13, k=1: offs_am[0] = 8`, or without a place, `num_pid_m = 8`.
CLAIM = re.compile(r"(?:(?P<where>[\w=(), ]+): +)?(?P<name>[A-Za-z_][\w.]*(?:\[[^\]=]*\])?) = (?P<value>\S.*)")
LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]+\.(?:py|md)\)")  # in a comment of a helper
SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Yields|Raises|Attributes|Examples?|Notes?|Source|Sources):\s*$"
)
LAUNCHER = re.compile(r"_(forward|backward)$")
#: Parts of a file that a reader of the kernel can do without, and the titles that they are folded under.
FOLDED = {"imports": "Imports", "launcher": "Launcher", "example": "Example"}

#: The facts of the file, beside its introduction; a helper from a shared file; what stands above the code.
CARD = """<aside class="k-card" aria-label="About this file"><dl>
<dt>File</dt><dd><a href="{blob}"><code>{path}</code></a></dd>
{tests}<dt>Run it</dt><dd><code>.venv/bin/python {path}</code></dd>
<dt>Download</dt><dd>A copy of the file runs where this package is installed: it imports <code>academy</code>.</dd>
</dl></aside>"""
#: Beside the introduction: the picture of a note further down. One of the introduction itself moves there, if it has at
#: most `PANELS` panels.
PICTURE = """<a class="k-picture" href="#L{line}" data-search-exclude="">{drawn}<span>{said}</span></a>"""
PANELS = 2
TESTS = '<dt>Tests</dt><dd><a href="{blob}"><code>{path}</code></a></dd>'
HELPER = """<details class="k-helper" data-search-exclude=""><summary><code>{name}</code> from {file}</summary>
<pre><span class="k-pre"><code /></span></pre>
<a href="{blob}#L{line}">{path}, line {line}</a></details>"""
BAR = """<div class="k-bar" role="toolbar" aria-label="This file"><span class="k-path">{where}</span>
<button type="button" class="k-more" aria-expanded="false" aria-label="Options">⋯</button>
<button type="button" data-k-notes="" data-k-toggle="notes" aria-pressed="false">Hide notes</button>
<button type="button" data-k-toggle="kernels" aria-pressed="false">Kernel only</button>
<button type="button" data-k-toggle="wrap" aria-pressed="false">Wrap lines</button>
<button type="button" data-k-copy="">Copy file</button>
<a href="/{path}" download="" class="k-download">Download</a></div>"""
MODES = """<span class="k-modes" role="group" aria-label="View">
<button type="button" data-k-mode="read" aria-pressed="true">Read</button>
<button type="button" data-k-mode="run" aria-pressed="false">Watch</button>
<button type="button" data-k-mode="edit" data-action="edit" aria-pressed="false">Edit</button></span>"""


def markdown(module: Module, title: str) -> list[tuple[int, str]]:
    """The page's Markdown as (line of the file, text). `title` heads the page if the docstring does not."""
    intro = list(module.intro.lines)
    head = [(0, f"# {title}")]
    if intro and intro[0][1].startswith("# "):
        head = [intro.pop(0)]
    out = [*head, (0, ""), (0, MARKER.format(0)), (0, ""), *intro]
    for i, row in enumerate(module.rows, 1):
        out += [(0, ""), (0, MARKER.format(i)), (0, ""), *google_sections(row.note).lines]
    return [*out, (0, ""), (0, MARKER.format(len(module.rows) + 1)), (0, "")]


def _breakable(path: str) -> Markup:
    """A path whose lines end after a slash, where they have to."""
    return Markup("/<wbr />").join(path.split("/"))


def google_sections(note: Text) -> Text:
    """`Args:` and its kind, with their indented entries, as Markdown lists; what a call returns is said in prose."""
    out: list[tuple[int, str]] = []
    inside = ""
    for number, line in note.lines:
        section = SECTION.match(line)
        if section:
            out += [(0, ""), (number, f"**{section[1]}**"), (0, "")]
            inside = section[1]
        elif inside and line and not line.startswith(" "):
            out += [(0, ""), (number, line)]
            inside = ""
        elif inside in ("Returns", "Yields"):
            out.append((number, line.strip()))
        elif inside and line.startswith("    ") and not line.startswith("     "):
            entry = re.sub(r"^(\*{0,2}\w[\w., *]*?)( \([^)]*\))?: ", r"`\1`\2: ", line[4:])
            out.append((number, f"- {entry}"))
        elif inside:
            out.append((number, line[2:] if line.startswith("      ") else line))
        else:
            out.append((number, line))
    return Text(tuple(out))


class UnclosedNote(ValueError):
    """A note swallows the row after it (an HTML tag that is never closed). `row` is the first one that is missing."""

    def __init__(self, row: int):
        super().__init__(f"row {row} is missing")
        self.row = row


class KernelPage:
    """The two columns of a kernel file, with its recorded run and, folded, what it takes from shared files."""

    def __init__(self, conversion: Conversion, module: Module):
        self.module, self.blob, self.store = module, conversion.blob, conversion.md.htmlStash.store
        self.raw = conversion.md.htmlStash.rawHtmlBlocks
        self.helpers, self.index = first_uses(module.text, conversion.root), conversion.index
        self.code, self.root = highlighted(module.text), conversion.root

    def assemble(self, root: Element) -> None:
        """Turn the flat elements between markers into the page."""
        module = self.module
        groups, before, after = _groups(root, len(module.rows) + 2)
        top = Element("div", {"class": "k-top"})
        intro = SubElement(top, "div", {"class": "k-intro"})
        _anchors(intro, module.intro.numbers)
        side = SubElement(top, "div", {"class": "k-side"})
        side.extend(self.beside(groups[0]))
        intro.extend(each for each in groups[0] if each not in list(side))
        operations = self.index.operations_of(module.path)
        paths = dict.fromkeys(each.tests for each in operations if each.tests)
        tests = Markup().join(Markup(TESTS).format(blob=self.blob(path), path=_breakable(path)) for path in paths)
        side.append(element(CARD, path=_breakable(module.path), blob=self.blob(module.path), tests=tests))
        bar = element(BAR, path=module.path, where=project_parts.no_run() or module.path)
        file = Element("div", {"class": "k-file", "data-path": module.path})
        if panel := project_parts.recorded_run(module.path)[0]:
            file.set("data-lines", playground_page.ranges(playground_page.numbers(module)))
            bar.insert(0, element(MODES))
            SubElement(file, "div", {"class": "k-panel", "hidden": "hidden"}).text = self.store(panel)
        parts = parts_of(module)
        file.extend([self.row(row, group, part) for row, group, part in zip(module.rows, groups[1:], parts)])
        for child in list(root):
            root.remove(child)
        root.extend([*before, bar, top, file, *after])

    def beside(self, intro: list[Element]) -> list[Element]:
        """What stands in the right half, beside the introduction: the page's first picture."""
        key, line = pictures.first(self.module.text)
        drawn = pictures.found(self.root, key) if key else None
        if not drawn:
            return []
        if line in self.module.intro.numbers:
            fits = not drawn["moves"] and len(drawn["panels"]) <= PANELS
            return [each for each in intro if fits and self.stashed(each).startswith("<figure")][:1]
        said = re.split(r"(?<=[.!?])\s", drawn["caption"])[0]
        picture = Markup(PICTURE).format(line=line, drawn=pictures.thumbnail(self.root, key), said=said)
        made = Element("div", {"class": "k-seen"})
        made.text = self.store(picture)
        return [made]

    def stashed(self, child: Element) -> str:
        """The finished HTML that a paragraph stands for; "" for one of text."""
        found = HTML_PLACEHOLDER_RE.fullmatch((child.text or "").strip())
        return str(self.raw[int(found[1])]) if found else ""

    def row(self, row: Row, note: list[Element], part: str) -> Element:
        kind = " k-wide" if row.wide else "" if note else " k-bare"
        if row.wide and len(note) == 1 and note[0].tag in ("h2", "h3", "h4"):
            kind = " k-wide k-heading"
        kind += " k-jit" if part == "kernel" else ""
        drawn = 24 * str(row.note).count("[[figure:")
        lines = len(row.code) - 2 * len(_bare_arguments(row.code, self.module)) // 3  # which flow, some on a line
        helpers = [helper for line in row.code for helper in self.helpers.get(line, ())]
        bars = len(helpers) + (part in FOLDED and bool(row.code))  # of folded code, each as tall as two lines
        lines = 2 * bars + (0 if part in FOLDED else lines)
        style = f"--k-note:{len(str(row.note)) / 58 + 1 + drawn:.0f};--k-lines:{lines}"
        made = Element("div", {"class": "k-row" + kind, "style": style} | ({"id": row.name} if row.name else {}))
        left = SubElement(made, "div", {"class": "k-note"})
        _anchors(left, row.note.numbers)
        left.extend(note)
        _mark_claims(left, row)
        if row.code:
            block = self.block(row.code, FOLDED.get(part, ""))
            block.extend(map(self.folded, helpers))
            made.append(block)
        return made

    def block(self, numbers: list[int], folded: str) -> Element:
        """The code of a row; what is `folded` stands under that title and its number of lines."""
        block = Element("details" if folded else "div", {"class": "k-code highlight" + (" k-fold" if folded else "")})
        if folded:
            title = f"{folded}, {len(numbers)} line" + ("s" if len(numbers) > 1 else "")
            SubElement(block, "summary", {"data-search-exclude": ""}).text = title
        # The theme's script measures every `pre > code`, also those out of sight: seconds on a phone. Not these.
        body = SubElement(SubElement(SubElement(block, "pre"), "span", {"class": "k-pre"}), "code")
        arguments = _bare_arguments(numbers, self.module)
        group = None
        for before, number in zip([None, *numbers], numbers):
            if number not in arguments:
                group = None
            elif group is None:
                group = SubElement(body, "span", {"class": "k-sig"})
            jump = " k-jump" if before and before != number - 1 else ""
            line = SubElement(body if group is None else group, "span", {"class": f"k-l{jump}", "id": f"L{number}"})
            link = {"href": f"#L{number}", "data-n": str(number), "tabindex": "-1", "aria-hidden": "true"}
            SubElement(line, "a", {"class": "k-n"} | link)
            SubElement(line, "span", {"class": "k-c"}).text = self.store(
                (self.code[number - 1] if number <= len(self.code) else "") + "\n"
            )
        return block

    def folded(self, helper: Helper) -> Element:
        """A helper from a shared file, its source out of sight until it is asked for."""
        lines = highlighted(helper.text)[helper.lines.start - 1 : helper.lines.stop - 1]
        file, line = helper.path.removeprefix("annotated_examples/"), helper.lines.start
        folded = element(HELPER, name=helper.name, file=file, path=helper.path, line=line, blob=self.blob(helper.path))
        text, *cited = re.split(pattern("tag"), LINK.sub(r"\1", "\n".join(lines) + "\n"))
        folded[1][0][0].text = self.store(text)
        for tag, after in zip(cited[1::3], cited[2::3]):
            link = SubElement(folded[1][0][0], "a", {"class": "eq-ref", "href": self.index.home(tag) or ""})
            link.text, link.tail = f"({tag})", self.store(after)
        return folded


def parts_of(module: Module) -> list[str]:
    """What each row belongs to: kernel, imports, launcher, example or "". The heading over a kernel belongs to it,
    and so does what stands between the two."""
    parts: list[str] = []
    part = ""
    for row in module.rows:
        code = [module.lines[number - 1] for number in row.code]
        if row.wide and not row.code:
            part = ""
        elif "@triton.jit" in code:
            part = "kernel"
            above = len(parts) - 1
            while above >= 0 and not parts[above] and not module.rows[above].code:
                parts[above] = part
                above -= 1
        elif row.name:
            part = "example" if row.name == "EXAMPLE" else "launcher" if LAUNCHER.search(row.name) else ""
        elif code and not any(parts) and any(line.startswith(("import ", "from ")) for line in code):
            part = "imports"
        parts.append(part)
        part = "" if part == "imports" else part
    return parts


def _groups(root: Element, count: int) -> tuple[list[list[Element]], list[Element], list[Element]]:
    """The elements after each marker; what stands before the first and after the last marker."""
    before: list[Element] = []
    groups: list[list[Element]] = []
    for child in root:
        found = MARKED.match((child.text or "").strip()) if child.tag == "p" and not len(child) else None
        if found:
            if int(found[1]) != len(groups):
                raise UnclosedNote(len(groups))
            groups.append([])
        else:
            (groups[-1] if groups else before).append(child)
    if len(groups) != count:
        raise UnclosedNote(len(groups))
    return groups[:-1], before, groups[-1]


def _anchors(parent: Element, numbers: list[int]) -> None:
    """Lines that became a note can be linked to as well."""
    for number in numbers:
        SubElement(parent, "span", {"class": "k-at", "id": f"L{number}"})


def _mark_claims(note: Element, row: Row) -> None:
    """Quoted numbers get a class and their parts as data, for the viewer."""
    for code in note.iter("code"):
        found = CLAIM.fullmatch(" ".join((code.text or "").split())) if not len(code) else None  # it may span lines
        if found:
            code.set("class", "k-claim")
            for part, value in found.groupdict().items():
                if value:
                    code.set(f"data-{part}", value)
            if row.code:
                code.set("data-line", str(row.code[0]))


def _bare_arguments(numbers: list[int], module: Module) -> set[int]:
    """Lines that hold arguments of a signature and no comment: a run of them flows like text, to stay compact."""
    found = set()
    for start in (n for n in numbers if re.match(r"\s*(async )?def \w+\($", module.lines[n - 1])):
        run = []
        for number in range(start + 1, numbers[-1]):
            line = module.lines[number - 1].strip()
            if not re.fullmatch(r"[^#()\[\]{}]*,", line) or number not in numbers:
                break
            run.append(number)
        found |= set(run) if len(run) > 2 else set()
    return found
