# kind: variance as E[x^2] - E[x]^2; fault: cancels where the mean is large against the deviation (line 23)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "n c length"}


@triton.jit
def _instance_norm(x_ptr, y_ptr, C, L, sn, sc, sl, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    base = x_ptr + (pid // C) * sn + (pid % C) * sc
    s1 = tl.zeros((BLOCK,), tl.float32)
    s2 = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, L, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(base + i * sl, mask=i < L, other=0.0).to(tl.float32)
        s1 += x
        s2 += x * x
    mean = tl.sum(s1, axis=0) / L
    var = tl.maximum(tl.sum(s2, axis=0) / L - mean * mean, 0.0, propagate_nan=tl.PropagateNan.ALL)
    rstd = 1.0 / tl.sqrt(var + eps)
    for start in range(0, L, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(base + i * sl, mask=i < L, other=0.0).to(tl.float32)
        tl.store(y_ptr + pid * L + i, (x - mean) * rstd, mask=i < L)


def instance_norm(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    if x.ndim != 3 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be (n, c, length) in float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    N, C, L = x.shape
    y = torch.empty((N, C, L), dtype=x.dtype, device=x.device)
    if y.numel():
        _instance_norm[(N * C,)](x, y, C, L, *x.stride(), eps, BLOCK=256)
    return y


def instance_norm_reference(x, eps=1e-5):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(-1, keepdim=True)
    return (centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
