"""Classes of values that drawn numbers leave out. Every comparison that passes is made again with each of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

#: Name -> what a list of numbers becomes. A result is right if it is what the reference makes of them, and a NaN or an
#: infinity that goes in may not be hidden. A zero that an exercise has put somewhere stays there.
CLASSES: dict[str, Callable[[list[float], random.Random], list[float]]] = {
    "zeros": lambda x, draw: [0.0] * len(x),
    "equal numbers": lambda x, draw: [_largest(x) if number else 0.0 for number in x],
    "ties": lambda x, draw: [math.copysign(draw.choice((0.0, 1.0, 2.0)), number) if number else 0.0 for number in x],
    "both signs": lambda x, draw: [draw.choice((-1, 1)) * number for number in x],
    "negative numbers": lambda x, draw: [-abs(number) for number in x],
    "tiny numbers": lambda x, draw: [1e-30 * number for number in x],
    "large numbers": lambda x, draw: [1e4 * number for number in x],
    "one large number": lambda x, draw: _with(x, draw, 1e4),
    "many NaN": lambda x, draw: [math.nan if number and draw.random() < 0.5 else number for number in x],
    "a NaN": lambda x, draw: _with(x, draw, math.nan),
    "an infinity": lambda x, draw: _with(x, draw, math.inf),
    "minus infinity": lambda x, draw: _with(x, draw, -math.inf),
}


#: These are put into all arguments together as well: beside ordinary numbers, tiny ones get lost.
TOGETHER = ("tiny numbers", "large numbers", "zeros")


def _largest(x: list[float]) -> float:
    return max(x, key=lambda number: abs(number) if math.isfinite(number) else 0.0)


def _with(x: list[float], draw: random.Random, number: float) -> list[float]:
    place = draw.choice([place for place, old in enumerate(x) if old] or [0])
    return [*x[:place], number, *x[place + 1 :]]


def fits(name: str, dtype: torch.dtype) -> bool:
    """Whether a dtype has numbers of this class: float16 reaches neither 1e-30 nor far above 1e4."""
    return dtype != torch.float16 or name not in ("tiny numbers", "large numbers")


def put(name: str, tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """Another tensor with values of this class, in memory like that of `tensor`: its strides, and what lies around."""
    whole = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0).clone()
    made = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    own = made
    for dim, stride in enumerate(tensor.stride()):  # what is shown many times is one number
        own = own if stride else own.narrow(dim, 0, 1)
    numbers = CLASSES[name]([float(number) for number in own.reshape(-1).tolist()], draw)
    own.copy_(torch.tensor(numbers, dtype=torch.float64).to(tensor.dtype).to(tensor.device).view(own.shape))
    return made
