"""The MkDocs plugin `academy`: what the Markdown extension can't reach.

- Pages of kernels, derivations and benchmarks, and the navigation (`generated_pages`); previous and next follow the
  learning path.
- Kernel files, recorded runs, the playground's runtime, style sheets, scripts, fonts and the licences of what is from
  elsewhere are published.
- Chapters, which are notebooks, are executed and go on as Markdown (`chapters`).
- A page's title, description and "edit this page" come from the file that it shows.
- A file with a syntax error ends the build with its place, before anything is made; so does a broken link.
- A picture of every page for links to it (`social`), where the site's address is known.
- What takes long begins in other processes (`beforehand`) before its page comes.
- One style sheet (`stylesheet`), less work for the search (`search_text`), and, but for `mkdocs serve`, a copy of every
  page as Markdown (`markdown_copies`).
"""

from __future__ import annotations

import logging
import os
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

from jinja2 import BytecodeCache
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority
from mkdocs.structure.files import File

from academy.book import layout, operations, syntax
from academy.book.layout import ROOT
from academy.book.learning_path import WAY_IN, kind
from academy.book.splitter import split
from academy.book.texts import read, summary
from academy.command import garbage
from academy.files import cache, vendored
from academy.playground import bundle as playground
from academy.results import ladder as ladders
from academy.site import (
    addresses,
    background,
    chapters,
    generated_pages,
    katex,
    markdown_copies,
    pictures,
    playground_page,
    project_parts,
    search_text,
    serving,
    social,
    stylesheet,
)
from academy.site.broken_links import LinkPlaces
from academy.site.highlighting import lean
from academy.site.library import Library

ACADEMY = ROOT / "academy"
EXTENSION = "academy.site"
# Folder with files to publish -> its place on the site. A part of academy that has a static/ folder is published too.
VENDORED = {"site/vendor/katex": "katex", "site/vendor/plex": "plex"}
PUBLISHED = {".css", ".js", ".woff2", ".svg", ".png"}
LINK = re.compile(r'href="/([^"#?]+\.md)(#[^"]*)?"')
#: Titles that say their section: unlike elsewhere, as in what the search finds, the sidebar has that above them.
OF_SECTION = re.compile(r'(<span class="md-ellipsis">[^<>]*): (?:derivation|benchmark)(\s)')
CAPITAL = {"kernel": "Kernel: ", "derivation": "Derivation: ", "chapter": "Chapter ", "guide": "Guide: "}
#: Characters of a page's HTML in which the fonts are looked for that come along with it.
BEGINNING = 50_000

log = logging.getLogger("mkdocs.academy.site")
link_places = LinkPlaces()


class Templates(BytecodeCache):
    """The theme's templates, compiled. Jinja's own cache of files does not expect a folder that can't be written."""

    def load_bytecode(self, bucket):
        if found := cache.get("template", [bucket.key, bucket.checksum]):
            bucket.bytecode_from_string(b64decode(found))

    def dump_bytecode(self, bucket):
        cache.put("template", [bucket.key, bucket.checksum], b64encode(bucket.bytecode_to_string()).decode())


@dataclass(frozen=True)
class Neighbour:
    """What the theme's footer shows of the page before or after: its title, saying what kind of page it is."""

    title: str
    url: str
    canonical_url: str


