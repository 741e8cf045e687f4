"""Processes that work for another one end with it, however that ended: by Ctrl-C, by SIGTERM, or killed."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator


class Lifeline:
    """The processes that are started inside of `with Lifeline() as line` end when it does, and when this process does.

    They get `line.pipe` (`pass_fds`) and its number, which they give to `end_with`. is_cut: whether they were ended.
    """

    def __enter__(self) -> Lifeline:
        self.is_cut = False
        self.pipe, self._ours = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_cut = True
        os.close(self._ours)
        os.close(self.pipe)


def end_with(pipe: int) -> None:
    """End this process as soon as nobody holds the other end of the pipe any more."""

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def asked() -> Iterator[bytes]:
    """The lines of standard input. With its end, also in the middle of the work on a line, ends this process."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()
