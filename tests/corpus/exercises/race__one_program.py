# Exercise: operations/race

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0)
    tl.store(out_ptr, part)


def total(x):
    out = torch.zeros(1, device=x.device)
    total_kernel[(1,)](x, out, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return out
