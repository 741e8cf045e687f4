# kind: int32 offset overflow; fault: program id times the stride in 32 bits (line 14)
# source: report, databricks/megablocks#185 (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "scale": "rows"}


@triton.jit
def _scaled_copy(x_ptr, s_ptr, y_ptr, cols, stride_x, stride_s, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row.to(tl.int64) * cols
    s = tl.load(s_ptr + row.to(tl.int64) * stride_s).to(tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + c, mask=c < cols).to(tl.float32)
        tl.store(y_row + c, x * s, mask=c < cols)


def scale_rows(x, scale):
    if x.dim() != 2 or scale.shape != x.shape[:1]:
        raise ValueError("x must be (rows, cols) and scale (rows,)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or scale.dtype != x.dtype:
        raise ValueError("x and scale must both be float16, bfloat16 or float32")
    if x.requires_grad or scale.requires_grad:
        raise ValueError("no backward pass")
    if x.stride(1) != 1:
        x = x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        _scaled_copy[(x.shape[0],)](x, scale, y, x.shape[1], x.stride(0), scale.stride(0), BLOCK=256)
    return y


def scale_rows_reference(x, scale):
    return x * scale[:, None]
