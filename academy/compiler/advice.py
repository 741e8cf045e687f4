"""What to do about a text that the compiler or the interpreter prints, from the table of `academy.compiler.errors`:
`academy compile` and the exercises say it, also in a browser."""

from __future__ import annotations

import inspect
import json
import re
from functools import lru_cache
from pathlib import Path

from academy.command import misspelt

#: What a browser gets of the table.
_KEPT = Path(__file__).with_suffix(".json")


@lru_cache(1)
def table() -> dict[str, str]:
    """By what an entry is known -> what to do, for a terminal."""
    if _KEPT.exists():
        return json.loads(_KEPT.read_text("utf-8"))
    from academy.compiler.errors import entries  # not in a browser, whose Python has no tomllib

    return {entry.known_by: entry.instead.replace("`", "") for entry in entries() if entry.instead}


def of(said: str, line: str = "") -> str:
    """What to do about a text that the compiler or the interpreter prints, for a terminal; "" if no entry knows it.

    line: the code that it was said of.
    """
    return of_call(said, line)[1] or next((what for known, what in table().items() if known in said), "")


_OF_CALL = re.compile(r"(\w+)\(\) (got an unexpected|got multiple|missing) .*?'(\w+)'")


def of_call(said: str, line: str) -> tuple[str, str]:
    """The function of `tl` that was called with other arguments than it takes, and what to say of that; "" twice where
    it was none. The interpreter leaves its name out: then `line` has it."""
    found = _OF_CALL.search(said)
    if found:
        import triton.language as tl

        _, what, argument = found.groups()
        for name in [found[1], *re.findall(r"\btl\.(\w+)\(", line)]:
            if not callable(function := getattr(getattr(tl, name, None), "fn", getattr(tl, name, None))):
                continue
            takes = [each for each in inspect.signature(function).parameters if not each.startswith("_")]
            if (argument in takes) == (what == "got an unexpected"):
                continue
            near = misspelt.near(argument, takes) if what == "got an unexpected" else None
            twice = f". Here {argument} is given by its place and by its name" if what == "got multiple" else ""
            return name, f"did you mean {near}?" if near else f"tl.{name} takes {', '.join(takes[:5])}{twice}"
    return "", ""
