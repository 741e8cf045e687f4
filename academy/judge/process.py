"""Work in processes of its own: spread over several, and such as may die without taking anything along.

A kernel without its mask writes where it likes, a loop may never end, an illegal address on a card poisons everything
that the process does afterwards. `stream` makes each of these a `Death`, with the reason in words.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from academy.command import garbage, trouble
from academy.judge.fences import Fences

WORKERS = min(os.cpu_count() or 1, 8)
#: How many times longer than it may compute a process may wait: for other processes, or asleep.
PATIENCE = 6
_PRELOADED = ["academy.formulas.verify", "academy.formulas.mutation.engine", "academy.judge.session"]


def context() -> Any:
    """How processes start: by a fork, which costs almost nothing, where that is safe.

    Where there is a GPU, PyTorch's autograd keeps a thread for it and the driver its own state, and neither survives a
    fork. A server process that has touched neither is forked there instead.
    """
    if not torch.cuda.is_available():
        return multiprocessing.get_context("fork")
    # Importing `runtime.device` asks whether there is a GPU. Once a process has asked the driver, none of its forks can
    # use it; NVML may be asked.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    # Before `undisturbed`: the first of these lets the signals through again that are to wait.
    resource_tracker.ensure_running()
    forkserver.ensure_running()
    return server


def warm_up() -> None:
    """Import what PyTorch imports at the first use, before processes are forked: seconds that each would take."""
    with Fences():
        torch.empty(1).clone()
    x = torch.ones(1, requires_grad=True)
    torch.autograd.grad(x * 1, x, torch.ones(1))
    with forward_ad.dual_level():
        forward_ad.make_dual(torch.ones(1), torch.ones(1))


def in_parallel(function: Callable, jobs: list, done: Callable[[], object] = lambda: None) -> list:
    """`[function(job) for job in jobs]`, in as many processes as there are jobs, at most `WORKERS`.

    done: called after each job. When this process is stopped, by Ctrl-C or by SIGTERM, the others end with it.

    Raises:
        Trouble: one of the processes has ended that should not have.
    """
    workers = min(WORKERS, len(jobs))
    results = []
    if workers < 2:
        for job in jobs:
            results.append(function(job))
            done()
        return results
    torch.set_num_threads(1)
    waiting, found = list(enumerate(jobs))[::-1], dict[int, Any]()
    running: dict[Any, Any] = {}
    try:
        for _ in range(workers):
            with undisturbed():
                connection, process = _started(function)
                running[connection] = process
            connection.send(waiting.pop())
        while len(found) < len(jobs):
            for connection in wait(list(running), timeout=1.0):  # a signal may come just before it: see `stream`
                number, result, error = _answer(connection, running[connection], waiting)
                if error:
                    raise error
                found[number] = result
                done()
    finally:
        for connection, process in running.items():
            process.kill()
            process.join()
            connection.close()
    return [found[number] for number in range(len(jobs))]


def _started(function: Callable) -> tuple[Any, Any]:
    """A process that calls the function with what it is sent, and the pipe to it, which no other process has: a queue
    that several share, as an executor's, is lost with the one that is killed while it writes half a message."""
    methods = context()
    connection, theirs = methods.Pipe()
    process = methods.Process(target=_calls, args=(theirs, function), daemon=True)
    process.start()
    theirs.close()
    return connection, process


def _answer(connection: Any, process: Any, waiting: list) -> tuple[int, Any, Exception | None]:
    """A result or an error. The process gets the next job."""
    try:
        answer = connection.recv()
        if waiting:
            connection.send(waiting.pop())
        return answer
    except (EOFError, OSError):  # also of half a message
        process.join()
        how = f"signal {-process.exitcode}" if process.exitcode < 0 else f"exit status {process.exitcode}"
        raise trouble.Trouble(f"a process that did a part of the work has ended too early, with {how}") from None


def _begin() -> None:
    """What a process does first that works for another. One that a server forks has the server's number of threads."""
    end_with_parent()
    leave_signals()
    torch.set_num_threads(1)


def _calls(connection: Connection, function: Callable) -> None:
    _begin()
    garbage.rarely()
    while True:
        number, job = connection.recv()
        try:
            connection.send((number, function(job), None))
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))
            connection.send((number, None, error))


