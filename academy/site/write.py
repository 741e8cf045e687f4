"""`python -m academy.site.write`: the site as a tree of Markdown, before any engine makes HTML of it.

The tree has every page, those of kernels, derivations, benchmarks, exercises and chapters, and what is published beside
them: files to download, recorded runs, the playground, scripts, fonts, licences, and what leads from old addresses to
new ones. A page's front matter says what engines and templates need: title, description, the page before and after it,
the file in which it is edited. The navigation comes along. A file is written only when its content has changed, and a
page's content tells of all that it shows (`made_of`), so that an engine needn't make the others again.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import yaml
from yaml_env_tag import add_env_tag  # type: ignore[import-untyped]

from academy.book import front_matter, layout, operations, syntax
from academy.book.layout import ROOT
from academy.book.learning_path import WAY_IN, kind
from academy.book.splitter import split
from academy.book.texts import digest, heading, read, summary
from academy.command import garbage
from academy.files import vendored
from academy.playground import bundle as playground
from academy.results import ladder as ladders
from academy.site import (
    addresses,
    background,
    broken_links,
    chapters,
    generated_pages,
    pictures,
    playground_page,
    project_parts,
    search_text,
)
from academy.site.chapters import CellFailed
from academy.site.library import Library, Page

ACADEMY = ROOT / "academy"
#: Folder with files to publish -> its place on the site. A part of academy that has a static/ folder is published too.
VENDORED = {"site/vendor/katex": "katex", "site/vendor/plex": "plex"}
PUBLISHED = {".css", ".js", ".woff2", ".svg", ".png"}
#: What the footer says of the page before or after, in front of its title.
CAPITAL = {"kernel": "Kernel: ", "derivation": "Derivation: ", "chapter": "Chapter ", "guide": "Guide: "}

log = logging.getLogger("mkdocs.academy.site")


@dataclass(frozen=True)
class Settings:
    """`nav`: what is written by hand; `site_url` and `repo_url`: see `academy.site.addresses`; `executes`: whether the
    chapters' cells are run; `notebooks`: the files that are chapters."""

    nav: list
    site_url: str
    repo_url: str
    executes: bool
    notebooks: tuple[Path, ...]

    @classmethod
    def of(cls, config: Mapping, executes: bool, notebooks: Iterable[Path]) -> Settings:
        """`config`: mkdocs.yml, as it is read here or by MkDocs."""
        urls = config["site_url"] or "", config["repo_url"] or ""
        return cls(config["nav"] or [], *urls, executes, tuple(notebooks))

    @property
    def folder(self) -> Path:
        """Trees that differ lie apart: one may be served while another one is built."""
        key = sha256(repr((self.site_url, self.repo_url, self.executes)).encode()).hexdigest()
        return ROOT / "build" / f"site-{key[:8]}"


def configuration() -> dict:
    """mkdocs.yml, with `!ENV [NAME, "default"]` as MkDocs reads it."""
    return yaml.load(read(ROOT / "mkdocs.yml"), add_env_tag(type("Loader", (yaml.SafeLoader,), {})))


def plugins(config: dict) -> dict[str, dict]:
    """Each plugin's options."""
    return {name: options for each in config["plugins"] if isinstance(each, dict) for name, options in each.items()}


