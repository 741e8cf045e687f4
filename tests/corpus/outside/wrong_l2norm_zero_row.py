# kind: rows of zeros; fault: the length isn't kept above eps, so that a row of zeros is 0 / 0 (line 16)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _l2norm(x_ptr, y_ptr, N, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * stride_r + n * stride_c, mask=n < N, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(x * x, axis=0))
    tl.store(y_ptr + row * N + n, x / length, mask=n < N)


def l2norm(x: torch.Tensor) -> torch.Tensor:
    """Rows of length 1: torch.nn.functional.normalize, whose eps is 1e-12."""
    if x.ndim != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if x.requires_grad:
        raise ValueError("no backward pass")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        block = triton.next_power_of_2(x.shape[1])
        _l2norm[(x.shape[0],)](x, y, x.shape[1], x.stride(0), x.stride(1), BLOCK=block)
    return y


def l2norm_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.nn.functional.normalize(x.to(wide), dim=1, eps=1e-12).to(x.dtype)
