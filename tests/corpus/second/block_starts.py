import torch
import triton
import triton.language as tl

INPUTS = {"chosen": "tokens: int32 below 6", "experts": 6, "block": (4, 16)}


@triton.jit
def block_starts_kernel(chosen_ptr, starts_ptr, tokens, experts, block, BLOCK: tl.constexpr, EXPERTS: tl.constexpr):
    e = tl.arange(0, EXPERTS)
    counts = tl.zeros((EXPERTS,), dtype=tl.int32)
    for start in range(0, tokens, BLOCK):
        t = start + tl.arange(0, BLOCK)
        chosen = tl.load(chosen_ptr + t, mask=t < tokens, other=-1)
        counts += tl.sum((chosen[:, None] == e[None, :]).to(tl.int32), axis=0)
    padded = tl.where(counts > 0, (counts // block + 1) * block, 0)
    ends = tl.cumsum(padded, axis=0)
    tl.store(starts_ptr + e, ends - padded, mask=e < experts)
    tl.store(starts_ptr + experts, tl.sum(padded, axis=0))


def block_starts(chosen, experts, block):
    """Where each expert's tokens begin if each expert has whole blocks, as few as can be, and after them the end."""
    chosen = chosen.contiguous()
    starts = torch.empty(experts + 1, dtype=torch.int32, device=chosen.device)
    block_starts_kernel[(1,)](
        chosen, starts, chosen.shape[0], experts, block, BLOCK=32, EXPERTS=triton.next_power_of_2(experts)
    )
    return starts


def block_starts_reference(chosen, experts, block):
    counts = torch.bincount(chosen.long(), minlength=experts)
    padded = (counts + block - 1) // block * block
    return torch.cat([padded.new_zeros(1), padded.cumsum(0)]).int()
