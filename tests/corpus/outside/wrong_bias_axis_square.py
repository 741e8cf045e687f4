# kind: broadcast decided by size; fault: a bias per column is taken for one per row where the matrix is square
# (line 33)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "bias": "cols"}


@triton.jit
def _add_bias(x_ptr, b_ptr, y_ptr, rows, cols, sxr, sxc, sbr, sbc, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    c = tl.program_id(1).to(tl.int64) * BC + tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * sxr + c[None, :] * sxc, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + r[:, None] * sbr + c[None, :] * sbc, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + r[:, None] * cols + c[None, :], x + b, mask=mask)


def add_bias(x, bias):
    """x + bias; bias has one value for each column (as x + bias in PyTorch), or shape (rows, 1), one for each row."""
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or bias.dtype != x.dtype:
        raise ValueError("x must be a floating matrix, and bias of its dtype")
    rows, cols = x.shape
    if tuple(bias.shape) not in ((cols,), (rows, 1)):
        raise ValueError(f"bias must have shape ({cols},) or ({rows}, 1)")
    if x.requires_grad or bias.requires_grad:
        raise ValueError("no backward pass")
    if cols > 65535 * 32:
        raise ValueError("too many columns")
    per_row = bias.shape[0] == rows
    strides = (bias.stride(0), 0) if per_row else (0, bias.stride(0))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 32))
        _add_bias[grid](x, bias, y, rows, cols, *x.stride(), *strides, BR=32, BC=32)
    return y


def add_bias_reference(x, bias):
    return x + bias
