# Exercise: recurrences/look_back

import torch
import triton
import triton.language as tl


@triton.jit
def filtered_kernel(x_ptr, weight_ptr, y_ptr, n, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    y = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(3):
        seen = t - (2 - j)
        x = tl.abs(tl.load(x_ptr + seen, mask=(seen >= 0) & (seen < n), other=0.0))
        y += tl.load(weight_ptr + j) * x
    tl.store(y_ptr + t, y, mask=t < n)


def filtered(x, weight):
    y = torch.empty_like(x)
    filtered_kernel[(1,)](x, weight, y, len(x), BLOCK=64)
    return y
