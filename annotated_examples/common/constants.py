r"""
# Three numbers

What kernels that exponentiate have in common: where a running maximum starts, and what turns $e^x$ into a power of two,
and a binary logarithm into a natural one.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton.language as tl

# The lowest finite number. With −∞, a chunk that is all −∞ would subtract −∞ from −∞, which is NaN.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
# The binary logarithm of e: e to the x is 2 to the LOG2E · x, and powers of two are what a GPU has an instruction for.
LOG2E = tl.constexpr(1.4426950408889634)
# The natural logarithm of 2: the natural logarithm of x is LN2 times its binary one.
LN2 = tl.constexpr(0.6931471805599453)
