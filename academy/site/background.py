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
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread

from academy.book.layout import ROOT

#: Beside this process, one for each other processor; more would have too little to do.
MOST = 3

_processes: list[subprocess.Popen] = []
_jobs: dict[tuple[str, str], Future] = {}
_waiting: SimpleQueue = SimpleQueue()


def begin(processes: int | None = None) -> None:
    """Start the processes: as many as given, else as this machine has processors to spare."""
    end()
    for _ in range(min((os.cpu_count() or 1) - 1, MOST) if processes is None else processes):
        _processes.append(_started())
        Thread(target=_lead, args=(_processes[-1], _waiting), daemon=True).start()


def ask(kind: str, *about: str) -> None:
    """Jobs of a kind (`academy.site.worker.MAKES`), in this order. Nothing happens unless `begin` was called."""
    for each in about if _processes else ():
        job = _jobs[kind, each] = Future()
        _waiting.put((kind, each, job))


def answer(kind: str, about: str) -> object:
    """What a process made of a job, once that is there. None: none has begun with it, and none will."""
    job = _jobs.pop((kind, about), None)
    return None if job is None or job.cancel() else job.result()


def end() -> None:
    """Stop the processes, whatever they are doing."""
    global _waiting
    for process in _processes:
        process.kill()
        _waiting.put(None)
    for process in _processes:
        process.communicate()  # closes its pipes
    _processes.clear()
    _jobs.clear()
    _waiting = SimpleQueue()


def _started() -> subprocess.Popen:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    # Its own session: Ctrl-C is for this process. With this one, its standard input ends, and it does too.
    return subprocess.Popen(
        [sys.executable, "-m", "academy.site.worker"],
        cwd=ROOT, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _lead(process: subprocess.Popen, waiting: SimpleQueue) -> None:
    """Give a process jobs, one after the other in the order in which they were asked for, until it ends."""
    assert process.stdin and process.stdout
    while process.poll() is None and (asked := waiting.get()):
        kind, about, job = asked
        if not job.set_running_or_notify_cancel():
            continue
        made = None
        try:
            process.stdin.write(json.dumps([kind, about]).encode() + b"\n")
            process.stdin.flush()
            made = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it has ended, or half an answer has come
            process.kill()
            process.wait()
        job.set_result(made)
