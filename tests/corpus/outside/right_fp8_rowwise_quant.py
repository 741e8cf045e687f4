"""Dynamic quantization to float8_e4m3fn with one scale for each token, as it goes before an fp8 matmul."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "tokens hidden"}
FP8_MAX = 448.0


@triton.jit
def _per_token_quant(x_ptr, q_ptr, s_ptr, hidden, stride_t, stride_h, FP8_MAX: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    amax = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, hidden, BLOCK):
        h = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + token * stride_t + h * stride_h, mask=h < hidden, other=0.0).to(tl.float32)
        amax = tl.maximum(amax, tl.abs(x))
    scale = tl.maximum(tl.div_rn(tl.max(amax, axis=0), FP8_MAX), 1e-12)
    tl.store(s_ptr + token, scale)
    for start in range(0, hidden, BLOCK):
        h = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + token * stride_t + h * stride_h, mask=h < hidden, other=0.0).to(tl.float32)
        q = tl.clamp(tl.div_rn(x, scale + tl.zeros_like(x)), -FP8_MAX, FP8_MAX)
        tl.store(q_ptr + token * hidden + h, q.to(q_ptr.dtype.element_ty), mask=h < hidden)


def fp8_rowwise_quant(x):
    """Returns (float8_e4m3fn of the shape of x, float32 scales (tokens, 1)). x must be finite."""
    if x.dim() != 2:
        raise ValueError("x must be (tokens, hidden)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("quantization has no gradient")
    if not torch.isfinite(x).all():
        raise ValueError("x must be finite")
    tokens, hidden = x.shape
    q = torch.empty((tokens, hidden), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.full((tokens, 1), 1e-12, dtype=torch.float32, device=x.device)
    if q.numel():
        _per_token_quant[(tokens,)](x, q, scales, hidden, x.stride(0), x.stride(1), FP8_MAX=FP8_MAX, BLOCK=256)
    return q, scales


def fp8_rowwise_quant_reference(x):
    x = x.float()
    amax = x.abs().amax(dim=1, keepdim=True) if x.shape[1] else x.new_zeros(x.shape[0], 1)
    scales = (amax / FP8_MAX).clamp(min=1e-12)
    return (x / scales).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scales
