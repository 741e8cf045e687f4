r"""
# Residual streams

What the lessons on hyper-connections have in common: how many streams there may be, and what is checked of a tensor of
them and of what comes with it.
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton

import torch

from annotated_examples.common.rows import LONGEST_ROW

# Models have four. A kernel holds all pairs of streams at once, so there is a limit.
MOST_STREAMS = 8


def streams_contract(x):
    """`(lead, n, C)`: the dimensions of `x` before its streams, how many streams it has, and how many channels."""
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(2, 65), "streams and channels lie along the last two")
    *lead, n, C = x.shape
    if not 1 <= n <= MOST_STREAMS:
        raise ValueError(f"x must have 1 to {MOST_STREAMS} streams, got shape {tuple(x.shape)}")
    if n * C >= LONGEST_ROW:
        raise ValueError(f"x must have fewer than {LONGEST_ROW} elements a token, got shape {tuple(x.shape)}")
    return lead, n, C


# Each with the shape that it must have.
def beside(x, **others):
    checks.tensors(**{name: value for name, (value, _) in others.items()})
    for name, (value, shape) in others.items():
        checks.shape(name, value, shape, f"for x of shape {tuple(x.shape)}")
        if value.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}, got {value.device}")


def contiguous_like(*tensors):
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors]
