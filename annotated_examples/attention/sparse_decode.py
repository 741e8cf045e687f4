r"""
# Decoding with selected keys

While text is written, a new token reads [its selected keys](sparse_mla.py) out of a cache in pages. The list may name
them in two ways. An *index* counts the tokens of the sequence, and that is what an indexer selects. A *slot* counts the
rows of the pool of pages, `page * page_size + place`, and that is what a kernel can read without a table:

[[figure: selected/slots]]

`to_slots` turns one into the other, once for all layers that share the list and the table. Taking an index for a slot
is a mistake that no shape shows: both are whole numbers, and the rows that are read exist.

A list of 2048 keys is short work for a card, and with one program for each token most of it would stand still. So the
list is divided into parts, as [the cache of decode](decode.py) is, and the parts are merged by their log-sum-exps.

**What it costs.** As much as decoding from latents with so many keys, 1152 bytes a key in bfloat16, however long the
sequence is. With 128 heads it is 242 operations a byte. On an H200 64 tokens with 128 heads and 2048 keys each take
[[bench: sparse_decode/64x128x262144x2048/forward/ms]], and with 16 heads
[[bench: sparse_decode/64x16x262144x2048/forward/ms]]. PyTorch, which gathers the keys first, takes
[[bench: sparse_decode/64x128x262144x2048/forward/PyTorch, keys gathered.ms]] and
[[bench: sparse_decode/64x16x262144x2048/forward/PyTorch, keys gathered.ms]].

A single token with 128 heads takes [[bench: sparse_decode/1x128x65536x2048/forward/ms]], because its list is divided
into many short parts, and what `torch.compile` makes of gathering
[[bench: sparse_decode/1x128x65536x2048/forward/torch.compile.ms]].

**Contract.** `q` is (B, H, W), or (B, T, H, W) for the T newest tokens of each sequence; `cache` is (pages, page_size,
W), page_size any number; both float32, float16 or bfloat16, any strides. `slots` is (B, K) or (B, T, K), int32 or
int64, −1 anywhere for none, and a slot that is named twice counts twice. Any other number outside of the pool makes
that token NaN, and nothing outside is read. Rows that nobody has selected may hold anything. `scale` has no default.
Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, same_device, store_tile, strided
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.latents import (
    decode_tiles, latent_contract, latent_splits, load_parts, scores_apart, widths,
)  # fmt: skip
from annotated_examples.common.paged import decode_merge_kernel
from annotated_examples.common.products import input_precision, multiply_add
from annotated_examples.common.selected import list_contract, load_keys, load_list, score_of_tile


# ## From indices to slots
#
# Index arithmetic of PyTorch. What is neither none nor an index gets −2, and not −1: a mistake must not pass for none.
# A page of −1 would do just that, since its last slot is −1.
def to_slots(indices, block_table, page_size):
    """Slots of a pool of pages, of indices that count the tokens of each sequence.

    Args:
        indices: (B, K) or (B, T, K), int32 or int64; −1 for none.
        block_table: (B, pages) int32: the pages of each sequence, in order.
        page_size: rows of a page.

    Returns:
        int64, the shape of `indices`: page · page_size + place, −1 for none, and −2 for an index that the table doesn't
        have, or whose page is negative.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes or devices don't fit, or, on the CPU and with `ACADEMY_DEBUG=1` in the environment, an index
            is out of range.

    Source: the block tables of Kwon et al. (arXiv 2309.06180).
    """
    checks.tensors(indices=indices, block_table=block_table)
    checks.dtypes((torch.int32, torch.int64), indices=indices)
    checks.dtypes((torch.int32,), block_table=block_table)
    checks.dimensions("indices", indices, range(2, 4), "B, K or B, T, K")
    checks.dimensions("block_table", block_table, 2, "B, pages")
    checks.whole_number("page_size", page_size, at_least=1)
    (B, pages), flat = (len(indices), block_table.shape[1]), indices.flatten(1).long()
    checks.shape("block_table", block_table, (B, pages), "a row for each sequence")
    same_device(indices=indices, block_table=block_table)
    list_contract("indices", indices, pages * page_size, tuple(indices.shape), "")
    known = (flat >= 0) & (flat < pages * page_size)
    page = torch.nn.functional.pad(block_table.long(), (0, 1), value=-1).gather(
        1, torch.where(known, flat // page_size, pages)
    )
    slots = torch.where(page >= 0, page * page_size + flat % page_size, -2)
    return torch.where(flat == -1, -1, slots).view(indices.shape)


# ## Reference
#
# A copy of the selected rows for each token, with a row of zeros for none.
def sparse_decode_reference(q, cache, slots, *, rank, scale, num_splits=None, return_lse=False):
    none, pool = slots < 0, cache.flatten(0, 1)
    rows = torch.nn.functional.pad(pool, (0, 0, 0, 1))[slots.masked_fill(none, len(pool)).long()]
    none = none.unsqueeze(-2)
    s = (scale * torch.einsum("...hw,...kw->...hk", q, rows)).masked_fill(none, -math.inf)
    p = torch.softmax(s, dim=-1).masked_fill(none, 0.0)
    o = torch.einsum("...hk,...kr->...hr", p, rows[..., :rank])
    lse = torch.logsumexp(s.to(torch.promote_types(s.dtype, torch.float32)), dim=-1)
    return (o, lse) if return_lse else o


# ## One part of a list
#
# Two new tokens have two lists, so they can't share a tile of keys, as up to 8 of them do [where all keys are
# read](mla_decode.py). Then there is no reason for such a limit: a program has one token, a tile of its heads, and a
# part of its list, and more tokens are more programs. Parts are whole tiles; if there are more parts than tiles, the
# last ones are empty, and weigh nothing.
@triton.jit
def sparse_decode_split_kernel(
    q_tensor, cache_tensor,  # (pointer, four strides): (B, T, H, R + E), (pages, page_size, 1, R + E)
    lists_tensor,  # the same: (B, T, K)
    parts_ptr, lse_ptr,  # (B, T, H, num_splits, R) and (B, T, H, num_splits), contiguous
    T, H, K, pages,  # pages: (pages, page_size) of the cache
    scale, R: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles, split, num_splits = tl.cdiv(H, BLOCK_M), tl.program_id(1), tl.num_programs(1)
    token, offs_h = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    b, t = token // T, token % T
    q, q_pe = load_parts(head(q_tensor, b, t, 0), offs_h, H, R, E, BLOCK_R, BLOCK_E)
    share = tl.cdiv(tl.cdiv(K, num_splits), BLOCK_N) * BLOCK_N
    end = tl.minimum(split * share + share, K)

    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_R), tl.float32)
    for start in tl.range(split * share, end, BLOCK_N):
        # The first tile of the example: `pid=(0, 0), start=0: j = [7, -1]`, the second row of page 2, and none.
        j = load_list(lists_tensor, b, t, start + tl.arange(0, BLOCK_N), end)
        c, c_pe = load_keys(cache_tensor, j, pages, R, E, BLOCK_R, BLOCK_E)
        # [[tag: SP-S]]
        s = score_of_tile(scores_apart(q, q_pe, c, c_pe, scale, INPUT_PRECISION), j, pages)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = multiply_add(p.to(c.dtype), c, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max
    # A part without a key is stored too: 0, with a log-sum-exp of −∞.
    part = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = tl.where(row_sum == 0.0, -float("inf"), row_max + tl.log(row_sum))
    first = token.to(tl.int64) * H * num_splits + split
    tl.store(lse_ptr + first + offs_h * num_splits, lse, mask=offs_h < H)
    store_tile((parts_ptr + first * R, num_splits * R, 1), part, offs_h, H, R, BLOCK_R)


# ## The launcher
#
# The parts are merged by the kernel that decode has, a program for each token and head, [[tag: AT-parts]].
@opaque(
    "(Tensor q, Tensor cache, Tensor slots, int rank, float scale, int? num_splits, bool return_lse) "
    "-> (Tensor, Tensor)",
    lambda q, cache, slots, rank, scale, num_splits, return_lse: (
        q.new_empty(*q.shape[:3], rank), q.new_empty(q.shape[:3] if return_lse else 0, dtype=torch.float32),
    ),
)  # fmt: skip
def sparse_decode_forward(
    q, cache, slots, rank, scale, num_splits, return_lse, *, BLOCK_M=None, BLOCK_N=None, BLOCK_S=16
):
    """`(o, lse)`, (B, T, H, rank) and (B, T, H), from q of shape (B, T, H, W); without `return_lse` lse is empty.

    A tile has BLOCK_M heads or BLOCK_N keys; BLOCK_S parts are merged at a time.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_S=BLOCK_S)
    (B, T, H, W), K = q.shape, slots.shape[2]
    M, N, num_warps, num_stages = decode_tiles(B * T, H, K, num_splits, rank, q.dtype, q.device.index)
    BLOCK_M, BLOCK_N, wide = BLOCK_M or M, BLOCK_N or N, widths(W, rank)
    programs = B * T * triton.cdiv(H, BLOCK_M)
    num_splits = latent_splits(programs, K, BLOCK_N, num_warps) if num_splits is None else num_splits
    o = q.new_empty(B, T, H, rank)
    parts = torch.empty((B, T, H, num_splits, rank), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, T, H, num_splits), dtype=torch.float32, device=q.device)
    if o.numel():
        sparse_decode_split_kernel[(programs, num_splits)](
            *[strided(x) for x in (q, cache[:, :, None], slots)], parts, lse, T, H, K,
            tuple(cache.shape[:2]), scale, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, **wide,
            num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        merge = dict(D=rank, BLOCK_S=BLOCK_S, BLOCK_D=wide["BLOCK_R"])
        decode_merge_kernel[(B * T * H,)](parts, lse, None, o, H, num_splits, **merge)
    return o, torch.logsumexp(lse, dim=-1) if return_lse else lse.new_empty(0)


# ## Arguments
def contract(q, cache, slots, rank, scale, num_splits, return_lse):
    """Checks the arguments, and returns `(q and slots with an axis of tokens, scale)`."""
    checks.tensors(q=q, cache=cache, slots=slots)
    checks.no_gradient("sparse_decode", q=q, cache=cache)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, cache=cache)
    checks.dtypes((torch.int32, torch.int64), slots=slots)
    checks.dimensions("q", q, range(3, 5), "B, H, W or B, T, H, W")
    checks.dimensions("cache", cache, 3, "pages, page_size, W")
    checks.dimensions("slots", slots, q.dim() - 1, "a list for each token of q")
    checks.shape("cache", cache, (*cache.shape[:2], q.shape[-1]), "the width of q")
    same_device(q=q, cache=cache, slots=slots)
    shape = (*q.shape[:-2], slots.shape[-1])
    list_contract("slots", slots, cache.shape[0] * cache.shape[1], shape, "a list for each token of q")
    if num_splits is not None:
        checks.whole_number("num_splits", num_splits, at_least=1, at_most=65_535)  # the grid's second axis ends there
    checks.choice("return_lse", return_lse, (True, False))
    scale = latent_contract(q, rank, scale)
    return (q, slots, scale) if q.dim() == 4 else (q[:, None], slots[:, None], scale)


