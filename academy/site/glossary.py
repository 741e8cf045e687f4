"""The glossary (docs/guides/glossary.md): its definitions over the first mention of a word on other pages.

A mention is a link to the definition, so it works with the keyboard and without a script; static/reader.js shows the
definition beside it on hover, focus and the first tap. Not the theme's abbreviations: those match every mention, also
in headings, cannot be focused, and a page with kernel notes would be dotted all over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from academy.site.conversion import TreeStep
from academy.site.texts import front_matter, read

HOME = "guides/glossary.md"
ENTRY = re.compile(
    r"^(?P<forms>[^\n:].*?) \{ #(?P<id>[\w-]+) \}\n:   (?P<text>.+?) → (?P<link>\[[^\]]+\]\((?P<href>[^)]+)\))$", re.M
)
GENERATED = ("reference/", "benchmarks/")
#: The most mentions that a page shows, and how many in one paragraph or item.
ON_A_PAGE, IN_A_BLOCK = 12, 1
SKIPPED_TAGS = {"a", "abbr", "button", "code", "dt", "figure", "pre", "script", "style", "summary", "table"}
SKIPPED_TAGS |= {"h1", "h2", "h3", "h4", "h5", "h6", "svg"}
SKIPPED_CLASSES = {"admonition-title", "arithmatex", "eq", "hero", "k-bar", "k-card", "k-code", "k-contents", "k-panel"}
SKIPPED_CLASSES |= {"op-links", "page-facts", "path", "highlight", "academy-problem", "nb-download"}
BLOCKS = {"p", "li", "dd", "td", "div"}


@dataclass(frozen=True)
class Term:
    """A definition. `forms`: how texts spell the word; `teacher`: the page that teaches it, a uri under docs/."""

    id: str
    forms: tuple[str, ...]
    text: str
    teacher: str


@dataclass(frozen=True)
class Glossary:
    """All terms by id, and one pattern for all of their forms."""

    terms: dict[str, Term]
    by_form: dict[str, Term]
    pattern: re.Pattern
    other_senses: re.Pattern

    @classmethod
    def read(cls, docs: Path) -> Glossary | None:
        path = docs / HOME
        return _parse(read(path)) if path.is_file() else None

    def mentions(self, text: str) -> Iterator[tuple[re.Match, Term]]:
        """Where a text mentions terms, but for the phrases in which a word has another sense."""
        other = [found.span() for found in self.other_senses.finditer(text)]
        for found in self.pattern.finditer(text):
            if any(start <= found.start() and found.end() <= end for start, end in other):
                continue
            word = " ".join(found[0].split())
            yield (
                found,
                next(self.by_form[w] for w in (word, word.lower(), word[:-1], word.lower()[:-1]) if w in self.by_form),
            )


@lru_cache(2)
def _parse(text: str) -> Glossary:
    terms, by_form, patterns = {}, {}, []
    for entry in ENTRY.finditer(text):
        forms = tuple(form.strip("` ") for form in entry["forms"].split(","))
        page = entry["href"].partition("#")[0]
        teacher = page[1:] if page.startswith("/") else f"guides/{page}"
        term = terms[entry["id"]] = Term(entry["id"], forms, re.sub(r"[`*]", "", entry["text"]), teacher)
        for form in forms:
            name = form if _is_acronym(form) else form.lower()
            by_form[name] = term
            pattern = _words(form)
            patterns.append((len(form), pattern if _is_acronym(form) else f"(?i:{pattern})"))
    longest_first = "|".join(pattern for _, pattern in sorted(patterns, reverse=True))
    phrases = "|".join(map(_words, front_matter(text).get("other_senses", ()))) or r"(?!)"
    pattern = re.compile(rf"(?<![\w.\x22-])(?:{longest_first})s?(?![\w-]|\.\w)")
    return Glossary(terms, by_form, pattern, re.compile(phrases, re.I))


def _words(phrase: str) -> str:
    """A pattern for a phrase, which may go over the end of a line."""
    return r"\s+".join(map(re.escape, phrase.split()))


def _is_acronym(form: str) -> bool:
    return sum(letter.isupper() for letter in form) > 1 or form == "L2"


class Mentions(TreeStep):
    """Marks the first mention of each term on a page, a few of them, and adds their definitions at its end."""

    def run(self, root: Element) -> None:
        index = self.conversion.index
        glossary = Glossary.read(index.root / index.docs)
        uri = self.conversion.uri
        if glossary is None or not uri or uri == HOME or uri.startswith(GENERATED):
            return
        self.glossary = glossary
        # A page that teaches a word explains it in its own time. Of many words, those that are taught last are kept.
        words = {
            term.id: term for text in self.texts(root) for _, term in glossary.mentions(text) if term.teacher != uri
        }
        taught = index.path.steps
        ranked = sorted(words.values(), key=lambda term: -taught.get(term.teacher, 0))
        self.wanted = {term.id for term in ranked[:ON_A_PAGE]}
        self.marked: list[Term] = []
        self.left = IN_A_BLOCK
        self.visit(root)
        if self.marked:
            box = SubElement(root, "div", {"class": "terms", "data-search-exclude": ""})
            for term in self.marked:
                tip = SubElement(box, "div", {"id": f"term-{term.id}", "role": "tooltip", "popover": "manual"})
                tip.text = AtomicString(term.text)

    @staticmethod
    def skipped(element: Element) -> bool:
        return element.tag in SKIPPED_TAGS or bool(SKIPPED_CLASSES & set(element.get("class", "").split()))

    def texts(self, element: Element) -> Iterator[str]:
        """The text in which words are looked for, piece by piece, in the order of the page."""
        if not self.skipped(element):
            yield from _plain(element.text)
            for child in element:
                yield from self.texts(child)
                yield from _plain(child.tail)

    def visit(self, element: Element) -> None:
        if not self.wanted or self.skipped(element):
            return
        if element.tag in BLOCKS:
            self.left = IN_A_BLOCK
        if mention := self.mention(element.text):
            element.text = mention[0]
            element.insert(0, mention[1])
        place = 0
        while place < len(element):
            child = element[place]
            self.visit(child)
            if mention := self.mention(child.tail):
                child.tail = mention[0]
                element.insert(place + 1, mention[1])
            place += 1

    def mention(self, text: str | None) -> tuple[str, Element] | None:
        """The text before the first wanted term in `text`, and its link, whose tail is the rest."""
        for piece in _plain(text) if self.left else ():
            for found, term in self.glossary.mentions(piece):
                if term.id not in self.wanted:
                    continue
                self.wanted.remove(term.id)
                self.marked.append(term)
                self.left -= 1
                link = {"class": "term", "href": f"/{HOME}#{term.id}", "aria-describedby": f"term-{term.id}"}
                element = Element("a", link)
                element.text, element.tail = AtomicString(found[0]), piece[found.end() :]
                return piece[: found.start()], element
        return None


def _plain(text: str | None) -> list[str]:
    """Text that may hold words: not what is set as it stands."""
    return [text] if text and not isinstance(text, AtomicString) else []
