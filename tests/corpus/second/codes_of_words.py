import torch
import triton
import triton.language as tl

SIZES = {"words": (0, 1, 3, 20)}


def codes_of_words_inputs(rows, words):
    return {"x": torch.randint(-(2**31), 2**31, (rows, words), dtype=torch.int64).to(torch.int32)}


@triton.jit
def codes_of_words_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    for j in tl.static_range(7):
        tl.store(out_ptr + at * 8 + j, (x >> (4 * j)) & 15, mask=at < n)
    tl.store(out_ptr + at * 8 + 7, x >> 28, mask=at < n)


def codes_of_words(x):
    """The eight codes, of 0 to 15, in each word of 32 bits; the lowest bits are the first."""
    x = x.contiguous()
    out = torch.empty(x.shape[0], 8 * x.shape[1], dtype=torch.int32, device=x.device)
    if x.numel():
        codes_of_words_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def codes_of_words_reference(x):
    shifts = torch.arange(0, 32, 4, device=x.device)
    return ((x.long()[..., None] >> shifts) & 15).flatten(1).int()