@replayed
def sparse_decode(q, cache, slots, *, rank, scale, num_splits=None, return_lse=False):
    r"""Attention of the newest tokens to selected rows of a cache of latents. Forward only.

    Args:
        q: (B, H, W), or (B, T, H, W) for the T newest tokens, any number; float32, float16 or bfloat16, absorbed.
        cache: (pages, page_size, W), dtype of `q`, page_size any number, any strides.
        slots: (B, K) or (B, T, K), int32 or int64: page · page_size + place of each token's keys, as `to_slots` makes
            them; −1 anywhere for none. A slot that is named twice counts twice.
        rank: how many numbers of a row are the latent, 1 to 512, and at least W − 64.
        scale: of the scores, $1/\sqrt{D + E}$ of the keys that the latents stand for.
        num_splits: how many parts a list is divided into. The default depends on the shapes only.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        o, (B, H, rank) or (B, T, H, rank) in the dtype of `q`, to be expanded; or (o, lse) with lse (B, H) or
        (B, T, H), float32, a natural logarithm. A token without keys gives 0 and −∞. A slot that the pool doesn't have
        gives NaN for that token; nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a number is out of range, an input requires a gradient, or, on the CPU and with
            `ACADEMY_DEBUG=1` in the environment, a slot is out of range.

    Source: DeepSeek-AI, "DeepSeek-V3.2" (2025); "Flash-Decoding" of Dao, Haziza, Massa and Sizov.
    """
    tokens, lists, scale = contract(q, cache, slots, rank, scale, num_splits, return_lse)
    results = sparse_decode_forward(tokens, cache, lists, rank, scale, num_splits, return_lse)
    o, lse = results if q.dim() == 4 else (x.squeeze(1) if x.dim() > 1 else x for x in results)
    return (o, lse) if return_lse else o


# ## A run small enough to watch
#
# Two new tokens of two heads, which have lists of four, pages of three latents of two numbers with one rotated, and two
# parts.
def EXAMPLE():
    at = torch.arange(27, dtype=torch.float32, device=device.DEVICE)
    q, cache = (at[:12] * 5 % 7 - 3).view(1, 2, 2, 3), (at * 3 % 5 - 2).view(3, 3, 3)
    indices = torch.tensor([[[1, -1, 0, 4], [3, 2, -1, 1]]], dtype=torch.int32, device=device.DEVICE)
    table = torch.tensor([[2, 0]], dtype=torch.int32, device=device.DEVICE)
    tokens, slots, scale = contract(q, cache, to_slots(indices, table, 3), 2, 0.5, 2, True)
    sparse_decode_forward(tokens, cache, slots, 2, scale, 2, True, BLOCK_M=2, BLOCK_N=2, BLOCK_S=2)


if __name__ == "__main__":
    script.main(sparse_decode, sparse_decode_reference)
