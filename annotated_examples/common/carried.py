r"""
# A long sum, carried on

A row that is longer than a block is summed chunk by chunk. Each addition to the sum so far is rounded, by up to half a
spacing of numbers as large as the sum, which may be far larger than the chunk. After 400 chunks these errors are about
six times as large as one of them. PyTorch's sums aren't made in such a chain, so ours may not be either.

What rounding takes can be computed, in float32, without an error (Knuth's *two-sum*): `total - carry` is what arrived
of the new part, and the rest of `total` is what arrived of the carry. Whoever keeps what is lost beside the carry loses
nothing.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl


@triton.jit
def carry_on(carry, part):
    """`(carry + part, what rounding took from it)`; 0 of a sum that isn't finite."""
    total = carry + part
    arrived = total - carry
    lost = (part - arrived) + (carry - (total - arrived))
    return total, tl.where(total - total == 0.0, lost, 0.0)
