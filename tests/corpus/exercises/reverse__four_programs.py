# Exercise: first_kernel/reverse

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + (n - 1 - offsets), mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x, mask=mask)


def reverse(x, BLOCK=64):
    out = torch.empty_like(x)
    reverse_kernel[(min(triton.cdiv(x.numel(), BLOCK), 4),)](x, out, x.numel(), BLOCK=BLOCK)
    return out
