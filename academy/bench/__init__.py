"""Measuring: how fast a kernel is, beside what the card could do at best and beside its peers.

`measure` times calls on a GPU, `operation` reads `benchmarks/<op>.py`, `run` measures a case, `store` keeps
results with their provenance, `command` is `academy bench`. `figures`, `plots` and `pages` show results on the site and
need no torch; the functions here are what the command line and the kernel scripts call.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def print_speed(kernel_file: Path) -> None:
    """The table that a kernel script prints on a GPU: see `academy.bench.command.print_speed`."""
    from academy.bench import command

    command.print_speed(kernel_file)


def stale_note(root: Path = ROOT) -> str:
    """One line on the kernels that have changed since they were measured, for `academy check`; "" if there is none."""
    from academy.bench import store

    return store.stale_note(root)
