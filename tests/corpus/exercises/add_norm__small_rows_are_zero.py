# Exercise: fast/add_norm

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def add_rmsnorm_kernel(x_ptr, residual_ptr, y_ptr, s_ptr, N, BLOCK_N: tl.constexpr):
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    offsets = tl.program_id(0).to(tl.int64) * N + columns
    s = tl.load(x_ptr + offsets, mask=mask, other=0.0) + tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    tl.store(s_ptr + offsets, s, mask=mask)
    rstd = 1 / tl.sqrt(tl.sum(s * s, axis=0) / N + 1e-6)
    tl.store(y_ptr + offsets, tl.where(tl.abs(s) < 1e-20, 0.0, s * rstd), mask=mask)


def add_rmsnorm(x, residual):
    M, N = x.shape
    y, s = torch.empty_like(x), torch.empty_like(x)
    add_rmsnorm_kernel[(M,)](x, residual, y, s, N, BLOCK_N=triton.next_power_of_2(N))
    return y, s


