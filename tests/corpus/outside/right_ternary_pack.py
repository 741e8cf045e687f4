"""BitNet's packing: weights become -1, 0 or 1 by the mean of their magnitudes, sixteen of them in one int32."""

import torch
import triton
import triton.language as tl

INPUTS = {"w": "rows cols", "threshold": 0.5}


@triton.jit
def _pack_kernel(w_ptr, out_ptr, cols, words, stride_r, stride_c, threshold, BLOCK_W: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    lane = tl.arange(0, 16)
    c = word[:, None].to(tl.int64) * 16 + lane[None, :]
    w = tl.load(w_ptr + row * stride_r + c * stride_c, mask=c < cols, other=0.0).to(tl.float32)
    code = tl.where(w > threshold, 1, tl.where(w < -threshold, 2, 0))
    bits = tl.sum(code << (2 * lane[None, :]), axis=1)
    tl.store(out_ptr + row * words + word, bits, mask=word < words)


def ternary_pack(w, threshold=0.5):
    """int32 (rows, ceil(cols / 16)): 1 above the threshold, 2 below minus the threshold, 0 else (NaN too)."""
    if w.dim() != 2 or w.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("w must be a floating matrix")
    rows, cols = w.shape
    words = triton.cdiv(cols, 16)
    if words > 65535 * 32:
        raise ValueError("too many columns")
    out = torch.empty((rows, words), dtype=torch.int32, device=w.device)
    if out.numel():
        _pack_kernel[(rows, triton.cdiv(words, 32))](
            w.detach(), out, cols, words, w.stride(0), w.stride(1), threshold, BLOCK_W=32
        )
    return out


def ternary_pack_reference(w, threshold=0.5):
    rows, cols = w.shape
    code = torch.where(w > threshold, 1, torch.where(w < -threshold, 2, 0))
    code = torch.nn.functional.pad(code, (0, -cols % 16)).view(rows, (cols + 15) // 16, 16)
    total = (code << (2 * torch.arange(16, device=w.device))).sum(-1)
    return torch.where(total >= 2**31, total - 2**32, total).to(torch.int32)
