"""Values that random numbers hardly ever are: rows of zeros, one-hot and constant rows, ties, zeros of both signs.

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


#: name -> the same rows, all or every second of that kind.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows of zeros": _rows_of_zeros,
    "one-hot rows": _one_hot,
    "constant rows": _constant,
    "ties, and zeros of both signs": _ties,
}


def like(values: torch.Tensor, kind: str) -> torch.Tensor:
    """New values of that kind, contiguous, from a floating tensor."""
    if not values.numel() or not values.dim():
        return values
    vector = values.dim() == 1 and kind in ("rows of zeros", "constant rows")
    rows = values.contiguous().clone().view(-1, 1 if vector else values.shape[-1])
    return KINDS[kind](rows).to(values.dtype).view(values.shape)
