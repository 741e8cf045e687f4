r"""
# A lightning indexer: which keys are worth reading

With [one latent a token](mla_decode.py) a key costs 1152 bytes. After 128 thousand tokens that is too much, too: each
new token would read 150 MB in each layer. DeepSeek V3.2 and its heirs let a small scorer look at all keys first, and
attention reads only the 2048 [that it selects](select_keys.py). A key of the scorer is one row of 128 numbers of eight
bits, shared by all of its heads. A query has a row for each head, and a weight:

[[eq: IX-I]]

The ReLU comes *before* the sum over the heads. So the heads can't be folded into one query: each of them may say "not
this one" without saying "less". And attention never uses the result as a number. It only has to put the right keys
first. ([The loss that trains it](indexer_loss.py) does take its softmax.)

[[figure: indexer/heads]]

**Scales.** Codes come with scales, and the formula has one for each row of a query and one for each key. They are
positive, so they pass through the ReLU, [[tag: IX-scales]]: the key's is multiplied to the finished sum, `k_scale`, and
the query's is part of the weight, where the caller puts it, together with any constant.

**Rotation.** Queries and keys come [rotated](../classics/rope.py) by their positions. Which two numbers are turned
together is up to the model, and an indexer may do it otherwise than the attention beside it. DeepSeek V3.2's takes one
number from each half, its attention takes neighbours; the indexer of GLM-5 takes neighbours, too. The wrong pairs raise
no error. They select other keys: in a report on SGLang's indexer a benchmark of arithmetic fell from 0.955 to 0.931.

**What it costs.** A pair of a query and a key takes `2 H D` operations, 16,384 with 64 heads of 128, where attention
over the latents takes 278,528. Beside the product each head costs a comparison, a multiplication and an addition on the
ordinary cores. The scores are written as float32, 4 bytes a pair. For one new token it is the keys that are read, 132
bytes each. On an H200 1024 queries score 32768 keys in [[bench: indexer:codes/1024x32768x64/forward/ms]],
[[bench: indexer:codes/1024x32768x64/forward/share]] of the limit that its tensor cores set. PyTorch takes
[[bench: indexer:codes/1024x32768x64/forward/eager.ms]], compiled
[[bench: indexer:codes/1024x32768x64/forward/torch.compile.ms]].

**Where it falls behind.** That limit is of products of codes, and the kernel makes [products of float16](#codes), which
take twice as long. And they don't overlap with what follows: after a product each thread has 64 scores of heads, with
about five instructions for each, before its program begins the next one.

**Contract.** `q` is (M, H, D) and `k` is (S, D), both float32, float16, bfloat16 or `float8_e4m3fn`; `weights` is (M,
H) in float32 and may be negative; `k_scale`, if given, (S,) in float32. H and D are 1 to 128. Any strides. Query i
scores the keys from `start[i]` to before `end[i]`, and everything else is −∞, not 0, which would beat negative scores.
`indexer_logits_paged` is the same for the T newest tokens of sequences in a cache of pages. Sums are float32. A NaN
reaches the score of its key or query, and no other. What no query sees may be NaN. Forward only: codes have no
gradient, and [the loss that trains the indexer](indexer_loss.py) has kernels of its own.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, load_numbers, load_tile, same_device, strided
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.paged import cache_contract, capacity_of, load_rows, rows_of_cache
from annotated_examples.common.products import input_precision, rows_by_rows
from annotated_examples.common.windows import bound, window_contract, window_of


# ## Reference
#
# All products of all heads at once. PyTorch multiplies no codes like these, so they are converted first.
def indexer_logits_reference(q, k, weights, k_scale=None, *, start=None, end):
    dtype = weights.dtype if q.dtype == torch.float8_e4m3fn else q.dtype
    z = torch.einsum("mhd,nd->mhn", q.to(dtype), k.to(dtype))
    logits = (z.relu() * weights[..., None]).sum(1) * (1 if k_scale is None else k_scale)
    at, last = torch.arange(len(k), device=q.device), len(k) if end is None else end[:, None]
    return logits.masked_fill((at < (0 if start is None else start[:, None])) | (at >= last), -torch.inf)


# A sequence after the other, from the pages that it has.
def indexer_logits_paged_reference(q, k_cache, weights, lengths, block_table, k_scale=None):
    (B, T), size = q.shape[:2], k_cache.shape[1]
    logits = weights.new_full((B, T, block_table.shape[1] * size), -torch.inf)
    for b, length in enumerate(lengths.tolist()):
        pages = block_table[b, : -(-length // size)].long()
        k, scale = (x if x is None else x[pages].flatten(0, 1)[:length] for x in (k_cache, k_scale))
        end = (length - T + 1 + torch.arange(T, device=q.device)).clamp(min=0)
        logits[b, :, :length] = indexer_logits_reference(q[b], k, weights[b], scale, end=end)
    return logits


# ## Which keys does a query see?
#
# A window is given, or it is what a new token sees: token `t` of `T` all keys up to its own, in a sequence of `length`.
@triton.jit
def seen_by(rows, start, end, lengths, b, T, S):
    lengths_ptr, stride_l = lengths
    if lengths_ptr is not None:
        length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
        possible = (rows >= 0) & (length >= 0) & (length <= S)
        first, last = tl.zeros_like(rows), tl.where(possible, tl.maximum(length - T + 1 + rows, 0), 0)
    else:
        first, last, possible = window_of(start, end, rows, T, S)
    return first, last, possible


# ## Codes
#
# Tensor cores multiply FP8 codes twice as fast as 16-bit numbers. But on Hopper they keep only about 14 bits of a sum
# of such products: on an H200 scores were wrong in the fourth digit, and the order of two keys may hang on that.
# float16 has every number that e4m3 has, and its products are summed in float32. So what the codes save here is bytes;
# the product takes as long as one of float16.
@triton.jit
def summed_exactly(x):
    if x.dtype.primitive_bitwidth == 8:
        x = x.to(tl.float16)
    return x


# ## Scores of a tile
#
# A program keeps a tile of keys and goes through `BLOCK_T` queries. The product has a row for each key and a column for
# each *head* of one query. ReLU and weights are applied to it as it comes, and the sum over the heads runs along a row,
# which on Hopper four neighbouring threads hold. Nothing of it is written but the sum.
#
# With the heads in the rows, the same sum would go across warps, through shared memory. And with several queries in one
# tile, the tile would have to be cut by query after the product.
@triton.jit
def indexer_logits_kernel(
    q_tensor, weights_tensor,  # (pointer, four strides): (B, T, H, D), (B, T, H)
    cache_tensor, scale_tensor,  # the same: (1, S, 1, D), or (num_pages, page_size, 1, D); without D, or None and zeros
    start, end, lengths,  # (pointer, stride): (T,), or None; (T,); (B,), or None
    table,  # (pointer, two strides): (B, pages); or None and zeros
    out_ptr,  # (B, T, S), contiguous
    pages, T, S, H: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    # Programs that run at the same time have neighbouring tiles of keys, and share their queries.
    tiles, blocks = tl.cdiv(S, BLOCK_N), tl.cdiv(T, BLOCK_T)
    b, start_t = tl.program_id(0) // tiles // blocks, tl.program_id(0) // tiles % blocks * BLOCK_T
    start_n = tl.program_id(0) % tiles * BLOCK_N
    offs_t, offs_n = start_t + tl.arange(0, BLOCK_T), start_n + tl.arange(0, BLOCK_N)
    rows_ptr = out_ptr + b.to(tl.int64) * T * S

    # Under a causal mask nearly half of the tiles are in no query's window. Those are filled, and their keys aren't
    # even read. The example's second program has keys 4 and 5 and the first two queries, which see no more than three
    # keys: `pid=1: furthest = 3`.
    first, last, possible = seen_by(offs_t, start, end, lengths, b, T, S)
    first, last = tl.where(offs_t < T, first, S), tl.where(offs_t < T, last, 0)
    furthest = tl.max(last, axis=0)
    if (furthest <= start_n) | (tl.min(first, axis=0) >= start_n + BLOCK_N):
        empty = tl.where(possible, -float("inf"), float("nan"))[:, None] + tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
        corner = (offs_t < T)[:, None] & (offs_n < S)[None, :]
        tl.store(rows_ptr + offs_t.to(tl.int64)[:, None] * S + offs_n[None, :], empty, mask=corner)
    else:
        mask = offs_n < tl.minimum(furthest, S)
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        k = summed_exactly(load_rows(cache_tensor, 0, page, slot, mask & inside, D, BLOCK_D))
        scale = scales_of(scale_tensor, page, slot, mask & inside)
        offs_h = tl.arange(0, BLOCK_H)
        for t in tl.range(start_t, tl.minimum(start_t + BLOCK_T, T)):
            q = summed_exactly(load_tile(head(q_tensor, b, t, 0), offs_h, H, D, BLOCK_D))
            weights = load_numbers(head(weights_tensor, b, t, 0), offs_h, H)
            # Columns past the last head are 0, also where a key is infinite.
            z = tl.where((offs_h < H)[None, :], rows_by_rows(k, q, INPUT_PRECISION), 0.0)
            # [[tag: IX-I]]. `tl.maximum(z, 0)` would take a NaN for 0.
            z = tl.where(z <= 0.0, 0.0, z)
            logits = tl.sum(z * weights[None, :], axis=1) * scale
            logits = tl.where(inside, logits, float("nan"))
            row = tl.cast(t, tl.int32)
            begin, behind, real = seen_by(row, start, end, lengths, b, T, S)
            logits = tl.where((offs_n >= begin) & (offs_n < behind), logits, -float("inf"))
            logits = tl.where(real, logits, float("nan"))
            tl.store(rows_ptr + row.to(tl.int64) * S + offs_n, logits, mask=offs_n < S)


@triton.jit
def scales_of(scale_tensor, page, slot, mask):
    ptr, stride_p, stride_s, _, _ = scale_tensor
    scale = tl.full(page.shape, 1.0, tl.float32)
    if ptr is not None:
        at = page.to(tl.int64) * stride_p + slot.to(tl.int64) * stride_s
        scale = tl.load(ptr + at, mask=mask, other=0.0)
    return scale


# ## The launcher
#
# Keys without pages are one sequence, whose new tokens are all queries. A longer walk along the queries saves loads of
# keys, and leaves fewer programs. In float32, and on a card with little shared memory, no query is loaded ahead.
@opaque(
    "(Tensor q, Tensor cache, Tensor weights, Tensor? k_scale, Tensor? start, Tensor? end, Tensor? lengths, "
    "Tensor? block_table) -> Tensor",
    lambda q, cache, weights, k_scale, start, end, lengths, block_table: weights.new_empty(
        *q.shape[:2], capacity_of(cache, block_table)
    ),
)
def indexer_logits_forward(q, cache, weights, k_scale, start, end, lengths, block_table, *, BLOCK_T=None, BLOCK_N=None):
    """(B, T, S) float32, of q (B, T, H, D) and weights (B, T, H); the cache is (1, S, D), or (pages, page_size, D)."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_N=BLOCK_N)
    (B, T, H, D), S, float32 = q.shape, capacity_of(cache, block_table), q.dtype == torch.float32
    BLOCK_T = BLOCK_T or min(triton.next_power_of_2(max(T, 1)), 8 if float32 else 32)
    BLOCK_N, BLOCK_H = BLOCK_N or (32 if float32 else 128), max(16, triton.next_power_of_2(H))
    logits = torch.empty((B, T, S), dtype=torch.float32, device=q.device)
    if logits.numel():
        indexer_logits_kernel[(B * triton.cdiv(T, BLOCK_T) * triton.cdiv(S, BLOCK_N),)](
            strided(q), strided(weights), strided(cache[:, :, None]),
            (None, 0, 0, 0, 0) if k_scale is None else strided(k_scale[:, :, None]), bound(start), bound(end),
            bound(lengths), (None, 0, 0) if block_table is None else (block_table, *block_table.stride()), logits,
            tuple(cache.shape[:2]), T, S, H=H, D=D, INPUT_PRECISION=input_precision(), BLOCK_T=BLOCK_T,
            BLOCK_N=BLOCK_N, BLOCK_H=BLOCK_H, BLOCK_D=max(32, triton.next_power_of_2(D)),
            num_warps=8 if BLOCK_H == 128 else 4,
            num_stages=1 if float32 or device.shared_memory(q.device.index) < 2**17 else 3,
        )  # fmt: skip
    return logits


