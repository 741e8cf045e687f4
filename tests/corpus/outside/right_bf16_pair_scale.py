"""bfloat16 pairs handled as int32: one load brings two numbers, which are scaled in float32 and packed again."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows 2*cols", "scale": "rows: float32"}
DTYPES = ("bfloat16",)


@triton.jit
def _unpack(word):
    low = (word << 16).to(tl.float32, bitcast=True)
    high = (word & -65536).to(tl.float32, bitcast=True)
    return low, high


@triton.jit
def _round_bf16(x):
    """Bits of the nearest bfloat16, in the low half of an int32; NaN stays NaN."""
    return x.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def _scale_pairs(x_ptr, s_ptr, y_ptr, words, stride_x, stride_s, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < words
    low, high = _unpack(tl.load(x_ptr + row * stride_x + i, mask=mask, other=0))
    s = tl.load(s_ptr + row * stride_s)
    word = _round_bf16(low * s) | (_round_bf16(high * s) << 16)
    tl.store(y_ptr + row * words + i, word, mask=mask)


def bf16_pair_scale(x, scale):
    assert x.dtype == torch.bfloat16 and x.dim() == 2 and x.shape[1] % 2 == 0, "x: bfloat16, an even number of columns"
    assert scale.dtype == torch.float32 and scale.shape == x.shape[:1], "scale: float32, one for each row"
    assert not (x.requires_grad or scale.requires_grad), "no backward pass"
    rows, cols = x.shape
    assert cols <= 65535 * 512, "too many columns"
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if y.numel():
        if x.stride(1) != 1 or x.stride(0) % 2 or x.storage_offset() % 2 or x.data_ptr() % 4:
            x = x.clone(memory_format=torch.contiguous_format)
        pairs, out = x.view(torch.int32), y.view(torch.int32)
        _scale_pairs[(rows, triton.cdiv(cols // 2, 256))](
            pairs, scale, out, cols // 2, pairs.stride(0), scale.stride(0), BLOCK=256
        )
    return y


def bf16_pair_scale_reference(x, scale):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) * scale[:, None].to(wide)).to(x.dtype)
