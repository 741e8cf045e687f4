"""What a text takes from elsewhere: a tagged equation from its derivation, a number from the committed results or from
a recorded run."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString

from academy.book.directives import SPANS, pattern
from academy.results import changes, figures
from academy.site import project_parts
from academy.site.conversion import Conversion


class CitedEquation(BlockProcessor):
    """`[[eq: LN-X]]` on a line of its own."""

    PATTERN = re.compile(rf"^ {{0,3}}{pattern('eq')}[ \t]*$", re.M)  # more would be a block of code

    def __init__(self, conversion: Conversion):
        super().__init__(conversion.md.parser)
        self.conversion = conversion

    def test(self, parent, block):
        return bool(self.PATTERN.search(block))

    def run(self, parent, blocks):
        before, _, argument, after = self.PATTERN.split(blocks.pop(0), maxsplit=1)
        if before.strip():
            self.parser.parseBlocks(parent, [before])
        parent.append(self.element(argument))
        if after.strip():
            blocks.insert(0, after.lstrip("\n"))

    def element(self, tag: str) -> Element:
        href, tex = self.conversion.index.home(tag), self.conversion.index.tex(tag)
        if not href or tex is None:
            self.conversion.problem(f"no page of backprop_math has \\tag{{{tag}}}", f"[[eq: {tag}]]")
            return _failure(f"no derivation prints ({tag})")
        box = Element("div", {"class": "eq eq-cited"})
        SubElement(box, "div", {"class": "arithmatex"}).text = AtomicString(f"\\[{tex}\\]")
        link = SubElement(box, "a", {"class": "eq-tag", "href": href, "title": "See its derivation"})
        link.text = AtomicString(f"({tag})")
        return box


class Span(InlineProcessor):
    """A directive within a sentence: a method for each name of `academy.book.directives.SPANS`."""

    def __init__(self, conversion: Conversion):
        super().__init__(pattern(*SPANS), conversion.md)
        self.conversion = conversion

    def handleMatch(self, m, data):
        element = getattr(self, m["name"])(m["argument"] or "", m[0])
        return element, m.start(0), m.end(0)

    def tag(self, tag: str, written: str) -> Element:
        """A link to a tagged equation."""
        href = self.conversion.index.home(tag)
        if not href:
            self.conversion.problem(f"no page of backprop_math has \\tag{{{tag}}}", written)
            return _failure(f"({tag})", "span")
        link = Element("a", {"class": "eq-ref", "href": href})
        link.text = AtomicString(f"({tag})")
        return link

    def bench(self, key: str, written: str) -> Element:
        """A number from the committed results."""
        number = figures.measured(key, project_parts.ROOT)
        if number is None:
            self.conversion.problem(f"no committed result has {key!r}", written)
            return _failure(key, "span")
        return _number(number, f"measured: {key}")

    def changes(self, kind: str, written: str) -> Element:
        """How many changes of kernels which comparison sees, in words."""
        if not changes.FILES.get(kind) or not changes.read(kind, project_parts.ROOT):
            self.conversion.problem(f"nothing was counted of {kind!r}: coarse, fine", written)
            return _failure(kind, "span")
        return _number(changes.said(kind, project_parts.ROOT), f"counted: {changes.FILES[kind]}")

    def run(self, key: str, written: str) -> Element:
        """A number of a recorded run, which links to its moment."""
        try:
            found = project_parts.recorded_number(key)
        except ValueError as error:
            self.conversion.problem(f"{written}: {error}", written)
            return _failure(key, "span")
        if found is None:
            return _failure("(not recorded here: triton is missing)", "span")
        text, path, line, moment = found
        link = Element("a", {"class": "k-run-link", "href": self.conversion.link(path, f"L{line}"), "data-run": moment})
        SubElement(link, "code", {"class": "k-claim"}).text = AtomicString(text)
        return link


def _number(text: str, title: str) -> Element:
    element = Element("span", {"class": "measured", "title": title})
    element.text = AtomicString(text)
    return element


def _failure(text: str, tag: str = "p") -> Element:
    element = Element(tag, {"class": "academy-problem"})
    element.text = AtomicString(text)
    return element
