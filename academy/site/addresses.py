"""Where the site and its repository are published: `SITE_URL` and `REPO_URL` of the environment, read by mkdocs.yml.

Both may be unset, as in a clone that nobody has published. Then no link may lead to them: what would be a link is text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

#: Where pages were, and where they are: the beginnings of their addresses on the site.
MOVED = {
    "exercises/choosing/": "exercises/sampling/",
    "exercises/eight_bits/": "exercises/fp8/",
    "exercises/experts/": "exercises/moe/",
    "exercises/four_bits/": "exercises/mx/",
    "exercises/low_bit/": "exercises/gemlite/",
    "kernels/choosing/": "kernels/sampling/",
}
_REDIRECT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{to}">
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={to}">
<script>location.replace({to!r} + location.hash)</script>
<p>This page has moved: <a href="{to}">here it is</a>.
"""
#: Stands for the repository's address in a text, and what does where there is none: no shell takes it for an address.
REPOSITORY, PLACEHOLDER = "{{ repo_url }}", "<the address of this repository>"
#: Begins the target of a link that has none.
NOWHERE = "nowhere:"
_OUTSIDE = re.compile(r"\]\((?:\.\./)+([\w/]+\.py)\)")
_LINK = re.compile(rf"\[((?:[^\[\]]|\[[^\]]*\])*)\]\({NOWHERE}[^)]*\)")


def of_version(config) -> None:
    """MkDocs' settings for the version that `mike deploy` says it builds. Elsewhere the theme would ask for a list of
    versions that isn't there."""
    if "MIKE_DOCS_VERSION" not in os.environ:
        config.extra.pop("version", None)
    elif config.site_url:
        config.site_url = config.site_url.rstrip("/") + "/"  # mike adds the version without a slash


def redirects(pages: Iterable[str]) -> dict[str, str]:
    """File of the site -> its text, which leads to where a page is now.

    pages: their addresses, such as `kernels/sampling/sample/`.
    """
    found = {}
    for page in pages:
        for old, new in MOVED.items():
            if page.startswith(new):
                place = page.replace(new, old, 1)
                found[f"{place}index.html"] = _REDIRECT.format(to=escape("../" * place.count("/") + page))
    return found


def file_address(repo_url: str | None, path: str, branch: str = "main") -> str:
    """Where a file of the repository can be read."""
    return f"{repo_url.rstrip('/')}/blob/{branch}/{path}" if repo_url else NOWHERE + path


def linked_code(root: Path, docs: Path) -> frozenset[str]:
    """Python files outside of docs/ that its pages link to, so that a site without a repository can hold copies."""
    found = {link[1] for page in docs.rglob("*.md") for link in _OUTSIDE.finditer(page.read_text("utf-8"))}
    return frozenset(path for path in found if (root / path).is_file() and not (docs / path).is_file())


def page_address(site_url: str | None, page: str) -> str:
    """Where a page of the site is published."""
    return site_url + page if site_url else NOWHERE + page


def with_repository(text: str, repo_url: str | None) -> str:
    """A text with the repository's address filled in. Where there is none, the lines that clone it are left out."""
    lines = [line for line in text.split("\n") if repo_url or f"git clone {REPOSITORY}" not in line]
    return "\n".join(lines).replace(REPOSITORY, repo_url or PLACEHOLDER)


def without_dead_links(markdown: str) -> str:
    """Links that lead nowhere as text."""
    return _LINK.sub(r"\1", markdown)
