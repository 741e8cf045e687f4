"""MkDocs' messages about broken links, with the file and line where the link was written."""

from __future__ import annotations

import logging
import re

from academy.book.directives import places
from academy.book.texts import read
from academy.site.library import Library

BROKEN = re.compile(r"Doc file '(?P<doc>[^']+)' contains .*?'(?P<link>[^']+)'")


class LinkPlaces(logging.Filter):
    """Puts `path:line: ` in front of them. `library`: of the site that is being built."""

    library: Library | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if self.library and (found := BROKEN.match(message)):
            record.msg, record.args = f"{place(self.library, found['doc'], found['link'])}: {message}", ()
        return True


_places = LinkPlaces()


def say_where(library: Library) -> None:
    """From now on, about links of this site."""
    _places.library = library
    logging.getLogger("mkdocs.structure.pages").addFilter(_places)


def place(library: Library, doc: str, link: str) -> str:
    file = library.file_at(doc)
    path = file.relative_to(library.root).as_posix()
    # A link may have been rewritten from the form that it has in a kernel or derivation: look for its end.
    needles = [f"]({link}", link, "#" + link.partition("#")[2] if "#" in link else link]
    lines = read(file).split("\n") if file.is_file() else []
    found = [line for needle in needles for line in places(enumerate(lines, 1), needle)] if lines else []
    return f"{path}:{found[0]}" if found else path
