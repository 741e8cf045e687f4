"""The YAML between the first two `---` lines of a page, each of its keys with its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

_HEAD = re.compile(r"---[ \t]*\n(?P<yaml>.*?)\n---[ \t]*(?:\n|\Z)", re.S)


@dataclass(frozen=True)
class FrontMatter:
    """Shared by all who ask, and not to be changed.

    head: its text with the lines of dashes; "" where there is none. values: the mapping. places: path of keys, as in
    `("math", "dims", 0)`, -> offset in the file. problem: offset and message where it isn't one, and so no values.
    twice: places of keys that are given again.
    """

    head: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple, int] = field(default_factory=dict)
    problem: tuple[int, str] | None = None
    twice: dict[tuple, int] = field(default_factory=dict)


def read(text: str) -> FrontMatter:
    """The front matter of a page's text."""
    found = _HEAD.match(text)
    return _read(found[0], found.start("yaml"), found["yaml"]) if found else FrontMatter()


def values(text: str) -> dict[str, Any]:
    """Its mapping; empty where there is none, or one that can't be read: MkDocs reports that for the page."""
    return read(text).values


def below(text: str) -> tuple[str, int]:
    """The text below the front matter, and how many lines were cut off above it."""
    head = read(text).head
    return text[len(head) :], head.count("\n")


@lru_cache(maxsize=256)
def _read(head: str, start: int, source: str) -> FrontMatter:
    try:
        loader = yaml.SafeLoader(source)
        node = loader.get_single_node()
        data = loader.construct_document(node) if node else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return FrontMatter(head, problem=(start + (mark.index if mark else 0), error.problem or "not YAML"))
    if data and not isinstance(data, dict):
        return FrontMatter(head, problem=(start, "must be `key: value` lines"))
    places: dict[tuple, int] = {}
    twice: dict[tuple, int] = {}
    for keys, at in _places(node, ()):
        (twice if keys in places else places)[keys] = start + at
    return FrontMatter(head, data or {}, places, None, twice)


def _places(node: yaml.Node | None, keys: tuple) -> Iterator[tuple[tuple, int]]:
    pairs: list[tuple] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(at, value, value) for at, value in enumerate(node.value)]
    for key, place, value in pairs:
        yield (*keys, key), place.start_mark.index
        yield from _places(value, (*keys, key))
