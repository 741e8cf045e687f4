"""Measuring: how fast a kernel is, beside what the card could do at best and beside its peers.

`measure` times calls on a GPU, `operation` reads `benchmarks/<op>.py`, `run` measures a case, `store` keeps
results with their provenance, `command` is `academy bench`. `figures`, `plots` and `pages` show results on the site and
need no torch.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
