# kind: `other` before a max; fault: a masked lane is 0 in the maximum, so that rows far below 0 underflow (line 16)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _lse_kernel(x_ptr, out_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK).to(tl.int64)
    mask = c < cols
    x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=mask, other=0.0).to(tl.float32)
    m = tl.max(x, axis=0)
    shift = tl.where(tl.abs(m) == float("inf"), 0.0, m)
    total = tl.sum(tl.where(mask, tl.exp(x - shift), 0.0), axis=0)
    tl.store(out_ptr + row, tl.log(total) + shift)


@torch.no_grad()
def logsumexp(x):
    if x.dim() != 2 or x.shape[1] == 0:
        raise ValueError("x must be a matrix with at least one column")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    if x.shape[1] > 32768:
        raise ValueError("at most 32768 columns")
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if x.shape[0]:
        block = triton.next_power_of_2(x.shape[1])
        _lse_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), BLOCK=block)
    return out


def logsumexp_reference(x):
    return torch.logsumexp(x, dim=1)
