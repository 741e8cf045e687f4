"""The learning path: the order in which a new reader takes the pages, and what to have read before each of them.

One table holds both, in the front matter of docs/learn/index.md. From it come the map on that page (`[[path]]`), its
short tracks (`[[tracks]]`), the order of the navigation, previous and next, and the line under each title.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from academy.book import front_matter
from academy.book.texts import read

HOME = "learn/index.md"
#: What *Next* leads through before the path's first page.
WAY_IN = ("index.md", "getting-started.md")
KINDS = {"kernels": "kernel", "derivations": "derivation", "learn": "chapter", "guides": "guide"}


@dataclass(frozen=True)
class Stage:
    """A part of the path: its title, a sentence about it, its pages (uris under docs/), the folder of its exercises,
    and `milestone`, the exercise that ends it."""

    title: str
    about: str
    pages: tuple[str, ...]
    exercises: str = ""
    milestone: str = ""


@dataclass(frozen=True)
class Track:
    """A short way for one aim: some of the path's pages, in its order, and the names of some exercises."""

    title: str
    about: str
    pages: tuple[str, ...]
    exercises: tuple[str, ...] = ()


@dataclass(frozen=True)
class LearningPath:
    """`before`: page -> the pages to read first, for every page in the table, also those beside the path.
    `groups`: folder of kernels -> what the navigation calls it."""

    stages: tuple[Stage, ...] = ()
    before: dict[str, tuple[str, ...]] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    tracks: tuple[Track, ...] = ()

    @classmethod
    def read(cls, docs: Path) -> LearningPath:
        """The table of a project's docs/ folder; empty where there is none."""
        home = docs / HOME
        meta = front_matter.values(read(home)) if home.is_file() else {}
        stages = tuple(
            Stage(
                each["stage"], each["about"], tuple(each["pages"]), each.get("exercises", ""), each.get("milestone", "")
            )
            for each in meta.get("path", ())
        )
        tracks = tuple(
            Track(each["track"], each["about"], tuple(each["pages"]), tuple(each.get("exercises", ())))
            for each in meta.get("tracks", ())
        )
        tables = [*(each["pages"] for each in meta.get("path", ())), meta.get("beside", {})]
        before = {page: tuple(first or ()) for table in tables for page, first in table.items()}
        return cls(stages, before, meta.get("groups", {}), tracks)

    @property
    def pages(self) -> list[str]:
        """The path from end to end."""
        return [page for stage in self.stages for page in stage.pages]

    @property
    def steps(self) -> dict[str, int]:
        """Page -> its step of the path, counted from 1."""
        return {uri: step for step, uri in enumerate(self.pages, 1)}


def kind(uri: str) -> str:
    """What a page is: kernel, derivation, chapter, guide; "" for other pages."""
    return KINDS.get(uri.partition("/")[0], "")
