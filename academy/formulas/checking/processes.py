"""Work spread over processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import torch

WORKERS = min(os.cpu_count() or 1, 8)


def context() -> Any:
    """How processes start: by a fork, which costs almost nothing, where that is safe.

    Where there is a GPU, PyTorch's autograd keeps a thread for it and the driver its own state, and neither survives a
    fork. A server process that has touched neither is forked there instead.
    """
    if not torch.cuda.is_available():
        return multiprocessing.get_context("fork")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["academy.formulas.check", "academy.formulas.mutation.engine"])
    return server


def in_parallel(function: Callable, jobs: list, done: Callable[[], object] = lambda: None) -> list:
    """`[function(job) for job in jobs]`, in as many processes as there are jobs, at most `WORKERS`.

    done: called after each job. When this process is stopped, by Ctrl-C or by SIGTERM, the others end with it.
    """
    workers = min(WORKERS, len(jobs))
    results = []
    if workers < 2:
        for job in jobs:
            results.append(function(job))
            done()
        return results
    torch.set_num_threads(1)
    with context().Pool(workers, initializer=leave_signals) as pool:
        for result in pool.imap(function, jobs, chunksize=1):
            results.append(result)
            done()
    return results


def leave_signals() -> None:
    """For a process that works for another: Ctrl-C, which reaches both, is the other's, and SIGTERM ends this one at
    once, whatever it was forked with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
