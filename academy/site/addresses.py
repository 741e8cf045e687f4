"""Where the site and its repository are published: `SITE_URL` and `REPO_URL` of the environment, read by mkdocs.yml.

Both may be unset, as in a clone that nobody has published. Then no link may lead to them: what would be a link is text.
"""

from __future__ import annotations

import re

#: Stands for the repository in a command that a reader copies.
PLACEHOLDER = "ADDRESS-OF-THE-REPOSITORY"
#: Begins the target of a link that has none.
NOWHERE = "nowhere:"
_LINK = re.compile(rf"\[((?:[^\[\]]|\[[^\]]*\])*)\]\({NOWHERE}[^)]*\)")


def file_address(repo_url: str | None, path: str, branch: str = "main") -> str:
    """Where a file of the repository can be read."""
    return f"{repo_url.rstrip('/')}/blob/{branch}/{path}" if repo_url else NOWHERE + path


def page_address(site_url: str | None, page: str) -> str:
    """Where a page of the site is published."""
    return site_url + page if site_url else NOWHERE + page


def without_dead_links(markdown: str) -> str:
    """Links that lead nowhere as text."""
    return _LINK.sub(r"\1", markdown)
