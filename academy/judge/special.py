"""Values that random numbers hardly ever are: rows of zeros, one-hot and constant rows, ties, zeros of both signs;
numbers beside which others are small, and blocks of numbers that are all of one size.

They are about as large as the numbers that they are made of, or as their names say, and negative only where some of
those are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch


def _rows_of_zeros(values: torch.Tensor) -> torch.Tensor:
    values[1::2] = 0
    return values


def _one_hot(values: torch.Tensor) -> torch.Tensor:
    rows, columns = values.shape
    kept = torch.arange(rows, device=values.device) % columns
    return torch.where(torch.arange(columns, device=values.device) == kept[:, None], values, 0)


def _constant(values: torch.Tensor) -> torch.Tensor:
    """Every second row. Of a power of two: sums are exact, so that the mean of a row is its number. A small one: where
    a norm divides what is left of it by nearly nothing, that is as small as its other roundings."""
    values[1::2] = torch.copysign(torch.full_like(values[1::2, :1], 0.125), values[1::2, :1])
    return values


def _ties(values: torch.Tensor) -> torch.Tensor:
    """Halves: many are equal, in a row and between tensors. What rounds to zero is 0 or -0."""
    return (2 * values).round() / 2


def _mostly_zeros(values: torch.Tensor) -> torch.Tensor:
    """One number in sixteen is left, of few numbers more: what some rows hold, the rest need not."""
    kept = values.view(-1).argsort() % min(16, 1 + values.numel() // 8) == 0  # by lot: another one for each tensor
    return torch.where(kept.view(values.shape), values, 0)


def _falling(values: torch.Tensor) -> torch.Tensor:
    """By three decades along each of the last two dims: a difference of sums has no digits left at their ends."""
    for axis in range(max(values.dim() - 2, 0), values.dim()):
        places = torch.linspace(0, -3, values.shape[axis], dtype=torch.float64, device=values.device)
        values = values * (10**places).view(-1, *[1] * (values.dim() - 1 - axis))
    return values


def _outweighed(values: torch.Tensor, times: int) -> torch.Tensor:
    """By what stands first, so many times as large: it grows, and the others shrink, so that nothing overflows."""
    values[:1] *= times
    return values / times**0.5


def _taken_away(values: torch.Tensor) -> torch.Tensor:
    """In the longest dim 2¹² stands first, and -2¹² in the middle: a sum in 16 bits loses what lies between."""
    axis = max(range(values.dim()), key=lambda axis: (values.shape[axis], axis))
    for place, large in ((0, 4096.0), (values.shape[axis] // 2, -4096.0)):
        values.narrow(axis, place, 1).fill_(large)
    return values


#: Numbers of `runs`: whole blocks of them, and of a tensor that is too small for that, single ones.
_RUN = 128


def _runs(values: torch.Tensor) -> torch.Tensor:
    """From 2⁻³ to 2⁶, of both signs; those of a run differ by an eighth. One lies between the bounds of a formula's
    branches, and of a kernel's shortcuts for whole blocks."""
    flat = values.view(-1)
    run = max(_RUN, len(flat) // 40) if len(flat) > 4 * _RUN else 1
    count = -(-len(flat) // run)
    sizes = 2 ** torch.linspace(-3, 6, -(-count // 2)).repeat_interleave(2)[:count].to(flat)
    if bool((flat < 0).any()):
        sizes[:: 2 if bool((flat > 0).any()) else 1] *= -1
    sizes = sizes[flat[:count].argsort()].repeat_interleave(run)[: len(flat)]  # by lot, as above
    return (sizes * (1 + flat.clamp(-1, 1) / 8)).view(values.shape)


FALLING, TAKEN_AWAY = "numbers that fall by decades", "a large number that is taken away again"
MOSTLY_ZEROS, RUNS = "mostly zeros", "runs of like numbers"
#: dtype -> kinds: beside the first row, or beside its square, a sum in this dtype loses what the others add.
OUTWEIGHED = {
    dtype: {f"a first row {times} times as large": times for times in several}
    for dtype, several in (("bfloat16", (512,)), ("float16", (4096, 64)))
}
#: name -> the same rows, all or every second of that kind.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows of zeros": _rows_of_zeros,
    "one-hot rows": _one_hot,
    "constant rows": _constant,
    "ties, and zeros of both signs": _ties,
    MOSTLY_ZEROS: _mostly_zeros,
}
#: The same of whole tensors.
WHOLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {FALLING: _falling, TAKEN_AWAY: _taken_away, RUNS: _runs} | {
    kind: functools.partial(_outweighed, times=times)
    for several in OUTWEIGHED.values()
    for kind, times in several.items()
}
ALL = KINDS | WHOLE


def like(values: torch.Tensor, kind: str) -> torch.Tensor:
    """New values of that kind, contiguous, from a floating tensor."""
    if not values.numel() or not values.dim():
        return values
    if kind in WHOLE:
        return WHOLE[kind](values.contiguous().clone()).to(values.dtype)
    vector = values.dim() == 1 and kind in ("rows of zeros", "constant rows")
    rows = values.contiguous().clone().view(-1, 1 if vector else values.shape[-1])
    return KINDS[kind](rows).to(values.dtype).view(values.shape)
