import torch
import triton
import triton.language as tl

INPUTS = {"x": "n", "bound": (0.0, 1.0, 3.0)}
SIZES = {"n": (0, 1, 16, 50, 130)}


@triton.jit
def first_above_kernel(x_ptr, out_ptr, n, bound, BLOCK: tl.constexpr):
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32)
    first = tl.min(tl.where(x > bound, at, n), axis=0)
    if first < n:
        tl.store(out_ptr, first)


def first_above(x, bound):
    """The first place with a number above the bound; the length if there is none."""
    x = x.contiguous()
    n = x.shape[0]
    out = torch.full((), n, dtype=torch.int64, device=x.device)
    if n:
        first_above_kernel[(triton.cdiv(n, 32),)](x, out, n, bound, BLOCK=32)
    return out


def first_above_reference(x, bound):
    found = (x > bound).nonzero().flatten()
    return torch.cat([found, found.new_full((1,), x.shape[0])]).min()
