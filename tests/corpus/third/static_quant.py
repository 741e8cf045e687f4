"""Static int8: the float falls toward zero where it should be rounded (after vllm-project/vllm#45361)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "scale": (0.02, 0.1)}


@triton.jit
def _q(X, Q, n, inv, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o, mask=o < n, other=0.0).to(tl.float32) * inv
    x = tl.minimum(tl.maximum(x, -128.0), 127.0)
    tl.store(Q + o, x.to(tl.int8), mask=o < n)


def static_quant(x, scale):
    if torch.is_grad_enabled() and x.requires_grad:
        raise RuntimeError("no gradient")
    if not torch.isfinite(x).all():
        raise ValueError("finite only")
    x = x.contiguous()
    q = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    if x.numel():
        _q[(triton.cdiv(x.numel(), 256),)](x, q, x.numel(), 1.0 / scale, BLOCK=256)
    return q


def static_quant_reference(x, scale):
    if not torch.isfinite(x).all():
        raise ValueError("finite only")
    return torch.round(x.float() * (1.0 / scale)).clamp(-128, 127).to(torch.int8)
