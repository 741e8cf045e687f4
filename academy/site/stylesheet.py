"""All style sheets of the site as one file, named after its content.

A page waits for every sheet before it shows anything. One file costs a phone one wait instead of ten, and its name
changes with it, so that a host may let browsers keep it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

URL = re.compile(r"""url\(\s*(["']?)(?!data:|[a-z]+:|/|\#)([^"')]+)\1\s*\)""")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
#: Spaces that mean nothing: around braces and semicolons, after a colon or a comma. Texts in quotes are left alone.
SPACES = re.compile(r"""("[^"\n]*"|'[^'\n]*')|\s*([{};])\s*|([:,])[ \t]+""")
#: The theme's rules for its colours by name. The site has its own, which it calls custom.
_COLOUR = r"(?:\[data-md-color-scheme=\w+\])?\[data-md-color-(?:primary|accent)=(?!custom)[^{},]*"
NAMED = re.compile(rf"(?<=[{{}}]){_COLOUR}(?:,{_COLOUR})*\{{[^{{}}]*\}}")
FOLDER = "assets"


def one_sheet(config, files) -> tuple[str, str]:
    """Name and text of the sheet that stands for all."""
    themes = [re.compile(rf"assets/stylesheets/{name}\.\w+\.min\.css") for name in ("main", "palette")]
    sheets = [file.src_uri for theme in themes for file in files if theme.fullmatch(file.src_uri)]
    sheets += [str(path) for path in config.extra_css]
    text = "".join(combined(uri, _text(uri, config, files)) for uri in sheets)
    return f"{FOLDER}/academy.{hashlib.sha256(text.encode()).hexdigest()[:8]}.css", text


def _text(uri: str, config, files) -> str:
    file = files.get_file_from_path(uri)
    # mkdocstrings' sheet is no file of MkDocs: it is written to the site at once.
    return file.content_string if file else (Path(config.site_dir) / uri).read_text("utf-8")


def combined(uri: str, text: str) -> str:
    """A sheet's text for the common file: without comments, its addresses relative to the folder of that file.

    Raises:
        ValueError: the sheet imports another one, which would have to come first.
    """
    text = NAMED.sub("", COMMENT.sub("", text))
    if "@import" in text:
        raise ValueError(f"{uri}: @import does not work in a combined style sheet")

    def moved(found: re.Match) -> str:
        return f"url({relpath(normpath(f'{dirname(uri)}/{found[2]}'), FOLDER)})"

    text = URL.sub(moved, text)
    if not uri.endswith(".min.css"):
        text = SPACES.sub(lambda found: found[1] or found[2] or found[3], text).replace(";}", "}")
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line) + "\n"
