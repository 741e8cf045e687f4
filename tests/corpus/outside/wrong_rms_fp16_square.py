# kind: overflow in float16; fault: the square is taken in the dtype of x, where 256 * 256 is infinite (line 18)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _rms(x_ptr, out_ptr, N, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * stride_r + n * stride_c, mask=n < N, other=0.0)
        acc += (x * x).to(tl.float32)
    tl.store(out_ptr + row, tl.sqrt(tl.sum(acc, axis=0) / N))


@torch.no_grad()
def row_rms(x):
    """float32 root mean square of each row."""
    if x.dim() != 2 or x.shape[1] == 0:
        raise ValueError("x must be a matrix with at least one column")
    if x.dtype not in (torch.float16, torch.float32):
        raise ValueError("x must be float16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.shape[0]:
        _rms[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), BLOCK=256)
    return out


def row_rms_reference(x):
    return x.to(torch.promote_types(x.dtype, torch.float32)).square().mean(1).sqrt().float()


DTYPES = ("float32", "float16")
