"""Mark a reader's text in a process of its own, with limits of time and memory: what the terminal uses.

An endless loop, a full memory, a crash or an exit is a failed check with a message. It is no jail: the text runs with
the reader's own rights, and `allowed` refuses files, processes and Python's insides by their names only. One that gets
past it can make up its verdict, and fools only itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from academy.exercises.marking import Outcome, mark
from academy.judge.process import Death, Limits, stream

#: For one text. The slowest solution takes one second of processor time; a first launch on a GPU is compiled for it.
LIMITS = Limits(seconds=20, megabytes=2048)


def marked(name: str, source: str, seed: int | None = None, limits: Limits = LIMITS) -> Outcome:
    """As `marking.mark`, which it is in the other process. What the text prints is shown.

    Raises:
        ValueError: there is no such exercise.
        Trouble: what ended the process is no fault of the text.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    ((_, found),) = stream(_work, [(name, source, seed)], limits, quiet=False)
    if not isinstance(found, Death):
        return found
    said = f"the program {found.message}"
    if found.kind == "exit":
        said += ": an answer returns its result, it doesn't end the program"
    return Outcome("failed", said, seed=seed)


def _work(job: tuple[str, str, int]) -> Iterator[Outcome]:
    yield mark(*job)
