"""What a text draws from elsewhere: a tagged equation from its derivation, a number from the committed results
or from a recorded run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString

from academy.site import plugs

if TYPE_CHECKING:
    from academy.site.extension import AcademyExtension


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
        maths.text = AtomicString("\\[" + self.extension.index.tex(tag) + "\\]")
        link = SubElement(box, "a", {"class": "eq-tag", "href": href, "title": "See its derivation"})
        link.text = AtomicString(f"({tag})")
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


class Recorded(TagLink):
    """`[[run: classics/layernorm: layernorm_forward_kernel, pid=0: mean[0]]]`: a number of a recorded run."""

    def handleMatch(self, m, data):
        try:
            found = plugs.recorded_number(m[1])
        except ValueError as error:
            self.extension.problem(f"{m[0]}: {error}", m[0])
            return _failure(m[1], "span"), m.start(0), m.end(0)
        if found is None:
            return _failure("(not recorded here: triton is missing)", "span"), m.start(0), m.end(0)
        text, path, line, moment = found
        link = Element("a", {"class": "k-run-link", "href": self.extension.link(path, f"L{line}"), "data-run": moment})
        SubElement(link, "code", {"class": "k-claim"}).text = AtomicString(text)
        return link, m.start(0), m.end(0)


def _failure(text: str, tag: str = "p") -> Element:
    element = Element(tag, {"class": "academy-problem"})
    element.text = AtomicString(text)
    return element