_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """While a process is started, Ctrl-C and SIGTERM wait. Around a fork Python calls functions whose exceptions it
    drops, and with them the `KeyboardInterrupt` of somebody who wants to stop it all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals() -> None:
    """For a process that works for another: Ctrl-C, which reaches both, is the other's, and SIGTERM ends this one at
    once, whatever it was forked with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def end_with_parent() -> None:
    """For a process that works for another: end with it, also where that is killed. (Linux knows how.)

    Strictly with the thread that has started it, so that has to stay.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent.pid != os.getppid():  # a server has forked this one, or it has ended already

        def end() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end, daemon=True).start()


_PR_SET_PDEATHSIG = 1


# ---------------------------------------------------------------- work that may die
@dataclass(frozen=True)
class Limits:
    """seconds: of processor time for one item, after which a process hangs. (A busy machine is no hang: it may take
    `PATIENCE` times as long.) megabytes: that a process may allocate, beyond what it has at its start; None: any."""

    seconds: float = 60.0
    megabytes: int | None = None


@dataclass(frozen=True)
class Death:
    """How a process ended that should not have. kind: signal, hang, exit or error. message: as the end of a sentence:
    `died with SIGSEGV`."""

    kind: str
    message: str


_END = "the last item has been sent"


def stream(
    work: Callable, jobs: list, limits: Limits | None = None, here: bool = False, quiet: bool = True
) -> Iterator[tuple[Any, Any]]:
    """(job, item) for everything that `work(job)` yields, each job in a process of its own, `WORKERS` at a time.

    A job whose process dies gives (job, Death). Whoever walks this may append to `jobs`. When the walk is given up, by
    Ctrl-C too, the processes are killed. here: in this process, without limits. quiet: what they print is dropped.

    Raises:
        Trouble: what ended the work is no fault of it: a full disk, somebody who ends processes.
    """
    while here and jobs:
        job = jobs.pop(0)
        yield from ((job, item) for item in work(job))
    limits = limits or Limits()
    torch.set_num_threads(1)
    running: dict[Any, _Running] = {}
    try:
        while jobs or running:
            while jobs and len(running) < WORKERS:
                with undisturbed():
                    started = _Running(work, jobs.pop(0), limits, quiet)
                    running[started.receiver] = started
            # A signal that comes between Python's last look for one and the system call does not end the call.
            ready = wait(list(running), timeout=1.0)
            for receiver in ready:
                one = running[receiver]
                item = one.received()
                if isinstance(item, trouble.Trouble):
                    raise item
                if item == _END or isinstance(item, Death):
                    one.end()
                    del running[receiver]
                if item != _END:
                    yield one.job, item
            for one in running.values():
                one.kill_if_asleep()
    finally:
        for one in running.values():
            one.process.kill()
            one.end()


class _Running:
    def __init__(self, work: Callable, job: Any, limits: Limits, quiet: bool):
        methods = context()
        self.job, self.limits, self.asleep = job, limits, False
        self.receiver, sender = methods.Pipe(duplex=False)
        self.folder = _scratch()
        arguments = (sender, work, job, limits, self.folder.name, quiet)
        self.process = methods.Process(target=_child, args=arguments, daemon=True)
        self.process.start()
        sender.close()
        self.heard = time.monotonic()

    def received(self) -> Any:
        self.heard = time.monotonic()
        try:
            return self.receiver.recv()
        except (EOFError, OSError):  # also of half a message
            self.process.join()
            return _death(self.process.exitcode or 0, self.limits, self.asleep)

    def kill_if_asleep(self) -> None:
        if time.monotonic() - self.heard > PATIENCE * self.limits.seconds:
            self.asleep = True
            self.process.kill()

    def end(self) -> None:
        self.process.join()
        self.receiver.close()
        self.folder.cleanup()


def _scratch() -> tempfile.TemporaryDirectory:
    """For the temporary files of a process, which leaves them behind however it ends."""
    return tempfile.TemporaryDirectory(prefix="academy-", ignore_cleanup_errors=True)


def _death(code: int, limits: Limits, asleep: bool) -> Death | trouble.Trouble:
    seconds = f"{limits.seconds:g} s"
    if code == -signal.SIGXCPU:
        return Death("hang", f"was stopped after {seconds} of processor time: does a loop never end?")
    if asleep:
        return Death("hang", f"was stopped after {PATIENCE * limits.seconds:g} s: what does it wait for?")
    if -code in trouble.OUTSIDE:
        return trouble.Trouble.of_process("a process of this command", -code)
    if code < 0:
        return Death("signal", f"died with {signal.Signals(-code).name}")
    return Death("exit", f"ended the process itself, with exit status {code}")


def _child(sender: Connection, work: Callable, job: Any, limits: Limits, folder: str, quiet: bool) -> None:
    tempfile.tempdir = folder
    _begin()
    garbage.rarely()
    faulthandler.disable()
    if quiet:  # what a broken kernel prints on its way down is of no interest
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(limits.megabytes)
    try:
        _restart_clock(limits.seconds)
        for item in work(job):
            sender.send(item)
            _restart_clock(limits.seconds)
        sender.send(_END)
    except BaseException as error:  # of `work` itself, SystemExit too
        sender.send(trouble.of(error) or Death("error", f"ended with {type(error).__name__}: {error}"))
    os._exit(0)


def _restart_clock(seconds: float) -> None:
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + seconds), hard))


def _limit_memory(megabytes: int | None) -> None:
    """Allocations beyond the limit raise MemoryError. The driver of a GPU reserves terabytes of addresses, so there is
    no limit where there is one."""
    if megabytes is not None and not torch.cuda.is_available() and Path("/proc/self/status").exists():
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        used = int(fields["VmData"].split()[0]) << 10
        limit = used + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
