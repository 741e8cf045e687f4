r"""
# Decoding from latents: one cache for all heads

[Latent attention](mla.py) keeps one vector a token, and while text is written, that cache is what has to be read.
Making keys and values of it again for every new token would be the slow way: 33.6 million operations for each token in
the cache. The matrix can go to the query instead, because a score is the same number in either order:

[[eq: MLA-absorb]]

[[eq: MLA-S-absorbed]]

Values are linear in the latent, too. Their mean is a matrix times the mean of the latents:

[[eq: MLA-latent]]

[[eq: MLA-expand]]

So all heads read the same row of 512 + 64 numbers as a key, and its first 512 as a value; no key is ever written down.
`absorb` and `expand` are the products before and after; between them there is one kernel that reads the cache.

**What it costs.** In bfloat16 a token of the cache is 1152 bytes, and each head does 2176 operations with it. With 16
heads that is 30 operations a byte, far fewer than a card does while a byte arrives, so the bytes decide. With 128 heads
it is 242, and the tensor cores have as much to do as the memory. Grouping heads would gain nothing here: all heads are
one group. (A tile has 64 rows at most. Of 128 heads, two programs read each latent, one of them at best from the L2
cache.) On an H200 128 sequences of 4096 tokens take [[bench: mla_decode/128x16x4096/forward/ms]] with 16 heads,
[[bench: mla_decode/128x16x4096/forward/share]] of the speed of a copy. PyTorch takes
[[bench: mla_decode/128x16x4096/forward/PyTorch, absorbed.ms]], compiled
[[bench: mla_decode/128x16x4096/forward/torch.compile.ms]].

**Where it falls behind.** FlashInfer, which is written in CUDA, takes
[[bench: mla_decode/128x16x4096/forward/FlashInfer.ms]] with 16 heads. With 128 it takes
[[bench: mla_decode/128x128x4096/forward/FlashInfer.ms]] and we [[bench: mla_decode/128x128x4096/forward/ms]], no less
than the compiled products, [[bench: mla_decode/128x128x4096/forward/torch.compile.ms]]. One sequence of 65536 tokens
takes it [[bench: mla_decode/1x128x65536/forward/FlashInfer.ms]], us [[bench: mla_decode/1x128x65536/forward/ms]], and
them [[bench: mla_decode/1x128x65536/forward/torch.compile.ms]].
With 128 heads our kernel is far from the card's limit. An SM has room for one program, whose products, exponentials and
loads take turns. Smaller tiles, of which more are on their way, don't help: with 32 keys instead of 64 the same takes
[[bench: mla_decode/ladder/tiles of 32 keys/many_ms]] instead of
[[bench: mla_decode/ladder/masks in a branch/many_ms]]. Two groups of warps that work on two tiles would overlap, but
that is below Triton.

**Contract.** `q` is (B, H, W), or (B, T, H, W) for the T newest tokens of each sequence, T at most 8; it is absorbed
and its last W − `rank` numbers are rotated. `cache` is (B, S, W), or (pages, page_size, W) with a table, rotated alike.
The first `rank` numbers of a row are the latent. float32, float16 or bfloat16, any strides. `lengths` counts the new
tokens, too, and each of them sees the keys up to its own. What lies behind the lengths is never read, and may be NaN.
**`scale` has no default**: it is one over the square root of the width of a key before absorbing, of 192 in DeepSeek's
models, and not of W; and where the rotation has been stretched, times [the model's factor for
that](mla.py). Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import same_device, store_tile
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.latents import decode_tiles, latent_contract, latent_splits, scores_apart, widths
from annotated_examples.common.paged import (
    cache_contract, capacity_of, decode_merge_kernel, load_rows, part_of_keys, rows_of_cache,
)  # fmt: skip
from annotated_examples.common.products import input_precision, multiply_add


# ## Before and after
#
# Two products of PyTorch. `w_uk` makes keys from latents and `w_uv` values. A model can multiply `w_uv` into its output
# matrix once and for all, if that makes the sum of both smaller.
def absorb(q_nope, q_pe, w_uk):
    """Queries for a cache of latents.

    Args:
        q_nope: (B, H, D) or (B, T, H, D). q_pe: (B, H, E) or (B, T, H, E), rotated.
        w_uk: (H, D, R), by which the keys would be made.

    Returns:
        (B, H, R + E) or (B, T, H, R + E).

    Raises:
        TypeError, ValueError: an argument is no tensor, or dtypes or shapes don't fit.

    Source: DeepSeek-AI, "DeepSeek-V2" (arXiv 2405.04434), where it follows from the associative law.
    """
    checks.tensors(q_nope=q_nope, q_pe=q_pe, w_uk=w_uk)
    checks.same_dtype(q_nope=q_nope, q_pe=q_pe, w_uk=w_uk)
    checks.dimensions("w_uk", w_uk, 3, "H, D, R")
    checks.shape("q_nope", q_nope, (*q_nope.shape[:-2], *w_uk.shape[:2]), "the heads and width of w_uk")
    checks.shape("q_pe", q_pe, (*q_nope.shape[:-1], *q_pe.shape[-1:]), "the tokens and heads of q_nope")
    return torch.cat([torch.einsum("...hd,hdr->...hr", q_nope, w_uk), q_pe], dim=-1)


def expand(o, w_uv):
    """Outputs of the heads from means of latents.

    Args:
        o: (B, H, R) or (B, T, H, R), from `mla_decode`.
        w_uv: (H, V, R), by which the values would be made.

    Returns:
        (B, H, V) or (B, T, H, V).

    Raises:
        TypeError, ValueError: as `absorb`.

    Source: as `absorb`.
    """
    checks.tensors(o=o, w_uv=w_uv)
    checks.same_dtype(o=o, w_uv=w_uv)
    checks.dimensions("w_uv", w_uv, 3, "H, V, R")
    checks.shape("o", o, (*o.shape[:-2], w_uv.shape[0], w_uv.shape[2]), "the heads and rank of w_uv")
    return torch.einsum("...hr,hvr->...hv", o, w_uv)


# ## Reference
#
# One sequence after the other, in any dtype.
def mla_decode_reference(q, cache, lengths, *, rank, scale, block_table=None, num_splits=None, return_lse=False):
    tokens = q if q.dim() == 4 else q[:, None]
    T, outputs, sums = tokens.shape[1], [], []
    for b, length in enumerate(lengths.tolist()):
        pages = slice(b, b + 1) if block_table is None else block_table[b, : -(-length // cache.shape[1])].long()
        rows, at = cache[pages].flatten(0, 1)[:length], torch.arange(length, device=q.device)
        s = scale * torch.einsum("thw,nw->thn", tokens[b], rows)
        hidden = at > length - T + torch.arange(T, device=q.device)[:, None, None]
        s = s.masked_fill(hidden, -math.inf)
        p = torch.softmax(s, dim=-1).masked_fill(hidden, 0.0)
        outputs.append(torch.einsum("thn,nr->thr", p, rows[:, :rank]))
        sums.append(torch.logsumexp(s.to(torch.promote_types(s.dtype, torch.float32)), dim=-1))
    o = torch.stack(outputs) if outputs else tokens[..., :rank]
    lse = torch.stack(sums) if sums else tokens[..., 0].float()
    o, lse = (x if q.dim() == 4 else x[:, 0] for x in (o, lse))
    return (o, lse) if return_lse else o


# ## One part of the keys
#
# [[figure: latent/tile_twice]]
#
# The keys of a sequence are divided into parts, as in [decode](decode.py), and lie in pages, as there. What is new is
# the tile of queries. All heads read the same keys, and so do all new tokens. So a row of the tile is a token *and* a
# head: rows 0 to H − 1 are the heads of the first token.
@triton.jit
def load_queries(q_tensor, b, rows, count, H, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride_b, stride_t, stride_h, stride_d = q_tensor
    at = tl.cast(b, tl.int64) * stride_b + (rows // H).to(tl.int64) * stride_t + (rows % H).to(tl.int64) * stride_h
    columns = tl.arange(0, BLOCK_D).to(tl.int64)
    mask = (rows < count)[:, None] & (columns < D)[None, :]
    return tl.load(ptr + at[:, None] + columns[None, :] * stride_d, mask=mask, other=0.0)


# Most tiles have nothing to hide. And the branch keeps all eight warps at work. When the result of a product leads to
# another product, Triton gives each warp whole rows of it. 64 rows are enough for four warps, so the other four would
# compute the same again. But it doesn't look past a branch. With 128 heads that makes
# [[bench: mla_decode/ladder/masks in a branch/many_ms]] of [[bench: mla_decode/ladder/one wave/many_ms]].
@triton.jit
def hide(s, table, some_hidden, offs_n, mask, inside, last):
    if table[0] is not None:
        some_hidden |= tl.min(inside.to(tl.int32), axis=0) == 0
    if some_hidden:
        # A page outside of the pool makes the result NaN.
        s = tl.where(inside[None, :], s, float("nan"))
        s = tl.where(mask[None, :] & (offs_n[None, :] <= last[:, None]), s, -float("inf"))
    return s


# The tile of latents is loaded once. Its product with the queries gives scores, and the weights' product with the same
# tile gives the mean. The rotated part is a tile of its own: 512 + 64 columns as one tile would be padded to 1024.
@triton.jit
def mla_decode_split_kernel(
    q_tensor, q_pe_tensor,  # (pointer, four strides): (B, T, H, R), (B, T, H, E)
    cache_tensor, cache_pe_tensor,  # the same: (B, S, 1, R), or (num_pages, page_size, 1, R) with a table; and with E
    lengths,  # (pointer, stride): (B,)
    table,  # (pointer, two strides): (B, pages); or None and zeros
    parts_ptr, lse_ptr,  # (B, T, H, num_splits, R) and (B, T, H, num_splits), contiguous
    pages,  # (num_pages, page_size) of the cache
    T, H, capacity, scale, R: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    count = T * H
    tiles = tl.cdiv(count, BLOCK_M)
    b, rows = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    q = load_queries(q_tensor, b, rows, count, H, R, BLOCK_R)
    q_pe = load_queries(q_pe_tensor, b, rows, count, H, E, BLOCK_E)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    start_n, end_n, possible = part_of_keys(length, capacity, capacity, split, num_splits, BLOCK_N)
    # The position of the row's own token. Of two new tokens, here with two heads each, the first doesn't see the
    # second: `pid=(0, 0): last = [3, 3, 4, 4]`.
    last = length - T + rows // H
    # Of keys before this one nothing is hidden: `pid=(0, 0): seen_by_all = 4`.
    seen_by_all = tl.minimum(length - T + 1, end_n)

    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_R), tl.float32)
    for start in tl.range(start_n, end_n, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < end_n
        # Key 4 is in the second page of the table: `pid=(0, 1), start=4: page[0] = 0`, `pid=(0, 1), start=4: slot[0] =
        # 1`.
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        c = load_rows(cache_tensor, 0, page, slot, mask & inside, R, BLOCK_R)
        c_pe = load_rows(cache_pe_tensor, 0, page, slot, mask & inside, E, BLOCK_E)
        # [[tag: MLA-S-absorbed]]
        s = scores_apart(q, q_pe, c, c_pe, scale, INPUT_PRECISION)
        s = hide(s, table, start + BLOCK_N > seen_by_all, offs_n, mask, inside, last)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        # [[tag: MLA-latent]]: the same tile, now as values.
        acc = multiply_add(p.to(c.dtype), c, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max
    # A part without a key is stored too: 0, with a log-sum-exp of −∞.
    part = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = tl.where(row_sum == 0.0, -float("inf"), row_max + tl.log(row_sum))
    first = b.to(tl.int64) * count * num_splits + split
    tl.store(lse_ptr + first + rows * num_splits, tl.where(possible, lse, float("nan")), mask=rows < count)
    store_tile((parts_ptr + first * R, num_splits * R, 1), part, rows, count, R, BLOCK_R)


# ## The launcher
#
# The parts are merged by the kernel that decode has, a program for each token and head.
@opaque(
    "(Tensor q, Tensor cache, Tensor lengths, Tensor? block_table, int rank, float scale, int? num_splits, "
    "bool return_lse) -> (Tensor, Tensor)",
    lambda q, cache, lengths, block_table, rank, scale, num_splits, return_lse: (
        q.new_empty(*q.shape[:3], rank), q.new_empty(q.shape[:3] if return_lse else 0, dtype=torch.float32),
    ),
)  # fmt: skip
def mla_decode_forward(
    q, cache, lengths, block_table, rank, scale, num_splits, return_lse, *, BLOCK_M=None, BLOCK_N=None, BLOCK_S=16
):
    """`(o, lse)`, (B, T, H, rank) and (B, T, H), from q of shape (B, T, H, W); without `return_lse` lse is empty.

    A tile has BLOCK_M rows of queries and BLOCK_N keys; BLOCK_S parts are merged at a time.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_S=BLOCK_S)
    (B, T, H, W), capacity = q.shape, capacity_of(cache, block_table)
    M, N, num_warps, num_stages = decode_tiles(B, T * H, capacity, num_splits, rank, q.dtype, q.device.index)
    BLOCK_M, BLOCK_N, wide = BLOCK_M or M, BLOCK_N or N, widths(W, rank)
    programs = B * triton.cdiv(T * H, BLOCK_M)
    num_splits = latent_splits(programs, capacity, BLOCK_N, num_warps) if num_splits is None else num_splits
    o = q.new_empty(B, T, H, rank)
    parts = torch.empty((B, T, H, num_splits, rank), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, T, H, num_splits), dtype=torch.float32, device=q.device)
    if o.numel():
        halves = [part for x in (q, cache[:, :, None]) for part in (x[..., :rank], x[..., rank:])]
        mla_decode_split_kernel[(programs, num_splits)](
            *[(x, *x.stride()) for x in halves], (lengths, lengths.stride(0)),
            (None, 0, 0) if block_table is None else (block_table, *block_table.stride()), parts, lse,
            tuple(cache.shape[:2]), T, H, capacity, scale, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N, **wide, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        merge = dict(D=rank, BLOCK_S=BLOCK_S, BLOCK_D=wide["BLOCK_R"])
        decode_merge_kernel[(B * T * H,)](parts, lse, None, o, H, num_splits, **merge)
    return o, torch.logsumexp(lse, dim=-1) if return_lse else lse.new_empty(0)


# ## Arguments
MOST_TOKENS = 8


def contract(q, cache, lengths, rank, scale, block_table, num_splits, return_lse):
    """Checks the arguments, and returns `(q with tokens, scale)`."""
    checks.tensors(q=q, cache=cache, lengths=lengths)
    checks.optional_tensors(block_table=block_table)
    checks.no_gradient("mla_decode", q=q, cache=cache)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, cache=cache)
    checks.dimensions("q", q, range(3, 5), "B, H, W or B, T, H, W")
    checks.dimensions("cache", cache, 3, "B, S, W or num_pages, page_size, W")
    same_device(q=q, cache=cache)
    tokens, W = q if q.dim() == 4 else q[:, None], q.shape[-1]
    if cache.shape[-1] != W:
        raise ValueError(f"cache must have the width of q, {W}, got shape {tuple(cache.shape)}")
    if not 1 <= tokens.shape[1] <= MOST_TOKENS:
        raise ValueError(f"q must have 1 to {MOST_TOKENS} tokens, got {tokens.shape[1]}")
    scale = latent_contract(q, rank, scale)
    checks.choice("return_lse", return_lse, (True, False))
    cache_contract(q, lengths, block_table, num_splits, cache=cache)
    return tokens, scale