# ## Arguments
MOST_HEADS = LARGEST_HEAD = 128
KINDS = (*checks.FLOATS, torch.float8_e4m3fn)


def contract(function, q, keys, weights, k_scale, **cache):
    """What both functions check. keys: what a scale is for, (S,) or (pages, page_size)."""
    [(name, rows)] = cache.items()
    checks.tensors(q=q, weights=weights, **cache)
    checks.optional_tensors(k_scale=k_scale)
    checks.no_gradient(function, q=q, weights=weights, k_scale=k_scale, **cache)
    checks.dtypes(KINDS, q=q)
    checks.same_dtype(q=q, **cache)
    checks.dtypes((torch.float32,), weights=weights, k_scale=k_scale)
    (*rest, H, D) = q.shape
    checks.shape(name, rows, (*keys, D), "the width of q")
    checks.shape("weights", weights, (*rest, H), "the queries and heads of q")
    checks.shape("k_scale", k_scale, keys, "one for each key")
    same_device(q=q, weights=weights, **cache, **({} if k_scale is None else dict(k_scale=k_scale)))
    if not (1 <= H <= MOST_HEADS and 1 <= D <= LARGEST_HEAD):
        raise ValueError(f"q must have 1 to {MOST_HEADS} heads of 1 to {LARGEST_HEAD} numbers, got {tuple(q.shape)}")
    if q.dtype == torch.float8_e4m3fn:
        device.require("fp8", function, q.device.index)


