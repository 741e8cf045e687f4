import torch
import triton
import triton.language as tl

SIZES = {"tokens": (0, 1, 5, 9), "width": (1, 8, 20)}


def append_keys_inputs(tokens, width):
    slots = torch.randperm(16)[:tokens]
    slots[torch.rand(tokens) < 0.2] = -1
    return {"cache": torch.randn(16, width), "keys": torch.randn(tokens, width), "slots": slots}


@triton.jit
def append_keys_kernel(cache_ptr, key_ptr, slot_ptr, width, s_cr, s_cd, s_kr, s_kd, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + token)
    if slot < 0:
        return
    d = tl.arange(0, BLOCK)
    key = tl.load(key_ptr + token * s_kr + d * s_kd, mask=d < width)
    tl.store(cache_ptr + slot * s_cr + d * s_cd, key, mask=d < width)


def append_keys(cache, keys, slots):
    """Writes keys into their slots of a cache, which is changed; a slot of -1 is for padding."""
    tokens, width = keys.shape
    if tokens and width:
        append_keys_kernel[(tokens,)](
            cache,
            keys,
            slots.contiguous(),
            width,
            *cache.stride(),
            *keys.stride(),
            BLOCK=triton.next_power_of_2(width),
        )


def append_keys_reference(cache, keys, slots):
    kept = slots >= 0
    cache[slots[kept]] = keys[kept]
