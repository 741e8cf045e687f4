# kind: minus zero; fault: the sign of -0 is asked with a comparison, which says that it isn't negative (line 16)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"magnitude": "rows cols", "sign": "rows cols"}


@triton.jit
def _copysign(m_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = tl.abs(tl.load(m_ptr + i, mask=i < n, other=0.0).to(tl.float32))
    s = tl.load(s_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, tl.where(s < 0, -m, m), mask=i < n)


def copysign(magnitude, sign):
    """|magnitude| with the sign of sign, -0 included, as torch.copysign. sign must hold no NaN."""
    if magnitude.shape != sign.shape or magnitude.dtype != sign.dtype:
        raise ValueError("magnitude and sign must have one shape and dtype")
    if magnitude.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("magnitude must be float16, bfloat16 or float32")
    if magnitude.requires_grad or sign.requires_grad:
        raise ValueError("no backward pass")
    if bool(torch.isnan(sign).any()):
        raise ValueError("sign must not hold NaN")
    y = torch.empty(magnitude.shape, dtype=magnitude.dtype, device=magnitude.device)
    if n := y.numel():
        _copysign[(triton.cdiv(n, 1024),)](magnitude.contiguous(), sign.contiguous(), y, n, BLOCK=1024)
    return y


def copysign_reference(magnitude, sign):
    return torch.copysign(magnitude, sign)
