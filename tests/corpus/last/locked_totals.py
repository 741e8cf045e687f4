import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "group": "rows: int64 below 4"}


@triton.jit
def locked_totals_kernel(x_ptr, group_ptr, out_ptr, lock_ptr, seen_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=mask, other=0.0).to(tl.float32)
    group = tl.load(group_ptr + row)
    target = out_ptr + group * cols + c
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    seen = tl.load(seen_ptr + group, volatile=True)
    before = tl.load(target, mask=mask & (seen != 0), other=0.0, volatile=True)
    tl.store(target, before + x, mask=mask)
    tl.store(seen_ptr + group, 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


def locked_totals(x, group):
    """Sums of the rows of four groups. The first program of a group sets the sum, others add to it under a lock."""
    rows, cols = x.shape
    out = torch.empty(4, cols, dtype=torch.float32, device=x.device)
    present = torch.zeros(4, dtype=torch.int32, device=x.device)
    if x.numel():
        locks = torch.zeros(4, dtype=torch.int32, device=x.device)
        locked_totals_kernel[(rows,)](
            x, group.contiguous(), out, locks, present, cols, *x.stride(), BLOCK=triton.next_power_of_2(cols)
        )
    return torch.where(present[:, None] != 0, out, torch.zeros_like(out))


def locked_totals_reference(x, group):
    return torch.zeros(4, x.shape[1], device=x.device).index_add(0, group, x.float())
