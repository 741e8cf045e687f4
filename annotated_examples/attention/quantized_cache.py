r"""
# Writing a cache of few bits

[Decoding](decode.py) reads the whole cache for each new token, and takes as long as its bytes take to arrive. Half or a
quarter of the bits are half or a quarter of the bytes, so many who serve long contexts quantize their caches. A
token's keys and values are written once and read thousands of times. This page is about writing, and
[the next one](quantized_decode.py) about reading.

Each token and head has a scale of its own: what was written must not change when the next token arrives. With eight
bits the scale puts the largest magnitude at the largest code. With four bits there are only 16 codes, and a range that
goes as far to the negative side as to the positive one would waste some of them, so they are spread from the lowest
number of the row to the highest, and the lowest is kept beside the step:

[[eq: KV-step]]

[[eq: KV-code]]

[[figure: quantized/bytes]]

**What it costs.** A key and a value of 128 numbers are 512 bytes in bfloat16, 264 in eight bits, 144 in four. Their
steps are in float32, a small part of that. On an H200 the keys of 262144 tokens, of eight heads each, are written with
four bits in [[bench: quantized_cache/262144x8x128/forward/ms]],
[[bench: quantized_cache/262144x8x128/forward/share]] of the speed of a copy. PyTorch takes
[[bench: quantized_cache/262144x8x128/forward/PyTorch.ms]], and compiled
[[bench: quantized_cache/262144x8x128/forward/torch.compile.ms]].

**Where it falls behind.** While a number arrives and its code leaves, an H200 can issue about 18 instructions for it.
The compiled kernel has about 50, ten of them a correctly rounded division. To multiply by a reciprocal would be
shorter, and would give other codes where a quotient lies next to the middle between two.

**How much is lost?** With four bits a number is wrong by half a step at most, a thirtieth of the range of its row. How
much that is depends on the data, and outliers make it worse: some channels of keys are often ten times as large as the
others. A **rotation** spreads an outlier over all channels. It is no remedy for everything, as [the
derivation](../../backprop_math/quantized_cache.md) measures: where all numbers of a row have a common mean, it makes
one large outlier of that mean. Random `signs` help against this. The other remedy is a step for each **channel**. It
needs many tokens at once, so the newest ones wait in sixteen bits until a page of them is full.

**Contract.** `x` is (tokens, Hk, D), float32, float16 or bfloat16; the cache (num_pages, page_size, Hk, D) in `int8` or
`float8_e4m3fn`, or (…, D / 2) in `uint8`, two codes of four bits in each byte. Any strides. What no slot names stays as
it is. All arithmetic is float32 and defined to the bit, but for the sums of a rotation. A row with a NaN or an infinity
(by channel: a column of a page) has a NaN for its step, so that it is read as NaN, and no other is touched. Forward
only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import same_device
from annotated_examples.common.codes import (
    EIGHT_BITS, GRANULARITIES, codes_contract, decoded, nearest, rotation, signs_contract, step_of, turned,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.fp8 import magnitude_bits, rounded
from annotated_examples.common.mx import packed_pairs


# ## Reference
#
# In PyTorch, with the same decisions. PyTorch turns division by a Python number into a multiplication on a GPU, so it
# divides by a tensor.
def quantized_reference(x, dtype, dim=-1):
    """Codes, one a number, and scales: a step, for `uint8` also the lowest value, along a new last dimension."""
    x, tiny, nan = x.float(), 2.0**-126, float("nan")
    lowest, highest = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    four, largest = dtype == torch.uint8, x.abs().amax(dim, keepdim=True)
    span = highest - lowest if four else largest
    step = (span / torch.full_like(span, EIGHT_BITS.get(dtype, 15.0))).clamp(min=tiny)
    step = torch.where(span == 0, 1.0, torch.where(largest.isfinite() & span.isfinite(), step, nan))
    if dtype == torch.float8_e4m3fn:
        return (x * (1 / step)).clamp(-448, 448).nan_to_num(0).to(dtype), step[..., None]
    lowest = torch.where(step.isnan(), nan, lowest) if four else torch.zeros_like(step)
    codes = torch.round((x - lowest) / step).nan_to_num(0).to(dtype)
    return codes, torch.stack([step, lowest], dim=-1) if four else step[..., None]


def packed_reference(codes):
    return codes[..., ::2] | codes[..., 1::2] << 4 if codes.dtype == torch.uint8 else codes


def append_reference(cache, scale, x, slots, *, signs=None):
    x = x if signs is None else x.float() @ rotation(signs, torch.float32)
    codes, steps = quantized_reference(x, cache.dtype)
    kept = slots >= 0
    page, slot = slots[kept].long() // cache.shape[1], slots[kept].long() % cache.shape[1]
    bits = cache.view(torch.uint8)
    bits[page, slot] = packed_reference(codes).view(torch.uint8)[kept]
    scale[page, slot] = steps.squeeze(-2)[kept].to(scale.dtype)


def quantize_key_pages_reference(cache, scale, x, pages):
    codes, steps = quantized_reference(x, cache.dtype, dim=1)
    kept = pages >= 0
    cache[pages[kept].long()] = packed_reference(codes)[kept]
    scale[pages[kept].long()] = steps.squeeze(1)[kept].to(scale.dtype)


# ## From a row to its codes
#
# Four bits. A padded column must be neither the lowest nor the highest number of its row; a 0 there would be one,
# wherever all numbers are positive. `tl.min` and `tl.max` lose a NaN, so it is looked for among the
# [bits](../fp8/quantize.py) of the magnitudes, where it is larger than infinity. The lowest value is subtracted in
# float32 and is not rounded to a whole number of steps between 0 and 15: a row that lies far from 0 would not have its
# numbers among the codes any more.
#
# `keep_dims` makes each result as wide as one column, or as high as one row, so that it fits beside the tile.
@triton.jit
def four_bits(x, mask, AXIS: tl.constexpr):
    lowest = tl.min(tl.where(mask, x, float("inf")), axis=AXIS, keep_dims=True)
    highest = tl.max(tl.where(mask, x, -float("inf")), axis=AXIS, keep_dims=True)
    bits = tl.max(tl.where(mask, magnitude_bits(x), 0), axis=AXIS, keep_dims=True)
    # [[tag: KV-step]]
    step = step_of(tl.where(bits < 0x7F800000, highest - lowest, float("nan")), 15.0)
    lowest = tl.where(step == step, lowest, float("nan"))
    # [[tag: KV-code]]
    return nearest(tl.div_rn(x - lowest, step)).to(tl.int32), step, lowest


# Eight bits, [[tag: KV-scale]]. For whole numbers each element is divided, for floats it is multiplied by the
# reciprocal, as [quantize](../fp8/quantize.py) does: the codes are the same as there.
@triton.jit
def eight_bits(x, dtype: tl.constexpr):
    largest = tl.max(magnitude_bits(x), axis=1, keep_dims=True).to(tl.float32, bitcast=True)
    if dtype == tl.int8:
        step = step_of(largest, 127.0)
        codes = nearest(tl.div_rn(x, step)).to(tl.int8)
    else:
        step = step_of(largest, 448.0)
        y = x * tl.div_rn(1.0, step)
        codes = rounded(tl.where(y == y, y, 0.0), dtype)
    return codes, step


# ## Tokens
#
# A program has `BLOCK_M` rows, each of them one head of one token. Where the row goes is up to `slots`: the slot is
# page times page size plus place. A server fills a batch up with tokens that nobody asked for, so that a CUDA graph
# always has the same shape; their slot is −1, and they are not stored.
#
# The cache is the largest tensor there is, so offsets have 64 bits before they are multiplied by a stride. And strides
# are those of the tensors: a pool of keys and values side by side has others than its shape would have.
@triton.jit
def append_kernel(
    x_tensor, slots,  # (pointer, three strides): (tokens, Hk, D); (pointer, stride): (tokens,)
    cache_tensor, scale_tensor,  # (pointer, four strides): (num_pages, page_size, Hk, D or D / 2), (…, 1 or 2)
    signs_ptr,  # (D,), or None
    pages, tokens, heads, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    num_pages, page_size = pages
    rows, offs_d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    token, h = (rows // heads).to(tl.int64), (rows % heads).to(tl.int64)
    real, columns = rows < tokens * heads, offs_d < D
    slots_ptr, stride_l = slots
    slot = tl.load(slots_ptr + token * stride_l, mask=real, other=-1).to(tl.int64)
    live = (slot >= 0) & (slot < tl.cast(num_pages, tl.int64) * page_size)
    # In the example the third token has the slot −1: `pid=0: live = [True, True, False, False]`.
    page, slot = tl.where(live, slot // page_size, 0), tl.where(live, slot % page_size, 0)
    x_ptr, stride_xt, stride_xh, stride_xd = x_tensor
    row_ptrs = x_ptr + token * stride_xt + h * stride_xh
    if signs_ptr is not None:
        x = turned(row_ptrs, stride_xd, live, signs_ptr, False, D, BLOCK_D)
    else:
        ptrs = row_ptrs[:, None] + offs_d.to(tl.int64)[None, :] * stride_xd
        x = tl.load(ptrs, mask=live[:, None] & columns[None, :], other=0.0).to(tl.float32)
    mask = live[:, None] & columns[None, :]
    cache_ptr, stride_p, stride_s, stride_h, stride_d = cache_tensor
    scale_ptr, stride_sp, stride_ss, stride_sh, stride_sc = scale_tensor
    cache_ptrs = (cache_ptr + page * stride_p + slot * stride_s + h * stride_h)[:, None]
    scale_ptrs = (scale_ptr + page * stride_sp + slot * stride_ss + h * stride_sh)[:, None]
    FOUR_BITS: tl.constexpr = cache_ptr.dtype.element_ty == tl.uint8
    if FOUR_BITS:
        # The first token is 3, 4, 5 and 18, so its step is 1: `pid=0: lowest[0] = [3]`, `pid=0: codes[0, 3] = 15`.
        codes, step, lowest = four_bits(x, columns[None, :], 1)
        tl.store(scale_ptrs + stride_sc, lowest, mask=live[:, None])
        offs_d, mask = tl.arange(0, BLOCK_D // 2), live[:, None] & (tl.arange(0, BLOCK_D // 2) < D // 2)[None, :]
        codes = packed_pairs(codes, BLOCK_M, BLOCK_D)
    else:
        codes, step = eight_bits(tl.where(columns[None, :], x, 0.0), cache_ptr.dtype.element_ty)
    tl.store(cache_ptrs + offs_d.to(tl.int64)[None, :] * stride_d, codes, mask=mask)
    tl.store(scale_ptrs, step, mask=live[:, None])


# ## Keys by channel, whole pages
#
# Here the reduction runs down the tokens of a page, and a program takes `BLOCK_D` columns of one head. All tokens of
# the page are needed before the first code can be written.
#
# To quantize the last page again for each new token is no way out: it would be rounded again and again. (And a page
# that is flushed while it holds a single token has a range of 0. It is exact, looks like four bits, and isn't: the step
# and the lowest value are eight bytes for each number.)
@triton.jit
def key_pages_kernel(
    x_tensor, pages,  # (pointer, four strides): (pages, page_size, Hk, D); (pointer, stride): (pages,)
    cache_tensor, scale_tensor,  # the same: (num_pages, page_size, Hk, D / 2), (num_pages, Hk, D, 2)
    num_pages, page_size, heads, D, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(D, BLOCK_D)
    i, h, tile = tl.program_id(0) // tiles // heads, tl.program_id(0) // tiles % heads, tl.program_id(0) % tiles
    i, h = i.to(tl.int64), h.to(tl.int64)
    pages_ptr, stride_l = pages
    page = tl.load(pages_ptr + i * stride_l).to(tl.int64)
    live = (page >= 0) & (page < num_pages)
    page = tl.where(live, page, 0)
    offs_n, offs_d = tl.arange(0, BLOCK_N).to(tl.int64), tile * BLOCK_D + tl.arange(0, BLOCK_D).to(tl.int64)
    half = tile * (BLOCK_D // 2) + tl.arange(0, BLOCK_D // 2).to(tl.int64)
    tokens, columns = (offs_n < page_size) & live, offs_d < D
    x_ptr, stride_xp, stride_xs, stride_xh, stride_xd = x_tensor
    ptrs = x_ptr + i * stride_xp + h * stride_xh + offs_n[:, None] * stride_xs + offs_d[None, :] * stride_xd
    mask = tokens[:, None] & columns[None, :]
    x = tl.load(ptrs, mask=mask, other=0.0).to(tl.float32)
    # Column by column. The second counts by twos, the third by tenths: `pid=0: step[0, 1] = 2`, `pid=0: step[0, 2] =
    # 0.1`.
    codes, step, lowest = four_bits(x, mask, 0)
    scale_ptr, stride_sp, stride_sh, stride_sd, stride_sc = scale_tensor
    scale_ptrs = scale_ptr + page * stride_sp + h * stride_sh + offs_d[None, :] * stride_sd
    tl.store(scale_ptrs, step, mask=columns[None, :] & live)
    tl.store(scale_ptrs + stride_sc, lowest, mask=columns[None, :] & live)
    cache_ptr, stride_p, stride_s, stride_h, stride_d = cache_tensor
    cache_ptrs = cache_ptr + page * stride_p + h * stride_h + offs_n[:, None] * stride_s + half[None, :] * stride_d
    tl.store(cache_ptrs, packed_pairs(codes, BLOCK_N, BLOCK_D), mask=tokens[:, None] & (half < D // 2)[None, :])


# ## Launchers
@opaque(
    "(Tensor(a!) cache, Tensor(b!) scale, Tensor x, Tensor slots, Tensor? signs) -> ()", lambda *tensors: None
)  # fmt: skip
def append_launch_(cache, scale, x, slots, signs, *, BLOCK_M=None):
    """A program has BLOCK_M rows, each a head of a token."""
    checks.power_of_two(BLOCK_M=BLOCK_M)
    (tokens, heads, D), BLOCK_M = x.shape, BLOCK_M or 16
    if tokens * heads and cache.numel():
        append_kernel[(triton.cdiv(tokens * heads, BLOCK_M),)](
            (x, *x.stride()), (slots, slots.stride(0)), (cache, *cache.stride()), (scale, *scale.stride()),
            None if signs is None else signs.contiguous(), tuple(cache.shape[:2]), tokens, heads, D=D, BLOCK_M=BLOCK_M,
            BLOCK_D=max(32, triton.next_power_of_2(D)),
        )  # fmt: skip


@opaque("(Tensor(a!) cache, Tensor(b!) scale, Tensor x, Tensor pages) -> ()", lambda *tensors: None)
def key_pages_launch_(cache, scale, x, pages, *, BLOCK_D=None):
    """A program has BLOCK_D columns of a head, and all tokens of a page."""
    checks.power_of_two(BLOCK_D=BLOCK_D)
    (count, page_size, heads, D), BLOCK_N = x.shape, max(16, triton.next_power_of_2(x.shape[1]))
    BLOCK_D = BLOCK_D or max(16, min(triton.next_power_of_2(D), 64))
    if x.numel() and cache.numel():
        key_pages_kernel[(count * heads * triton.cdiv(D, BLOCK_D),)](
            (x, *x.stride()), (pages, pages.stride(0)), (cache, *cache.stride()), (scale, *scale.stride()),
            cache.shape[0], page_size, heads, D, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, num_warps=8 if BLOCK_N > 64 else 4,
        )  # fmt: skip


# ## Arguments
LONGEST_PAGE = 256


def places_contract(name, places, count, most):
    """Where things go: −1 for nowhere. Looking at the numbers would mean waiting for a GPU."""
    checks.dtypes((torch.int32, torch.int64), **{name: places})
    checks.shape(name, places, (count,), "one for each of x")
    if checks.looks_at_values() and count and not -1 <= int(places.min()) <= int(places.max()) < most:
        raise ValueError(f"{name} must be in [-1, {most}), got {places.tolist()}")


def contract(function, cache, scale, x, granularity, **places):
    """Checks what both functions that write take."""
    [(name, where)] = places.items()
    checks.tensors(cache=cache, scale=scale, x=x, **places)
    checks.no_gradient(function, scale=scale, x=x)
    checks.dtypes(x=x)
    checks.dimensions("cache", cache, 4, "num_pages, page_size, Hk, D")
    checks.dimensions("x", x, *((4, "pages, page_size, Hk, D") if granularity == "channel" else (3, "tokens, Hk, D")))
    if x.shape[-2] != cache.shape[2]:
        raise ValueError(f"x must have the heads of cache, {cache.shape[2]}, got shape {tuple(x.shape)}")
    codes_contract(function, x.shape[-1], granularity, cache=cache, scale=scale)
    same_device(cache=cache, scale=scale, x=x, **places)
    slots = cache.shape[0] if granularity == "channel" else cache.shape[0] * cache.shape[1]
    places_contract(name, where, x.shape[0], slots)


@replayed
def append_(cache, scale, x, slots, *, signs=None):
    """Writes keys, or values, of new tokens to a cache of codes, each row with a scale of its own. Forward only.

    Args:
        cache: (num_pages, page_size, Hk, D) int8 or float8_e4m3fn, or (num_pages, page_size, Hk, D / 2) uint8; any
            strides. Updated in place, and so is `scale`.
        scale: (num_pages, page_size, Hk, 1) float32, the step of each row; for uint8 (…, 2), step and lowest value.
        x: (tokens, Hk, D), float32, float16 or bfloat16, any strides, D at most 256.
        slots: (tokens,) int32 or int64: page * page_size + place in the page, no slot twice; −1: not stored. Checked on
            the CPU and with `ACADEMY_DEBUG=1`; elsewhere what goes to a slot that isn't there is not stored.
        signs: (D,) float32, ones and minus ones: rows are rotated by diag(signs) H / √D first, D a power of two.
            Rotate after RoPE, and read with the same signs.

    Returns:
        None.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or requires a gradient; or (see
            there) `slots`, or `signs` that aren't ones.
        RuntimeError: the cache is e4m3, and the card is older than compute capability 8.9.

    Source: a step for each token and head: vLLM's and LMDeploy's caches; rotation: Ashkboos et al., "QuaRot" (arXiv
    2404.00456).
    """
    contract("append_", cache, scale, x, "token", slots=slots)
    signs_contract(signs, x.shape[-1])
    if signs is not None:
        same_device(x=x, signs=signs)
    append_launch_(cache, scale, x, slots, signs)


@replayed
def quantize_key_pages_(cache, scale, x, pages):
    """Writes whole pages of keys in four bits, with a step and a lowest value for each channel. Forward only.

    Args:
        cache: (num_pages, page_size, Hk, D / 2) uint8, page_size at most 256. Updated in place, and so is `scale`.
        scale: (num_pages, Hk, D, 2) float32: step and lowest value of each column of each page and head.
        x: (pages, page_size, Hk, D), float32, float16 or bfloat16, any strides.
        pages: (pages,) int32 or int64: where each goes, no page twice; −1: not stored. Checked as
            `append_` checks slots.

    Returns:
        None.

    Raises:
        TypeError, ValueError: as `append_`.

    Source: Liu et al., "KIVI" (arXiv 2402.02750).
    """
    contract("quantize_key_pages_", cache, scale, x, "channel", pages=pages)
    if not 1 <= x.shape[1] == cache.shape[1] <= LONGEST_PAGE:
        wanted = f"x must have the page size of cache, {cache.shape[1]}, from 1 to {LONGEST_PAGE}"
        raise ValueError(f"{wanted}, got shape {tuple(x.shape)}")
    key_pages_launch_(cache, scale, x, pages)


def dequantize_cache(codes, scale, *, granularity="token", signs=None, dtype=torch.float32):
    """What codes stand for, in PyTorch: to look at, or to compare with.

    To attend to its result would read the bytes that were saved, and more.

    Args:
        codes: (num_pages, page_size, Hk, D) int8 or float8_e4m3fn, or (…, D / 2) uint8: a cache, or some of its pages.
        scale: as `append_` or, with `granularity="channel"`, `quantize_key_pages_` writes it.
        granularity: "token" or "channel".
        signs: of the rotation; the result is turned back.
        dtype: of the result, any floating one. Arithmetic is float32, or float64 for that.

    Returns:
        (num_pages, page_size, Hk, D).

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype or shape, or requires a gradient.
        RuntimeError: as `append_`.

    Source: as `append_`.
    """
    checks.tensors(codes=codes, scale=scale)
    checks.no_gradient("dequantize_cache", scale=scale)
    checks.choice("granularity", granularity, GRANULARITIES)
    checks.choice("dtype", dtype, (*checks.FLOATS, torch.float64))
    checks.dimensions("codes", codes, 4, "num_pages, page_size, Hk, D")
    D = codes.shape[-1] * (2 if codes.dtype == torch.uint8 else 1)
    codes_contract("dequantize_cache", D, granularity, codes=codes, scale=scale)
    signs_contract(signs, D)
    if signs is None:
        return decoded(codes, scale, granularity, dtype)
    wide = torch.promote_types(dtype, torch.float32)
    return (decoded(codes, scale, granularity, wide) @ rotation(signs, wide).T).to(dtype)


# ## A run small enough to watch
#
# Three tokens of four numbers, one of which isn't stored, in four bits and in eight. Then a page of 16 tokens by
# channel.
def EXAMPLE():
    x = torch.tensor([[3.0, 4, 5, 18], [-7, 0, 8, 1], [1, 2, 3, 4]], device=device.DEVICE)[:, None]
    slots = torch.tensor([4, 1, -1], dtype=torch.int32, device=device.DEVICE)
    for dtype, width, numbers in ((torch.uint8, 2, 2), (torch.int8, 4, 1)):
        cache = torch.zeros(3, 2, 1, width, dtype=dtype, device=device.DEVICE)
        append_launch_(cache, torch.zeros(3, 2, 1, numbers, device=device.DEVICE), x, slots, None, BLOCK_M=4)
    at = torch.arange(16.0, device=device.DEVICE)
    keys = torch.stack([at, 2 * at - 9, at / 10, at * 7 % 16], dim=-1)[None, :, None]
    cache = torch.zeros(1, 16, 1, 2, dtype=torch.uint8, device=device.DEVICE)
    key_pages_launch_(cache, torch.zeros(1, 1, 4, 2, device=device.DEVICE), keys, slots[1:2] - 1)


if __name__ == "__main__":
    script.main(append_, append_reference)
