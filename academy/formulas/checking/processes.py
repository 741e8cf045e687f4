"""Work spread over processes."""

from __future__ import annotations

import multiprocessing
import os
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


def in_parallel(function: Callable, jobs: list) -> list:
    """`[function(job) for job in jobs]`, in as many processes as there are jobs, at most `WORKERS`."""
    workers = min(WORKERS, len(jobs))
    if workers < 2:
        return [function(job) for job in jobs]
    torch.set_num_threads(1)
    with context().Pool(workers) as pool:
        return pool.map(function, jobs, chunksize=1)
