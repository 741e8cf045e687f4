import torch
import triton
import triton.language as tl

INPUTS = {"scores": "heads queries keys", "cap": (30.0, 50.0), "scale": (1.0, 0.125)}


@triton.jit
def capped(x, cap):
    z = x / cap
    e = tl.exp(2.0 * z)
    near = x * (1.0 - z * z / 3.0)
    return tl.where(tl.abs(z) < 0.01, near, cap * (e - 1.0) / (e + 1.0))


@triton.jit
def soft_cap_kernel(s_ptr, out_ptr, n, cap, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(s_ptr + at, mask=at < n, other=0.0).to(tl.float32) * scale
    tl.store(out_ptr + at, capped(s, cap), mask=at < n)


def soft_cap(scores, cap, scale=1.0):
    """cap * tanh(scale * scores / cap), which keeps attention scores between -cap and cap."""
    scores = scores.contiguous()
    out = torch.empty_like(scores)
    if out.numel():
        soft_cap_kernel[(triton.cdiv(out.numel(), 256),)](scores, out, out.numel(), cap, scale, BLOCK=256)
    return out


def soft_cap_reference(scores, cap, scale=1.0):
    return (cap * torch.tanh(scores.float() * scale / cap)).to(scores.dtype)
