"""What `mkdocs serve` needs before it builds: a place that is free, and the pages that it made the last time."""

from __future__ import annotations

import json
import os
import shutil
import socket
from hashlib import sha256
from pathlib import Path

from academy.book import front_matter, layout
from academy.book.layout import ROOT
from academy.book.texts import digest
from academy.files.dependencies import made_by
from academy.site import write


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


def keep(site: Path, tree: write.Tree) -> list[dict]:
    """Make MkDocs' new folder for the site a link to the one of the last time, without the pages that are no longer
    right. With `--dirty` only those are made. Returns the search's entries of the others.

    All are made again where the code, the theme or the navigation has changed, and those that are written by hand where
    anything has that they may show.
    """
    folder = tree.docs.parent / "served"
    place, index = folder / "made_of.json", folder / "search/search_index.json"
    made_of = {"all": _together(_code(tree)), "by hand": _together([digest(path) for path in _shown()])}
    before = json.loads(place.read_text("utf-8")) if place.is_file() else {}
    if before.get("all") != made_of["all"]:
        shutil.rmtree(folder, ignore_errors=True)
    kept = set()
    for text in tree.docs.rglob("*.md"):
        url = write.address(text.relative_to(tree.docs).as_posix())
        page, by_hand = folder / url / "index.html", "made_of" not in front_matter.values(text.read_text("utf-8"))
        if by_hand and before.get("by hand") != made_of["by hand"]:
            page.unlink(missing_ok=True)
        if page.is_file() and page.stat().st_mtime >= text.stat().st_mtime:
            kept.add(url)
    folder.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(made_of), "utf-8")
    site.rmdir()
    try:
        site.symlink_to(folder, target_is_directory=True)
    except OSError:  # on Windows it takes a right that few have
        site.mkdir()
        return []
    entries = json.loads(index.read_text("utf-8"))["docs"] if index.is_file() else []
    return [entry for entry in entries if entry["location"].partition("#")[0].removeprefix("./") in kept]


def _together(parts: list[str]) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()


def _code(tree: write.Tree) -> list[str]:
    theme = [*(ROOT / "academy/site/theme").rglob("*"), *(ROOT / "academy").glob("*/static/**/*"), ROOT / "mkdocs.yml"]
    texts = [path.read_bytes().hex() for path in sorted(theme) if path.is_file()]
    return [made_by("academy.site.plugin", "academy.site.extension"), json.dumps([tree.nav, tree.sections]), *texts]


def _shown() -> list[Path]:
    lists = layout.kernels, layout.derivations, layout.operations, layout.exercises, layout.results, layout.documents
    return [path for files in lists for path in files(ROOT)]