@replayed
def mla_decode(q, cache, lengths, *, rank, scale, block_table=None, num_splits=None, return_lse=False):
    r"""Attention of the newest tokens over a cache of latents, which are keys and values of all heads. Forward only.

    Args:
        q: (B, H, W), or (B, T, H, W) for the T newest tokens, T up to 8; float32, float16 or bfloat16, absorbed.
        cache: (B, S, W), dtype of `q`: a latent and a rotated part for each token. With `block_table`: (num_pages,
            page_size, W), page_size any number. Any strides.
        lengths: (B,) int32: how many keys of each sequence count, the new tokens' own among them. In a sequence shorter
            than T the first tokens see nothing.
        rank: how many numbers of a row are the latent, 1 to 512, and at least W − 64.
        scale: of the scores, $1/\sqrt{D + E}$ of the keys that the latents stand for.
        block_table: (B, pages) int32: the pages of each sequence, in order. Past the last one it may hold anything.
        num_splits: how many parts the keys of a sequence are divided into. The default depends on the shapes only.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        o, (B, H, rank) or (B, T, H, rank) in the dtype of `q`, to be expanded; or (o, lse) with lse (B, H) or
        (B, T, H), float32, a natural logarithm. A token that sees no key gives 0 and −∞. A length that the cache
        doesn't have gives NaN for that sequence, a page that the pool doesn't have NaN for the tokens that see it;
        nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a number is out of range, an input requires a gradient, or, on the CPU and with
            `ACADEMY_DEBUG=1` in the environment, a length or a page is out of range.

    Source: DeepSeek-AI, "DeepSeek-V2" (arXiv 2405.04434); "Flash-Decoding" of Dao, Haziza, Massa and Sizov.
    """
    tokens, scale = contract(q, cache, lengths, rank, scale, block_table, num_splits, return_lse)
    results = mla_decode_forward(tokens, cache, lengths, block_table, rank, scale, num_splits, return_lse)
    o, lse = results if q.dim() == 4 else (x.squeeze(1) if x.dim() > 1 else x for x in results)
    return (o, lse) if return_lse else o


# ## A run small enough to watch
#
# Two new tokens of two heads, five keys in pages of three, latents of two numbers with one rotated, and two parts.
def EXAMPLE():
    at = torch.arange(27, dtype=torch.float32, device=device.DEVICE)
    q, cache = (at[:12] * 5 % 7 - 3).view(1, 2, 2, 3), (at * 3 % 5 - 2).view(3, 3, 3)
    lengths = torch.tensor([5], dtype=torch.int32, device=device.DEVICE)
    table = torch.tensor([[2, 0, -1]], dtype=torch.int32, device=device.DEVICE)
    tokens, scale = contract(q, cache, lengths, 2, 0.5, table, 2, True)
    mla_decode_forward(tokens, cache, lengths, table, 2, scale, 2, True, BLOCK_M=4, BLOCK_N=4, BLOCK_S=2)


if __name__ == "__main__":
    script.main(mla_decode, mla_decode_reference)
