# kind: grid on axis 1 too large; fault: rows go to the second axis, which ends at 65535 on CUDA: 65536 rows raise
# "invalid argument" (line 30)
# source: report, fla-org/flash-linear-attention#172 (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _l1_part(x_ptr, part_ptr, cols, parts, stride_r, stride_c, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    c = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * parts + part, tl.sum(tl.abs(x), axis=0))


def row_l1(x):
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    rows, cols = x.shape
    parts = triton.cdiv(cols, 512)
    part = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    if part.numel():
        _l1_part[(parts, rows)](x, part, cols, parts, x.stride(0), x.stride(1), BLOCK=512)
    return part.sum(1).to(x.dtype)


def row_l1_reference(x):
    return x.abs().sum(1)