@replayed
def indexer_logits(q, k, weights, k_scale=None, *, start=None, end):
    """How much each key is worth reading to each query, as an indexer scores it. Forward only.

    Args:
        q: (M, H, D) float32, float16, bfloat16 or float8_e4m3fn, any strides, H and D from 1 to 128.
        k: (S, D), dtype of `q`: one for all heads.
        weights: (M, H) float32, of any sign. The scales of codes in `q` and constant factors belong here.
        k_scale: (S,) float32, positive, by which the codes of each key are multiplied.
        start, end: (M,) int32, the window of each query: from `start` to before `end`, from 0 to S. None: from the
            first key, to the last.

    Returns:
        (M, S) float32, −∞ outside of the windows. A row whose window can't be is NaN.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes or devices don't fit, an input requires a gradient, or, on the CPU and with `ACADEMY_DEBUG=1`
            in the environment, a window is out of range.
        RuntimeError: `q` is e4m3, and the card is older than compute capability 8.9.

    Source: DeepSeek-AI, "DeepSeek-V3.2" (2025), the lightning indexer.
    """
    checks.tensors(q=q, k=k)
    checks.dimensions("q", q, 3, "M, H, D")
    checks.dimensions("k", k, 2, "S, D")
    contract("indexer_logits", q, k.shape[:1], weights, k_scale, k=k)
    window_contract(q, len(k), start, end)
    scale = k_scale if k_scale is None else k_scale[None]
    return indexer_logits_forward(q[None], k[None], weights[None], scale, start, end, None, None)[0]


