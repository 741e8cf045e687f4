r"""
# Seeds

A seed of random numbers is an int, or a number on the GPU that nobody waits for. These functions check it, and turn
both into the same thing.
"""

from academy import checks, device  # noqa: F401  before anything imports triton

import torch


# The value of a seed on the GPU isn't looked at. A negative one there is taken for the unsigned number with its bits.
def seed_contract(seed, on, name="seed"):
    if isinstance(seed, torch.Tensor):
        if seed.dim() or seed.dtype != torch.int64:
            got = f"{seed.dtype} of shape {tuple(seed.shape)}"
            raise ValueError(f"{name} must be an int or a 0-d int64 tensor, got {got}")
        if seed.device != on:
            raise ValueError(f"{name} must be on {on}, got {seed.device}")
    elif isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"{name} must be an int or a 0-d int64 tensor, got {type(seed).__name__}")
    elif not 0 <= seed < 2**63:
        raise ValueError(f"{name} must be from 0 to 2**63 - 1, got {seed}")


# An int becomes a tensor, so that a kernel has one way for both; that starts a tiny kernel, and nobody waits.
def seed_tensor(seed, on):
    return seed if isinstance(seed, torch.Tensor) else torch.full((), seed, dtype=torch.int64, device=on)