class AcademyPlugin(BasePlugin):
    """`library`: the index of the site that is being built. It is made anew for every build."""

    begins_to_serve = False

    def on_startup(self, *, command, dirty):
        """`mkdocs serve` is for looking at pages: their copies are left to `mkdocs build`."""
        self.copies = markdown_copies.Copies() if command != "serve" else None
        self.begins_to_serve = command == "serve"
        garbage.rarely(200_000)
        background.begin()

    def on_shutdown(self):
        background.end()

    def on_build_error(self, *, error):
        self._ended()

    def _ended(self) -> None:
        background.end()
        pictures.build(runs=False)

    def on_config(self, config):
        if self.begins_to_serve:
            self.begins_to_serve = False  # after an edit, it is the server itself that has the port
            if problem := serving.problem(config.dev_addr.host, config.dev_addr.port):
                raise PluginError(problem)
        self.cards = {}
        self.library = Library.read(ROOT, Path(config.docs_dir).relative_to(ROOT).as_posix())
        config.mdx_configs.setdefault(EXTENSION, {})["index"] = self.library
        config.nav = generated_pages.completed(config.nav or [], self.library)
        link_places.library = self.library
        pictures.build(runs=True)
        self._ask()
        config.extra["playground_megabytes"] = playground.megabytes(ROOT)
        if not config.repo_url:
            config.edit_uri = None
        logging.getLogger("mkdocs.structure.pages").addFilter(link_places)
        # `mike deploy` says which version it builds. Elsewhere the theme would ask for a list that isn't there.
        if "MIKE_DOCS_VERSION" not in os.environ:
            config.extra.pop("version", None)
        elif config.site_url:
            config.site_url = config.site_url.rstrip("/") + "/"  # mike adds the version without a slash
        return config

    def _ask(self) -> None:
        """What takes longest, about as pages need it: those that are written by hand come first."""
        background.ask("marks", *(page.source for page in self.library.shown("derivation")))
        background.ask("verified", self.library.docs)  # quick after these
        background.ask("taught", self.library.docs)
        background.ask("results", "", *(Path(page.source).stem for page in self.library.shown("benchmark")))
        background.ask("ladder", *ladders.names(ROOT))

    def on_pre_build(self, *, config):
        """Too much is made from a kernel file to go on without it. `mkdocs serve` waits until the file is fixed."""
        paths = [*layout.kernels(ROOT), *layout.chapters(ROOT), *layout.exercises(ROOT)]
        problems = [syntax.problem(read(path), path.relative_to(ROOT).as_posix()) for path in paths]
        if any(problems):
            raise PluginError("\n".join(str(problem) for problem in problems if problem))

    def on_files(self, files, *, config):
        incomplete = [(each.path, each.line, each.message) for each in operations.unfinished(ROOT)]
        for path, line, message in [*self.library.problems, *incomplete]:
            log.warning("%s:%d: %s", path, line, message)
        if project_parts.no_run():
            log.info(project_parts.no_run())
        made = generated_pages.page_files(self.library, config)
        made += [File.generated(config, uri, abs_src_path=str(path)) for path, uri in _assets()]
        docs = Path(config.docs_dir)
        self.library.copied = frozenset() if config.repo_url else addresses.linked_code(ROOT, docs)
        copied = [path for path in sorted(self.library.copied) if not self.library.page_of(path)]
        made += [File.generated(config, path, abs_src_path=str(ROOT / path)) for path in copied]
        for page in self.library.shown("kernel"):
            made.append(
                File.generated(config, page.source, content=chapters.downloaded(read(ROOT / page.source), self.library))
            )
            _, data, place = project_parts.recorded_run(page.source)
            if data:
                made.append(File.generated(config, f"assets/traces/{place}", content=data))
                starter = playground_page.starter(split(read(ROOT / page.source), page.source))
                made.append(File.generated(config, f"assets/playground/starters/{page.source}", content=starter))
        made += [
            File.generated(config, f"assets/playground/{place}", content=content)
            for place, content in playground.published(ROOT).items()
        ]
        made.append(File.generated(config, "third-party-notices.txt", content=vendored.of_the_site(ROOT)))
        made += [chapters.notebook_file(file, self.library, config) for file in files if chapters.is_one(file, config)]
        for file in made:
            if not files.get_file_from_path(file.src_uri):  # a page that is written by hand is left alone
                files.append(file)
        return files

    def on_nav(self, nav, *, config, files):
        pages = {page.file.src_uri: page for page in nav.pages}
        steps = [pages[uri] for uri in [*WAY_IN, *self.library.path.pages] if uri in pages]
        for page in nav.pages:
            if page not in steps:
                self._beside(page, pages)
        for before, page, after in zip([None, *steps], steps, [*steps[1:], None]):
            page.previous_page, page.next_page = self._neighbour(before), self._neighbour(after)
        self.nav = nav
        return nav

    def _beside(self, page, pages) -> None:
        """Previous and next of a page beside the path: within its own section. An exercise comes after the page that it
        belongs to, or after another exercise of its stage, and the last one leads to the next stage."""
        within = [each for each in (page.parent.children if page.parent else []) if each.is_page]
        place = within.index(page) if page in within else 0
        before = within[place - 1] if place else None
        after = within[place + 1] if place + 1 < len(within) else None
        if exercise := self.library.exercises.get(getattr(self.library.page_at(page.file.src_uri), "source", "")):
            stages = self.library.path.stages
            number = [stage.exercises for stage in stages].index(exercise.stage) + 1
            first = next((stage.pages[0] for stage in stages[number:] if stage.pages), None)
            before, after = before or pages.get(exercise.page), after or pages.get(first)
        page.previous_page, page.next_page = self._neighbour(before), self._neighbour(after)

    def _neighbour(self, page) -> Neighbour | None:
        if page is None or page.title is None:  # the home page's title is known once it is read
            return page
        made = self.library.page_at(page.file.src_uri)
        words = CAPITAL.get(kind(page.file.src_uri), "") + (made.name if made else page.title)
        return Neighbour(words, page.url, page.canonical_url)

    def on_pre_page(self, page, *, config, files):
        if chapters.is_one(page.file, config):
            del page.render  # mkdocs-jupyter's own way to HTML
        return page

    def on_page_markdown(self, markdown, *, page, config, files):
        if chapters.is_one(page.file, config):
            markdown = chapters.page_text(page, config)
        made = self.library.page_at(page.file.src_uri)
        if made:
            page.meta.setdefault("title", made.title)
            page.meta.setdefault("description", made.description)
        if "description" in page.meta:
            description = page.meta["description"]
            page.meta["description"] = summary(page.title or "", description, made.kind if made else "")
        return addresses.with_repository(markdown, config.repo_url)

    def on_page_content(self, html, *, page, config, files):
        """Drawings of chapters, and links to pages in docstrings, which MkDocs leaves as they are."""

        def resolve(match):
            target = files.get_file_from_path(match[1])
            if target is None:
                log.warning("%s: link to %s, which does not exist", page.file.src_uri, match[1])
                return match[0]
            return f'href="{target.url_relative_to(page.file)}{match[2] or ""}"'

        # A result without a type starts with a dash in mkdocstrings' lists.
        html = re.sub(r'(<li class="doc-section-item field-body">\s*)–\s*', r"\1", html)
        return lean(chapters.with_drawings(LINK.sub(resolve, html), page))

    def on_post_page(self, output, *, page, config):
        """In the sidebar of their own section, derivations and benchmarks needn't say again what they are."""
        return OF_SECTION.sub(r"\1\2", output)

    @event_priority(-100)  # after mkdocstrings has written its sheet
    def on_env(self, env, *, config, files):
        name, text = stylesheet.one_sheet(config, files)
        files.append(File.generated(config, name, content=text))
        config.extra_css = [name]
        env.bytecode_cache = Templates()
        return env

    @event_priority(100)
    def _before_search(self, context, *, page, config, nav):
        if config.site_url and self.copies and not page.is_homepage:
            title, about = page.meta.get("title") or page.title, page.meta.get("description") or config.site_description
            place = f"{social.FOLDER}/{social.name(page.url)}"
            self.cards[place] = social.drawn(social.kind_of(page.url), title, about)
            page.meta["social"] = place
        if self.copies:
            self.copies.add(page)
        self.content, page.content = page.content, search_text.searched(page.content, page.url)
        page.meta["search"] = {"boost": search_text.boost(page.url), **page.meta.get("search", {})}

    @event_priority(-100)
    def _after_search(self, context, *, page, config, nav):
        page.content = self.content
        context["page_fonts"] = [f"katex/fonts/{font}" for font in katex.fonts(self.content[:BEGINNING])]
        return context

    on_page_context = CombinedEvent(_before_search, _after_search)

    def on_post_build(self, *, config):
        for place, text in addresses.redirects(page.url for page in self.nav.pages).items():
            path = Path(config.site_dir, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        if config.site_url and self.copies:
            for place, picture in self.cards.items():
                path = Path(config.site_dir, place)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture)
        if self.copies:
            self.copies.write(self.nav, config)
        _mend_search(Path(config.site_dir))
        self._ended()


def _mend_search(site: Path) -> None:
    """lunr takes two nodes of its automaton for one if their edges, written one behind the other, are the same text:
    "1" to node 23 is "12" to node 3. Then a word is found that isn't there, and the query fails. Here a mark ends each
    edge."""
    for path in site.glob("assets/javascripts/workers/search.*.min.js"):
        text = path.read_text("utf-8")
        if text.count("e=e+s+o.id}") != 1:
            log.warning("the theme's search isn't the one that is mended here: %s", path.name)
        path.write_text(text.replace("e=e+s+o.id}", 'e=e+s+o.id+";"}'), "utf-8")


def _assets():
    """Each file of academy's parts that is published, and its place on the site."""
    folders = {ACADEMY / source: f"assets/{place}" for source, place in VENDORED.items()}
    folders |= {folder: f"assets/{folder.parent.name}" for folder in sorted(ACADEMY.glob("*/static"))}
    for folder, place in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in PUBLISHED and not (folder.name == "katex" and path.suffix == ".js"):
                yield path, f"{place}/{path.relative_to(folder).as_posix()}"
