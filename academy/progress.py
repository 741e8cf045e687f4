"""How far a long command has come, on the terminal. A file or a pipe gets no bar."""

from __future__ import annotations

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
