"""MkDocs hook: what goes from one page to the next, and from one version to another.

- previous and next follow the learning path (academy/site/path.py); pages beside it keep the order of the navigation;
- the list of versions is only asked for where mike keeps one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from academy.site.path import LearningPath, kind

CAPITAL = {"kernel": "Kernel: ", "derivation": "Derivation: ", "chapter": "Chapter ", "guide": "Guide: "}


@dataclass(frozen=True)
class Neighbour:
    """What the theme's footer shows of the page before or after: its title, saying what kind of page it is."""

    title: str
    url: str
    canonical_url: str


def on_config(config):
    # `mike deploy` says which version it builds. Elsewhere the theme would ask for a list that isn't there.
    if "MIKE_DOCS_VERSION" not in os.environ:
        config.extra.pop("version", None)
    elif config.site_url:
        config.site_url = config.site_url.rstrip("/") + "/"  # mike adds the version without a slash
    return config


def on_nav(nav, config, files):
    pages = {page.file.src_uri: page for page in nav.pages}
    steps = [pages[uri] for uri in LearningPath.read(Path(config.docs_dir)).pages if uri in pages]
    for before, page, after in zip([None, *steps], steps, [*steps[1:], None]):
        page.previous_page, page.next_page = _neighbour(before), _neighbour(after)
    return nav


def _neighbour(page) -> Neighbour | None:
    if page is None:
        return None
    return Neighbour(CAPITAL.get(kind(page.file.src_uri), "") + page.title, page.url, page.canonical_url)
