import torch
import triton
import triton.language as tl

INPUTS = {"counts": "rows cols: int32 below 200000", "weights": "cols: int32 below 100000"}


@triton.jit
def weighted_votes_kernel(c_ptr, w_ptr, out_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.int64)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        count = tl.load(c_ptr + row * s_r + c * s_c, mask=c < cols, other=0)
        weight = tl.load(w_ptr + c, mask=c < cols, other=0)
        total += (count * weight).to(tl.int64)
    tl.store(out_ptr + row, tl.sum(total))


def weighted_votes(counts, weights):
    """Integer scores of each row, exact: the sum is kept in 64 bits."""
    rows, cols = counts.shape
    out = torch.zeros(rows, dtype=torch.int64, device=counts.device)
    if counts.numel():
        weighted_votes_kernel[(rows,)](
            counts, weights.contiguous(), out, cols, *counts.stride(), BLOCK=min(64, triton.next_power_of_2(cols))
        )
    return out


def weighted_votes_reference(counts, weights):
    return (counts.long() * weights.long()).sum(1)
