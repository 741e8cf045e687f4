"""Device functions that the kernels of `language_cases` have from another file."""

import triton
import triton.language as tl

SHIFT: tl.constexpr = tl.constexpr(5)


@triton.jit
def squared(x):
    return x * x
