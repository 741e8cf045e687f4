"""A kernel that does nothing but convert: for tests of `annotated_examples/common/fp8.py`."""

import triton
import triton.language as tl

from academy.runtime import device  # noqa: F401  before anything imports triton
from annotated_examples.common.fp8 import rounded, rounded_by_hand


@triton.jit
def codes_kernel(x_ptr, q_ptr, n, BY_HAND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    FP8: tl.constexpr = q_ptr.dtype.element_ty
    q = rounded_by_hand(x, FP8) if BY_HAND else rounded(x, FP8)
    tl.store(q_ptr + offs, q, mask=offs < n)
