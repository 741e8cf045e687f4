# kind: hard-coded limit; fault: a block of at most 1024 columns, and nothing goes on behind it (line 26)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _row_norm(x_ptr, out_ptr, N, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * stride_r + n * stride_c, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sqrt(tl.sum(x * x, axis=0)))


def row_norm(x: torch.Tensor) -> torch.Tensor:
    if x.ndim != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if x.shape[0]:
        block = max(16, min(1024, triton.next_power_of_2(max(x.shape[1], 1))))
        _row_norm[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), BLOCK=block)
    return out


def row_norm_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide).square().sum(1).sqrt().to(x.dtype)
