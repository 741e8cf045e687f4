import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "y": "rows cols", "weight": (0.25, -2.0)}


@triton.jit
def striding_programs_kernel(x_ptr, y_ptr, out_ptr, n, weight, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        at = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, x + weight * (y - x), mask=at < n)


def striding_programs(x, y, weight):
    """x + weight * (y - x), by as many programs as there are multiprocessors (or seven)."""
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        striding_programs_kernel[(7,)](x, y, out, x.numel(), weight, BLOCK=32)
    return out


def striding_programs_reference(x, y, weight):
    wide = x.float()
    return (wide + weight * (y.float() - wide)).to(x.dtype)
