# kind: length that isn't a multiple of the group; fault: floor division gives too few groups to a row, so that its
# tail reads the next row's scale (line 34)
# source: own

import torch
import triton
import triton.language as tl


@triton.jit
def _dequant(q_ptr, s_ptr, y_ptr, cols, s_stride, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + row * cols + c, mask=c < cols, other=0).to(tl.float32)
    s = tl.load(s_ptr + row * s_stride + c // GROUP, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + c, q * s, mask=c < cols)


def dequantize_groups(q, scales):
    """q int8 (rows, cols), scales (rows, ceil(cols / 32)): a scale for each 32 columns, the last for what is left."""
    if q.dim() != 2 or q.dtype != torch.int8:
        raise ValueError("q must be a matrix of int8")
    rows, cols = q.shape
    if scales.shape != (rows, triton.cdiv(cols, 32)):
        raise ValueError("scales must be (rows, ceil(cols / 32))")
    if scales.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("scales must be float16, bfloat16 or float32")
    if scales.requires_grad:
        raise ValueError("no backward pass")
    if cols > 65535 * 128:
        raise ValueError("too many columns")
    y = torch.empty((rows, cols), dtype=scales.dtype, device=q.device)
    if y.numel():
        groups = max(cols // 32, 1)
        grid = (rows, triton.cdiv(cols, 128))
        _dequant[grid](q.contiguous(), scales.contiguous(), y, cols, groups, GROUP=32, BLOCK=128)
    return y


def dequantize_groups_inputs(rows, cols):
    q = torch.randint(-127, 128, (rows, cols), dtype=torch.int8)
    return {"q": q, "scales": torch.rand(rows, (cols + 31) // 32) * 0.1 + 0.01}


def dequantize_groups_reference(q, scales):
    wide = torch.promote_types(scales.dtype, torch.float32)
    s = scales.to(wide).repeat_interleave(32, 1)[:, : q.shape[1]]
    return (q.to(wide) * s).to(scales.dtype)
