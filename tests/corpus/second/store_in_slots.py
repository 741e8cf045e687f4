import torch
import triton
import triton.language as tl

SIZES = {"pages": (1, 3), "page": (1, 4), "width": (1, 8, 20)}


def store_in_slots_inputs(tokens, pages, page, width):
    slots = torch.full((tokens,), -1)
    some = torch.randperm(pages * page)[: tokens // 2]
    slots[: some.numel()] = some
    return {"cache": torch.randn(pages, page, width), "rows": torch.randn(tokens, width), "slots": slots}


@triton.jit
def store_in_slots_kernel(cache_ptr, rows_ptr, slots_ptr, page, width, s_page, s_row, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    d = tl.arange(0, BLOCK)
    x = tl.load(rows_ptr + token * width + d, mask=d < width)
    place = cache_ptr + slot // page * s_page + slot % page * s_row + d
    tl.store(place, x, mask=d < width)


def store_in_slots(cache, rows, slots):
    """Stores rows to the slots of a cache, whose last dim is dense; rows with slot -1 are padding."""
    if cache.stride(2) != 1:
        raise ValueError("the cache's last dim isn't dense")
    rows, slots = rows.contiguous(), slots.contiguous()
    tokens, width = rows.shape
    if rows.numel():
        store_in_slots_kernel[(tokens,)](
            cache,
            rows,
            slots,
            cache.shape[1],
            width,
            cache.stride(0),
            cache.stride(1),
            BLOCK=triton.next_power_of_2(width),
        )


def store_in_slots_reference(cache, rows, slots):
    for i, slot in enumerate(slots.tolist()):
        if slot >= 0:
            cache[slot // cache.shape[1], slot % cache.shape[1]] = rows[i]
