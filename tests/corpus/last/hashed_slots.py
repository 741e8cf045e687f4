import torch
import triton
import triton.language as tl

INPUTS = {"ids": "batch time: int64 below 1000000007", "slots": (1009, 65536)}


@triton.jit
def hashed_slots_kernel(ids_ptr, out_ptr, batch, time, s_b, s_t, slots, MULTIPLIER: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = t < time
    current = tl.load(ids_ptr + b * s_b + t * s_t, mask=inside, other=0).to(tl.int32)
    before = tl.load(ids_ptr + b * s_b + (t - 1) * s_t, mask=inside & (t > 0), other=0).to(tl.int32)
    key = (before % 4096) * MULTIPLIER + current
    tl.store(out_ptr + b * time + t, key.to(tl.int64) % slots, mask=inside)


def hashed_slots(ids, slots):
    """Slots of a hashed table of bigrams: a token with the one before it."""
    batch, time = ids.shape
    out = torch.empty(batch, time, dtype=torch.int64, device=ids.device)
    if ids.numel():
        block = min(64, triton.next_power_of_2(time))
        hashed_slots_kernel[(batch, triton.cdiv(time, block))](
            ids, out, batch, time, *ids.stride(), slots, MULTIPLIER=1000003, BLOCK=block
        )
    return out


def hashed_slots_reference(ids, slots):
    before = torch.zeros_like(ids)
    before[:, 1:] = ids[:, :-1]
    return ((before % 4096) * 1000003 + ids) % slots
