"""Record the call of one trial: `python -m academy.judge.recorded`, started by `academy.judge.report`."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

from academy.runtime import device  # noqa: F401
from academy.command import parent
from academy.compiler import stand_in, tuning
from academy.judge.subject import of_module
from academy.judge.trials import Trial
from academy.judge.trying import call_of
from academy.traces import store, worker
from academy.traces.recording import Recording


def record(path: Path, name: str, trial: Trial) -> Recording:
    def example(module: ModuleType) -> None:
        (subject,) = of_module(module, str(path), [name])
        call_of(subject, trial)

    number = int(trial.detail) if trial.how == "configuration" else 0
    with stand_in.for_files(), tuning.chosen(number):
        data = worker.record(path, [path], max_steps=200_000, example=example)
    file = store.shorten(path)
    lines = data["files"][file]
    return Recording(data, {file: dict(zip(lines, lines))})


if __name__ == "__main__":
    parent.end_with(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pickle.dump(record(*pickle.load(sys.stdin.buffer)), out)
