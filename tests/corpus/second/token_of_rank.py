import torch
import triton
import triton.language as tl

SIZES = {"cols": (1, 2, 7, 20)}


def token_of_rank_inputs(rows, cols):
    return {"logits": torch.randint(0, 6, (rows, cols)).float(), "rank": torch.randint(0, cols, (rows,))}


@triton.jit
def token_of_rank_kernel(x_ptr, rank_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    for j in range(cols):
        y = tl.load(x_ptr + row * cols + j).to(tl.float32)
        place += ((y > x) | ((y == x) & (j < c))).to(tl.int32)
    found = (place == tl.load(rank_ptr + row)) & (c < cols)
    height = tl.max(tl.where(found, x, -float("inf")), axis=0)
    token = tl.min(tl.where((x == height) & (c < cols), c, cols), axis=0)
    tl.store(out_ptr + row, token)


def token_of_rank(logits, rank):
    """The token at a place of each row's order, from the highest (0) on; of equal ones the first comes first."""
    logits, rank = logits.contiguous(), rank.contiguous()
    rows, cols = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        token_of_rank_kernel[(rows,)](logits, rank, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def token_of_rank_reference(logits, rank):
    order = logits.argsort(dim=1, descending=True, stable=True)
    return order.gather(1, rank[:, None])[:, 0]
