"""Batch invariance: a row of a result has the same bits, whatever stands beside it. A procedure of `trying`.

A dim is one of rows where the reference computes them independently: it gives the same rows, in another order, for
inputs in another order. Of those the function is asked for one row by itself, at another place, with other neighbours,
and among many, which is another number of programs and may be another kernel.

Where a file promises it, `BATCH_INVARIANT = ("rows",)`, other bits are wrong; else they are a remark.
"""

from __future__ import annotations

import contextlib
from typing import Any, TypeAlias

import torch

from academy.runtime import device
from academy.judge import elements, verdict, writes
from academy.judge.findings import Remark, Wrong
from academy.judge.trials import LONG, MANY

#: Of `trying`, which imports this.
Attempt: TypeAlias = Any
#: Rows among which one is looked at; on a card, where many programs cost nothing, a second number.
AMONG = (MANY,) if device.INTERPRET else (MANY, LONG)
#: The most elements of a row, where its other dims are long.
ROW = 2 * LONG


def axes(attempt: Attempt, dim: str) -> dict[str, int]:
    """Which axis of each tensor has this size; empty where that can't be said of one of them."""
    sizes = dict(attempt.sizes)
    more = attempt.varied(sizes=tuple({**sizes, dim: sizes[dim] + 1}.items()))
    found = {}
    for (name, small), large in zip(attempt.inputs().items(), more.inputs().values()):
        if torch.is_tensor(small) and small.shape != large.shape:
            grown = [place for place, (a, b) in enumerate(zip(small.shape, large.shape)) if a != b]
            if small.dim() != large.dim() or len(grown) > 1 or large.shape[grown[0]] - small.shape[grown[0]] != 1:
                return {}
            found[name] = grown[0]
    return found


def taken(values: dict[str, Any], where: dict[str, int], rows: list[int]) -> dict[str, Any]:
    """These rows, in this order, of the tensors that have them."""
    index = lambda value: torch.tensor(rows, device=value.device)  # noqa: E731
    return {
        name: value.index_select(where[name], index(value)) if name in where else value
        for name, value in values.items()
    }


def _results(attempt: Attempt, function: Any, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        found = verdict.named(attempt.call(function, **writes.copies(inputs)))
    codes = lambda value: value.is_floating_point() and value.element_size() == 1  # noqa: E731
    return {n: v.view(torch.uint8) if codes(v) else v for n, v in found.items() if torch.is_tensor(v)}


def _by_reference(attempt: Attempt, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """On the CPU: with fewer rows an index may lie outside, which is an error there, and on a card the end of all that
    the process does. (Unless the reference has tensors of its own on the card.)"""
    there = {name: value.cpu() if torch.is_tensor(value) else value for name, value in inputs.items()}
    try:
        return _results(attempt, attempt.subject.reference, there)
    except RuntimeError as error:
        if "same device" not in str(error):
            raise
        return _results(attempt, attempt.subject.reference, inputs)


def rows_of(attempt: Attempt, dim: str) -> tuple[dict[str, int], dict[str, int]] | None:
    """The axes of rows in the inputs and in the results of the reference; None where its rows depend on each other."""
    where = axes(attempt, dim)
    if not where:
        return None
    inputs, count = elements.in_float64(attempt.inputs()), attempt.sizes[dim]
    whole = _by_reference(attempt, inputs)
    backwards = list(reversed(range(count)))
    other, alone = (_by_reference(attempt, taken(inputs, where, rows)) for rows in (backwards, [count - 1]))
    out = {}
    for name, value in whole.items():
        smaller = [place for place, (a, b) in enumerate(zip(value.shape, alone[name].shape)) if (a, b) == (count, 1)]
        if len(smaller) != 1 or alone[name].dim() != value.dim():
            return None
        out[name] = smaller[0]
        for found, rows in ((other[name], backwards), (alone[name], [count - 1])):
            wanted = value.index_select(out[name], torch.tensor(rows, device=value.device))
            if found.shape != wanted.shape or not torch.allclose(
                found.double(), wanted.double(), 1e-9, 1e-9, equal_nan=True
            ):
                return None
    return (where, out) if out else None


def dims(attempt: Attempt) -> list[tuple[str, str]]:
    """The dims whose rows the reference computes independently. Each comes with "", and with other dims that may be
    long: a sum over it may then be split, and the results are few enough for the interpreter."""
    found, subject = [], attempt.subject
    # With fewer columns a label would lie outside.
    counted = {tensor.below for tensor in subject.tensors.values()}
    free = [dim for dim in subject.dims if dim not in subject.sizes]
    for dim in free:
        # The reference may take no such number of rows, or its arguments hang on each other.
        with contextlib.suppress(Exception):
            if dim not in counted and attempt.sizes[dim] > 2 and rows_of(attempt, dim):
                found.append((dim, ""))
                for other in free:
                    sizes = tuple({**attempt.sizes, other: LONG, dim: 1}.items())
                    one = attempt.varied(sizes=sizes)
                    results = _by_reference(one, one.inputs()).values() if other != dim else ()
                    if 0 < sum(value.numel() for value in results) <= ROW:
                        found.append((dim, other))
    return found


def batch(attempt: Attempt) -> None:
    dim, function = attempt.trial.detail, attempt.subject.function
    known = rows_of(attempt, dim)
    assert known, "planned for such dims only"
    where, out = known
    inputs, count = attempt.inputs(), attempt.sizes[dim]
    row, last = 1, count - 1
    others = attempt.varied(seed=attempt.trial.seed + 1).inputs()
    mine = taken(inputs, where, [row])
    neighbours = dict(inputs)
    for name, axis in where.items():
        place = torch.tensor([row], device=inputs[name].device)
        neighbours[name] = others[name].index_copy(axis, place, mine[name])
    swapped = [last if each == row else row if each == last else each for each in range(count)]
    trials = {
        f"alone, not among {count}": (mine, 0),
        f"at place {last}, not {row}": (taken(inputs, where, swapped), last),
        "with other neighbours": (neighbours, row),
    }
    for many in AMONG:
        rows = [each % count for each in range(many)]
        trials[f"among {many}, not {count}"] = taken(inputs, where, rows), row + count * ((many // count) // 2)
    first = _results(attempt, function, inputs)
    for what, (changed, place) in trials.items():
        found = _results(attempt, function, changed)
        for name, value in first.items():
            if name in out:
                a, b = value.select(out[name], row), found[name].select(out[name], place)
                if (wrong := elements.first(~elements.same(b, a))) is not None:
                    message = f"a row of {dim} {what} has other bits: {elements.at(name, wrong, b.cpu(), a.cpu())}"
                    raise (Wrong if dim in attempt.subject.batch_invariant else Remark)(message)


PROCEDURES = {"batch": batch}
