"""What pages will need, made by other processes while this one renders them: tables of results, what was checked,
copies of pages.

`begin` says what will be needed, in the order in which it will be; `answer` is called where it is. What no process has
begun by then, the caller makes itself, so that nobody waits for a queue, and a process that ends before its time costs
no more than its help. The processes run `academy.site.worker`; what is kept (`academy.files.cache`) they leave there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from academy.book.layout import ROOT

#: Beside this process, one for each other processor; more would have too little to do.
MOST = 3


@dataclass
class _Job:
    kind: str
    about: str
    answer: object = None
    is_over: threading.Event = field(default_factory=threading.Event)


class Helpers:
    """Processes that do jobs one after the other, in the order in which they were asked for."""

    def __init__(self, processes: int):
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, str], _Job] = {}
        self._begun: dict[tuple[str, str], _Job] = {}
        self._running: list[subprocess.Popen] = []
        self._is_over = False
        for _ in range(processes):
            threading.Thread(target=self._lead, daemon=True).start()

    def ask(self, kind: str, about: str) -> None:
        """See `academy.site.worker.MAKES` for the kinds."""
        with self._changed:
            self._waiting[kind, about] = _Job(kind, about)
            self._changed.notify()

    def answer(self, kind: str, about: str) -> object:
        """What a process made of a job, once that is there. None: none has begun with it, and none will."""
        with self._changed:
            self._waiting.pop((kind, about), None)
            job = self._begun.pop((kind, about), None)
        if job is None:
            return None
        job.is_over.wait()
        return job.answer

    def end(self) -> None:
        """Stop the processes, whatever they are doing."""
        with self._changed:
            self._is_over = True
            self._waiting.clear()
            self._changed.notify_all()
            for process in self._running:
                process.kill()
        for process in self._running:
            process.communicate()  # closes its pipes

    def _lead(self) -> None:
        """Give one process its jobs, until it is ended or ends itself."""
        with self._changed:
            if self._is_over:
                return
            self._running.append(process := _started())
        while job := self._next():
            try:
                with suppress(OSError, ValueError):  # it has ended, or half an answer has come
                    job.answer = _asked(process, job)
            finally:
                job.is_over.set()
            if process.poll() is not None:
                return

    def _next(self) -> _Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over)
            if self._is_over:
                return None
            name = next(iter(self._waiting))
            job = self._begun[name] = self._waiting.pop(name)
            return job


def _started() -> subprocess.Popen:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    # Its own session: Ctrl-C is for this process. With this one, its standard input ends, and it does too.
    return subprocess.Popen(
        [sys.executable, "-m", "academy.site.worker"],
        cwd=ROOT, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _asked(process: subprocess.Popen, job: _Job) -> object:
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps([job.kind, job.about]).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


_helpers: Helpers | None = None


def begin(processes: int | None = None) -> None:
    """Start the processes: as many as given, else as this machine has processors to spare."""
    global _helpers
    end()
    _helpers = Helpers(min((os.cpu_count() or 1) - 1, MOST) if processes is None else processes)


def ask(kind: str, *about: str) -> None:
    """Jobs of a kind, in this order. Nothing happens unless `begin` was called."""
    if _helpers:
        for each in about:
            _helpers.ask(kind, each)


def answer(kind: str, about: str) -> object:
    """`Helpers.answer`; None where nobody has begun."""
    return _helpers.answer(kind, about) if _helpers else None


def end() -> None:
    """Stop the processes."""
    global _helpers
    if _helpers:
        _helpers.end()
    _helpers = None
