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

from academy.book import front_matter
from academy.book.texts import read
from academy.site.conversion import TreeStep

HOME = "guides/glossary.md"
ENTRY = re.compile(
    r"^(?P<forms>[^\n:].*?) \{ #(?P<id>[\w-]+) \}\n:   (?P<text>.+?) → (?P<link>\[[^\]]+\]\((?P<href>[^)]+)\))$", re.M
)
GENERATED = ("reference/", "benchmarks/")
#: The most mentions that a page shows. One paragraph or item has at most one.
ON_A_PAGE = 12
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
        all_found = list(self.pattern.finditer(text))
        other = [found.span() for found in self.other_senses.finditer(text)] if all_found else []
        for found in all_found:
            if any(start <= found.start() and found.end() <= end for start, end in other):
                continue
            word = " ".join(found[0].split())
            forms = (word, word.lower(), word[:-1], word.lower()[:-1])
            yield found, next(self.by_form[form] for form in forms if form in self.by_form)


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
            words = _words(form)
            patterns.append((len(form), words if _is_acronym(form) else f"(?i:{words})"))
    longest_first = "|".join(pattern for _, pattern in sorted(patterns, reverse=True))
    phrases = "|".join(map(_words, front_matter.values(text).get("other_senses", ()))) or r"(?!)"
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
        slots = [(slot, list(glossary.mentions(slot.text))) for slot in _slots(root, root)]
        # A page that teaches a word explains it in its own time. Of many words, those that are taught last are kept.
        words = {term.id: term for _, mentions in slots for _, term in mentions if term.teacher != uri}
        ranked = sorted(words.values(), key=lambda term: -index.path.steps.get(term.teacher, 0))
        wanted, marked = {term.id for term in ranked[:ON_A_PAGE]}, list[Term]()
        done: set[Element] = set()
        for slot, mentions in slots:
            found = [] if slot.block in done else mentions
            mention = next(((match, term) for match, term in found if term.id in wanted), None)
            if mention:
                slot.link(*mention)
                wanted.remove(mention[1].id)
                marked.append(mention[1])
                done.add(slot.block)
        if marked:
            box = SubElement(root, "div", {"class": "terms", "data-search-exclude": ""})
            for term in marked:
                tip = SubElement(box, "div", {"id": f"term-{term.id}", "role": "tooltip", "popover": "manual"})
                tip.text = AtomicString(term.text)


@dataclass(frozen=True)
class Slot:
    """A text of a page in which words are looked for: at the beginning of `parent`, or behind its child `before`."""

    text: str
    parent: Element
    before: Element | None
    block: Element

    def link(self, found: re.Match, term: Term) -> None:
        link = {"class": "term", "href": f"/{HOME}#{term.id}", "aria-describedby": f"term-{term.id}"}
        made = Element("a", link)
        made.text, made.tail = AtomicString(found[0]), self.text[found.end() :]
        if self.before is None:
            self.parent.text = self.text[: found.start()]
            self.parent.insert(0, made)
        else:
            self.before.tail = self.text[: found.start()]
            self.parent.insert(list(self.parent).index(self.before) + 1, made)


def _slots(parent: Element, block: Element) -> Iterator[Slot]:
    """In the order of the page. What is set as it stands holds no words."""
    if parent.tag in SKIPPED_TAGS or SKIPPED_CLASSES & set(parent.get("class", "").split()):
        return
    block = parent if parent.tag in BLOCKS else block
    pieces = [(None, parent.text), *((child, child.tail) for child in parent)]
    for child, text in pieces:
        if child is not None:
            yield from _slots(child, block)
        if text and not isinstance(text, AtomicString):
            yield Slot(text, parent, child, block)
