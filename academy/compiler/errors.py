"""What Triton, PyTorch and the driver print to people who write kernels, and what to write instead: `errors.toml`.

The page "Error messages" shows it, `academy compile` and the exercises take their advice from it, and a test runs its
examples.

Names: `entries`, `advice`, `Entry`, `HEAD`.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from academy.command import misspelt
from academy.compiler.rules import refused

#: The lines above each example.
HEAD = """
# --8<-- [start:head]
import torch
import triton
import triton.language as tl

x = torch.arange(64.0, device="cuda")
y = torch.empty_like(x)
# --8<-- [end:head]
"""


@dataclass(frozen=True)
class Entry:
    """One text; `errors.toml` says what each of its fields is."""

    group: str
    says: str
    why: str
    before: str = ""
    after: str = ""
    instead: str = ""
    piece: str = ""
    on: str = "card"
    source: str = ""
    wording: str = ""
    since: str = ""
    until: str = ""

    @property
    def known_by(self) -> str:
        return self.piece or self.says

    def advice(self) -> str:
        """What to do, without a capital and without a full stop."""
        return self.instead or refused.problems(HEAD + self.before)[0].message


@lru_cache(1)
def entries() -> tuple[Entry, ...]:
    """All of them, in the order of the page."""
    import tomllib  # not in a browser, which has `ADVICE` instead

    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return tuple(Entry(**each) for each in tomllib.load(file)["entry"])


#: What a browser gets of the table.
ADVICE = Path(__file__).with_name("advice.json")


@lru_cache(1)
def instead() -> dict[str, str]:
    """By what an entry is known -> what to do, for a terminal."""
    if ADVICE.exists():
        return json.loads(ADVICE.read_text("utf-8"))
    return {entry.known_by: entry.instead.replace("`", "") for entry in entries() if entry.instead}


def advice(said: str, line: str = "") -> str:
    """What to do about a text that the compiler or the interpreter prints, for a terminal; "" if no entry knows it.

    line: the code that it was said of.
    """
    return of_call(said, line)[1] or next((what for known, what in instead().items() if known in said), "")


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
