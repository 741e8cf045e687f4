"""How far a long command has come, on the terminal. A file or a pipe gets no bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def bar(console: Console | None = None, threads: bool = True) -> Progress:
    """A context whose tasks are shown as `what [bar] 3/12 0:00:07` while it is open, and gone afterwards.

    console: where else the command prints; by default the bar goes to stderr, so that results can be piped on.
    threads: whether a thread may keep its clock going. A process that forks can't have one: a lock that the thread
    holds at that moment is never released in the fork. Such a bar is drawn when a task is updated with `refresh=True`.
    """
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    silent = not console.is_terminal
    return Progress(*columns, console=console, transient=True, auto_refresh=threads, disable=silent)


#: Seconds between two lines of `counting`.
EVERY = 10


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` parts. It moves a bar; in a file or a pipe there is a line at the start,
    and one every ten seconds, so that whoever gives up after a minute sees how far it has come."""
    with bar(threads=False) as progress:
        task, done, said = progress.add_task(what, total=total), 0, time.monotonic()

        def part() -> None:
            nonlocal done, said
            done += 1
            progress.update(task, advance=1, refresh=True)
            if progress.disable and time.monotonic() - said >= EVERY:
                said = time.monotonic()
                print(f"{what}: {done} of {total} parts", file=sys.stderr, flush=True)

        if progress.disable:
            print(f"{what}: {total} parts", file=sys.stderr, flush=True)
        yield part
