"""`mkdocs serve` makes a page when it is asked for, and keeps it for the next time.

A start reads the project and makes no page, and an edit takes away what is no longer right. What readers don't wait for
is made meanwhile: the search needs all pages.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from academy.book import layout
from academy.book.layout import ROOT
from academy.book.texts import digest
from academy.files.dependencies import made_by
from academy.site import background, write

log = logging.getLogger("mkdocs.academy.site")
SEARCH = "search/search_index.json"


def problem(host: str, port: int) -> str:
    """Why nothing can be served there, and what to do; "" if it can. MkDocs would find out after the build."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        other = f"or serve elsewhere: make serve ADDRESS={host}:{port + 1}"
        return f"{host}:{port} can't be used: {why}. Stop what runs there, perhaps another `make serve`, {other}"
    return ""


class Served:
    """The folder that is served, which stays for the next time."""

    def __init__(self, tree: write.Tree):
        # That pages may not fit together: here they do.
        logging.getLogger("mkdocs.commands.build").addFilter(lambda record: "'dirty' build" not in str(record.msg))
        self.is_over = False
        self.folder = tree.docs.parent / "served"
        self.lock = threading.RLock()  # MkDocs makes one page at a time
        self.entries: dict[str, list[dict]] = {}
        index = self.folder / SEARCH
        for entry in json.loads(index.read_text("utf-8"))["docs"] if index.is_file() else ():
            self.entries.setdefault(entry["location"].partition("#")[0].removeprefix("./"), []).append(entry)

    def with_engine(self, steps, config, files, nav, env) -> None:
        """MkDocs' two functions that make a page, and what they need."""
        self.steps, self.config, self.files, self.nav, self.env = steps, config, files, nav, env

    def keep(self, tree: write.Tree) -> None:
        """Take away the pages that are no longer right: all where the code, the theme or the navigation has changed,
        those that are written by hand where anything has that they may show, and those whose text has."""
        self.tree, self.is_late = tree, tree.is_late
        place = self.folder / "made_of.json"
        self.made_of = {"all": code(tree), "by hand": _together([digest(path) for path in _shown()])}
        before = json.loads(place.read_text("utf-8")) if place.is_file() else {}
        differs = {name: before.get(name) != made_of for name, made_of in self.made_of.items()}
        pages = set()
        for text in tree.docs.rglob("*.md"):
            url = write.address(text.relative_to(tree.docs).as_posix())
            page, by_hand = self._page(url), "\nmade_of: " not in text.read_text("utf-8").partition("\n---\n")[0]
            pages.add(url)
            wrong = differs["all"] or differs["by hand"] and by_hand or url not in self.entries
            if page.is_file() and (wrong or page.stat().st_mtime < text.stat().st_mtime):
                page.unlink()
        self.folder.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(self.made_of), "utf-8")
        self.pages = pages

    def _page(self, url: str) -> Path:
        return self.folder / url / "index.html"

    def missing(self) -> list[str]:
        """The pages that are to be made."""
        return sorted(url for url in self.pages if not self._page(url).is_file())

    def asked(self, place: str) -> None:
        """Make what lies at this place of the site, unless it is there."""
        with self.lock:
            if place in self.pages and not self._page(place).is_file():
                self.entries[place] = self.make(place)
            if self.is_late and (place.startswith("assets/playground/") or place.endswith(".ipynb")):
                self.is_late = False
                write.beside(self.tree)
            file = self.tree.docs / place
            if file.is_file() and not place.endswith(".md"):
                there = self.folder / place
                if not there.is_file() or there.stat().st_mtime < file.stat().st_mtime:
                    there.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, there)
        if place == SEARCH:
            self.make_all()

    def make(self, url: str) -> list[dict]:
        """A page. Returns its entries of the search."""
        pages = self.files.documentation_pages()
        file = next(file for file in pages if file.url.removeprefix("./") == url)
        read, build = self.steps
        read(file.page, self.config, self.files)
        self.config.plugins["autorefs"].on_env(self.env, config=self.config, files=[file])
        build(file.page, self.config, pages, self.nav, self.env)
        index = self.config.plugins["material/search"].search_index
        found, index.entries = index.entries, []
        return found

    def edited(self, settings: write.Settings, build: Callable[[], None]) -> None:
        """After an edit: take away the pages that it changes. Where it changes more than pages, MkDocs begins anew."""
        with self.lock:
            try:
                tree = write.tree(settings, is_late=True)
            except (write.Unreadable, write.CellFailed) as error:
                log.error("%s", error)
                return
            if code(tree) != self.made_of["all"]:
                build()
                return
            self.config.mdx_configs["academy.site"]["index"] = tree.library
            self.keep(tree)

    def make_all(self) -> None:
        """Every page, and then the index of the search. Between two of them others may ask for theirs."""
        for url in self.missing():
            with suppress(Exception):  # MkDocs has said which page, and what is wrong
                if not self.is_over:
                    self.asked(url)
        self.write_index()

    def write_index(self) -> None:
        index = self.folder / SEARCH
        with self.lock:
            found = json.loads(index.read_text("utf-8")) if index.is_file() else {}
            found["docs"] = [entry for url in sorted(self.pages & set(self.entries)) for entry in self.entries[url]]
            index.parent.mkdir(parents=True, exist_ok=True)
            index.write_text(json.dumps(found, separators=(",", ":"), default=str), "utf-8")

    def begin(self, server) -> None:
        """Make what `server` is asked for, and meanwhile the other pages."""
        app = server.get_app()

        def asked_first(environ, start_response):
            path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "ignore")
            place = path.removeprefix(server.mount_path).lstrip("/").removesuffix("index.html")
            if ".." not in place.split("/"):
                self.asked(place)
            return app(environ, start_response)

        def meanwhile():
            self.make_all()
            with self.lock:
                if not self.is_over:
                    background.end()

        server.root = str(self.folder)
        server.error_handler = lambda code: (self.folder / f"{code}.html").read_bytes()
        server.set_app(asked_first)
        threading.Thread(target=meanwhile, daemon=True).start()

    def end(self) -> None:
        """The next start goes on from here."""
        with self.lock:
            self.is_over = True
            self.write_index()


def _together(parts: list[str]) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()


def code(tree: write.Tree) -> str:
    """Of what every page depends on."""
    theme = [*(ROOT / "academy/site/theme").rglob("*"), *(ROOT / "academy").glob("*/static/**/*"), ROOT / "mkdocs.yml"]
    texts = [path.read_bytes().hex() for path in sorted(theme) if path.is_file()]
    return _together([made_by("academy.site.plugin", "academy.site.extension"), json.dumps(tree.nav), *texts])


def _shown() -> list[Path]:
    lists = layout.kernels, layout.derivations, layout.operations, layout.exercises, layout.results, layout.documents
    return [path for files in lists for path in files(ROOT)]
