"""One call under a sanitizer: `python -m academy.judge.sanitized JOB RESULT`, started by `academy.judge.sanitizers`.

What it writes to RESULT is (state, message, addresses of the arguments): before each call, since that may be its end,
and afterwards. Its standard input is what it lives by.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.command import parent
from academy.compiler import instrumented, tuning
from academy.judge import elements
from academy.judge.findings import Wrong
from academy.judge.sanitizers import OF_TRITON
from academy.judge.trying import Attempt, synchronize

#: Launches under FpSan that must give what the first gives: sums have no order there.
_OTHERS: dict[str, dict[str, int]] = {
    "the same call again": {},
    "one warp": {"num_warps": 1},
    "eight warps": {"num_warps": 8},
    "one stage": {"num_stages": 1},
}


def without_order(attempt: Attempt) -> None:
    """Under FpSan, whose floats are integers modulo 2^w: other launches of the same kernels give the same bits."""
    inputs = attempt.inputs()
    first, upstreams = attempt.results(attempt.subject.function, inputs)
    for what, options in _OTHERS.items():
        try:
            with instrumented.launched(**options):
                again, _ = attempt.results(attempt.subject.function, inputs, upstreams or None)
        except Exception as error:
            if not options or "CUDA error" in str(error):
                raise
            continue  # such a launch can't be compiled, and nobody asks for it
        for name, value in first.items():
            if torch.is_tensor(value):
                place = elements.first(bits(value) != bits(again[name]))
                if place is not None:
                    message = elements.at(name, place, again[name].cpu(), value.cpu())
                    raise Wrong(f"where sums have no order, {what} gives another result: {message}")


def bits(value: torch.Tensor) -> torch.Tensor:
    """Its bits, as integers of the same width."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(value.element_size())
    return value.contiguous().view(whole) if whole and not value.is_complex() else value


def call(name: str, attempt: Attempt, begins: Callable[..., None]) -> None:
    """Forward and backward. begins: told the `addresses` of arguments, address -> name and bytes an element."""
    if name == "fpsan":
        return without_order(attempt)
    inputs = attempt.inputs()
    begins(addresses={each.data_ptr(): (n, each.element_size()) for n, each in inputs.items() if torch.is_tensor(each)})
    attempt.results(attempt.subject.function, inputs)


def made(name: str, origin: Callable, trials: list[Any], begins: Callable[..., None]) -> tuple[str, str]:
    """State and message of the calls of all trials, or of those until the first that fails."""
    subject = origin()
    # Backward passes in this thread: GSan's memory is for what the thread allocates that asked for it.
    with instrumented.memory(name), tuning.chosen(), torch.autograd.set_multithreading_enabled(False):
        for trial in trials:
            try:
                call(name, Attempt(subject, trial), begins)
                synchronize()
            except Wrong as wrong:
                return "wrong", f"{trial.described()}: {wrong}"
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                return "failed", f"{trial.described()}: {type(error).__name__}: {lines[0]}"
    return "right", ""


def main(job: Path, result: Path) -> str:
    """Returns the sanitizer's name."""
    name, origin, trials = pickle.loads(job.read_bytes())
    known: dict[int, tuple[str, int]] = {}

    def note(state: str = "", message: str = "", **kept: dict[int, tuple[str, int]]) -> None:
        known.update(kept.get("addresses", {}))
        result.write_bytes(pickle.dumps((state, message, known)))

    note(*made(name, origin, trials, note))
    return name


if __name__ == "__main__":
    parent.end_with(0)
    if main(Path(sys.argv[1]), Path(sys.argv[2])) in OF_TRITON:
        sys.stdout.flush()
        os._exit(0)  # a context that an assertion has ended, or GSan's pool, may not survive Python's own end
