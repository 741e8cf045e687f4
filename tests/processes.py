"""`pytest -n N` where kernels are interpreted: the tests are collected once, and N forks of that process run them.

Collecting 25,000 tests takes half a minute, which each worker of pytest-xdist would spend for itself. On a machine with
a card `-n` is still pytest-xdist's: what has used CUDA can't be forked.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import pytest
from _pytest.config import create_terminal_writer

from academy.runtime import device

#: What runs in a thread of the first process, beside the tests in the others.
beside: list[Callable[[], None]] = []
_NUMBER = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's, for which nothing is left then
def pytest_cmdline_main(config):
    number = getattr(config.option, "numprocesses", None)
    if number and device.INTERPRET and sys.platform == "linux" and not config.option.usepdb:
        automatic = number in ("auto", "logical")
        config.stash[_NUMBER] = config.hook.pytest_xdist_auto_num_workers(config=config) if automatic else number
        config.option.numprocesses = 0


@dataclass
class _Worker:
    process: BaseProcess
    share: deque[int]  # numbers of the tests it will be given, unless another worker has nothing left
    given: deque[int] = field(default_factory=deque)  # the one that it runs, and the next


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    hook, number = session.config.hook, min(session.config.stash.get(_NUMBER, 0), len(session.items))
    if number < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    session.config._tmp_path_factory.getbasetemp()  # one for all
    session.config.pluginmanager.getplugin("terminalreporter").showfspath = False
    context = multiprocessing.get_context("fork")
    workers: dict[Connection, _Worker] = {}

    def begin(share: deque[int]) -> None:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(session, there, [here, *workers]))
        process.start()
        there.close()
        workers[here] = _Worker(process, share)
        give(here), give(here)

    def give(pipe: Connection) -> None:
        """Tell a worker its next test, or that there is none. One whose share is used up takes half of another's."""
        worker, following = workers[pipe], None
        if not worker.share:
            most = max((each.share for each in workers.values()), key=len)
            worker.share.extendleft([most.pop() for _ in range((len(most) + 1) // 2)])
        if worker.share and not (session.shouldfail or session.shouldstop):
            following = worker.share.popleft()
            worker.given.append(following)
        with suppress(BrokenPipeError):  # the worker has ended, which is seen below
            pipe.send(following)

    ends = [len(session.items) * k // number for k in range(number + 1)]
    for start, stop in zip(ends, ends[1:]):
        begin(deque(range(start, stop)))
    for each in beside:
        threading.Thread(target=each, daemon=True).start()
    try:
        while workers:
            for pipe in wait(list(workers)):
                worker = workers[pipe]
                try:
                    told = pipe.recv()
                except (EOFError, ConnectionResetError):
                    told = None
                if told is None:
                    del workers[pipe]
                    worker.process.join()
                    if worker.given:  # it ended in the midst of a test; another takes its place
                        item = session.items[worker.given.popleft()]
                        message = f"The process of this test ended with status {worker.process.exitcode}"
                        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
                        hook.pytest_runtest_logreport(report=report)
                        begin(worker.given + worker.share)
                    continue
                for report, warned in told:
                    if warned:
                        hook.pytest_warning_recorded.call_historic(kwargs=warned)
                    else:
                        report = hook.pytest_report_from_serializable(config=session.config, data=report)
                        hook.pytest_runtest_logreport(report=report)
                item = session.items[worker.given.popleft()]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                give(pipe)
    finally:
        for pipe in workers:  # which ends them
            pipe.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class _Told:
    """What the first process hears of a test."""

    def __init__(self, config):
        self.config, self.told = config, []

    def pytest_runtest_logreport(self, report):
        self.told.append((self.config.hook.pytest_report_to_serializable(config=self.config, report=report), None))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        line = warnings.WarningMessage(UserWarning(text), UserWarning, warning_message.filename, warning_message.lineno)
        self.told.append((None, dict(warning_message=line, when=when, nodeid=nodeid, location=location)))


def _work(session: pytest.Session, pipe: Connection, others: list[Connection]) -> None:
    for each in others:
        each.close()
    atexit._clear()  # type: ignore[attr-defined]  # that is the first process's
    plugins = session.config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing(), capture.start_global_capturing()  # in a file of its own
    plugins.getplugin("terminalreporter")._tw = create_terminal_writer(session.config, open(os.devnull, "w"))
    plugins.register(told := _Told(session.config))
    told.told.clear()  # warnings from before the fork
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        number, following = pipe.recv(), pipe.recv()
        while number is not None:
            item, nextitem = session.items[number], None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            pipe.send(told.told)
            told.told.clear()
            number, following = following, pipe.recv()
    session._setupstate.teardown_exact(None)
    atexit._run_exitfuncs()  # type: ignore[attr-defined]
