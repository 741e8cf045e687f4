"""What the site can point at: the page that shows a file, the derivation that prints a tag, the kernels that cite it.

Everything is read from the files themselves, so that adding an operation needs no list to be kept:

- a page whose text holds `[[kernel: PATH]]` or `[[derivation: PATH]]` shows that file;
- a display equation with `\\tag{NAME}` in backprop_math is the home of that tag;
- `[[eq: NAME]]` and `[[tag: NAME]]` in a kernel file cite it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

import yaml

from academy.cache import question

STUB = re.compile(r"^\[\[(kernel|derivation): ([^\]\s]+)\]\]\s*$", re.M)
CITATION = re.compile(r"\[\[(?:eq|tag): *([^\]\s]+) *\]\]")
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
TAG = re.compile(r"\s*\\tag\{([^{}]+)\}")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?^ {0,3}\1[^\n]*$", re.M | re.S)
FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*\n", re.S)
# A file that pymdownx.snippets puts in, and the name of a section of it, if any.
SNIPPET = re.compile(r"""-{1,}8<-{1,} +["']([^"':]+)(?::(\w+))?""")

# Place of each page in the order of reading, and the title of its section, by uri: filled from the navigation
# (academy/site/hook.py), else empty.
READING_ORDER: dict[str, int] = {}
SECTIONS: dict[str, str] = {}


@dataclass(frozen=True)
class Equation:
    """A tagged display equation. `tex` has no \\tag; `path` is the derivation's file."""

    tag: str
    tex: str
    path: str
    line: int


@dataclass(frozen=True)
class Citation:
    """A line of a kernel file that cites a tag."""

    tag: str
    path: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page of docs/ that shows a kernel or derivation. `uri` is relative to docs/."""

    uri: str
    kind: str
    source: str
    meta: dict

    @property
    def href(self) -> str:
        """A link that MkDocs resolves and checks from any page (absolute_links: relative_to_docs)."""
        return "/" + self.uri


@dataclass
class Library:
    """The site's index. `pages` by the path of the shown file, `by_uri` by the page's place under docs/."""

    root: Path
    pages: dict[str, Page] = field(default_factory=dict)
    equations: dict[str, Equation] = field(default_factory=dict)
    citations: dict[str, list[Citation]] = field(default_factory=dict)
    problems: list[tuple[str, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, root: str | Path = ".", docs: str = "docs") -> Library:
        """Index the project under `root`. The index is made again only when a file in it changed."""
        root = Path(root)
        folders = ((root / docs, "*.md"), (root / "backprop_math", "*.md"), (root / "annotated_examples", "*.py"))
        files = tuple((p, p.stat().st_mtime_ns) for folder, kind in folders for p in sorted(folder.rglob(kind)))
        return _index(root, docs, files)

    def _add_page(self, path: Path, uri: str) -> None:
        text = _text(path)
        for found in STUB.finditer(FENCE.sub("", text)):
            page = Page(uri, found[1], found[2], front_matter(text))
            if page.source in self.pages:
                line = text.count("\n", 0, text.find(found[0])) + 1
                message = f"{page.source} is already shown by docs/{self.pages[page.source].uri}"
                self.problems.append((f"docs/{uri}", line, message))
            self.pages.setdefault(page.source, page)

    def _add_equations(self, path: Path, name: str) -> None:
        for equation in equations(_text(path), name):
            first = self.equations.setdefault(equation.tag, equation)
            if first is not equation:
                message = f"\\tag{{{equation.tag}}} is already at {first.path}:{first.line}"
                self.problems.append((name, equation.line, message))

    def _add_citations(self, path: Path, name: str) -> None:
        for number, line in enumerate(_text(path).split("\n"), 1):
            for tag in CITATION.findall(line):
                self.citations.setdefault(tag, []).append(Citation(tag, name, number))

    @question
    def page_of(self, source: str) -> Page | None:
        """The page that shows this file."""
        return self.pages.get(source)

    @question
    def page_at(self, uri: str) -> Page | None:
        """The stub at this place under docs/, if that page is one."""
        return next((page for page in self.pages.values() if page.uri == uri), None)

    @question
    def shown(self, kind: str) -> list[Page]:
        """All kernel or derivation pages, in the order of reading."""
        pages = [page for page in self.pages.values() if page.kind == kind]
        return sorted(pages, key=lambda page: (READING_ORDER.get(page.uri, len(READING_ORDER)), page.uri))

    @question
    def section(self, uri: str) -> str:
        """What the navigation calls the section of a page; without one, its folder."""
        return SECTIONS.get(uri) or uri.rpartition("/")[0].rpartition("/")[2].replace("_", " ").capitalize()

    @question
    def tex(self, tag: str) -> str | None:
        """A tagged equation without its tag, or None when no derivation has it."""
        return self.equations[tag].tex if tag in self.equations else None

    @question
    def derivation_of(self, tag: str) -> str | None:
        """The file that prints a tagged equation."""
        return self.equations[tag].path if tag in self.equations else None

    @question
    def cited(self, tag: str) -> list[Citation]:
        """The lines of kernel files that cite a tagged equation."""
        return self.citations.get(tag, [])

    @question
    def home(self, tag: str) -> str | None:
        """A link to the place where a tagged equation is printed, or None when no page prints it."""
        equation = self.equations.get(tag)
        page = self.pages.get(equation.path) if equation else None
        return f"{page.href}#{tag}" if page else None


@lru_cache(8)
def _index(root: Path, docs: str, files: tuple[tuple[Path, int], ...]) -> Library:
    library = Library(root)
    for path, _ in files:
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            library._add_citations(path, name)
        elif name.startswith("backprop_math/"):
            library._add_equations(path, name)
        else:
            library._add_page(path, path.relative_to(root / docs).as_posix())
    return library


def equations(text: str, path: str) -> Iterator[Equation]:
    """The tagged display equations of a derivation's text, in order. Fenced code is skipped."""
    blank = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for display in DISPLAY.finditer(blank):
        for tag in TAG.finditer(display[1]):
            line = blank.count("\n", 0, display.start(1) + tag.start(1)) + 1
            yield Equation(tag[1], TAG.sub("", display[1]).strip(), path, line)


@cache
def front_matter(text: str) -> dict:
    """The YAML between the first two `---` lines; empty when there is none or it is not a mapping."""
    found = FRONT_MATTER.match(text)
    try:
        meta = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}  # MkDocs reports it for the page
    return meta if isinstance(meta, dict) else {}


def without_front_matter(text: str) -> tuple[str, int]:
    """The text below the front matter, and how many lines were cut off above it."""
    found = FRONT_MATTER.match(text)
    return (text[found.end() :], found[0].count("\n")) if found else (text, 0)


def read(path: Path) -> str:
    """A file's text, on which the piece that is being made then depends. Read again only when size or time changed."""
    return _asked(str(path))


@question
def _asked(path: str) -> str:
    return _text(Path(path))


@question
def exists(path: str) -> bool:
    """Whether there is such a file or folder."""
    return Path(path).exists()


def _text(path: Path) -> str:
    stat = path.stat()
    return _read(str(path), stat.st_mtime_ns, stat.st_size)


@cache
def _read(path: str, _time: int, _size: int) -> str:
    return Path(path).read_text("utf-8")
