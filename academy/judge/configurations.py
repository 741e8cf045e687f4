"""Autotuned kernels: every configuration by itself, and tuning, which runs a kernel many times. See `trying`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from academy.compiler import tuning
from academy.judge import fences
from academy.judge.findings import Wrong

if TYPE_CHECKING:
    from academy.judge.trying import Attempt


def of(attempt: Attempt) -> list[str]:
    """The configurations of the kernels that the function launches, with any of its options, in words; none where
    nothing is tuned."""
    if not any(len(each.configs) > 1 for each in tuning.EVERY):
        return []
    with tuning.chosen() as found, fences.Fences():
        for options in attempt.subject.combinations():
            with contextlib.suppress(Exception):  # the trials will show it
                attempt.subject.function(**attempt.inputs(), **options)
    tuned = [one for one in found.values() if one.total > 1]
    most = max((len(one.every) for one in tuned), default=0)
    return ["; ".join(one.named(number) for one in tuned) for number in range(most)]


def configuration(attempt: Attempt) -> None:
    """One configuration alone: which of them a user gets, the clock decides."""
    number = int(attempt.trial.detail)
    with tuning.chosen(number) as found:
        try:
            attempt.make("compare")
        except Wrong as wrong:
            ran = "; ".join(one.named(number) for one in found.values())
            raise Wrong(f"{ran}: {wrong}") from None


def tuned(attempt: Attempt) -> None:
    """What the first call of a kind does: it runs all configurations, on the caller's own memory."""
    with tuning.chosen(None) as found:
        try:
            attempt.make("compare")
        except Wrong as wrong:
            told = [
                f"autotuning runs {one.kernel} (line {one.line}) many times, and every run changes "
                f"{' and '.join(one.again)} again: name it in restore_value or reset_to_zero"
                for one in found.values()
                if one.again
            ]
            raise Wrong(": ".join([*(told or ["in the call that tunes"]), str(wrong)])) from None


PROCEDURES = {each.__name__: each for each in (configuration, tuned)}