@replayed
def indexer_logits_paged(q, k_cache, weights, lengths, block_table, k_scale=None):
    """The same for the newest tokens of sequences whose keys lie in pages. Forward only.

    Args:
        q: (B, T, H, D), the T newest tokens of each sequence, as for `indexer_logits`.
        k_cache: (num_pages, page_size, D), dtype of `q`, page_size any number.
        weights: (B, T, H) float32.
        lengths: (B,) int32: how many keys of each sequence count, the new tokens' own among them. Each new token sees
            the keys up to its own.
        block_table: (B, pages) int32: the pages of each sequence, in order. Past the last one it may hold anything.
        k_scale: (num_pages, page_size) float32, positive.

    Returns:
        (B, T, pages * page_size) float32, −∞ behind the keys that a token sees. A length that the cache doesn't have
        gives NaN for that sequence, a page that the pool doesn't have NaN for its keys; nothing outside is read.

    Raises:
        TypeError, ValueError, RuntimeError: as `indexer_logits`; lengths and pages are looked at where windows are.

    Source: as `indexer_logits`.
    """
    checks.tensors(q=q, k_cache=k_cache, lengths=lengths, block_table=block_table)
    checks.dimensions("q", q, 4, "B, T, H, D")
    checks.dimensions("k_cache", k_cache, 3, "num_pages, page_size, D")
    contract("indexer_logits_paged", q, k_cache.shape[:2], weights, k_scale, k_cache=k_cache)
    cache_contract(q, lengths, block_table, None, k_cache=k_cache)
    return indexer_logits_forward(q, k_cache, weights, k_scale, None, None, lengths, block_table)


# ## A run small enough to watch
#
# Three queries of two heads and six keys, the first head with a negative weight. The queries see the first two keys,
# the first three, and all of them.
def EXAMPLE():
    at = torch.arange(12, dtype=torch.float32, device=device.DEVICE)
    q, k = (at * 5 % 7 - 3).view(3, 2, 2), (at * 3 % 5 - 2).view(6, 2)
    weights = torch.tensor([-1, 2.0], device=device.DEVICE).repeat(3, 1)
    end = torch.tensor([2, 3, 6], dtype=torch.int32, device=device.DEVICE)
    indexer_logits_forward(
        q[None], k[None], weights[None], None, None, end, None, None, BLOCK_T=2, BLOCK_N=4
    )  # fmt: skip


if __name__ == "__main__":
    script.main(indexer_logits, indexer_logits_reference)
