import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "y": "cols rows"}


@triton.jit
def transposed_add_kernel(x_ptr, y_ptr, out_ptr, rows, cols, sx_r, sx_c, sy_r, sy_c, so_r, so_c, BLOCK: tl.constexpr):
    tiles = tl.cdiv(cols, BLOCK)
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    r = program // tiles * BLOCK + tl.arange(0, BLOCK)[:, None].to(tl.int64)
    c = program % tiles * BLOCK + tl.arange(0, BLOCK)[None, :].to(tl.int64)
    inside = (r < rows) & (c < cols)
    x = tl.load(x_ptr + (r % rows) * sx_r + (c % cols) * sx_c).to(tl.float32)
    y = tl.load(y_ptr + (c % cols) * sy_r + (r % rows) * sy_c).to(tl.float32)
    tl.store(out_ptr + r * so_r + c * so_c, x + y, mask=inside)


def transposed_add(x, y):
    """x + y.T, laid out in memory as x is; tiles go from the last to the first and wrap at the edges."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    if x.numel():
        grid = (triton.cdiv(rows, 16) * triton.cdiv(cols, 16),)
        transposed_add_kernel[grid](x, y, out, rows, cols, *x.stride(), *y.stride(), *out.stride(), BLOCK=16)
    return out


def transposed_add_reference(x, y):
    return (x.float() + y.float().T).to(x.dtype)
