import torch
import triton
import triton.language as tl

INPUTS = {"cache": "pages page width", "which": "tokens: int64 below pages", "place": "tokens: int32 below page"}
SIZES = {"pages": (1, 3, 8), "page": (1, 4, 16)}


@triton.jit
def rows_of_pages_kernel(
    cache_ptr, which_ptr, place_ptr, out_ptr, page, width, stride_row, stride_col, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    which = tl.load(which_ptr + token)
    place = tl.load(place_ptr + token).to(tl.int64)
    d = tl.arange(0, BLOCK)
    row = cache_ptr + which * page * stride_row + place * stride_row
    x = tl.load(row + d.to(tl.int64) * stride_col, mask=d < width)
    tl.store(out_ptr + token * width + d, x, mask=d < width)


def rows_of_pages(cache, which, place):
    """Row `place[i]` of page `which[i]`, for all i. The cache may have any strides."""
    which, place = which.contiguous(), place.contiguous()
    pages, page, width = cache.shape
    out = torch.empty(which.shape[0], width, dtype=cache.dtype, device=cache.device)
    if out.numel():
        rows_of_pages_kernel[(which.shape[0],)](
            cache,
            which,
            place,
            out,
            page,
            width,
            cache.stride(1),
            cache.stride(2),
            BLOCK=triton.next_power_of_2(width),
        )
    return out


def rows_of_pages_reference(cache, which, place):
    return cache[which, place.long()]
