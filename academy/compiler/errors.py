"""What Triton, PyTorch and the driver print to people who write kernels, and what to write instead: `errors.toml`.

The page "Error messages" shows it, `academy.compiler.advice` is taken from it, and a test runs its examples.

Names: `entries`, `Entry`, `HEAD`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return tuple(Entry(**each) for each in tomllib.load(file)["entry"])