@dataclass
class Tree:
    """`docs`: its folder; `nav`: of the whole site, as mkdocs.yml spells it; `sections`: title of a part of the site ->
    address, title and description of each of its pages; `is_late`: whether some of what isn't a page is still to be
    written (`beside`)."""

    docs: Path
    library: Library
    settings: Settings
    nav: list = field(default_factory=list)
    sections: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    is_late: bool = False

    def put(self, place: str, content: str | bytes | Path) -> None:
        """A file of the tree. What is already there by this name stays: a page that is written by hand."""
        path = self.docs / place
        if place in self.files:
            return
        self.files.add(place)
        if isinstance(content, Path):
            there, source = path.stat() if path.is_file() else None, content.stat()
            if there is None or (there.st_size, there.st_mtime_ns) != (source.st_size, source.st_mtime_ns):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(content, path)
            return
        data = content.encode() if isinstance(content, str) else content
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.written.add(place)

    def drop_others(self) -> None:
        for path in sorted(self.docs.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
            elif path.is_file() and path.relative_to(self.docs).as_posix() not in self.files:
                path.unlink()


class Unreadable(ValueError):
    """Files from which the site is made have mistakes; the message has a line for each."""


def tree(settings: Settings, folder: Path | None = None, is_late: bool = False) -> Tree:
    """Write the tree into `folder`/docs. Raises `Unreadable` before anything is written, and `CellFailed`.

    is_late: the tree is there, and of what isn't a page only what belongs to changed pages is written again.
    """
    paths = [*layout.kernels(ROOT), *layout.chapters(ROOT), *layout.exercises(ROOT)]
    wrong = [syntax.problem(read(path), path.relative_to(ROOT).as_posix()) for path in paths]
    if any(wrong):  # too much is made from a kernel file to go on without it
        raise Unreadable("\n".join(str(problem) for problem in wrong if problem))
    library = Library.read(ROOT)
    incomplete = [(each.path, each.line, each.message) for each in operations.unfinished(ROOT)]
    for path, line, message in [*library.problems, *incomplete]:
        log.warning("%s:%d: %s", path, line, message)
    if project_parts.no_run():
        log.info(project_parts.no_run())
    pictures.begin()
    broken_links.say_where(library)
    _ask(library)
    nav = generated_pages.completed(copy.deepcopy(settings.nav), library)
    made = Tree((folder or settings.folder) / layout.DOCS, library, settings, nav, is_late=is_late)
    texts = dict(_texts(settings, library))
    _pages(made, settings, texts)
    made.nav = _placed(made.nav)
    if is_late:
        _of_kernels(made, [page for page in library.shown("kernel") if page.uri in made.written])
    else:
        beside(made)
        made.drop_others()
    return made


def begin() -> None:
    """Start the processes that help: before `tree`."""
    garbage.rarely(200_000)
    background.begin()


def end() -> None:
    """The build that the tree was written for has ended, well or not."""
    background.end()


def _ask(library: Library) -> None:
    """What takes longest, about as pages need it: those that are written by hand come first."""
    background.ask("marks", *(page.source for page in library.shown("derivation")))
    background.ask("verified", library.docs)  # quick after these
    background.ask("taught", library.docs)
    background.ask("results", "", *(Path(page.source).stem for page in library.shown("benchmark")))
    background.ask("ladder", *ladders.names(ROOT))


def _texts(settings: Settings, library: Library) -> Iterator[tuple[str, tuple[str, dict]]]:
    """Each page: its place in the tree, its text and its own front matter."""
    docs = ROOT / library.docs
    for path in sorted(docs.rglob("*.md")):
        text = read(path)
        edited = {"edit": path.relative_to(ROOT).as_posix()}
        yield path.relative_to(docs).as_posix(), (front_matter.below(text)[0], front_matter.values(text) | edited)
    for path in settings.notebooks:
        uri = path.relative_to(docs).as_posix()
        text, about = chapters.page(path, uri, settings.executes, settings.repo_url)
        yield chapters.place(uri), (text, {"description": about, "edit": f"{library.docs}/{uri}"})
    yield from generated(library)


def generated(library: Library) -> Iterator[tuple[str, tuple[str, dict]]]:
    """Of `_texts`, the pages that nobody writes by hand."""
    for page in library.pages.values():
        sources = [digest(library.root / path) for path in generated_pages.sources(library, page)]
        made_of = sha256("".join(sources).encode()).hexdigest()[:16]
        own = {"title": page.title, "description": page.description, "made_of": made_of}
        if page.kind != "benchmark":  # which is drawn from results, so that nobody edits it
            own["edit"] = page.source
        yield page.uri, (generated_pages.markdown(library, page), own)


def _pages(made: Tree, settings: Settings, texts: dict[str, tuple[str, dict]]) -> None:
    """Write them, with what is to be said of each."""
    library = made.library
    titles: dict[str, str] = {}
    beside: dict[str, list[str]] = {}
    for section, uri, title, siblings in _listed(made.nav):
        text, own = texts[chapters.place(uri)]
        titles[uri] = title or own.get("title") or heading(text)
        beside[uri] = siblings
        page = library.page_at(uri)
        about = own.get("description") and summary(titles[uri], own["description"], page.kind if page else "")
        made.sections.setdefault(section, []).append((address(uri), titles[uri], about or ""))
        own |= {"description": about} if about else {}
        own["search"] = {"boost": search_text.boost(address(uri)), **own.get("search", {})}
    for uri, (before, after) in _order(library, beside).items():
        for name, other in (("before", before), ("after", after)):
            if other:
                page = library.page_at(other)
                words = CAPITAL.get(kind(other), "") + (page.name if page else titles[other])
                texts[chapters.place(uri)][1][name] = {"title": words, "url": address(other)}
    for place, (text, own) in texts.items():
        head = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in own.items())
        made.put(place, f"---\n{head}---\n{addresses.with_repository(text, settings.repo_url)}")


