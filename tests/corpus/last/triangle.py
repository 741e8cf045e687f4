import torch
import triton
import triton.language as tl

INPUTS = {"x": "... rows cols", "diagonal": (0, 2, -1)}


@triton.jit
def triangle_kernel(x_ptr, out_ptr, rows, cols, s_m, s_r, s_c, diagonal, BR: tl.constexpr, BC: tl.constexpr):
    matrix = tl.program_id(0).to(tl.int64)
    r0 = tl.program_id(1) * BR
    c0 = tl.program_id(2) * BC
    r = r0 + tl.arange(0, BR)
    c = c0 + tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    target = out_ptr + matrix * rows * cols + r[:, None] * cols + c[None, :]
    if c0 > r0 + diagonal:
        tl.store(target, tl.zeros((BR, BC), dtype=tl.float32), mask=mask)
    else:
        kept = mask & (c[None, :] <= r[:, None] + diagonal)
        x = tl.load(x_ptr + matrix * s_m + r[:, None] * s_r + c[None, :] * s_c, mask=kept, other=0.0)
        tl.store(target, x, mask=mask)


def triangle(x, diagonal=0):
    """The lower triangle of each matrix; tiles above the diagonal are not read."""
    rows, cols = x.shape[-2:]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return out
    flat = x.reshape(-1, rows, cols)
    grid = (flat.shape[0], triton.cdiv(rows, 16), triton.cdiv(cols, 16))
    triangle_kernel[grid](flat, out, rows, cols, *flat.stride(), diagonal, BR=16, BC=16)
    return out


def triangle_reference(x, diagonal=0):
    return torch.tril(x, diagonal)
