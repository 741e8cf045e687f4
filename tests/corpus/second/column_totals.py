import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def column_parts_kernel(x_ptr, parts_ptr, rows, cols, s_r, s_c, PER: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(PER):
        row = part * PER + i
        total += tl.load(x_ptr + row * s_r + c * s_c, mask=(c < cols) & (row < rows), other=0.0).to(tl.float32)
    tl.store(parts_ptr + part * cols + c, total, mask=c < cols)


@triton.jit
def add_parts_kernel(parts_ptr, out_ptr, parts, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(parts):
        total += tl.load(parts_ptr + tl.cast(part, tl.int64) * cols + c, mask=c < cols, other=0.0)
    tl.store(out_ptr + c, total, mask=c < cols)


def column_totals(x):
    """Sums of the columns, in float32."""
    rows, cols = x.shape
    out = torch.empty(cols, dtype=torch.float32, device=x.device)
    if cols:
        count, blocks = triton.cdiv(rows, 8), triton.cdiv(cols, 32)
        parts = torch.empty(count, cols, dtype=torch.float32, device=x.device)
        if count:
            column_parts_kernel[(count, blocks)](x, parts, rows, cols, x.stride(0), x.stride(1), PER=8, BLOCK=32)
        add_parts_kernel[(blocks,)](parts, out, count, cols, BLOCK=32)
    return out


def column_totals_reference(x):
    return x.double().sum(0).float()
