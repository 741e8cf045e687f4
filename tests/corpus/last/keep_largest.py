import torch
import triton
import triton.language as tl

INPUTS = {"logits": "rows vocabulary", "k": (1, 3)}


@triton.jit
def keep_largest_kernel(x_ptr, out_ptr, vocabulary, s_r, s_v, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    v = tl.arange(0, BLOCK)
    mask = v < vocabulary
    x = tl.load(x_ptr + row * s_r + v * s_v, mask=mask, other=0.0).to(tl.float32)
    x = tl.where(x == x, x, -float("inf"))
    open_ = mask
    for _ in range(k):
        top = tl.max(tl.where(open_, x, -float("inf")))
        found = open_ & (x == top)
        open_ = open_ & ~found
    tl.store(out_ptr + row * vocabulary + v, tl.where(open_, -float("inf"), x), mask=mask)


def keep_largest(logits, k):
    """All but the k largest logits of a row become -inf; of equal ones, those that come first are kept."""
    rows, vocabulary = logits.shape
    out = torch.empty(rows, vocabulary, dtype=logits.dtype, device=logits.device)
    if out.numel():
        keep_largest_kernel[(rows,)](
            logits, out, vocabulary, *logits.stride(), k, BLOCK=triton.next_power_of_2(vocabulary)
        )
    return out


def keep_largest_reference(logits, k):
    x = torch.where(logits.isnan(), torch.full_like(logits, -float("inf")), logits)
    order = torch.sort(x, dim=1, descending=True, stable=True).indices[:, :k]
    kept = torch.zeros_like(x, dtype=torch.bool).scatter(1, order, True)
    return torch.where(kept, x, torch.full_like(x, -float("inf")))
