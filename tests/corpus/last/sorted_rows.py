import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "descending": (False, True)}


@triton.jit
def sorted_rows_kernel(x_ptr, out_ptr, cols, s_r, s_c, DESCENDING: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=mask, other=0.0).to(tl.float32)
    rank = tl.zeros((BLOCK,), dtype=tl.int32)
    for other in range(cols):
        y = tl.load(x_ptr + row * s_r + other * s_c + c * 0).to(tl.float32)
        if DESCENDING:
            before = (y > x) | ((y != y) & (x == x))
        else:
            before = (y < x) | ((x != x) & (y == y))
        same = (y == x) | ((y != y) & (x != x))
        rank += (before | (same & (other < c) & (y != 0.0))).to(tl.int32)
    tl.store(out_ptr + row * cols + rank, x, mask=mask)


def sorted_rows(x, descending=False):
    """Each row sorted by counting how many numbers come before each. NaN is taken for the largest."""
    rows, cols = x.shape
    out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if x.numel():
        sorted_rows_kernel[(rows,)](
            x, out, cols, *x.stride(), DESCENDING=descending, BLOCK=triton.next_power_of_2(cols)
        )
    return out


def sorted_rows_reference(x, descending=False):
    return torch.sort(x, dim=1, descending=descending, stable=True).values
