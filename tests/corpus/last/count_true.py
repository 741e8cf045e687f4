import torch
import triton
import triton.language as tl

INPUTS = {"mask": "rows cols: bool", "weights": "cols: float32"}
SIZES = {"cols": (1, 30, 500, 1500, 3000)}


@triton.jit
def count_true_kernel(mask_ptr, w_ptr, count_ptr, sum_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    seen = tl.zeros((BLOCK,), dtype=tl.int8)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + lane
        inside = c < cols
        kept = tl.load(mask_ptr + row * stride_r + c * stride_c, mask=inside, other=0) != 0
        seen += kept.to(tl.int8)
        total += tl.where(kept, tl.load(w_ptr + c, mask=inside, other=0.0), 0.0)
    tl.store(count_ptr + row, tl.sum(seen.to(tl.int64)))
    tl.store(sum_ptr + row, tl.sum(total))


def count_true(mask, weights):
    """How many columns of each row are kept, and the weights of these in sum."""
    rows, cols = mask.shape
    count = torch.zeros(rows, dtype=torch.int64, device=mask.device)
    total = torch.zeros(rows, dtype=torch.float32, device=mask.device)
    if mask.numel():
        bits = mask.view(torch.uint8)
        count_true_kernel[(rows,)](bits, weights.contiguous(), count, total, cols, *bits.stride(), BLOCK=16)
    return count, total


def count_true_reference(mask, weights):
    total = torch.where(mask, weights[None, :].float(), torch.zeros((), device=mask.device)).sum(1)
    return mask.sum(1), total.to(weights.dtype)
