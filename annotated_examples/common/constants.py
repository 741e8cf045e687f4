r"""
# Two numbers

What kernels that exponentiate have in common: where a running maximum starts, and what turns $e^x$ into a power of two.
"""

from academy import device  # noqa: F401  before anything imports triton

import torch
import triton.language as tl

# The lowest finite number. With −∞, a chunk that is all −∞ would subtract −∞ from −∞, which is NaN.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
# The binary logarithm of e: e to the x is 2 to the LOG2E · x, and powers of two are what a GPU has an instruction for.
LOG2E = tl.constexpr(1.4426950408889634)
