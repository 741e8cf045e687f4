"""Mark a reader's text in a process of its own, with limits of time and memory: what the terminal uses.

An endless loop, a full memory, a crash or an exit is a failed check with a message. It is no jail: the text runs with
the reader's own rights, and `allowed` refuses files, processes and Python's insides by their names only. One that gets
past it can make up its verdict, and fools only itself.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections import deque
from collections.abc import Iterator
from typing import TextIO

from academy.exercises.marking import Outcome, mark
from academy.judge.process import Death, Limits, stream

#: Lines of what a text prints, of the first and of the last.
SHOWN = 40
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
    printed = _Printed(sys.stdout)
    with contextlib.redirect_stdout(printed):
        outcome = mark(*job)
    printed.end()
    yield outcome


class _Printed(io.TextIOBase):
    """Shows `SHOWN` lines at once, and the last ones at the end: a `print` in a kernel prints in each program of each
    check, and the last check is the one that fails."""

    def __init__(self, out: TextIO):
        self.out, self.begun, self.count = out, "", 0
        self.last: deque[str] = deque(maxlen=SHOWN)

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            self.count += 1
            if self.count > SHOWN:
                self.last.append(line)
            else:
                print(line, file=self.out, flush=True)
        return len(text)

    def end(self) -> None:
        left = self.count - SHOWN - len(self.last)
        lines = [*([f"… {left} lines …"] if left > 0 else []), *self.last, *([self.begun] if self.begun else [])]
        print("".join(f"{line}\n" for line in lines), end="", file=self.out, flush=True)
