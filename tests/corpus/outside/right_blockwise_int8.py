"""Blockwise int8 for optimizer states (after bitsandbytes): 64 numbers share their largest magnitude. And back."""

import torch
import triton
import triton.language as tl

INPUTS = {
    "blockwise_quantize": {"x": "rows cols: float32"},
    "blockwise_dequantize": {"codes": "64*blocks: int64 below 128", "absmax": "blocks: float32 positive"},
}
QBLOCK = 64


@triton.jit
def _quantize(x_ptr, code_ptr, absmax_ptr, n, QBLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    i = block * QBLOCK + tl.arange(0, QBLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    top = tl.max(tl.abs(x), axis=0)
    unit = tl.div_rn(x, tl.where(top > 0, top, 1.0) + tl.zeros_like(x))
    # floor(127 |u| + 0.5) with the sign of u; 127 u is exact enough that u = 1 gives 127.
    code = tl.floor(tl.abs(unit) * 127.0 + 0.5)
    code = tl.where(unit < 0, -code, code)
    tl.store(code_ptr + i, code.to(tl.int8), mask=i < n)
    tl.store(absmax_ptr + block, top)


@triton.jit
def _dequantize(code_ptr, absmax_ptr, out_ptr, n, QBLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    i = block * QBLOCK + tl.arange(0, QBLOCK)
    code = tl.load(code_ptr + i, mask=i < n, other=0).to(tl.float32)
    tl.store(out_ptr + i, code * (tl.load(absmax_ptr + block) / 127.0), mask=i < n)


def blockwise_quantize(x: torch.Tensor):
    """Finite float32 of any shape → (int8 codes of that shape, float32 absmax for each 64 elements, row by row)."""
    if x.dtype != torch.float32:
        raise ValueError("x must be float32")
    if x.requires_grad:
        raise ValueError("states of an optimizer have no gradient")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x must be finite")
    x = x.contiguous()
    blocks = triton.cdiv(x.numel(), QBLOCK)
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    absmax = torch.empty(blocks, dtype=torch.float32, device=x.device)
    if blocks:
        _quantize[(blocks,)](x, codes, absmax, x.numel(), QBLOCK=QBLOCK)
    return codes, absmax


def blockwise_quantize_reference(x):
    flat = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % QBLOCK)).view(-1, QBLOCK)
    absmax = flat.abs().amax(1) if len(flat) else flat.new_zeros(0)
    unit = flat / torch.where(absmax > 0, absmax, 1.0)[:, None]
    codes = torch.floor(unit.abs() * 127 + 0.5) * torch.sign(unit)
    return codes.to(torch.int8).view(-1)[: x.numel()].view(x.shape), absmax.float()


def blockwise_dequantize(codes: torch.Tensor, absmax: torch.Tensor):
    """Integer codes (n,), float32 absmax (ceil(n / 64),) → float32 (n,)."""
    if codes.ndim != 1 or codes.dtype not in (torch.int8, torch.int64):
        raise ValueError("codes must be a vector of int8 or int64")
    if absmax.shape != (triton.cdiv(codes.numel(), QBLOCK),) or absmax.dtype != torch.float32:
        raise ValueError("absmax must be float32, one for each 64 codes")
    if absmax.requires_grad:
        raise ValueError("no backward pass")
    out = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    if codes.numel():
        _dequantize[(absmax.numel(),)](codes.contiguous(), absmax.contiguous(), out, codes.numel(), QBLOCK=QBLOCK)
    return out


def blockwise_dequantize_reference(codes, absmax):
    scale = (absmax / 127.0).repeat_interleave(QBLOCK)[: codes.numel()]
    return codes.to(scale.dtype) * scale
