# kind: three dims flattened wrongly; fault: empty_like keeps the strides of a permuted x, and the kernel writes as if
# it were contiguous (line 27)
# source: report, triton-lang/triton#2150 for the kind (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch heads dim", "scale": "dim"}


@triton.jit
def _scale(x_ptr, s_ptr, y_ptr, n, dim, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    s = tl.load(s_ptr + i % dim, mask=i < n).to(tl.float32)
    tl.store(y_ptr + i, x * s, mask=i < n)


def scale_last_dim(x, scale):
    if x.dim() != 3 or scale.shape != x.shape[2:]:
        raise ValueError("x must be (batch, heads, dim) and scale (dim,)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or scale.dtype != x.dtype:
        raise ValueError("x and scale must both be float16, bfloat16 or float32")
    if x.requires_grad or scale.requires_grad:
        raise ValueError("no backward pass")
    y = torch.empty_like(x)
    if n := x.numel():
        _scale[(triton.cdiv(n, 512),)](x.contiguous(), scale.contiguous(), y, n, x.shape[2], BLOCK=512)
    return y


def scale_last_dim_reference(x, scale):
    return x * scale
