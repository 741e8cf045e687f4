"""L2 norm of rows with eps added to the root and not under it."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "eps": 1e-6}


@triton.jit
def _l2(X, Y, n, sx, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * sx + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(Y + r * n + c, x / (tl.sqrt(tl.sum(x * x, axis=0)) + eps), mask=c < n)


def l2norm(x, eps):
    if x.dim() != 2 or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("x: (rows, cols)")
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _l2[(x.shape[0],)](x, y, x.shape[1], x.stride(0), eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def l2norm_reference(x, eps):
    xf = x.float()
    return (xf * torch.rsqrt(xf.square().sum(-1, keepdim=True) + eps)).to(x.dtype)
