import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "slot": "rows: int64 below 3"}


@triton.jit
def locked_rows_kernel(x_ptr, slot_ptr, out_ptr, lock_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=mask, other=0.0).to(tl.float32)
    slot = tl.load(slot_ptr + row)
    target = out_ptr + slot * cols + c
    while tl.atomic_cas(lock_ptr + slot, 0, 1) == 1:
        pass
    total = x + tl.load(target, mask=mask, other=0.0)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + slot, 0)
    tl.store(target, total, mask=mask)


def locked_rows(x, slot):
    """Sums of the rows of each of three slots; a lock for each slot lets one program at a time add."""
    rows, cols = x.shape
    out = torch.zeros(3, cols, dtype=torch.float32, device=x.device)
    if x.numel():
        locks = torch.zeros(3, dtype=torch.int32, device=x.device)
        locked_rows_kernel[(rows,)](
            x, slot.contiguous(), out, locks, cols, *x.stride(), BLOCK=triton.next_power_of_2(cols)
        )
    return out


def locked_rows_reference(x, slot):
    return torch.zeros(3, x.shape[1], device=x.device).index_add(0, slot, x.float())