def _listed(nav: list, section: str = "") -> Iterator[tuple[str, str, str, list[str]]]:
    """Each page of the navigation: the part of the site to which it belongs, its place, its title there ("" if it has
    none), and the pages beside it."""
    named = [next(iter(item.items())) if isinstance(item, dict) else ("", item) for item in nav]
    siblings = [below for _, below in named if isinstance(below, str)]
    for title, below in named:
        if isinstance(below, str):
            yield section or title, below, title, siblings if section else []
        else:
            yield from _listed(below, section or title)


def _placed(below):
    """The navigation, or a part of it, with the places in the tree."""
    if isinstance(below, dict):
        return {title: _placed(each) for title, each in below.items()}
    return chapters.place(below) if isinstance(below, str) else [_placed(each) for each in below]


def _order(library: Library, beside: dict[str, list[str]]) -> dict[str, tuple[str | None, str | None]]:
    """The pages before and after each: along the learning path; beside it, within its own section. An exercise comes
    after the page that it belongs to, or after another of its stage, and the last one leads to the next stage."""
    stages = library.path.stages
    found: dict[str, tuple[str | None, str | None]] = {}
    for uri, siblings in beside.items():
        place = siblings.index(uri) if uri in siblings else 0
        before = siblings[place - 1] if place else None
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if exercise := library.exercises.get(getattr(library.page_at(uri), "source", "")):
            number = [stage.exercises for stage in stages].index(exercise.stage) + 1
            before = before or exercise.page
            after = after or next((stage.pages[0] for stage in stages[number:] if stage.pages), None)
        found[uri] = before, after
    steps = [uri for uri in [*WAY_IN, *library.path.pages] if uri in beside]
    return found | {uri: (before, after) for before, uri, after in zip([None, *steps], steps, [*steps[1:], None])}


def beside(made: Tree) -> None:
    """Write what is published beside the pages."""
    library, docs, settings = made.library, ROOT / made.library.docs, made.settings
    for path in sorted(docs.rglob("*")):
        below = path.relative_to(docs)
        hidden = any(part.startswith((".", "__pycache__")) for part in below.parts)
        if path.is_file() and not hidden and path.suffix != ".md" and path not in settings.notebooks:
            made.put(below.as_posix(), path)
    for path, published in _assets():
        made.put(published, path)
    for code in sorted(library.linked) if not settings.repo_url else ():
        if not library.page_of(code):
            made.put(code, ROOT / code)
    _of_kernels(made, library.shown("kernel"))
    for place, content in playground.published(ROOT).items():
        made.put(f"assets/playground/{place}", content)
    for path in settings.notebooks:
        uri = path.relative_to(docs).as_posix()
        notebook = chapters.portable(path, uri, library, settings.site_url, settings.repo_url)
        made.put(f"{uri.removesuffix('.py')}.ipynb", notebook)
    urls = (url for pages in made.sections.values() for url, _, _ in pages)
    for place, text in addresses.redirects(urls).items():
        made.put(place, text)
    made.put("third-party-notices.txt", vendored.of_the_site(ROOT))


def _of_kernels(made: Tree, pages: list[Page]) -> None:
    """The files that belong to kernels: one to download, its recorded run, and what its editor begins with."""
    for page in pages:
        text = read(ROOT / page.source)
        made.put(page.source, chapters.downloaded(text, made.library))
        _, data, place = project_parts.recorded_run(page.source)
        if data:
            made.put(f"assets/traces/{place}", data)
            starter = playground_page.starter(split(text, page.source))
            made.put(f"assets/playground/starters/{page.source}", starter)


def _assets() -> Iterator[tuple[Path, str]]:
    """Each file of academy's parts that is published, and its place on the site."""
    folders = {ACADEMY / source: f"assets/{place}" for source, place in VENDORED.items()}
    folders |= {folder: f"assets/{folder.parent.name}" for folder in sorted(ACADEMY.glob("*/static"))}
    for folder, place in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in PUBLISHED and not (folder.name == "katex" and path.suffix == ".js"):
                yield path, f"{place}/{path.relative_to(folder).as_posix()}"


def address(uri: str) -> str:
    """Of a page on the site: `kernels/classics/layernorm/`, "" for the home page."""
    path = uri.removesuffix(".md").removesuffix(".py")
    return "" if path == "index" else path.removesuffix("/index") + "/"


def settings() -> Settings:
    """Of mkdocs.yml, for the engines that don't read all of it."""
    config = configuration()
    return Settings.of(config, plugins(config)["mkdocs-jupyter"]["execute"], layout.chapters(ROOT))


def main() -> Tree:
    """Write the tree of mkdocs.yml, or end with what is wrong."""
    try:
        return tree(settings())
    except (Unreadable, CellFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    print(main().docs)
