"""One step of AdamW over a parameter, its gradient and both moments. Parameter and moments change in place."""

import torch
import triton
import triton.language as tl

INPUTS = {
    "p": "rows cols",
    "g": "rows cols",
    "m": "rows cols: float32",
    "v": "rows cols: float32 positive",
    "step": (1, 10),
    "lr": 1e-2,
}


@triton.jit
def _adamw(p_ptr, g_ptr, m_ptr, v_ptr, n, lr, beta1, beta2, eps, decay, corr1, corr2_sqrt, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    p = tl.load(p_ptr + i, mask=mask).to(tl.float32)
    g = tl.load(g_ptr + i, mask=mask).to(tl.float32)
    m = tl.load(m_ptr + i, mask=mask)
    v = tl.load(v_ptr + i, mask=mask)
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    p = p * (1.0 - lr * decay)
    denom = tl.sqrt_rn(v) / corr2_sqrt + eps
    p = p - lr * (m / corr1) / denom
    tl.store(p_ptr + i, p.to(p_ptr.dtype.element_ty), mask=mask)
    tl.store(m_ptr + i, m, mask=mask)
    tl.store(v_ptr + i, v, mask=mask)


@torch.no_grad()
def adamw_step_(p, g, m, v, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    """Returns (p, m, v), updated in place. All four are contiguous and of one shape; the moments are float32."""
    for name, t in (("g", g), ("m", m), ("v", v)):
        if t.shape != p.shape or t.device != p.device:
            raise ValueError(f"{name} must have the shape and the device of p")
    for name, t in (("p", p), ("g", g), ("m", m), ("v", v)):
        if not t.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
        if t.requires_grad:
            raise ValueError(f"{name} must not require a gradient: hand over {name}.data")
    if m.dtype != torch.float32 or v.dtype != torch.float32:
        raise ValueError("the moments must be float32")
    if p.dtype not in (torch.float16, torch.bfloat16, torch.float32) or g.dtype != p.dtype:
        raise ValueError("p and g must both be float16, bfloat16 or float32")
    if step < 1:
        raise ValueError("step counts from 1")
    n = p.numel()
    if n:
        _adamw[(triton.cdiv(n, 512),)](
            p, g, m, v, n, lr, beta1, beta2, eps, weight_decay, 1 - beta1**step, (1 - beta2**step) ** 0.5, BLOCK=512
        )
    return p, m, v


def adamw_step__reference(p, g, m, v, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    g32 = g.to(m.dtype)
    m.mul_(beta1).add_(g32, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g32, g32, value=1 - beta2)
    denom = v.sqrt() / (1 - beta2**step) ** 0.5 + eps
    p.copy_(p.to(m.dtype) * (1 - lr * weight_decay) - lr * (m / (1 - beta1**step)) / denom)
    return p, m, v
