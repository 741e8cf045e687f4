"""Log-sum-exp of what a mask leaves of each row; a row of which nothing is left gives NaN, not minus infinity
(after sgl-project/sglang#2479, short prompts)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "keep": "rows cols: int64 below 2"}


@triton.jit
def _lse(X, KEEP, Y, n, sx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    keep = tl.load(KEEP + r * n + c, mask=c < n, other=0)
    x = tl.load(X + r * sx + c, mask=c < n, other=0.0).to(tl.float32)
    x = tl.where(keep != 0, x, -float("inf"))
    m = tl.max(x, axis=0)
    tl.store(Y + r, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))


def masked_lse(x, keep):
    if x.dim() != 2 or keep.shape != x.shape or keep.dtype != torch.int64 or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("x and keep: (rows, cols)")
    if not torch.isfinite(x).all():
        raise ValueError("finite only")
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.full((x.shape[0],), -float("inf"), dtype=torch.float32, device=x.device)
    if x.numel():
        _lse[(x.shape[0],)](x, keep.contiguous(), y, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def masked_lse_reference(x, keep):
    if not torch.isfinite(x).all():
        raise ValueError("finite only")
    if x.shape[1] == 0:
        return torch.full((x.shape[0],), -float("inf"))
    return torch.where(keep != 0, x.float(), -float("inf")).logsumexp(-1)
