"""Values that random numbers hardly ever are: rows of zeros, one-hot and constant rows, ties, zeros of both signs;
numbers beside which others are small.

They are about as large as the numbers that they are made of, and negative only where some of those are.
"""

from __future__ import annotations

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


def _falling(values: torch.Tensor) -> torch.Tensor:
    """By three decades along each of the last two dims: a difference of sums has no digits left at their ends."""
    for axis in range(max(values.dim() - 2, 0), values.dim()):
        places = torch.linspace(0, -3, values.shape[axis], dtype=torch.float64, device=values.device)
        values = values * (10**places).view(-1, *[1] * (values.dim() - 1 - axis))
    return values


def _outweighed(values: torch.Tensor) -> torch.Tensor:
    """By what stands first, 2⁸ times as large: in bfloat16 a sum of both loses the other."""
    values[:1] *= 256
    return values


FALLING, OUTWEIGHED = "numbers that fall by decades", "a row that outweighs the others"
#: name -> the same rows, all or every second of that kind.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows of zeros": _rows_of_zeros,
    "one-hot rows": _one_hot,
    "constant rows": _constant,
    "ties, and zeros of both signs": _ties,
}
#: The same of whole tensors.
WHOLE = {FALLING: _falling, OUTWEIGHED: _outweighed}
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
