"""Lists of exceptions that a person has reviewed: TOML files of `[[kind]]` tables, each with the reason why."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any


def entries(path: Path, kind: str) -> list[dict[str, Any]]:
    """The tables of this kind, each with its `line` in the file; none if there is no such file.

    Raises:
        ValueError: the file isn't TOML.
    """
    text = path.read_text("utf-8") if path.is_file() else ""
    try:
        tables = _parsed(text).get(kind, [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    heads = re.finditer(rf"^\[\[{kind}\]\]", text, re.M)
    return [{**table, "line": text.count("\n", 0, head.start()) + 1} for table, head in zip(tables, heads)]


def says(path: Path, key: str) -> bool:
    """Whether a list switches something on: `key = true` before its first table."""
    return path.is_file() and _parsed(path.read_text("utf-8")).get(key) is True


@lru_cache(maxsize=16)
def _parsed(text: str) -> dict[str, Any]:
    """Asked for again at each file that a list may be about. Not to be changed."""
    return tomllib.loads(text)
