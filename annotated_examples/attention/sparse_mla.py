r"""
# Attention to selected keys

An indexer has [selected](select_keys.py) a few thousand keys for each query. Now attention reads these and no others.
The keys are [latents](mla_decode.py), one row for all heads, and the tile of keys becomes a *gather*: its rows come
from wherever the list says. That is the whole change forward. N counts how often a query's list names a key:

[[eq: SP-P]]

[[eq: SP-O]]

There is no causal mask, because the list already says which keys a query sees.

**The way back turns round.** A query reads 2048 keys. A key, in turn, gets a gradient from every query that has it in
its list, and of those there is no list:

[[eq: SP-dC]]

[[figure: selected/columns]]

Who adds this up? There are two answers here. The default is a fixed order, as in [the indexer's loss](indexer_loss.py):
each query writes a float32 row for each of its keys, a stable sort puts the rows of a key side by side, and a program
for each key adds them up. The same bits come out each time. With `deterministic=False` the programs of the queries add
to the keys' gradients directly, by atomics, in whatever order they come. That saves the rows, and the last bits may
change from run to run.

[[figure: selected/traffic]]

**What it costs.** A pair of a query and a key takes 2176 operations in each head forward, with latents of 512 and a
rotated part of 64 numbers, and 7680 backward, where the scores and `dp` are computed twice. The key is 1152 bytes in
bfloat16 and serves all heads, so 128 heads do 242 operations a byte. A row is 2304 bytes, written once and read once.
On an H200 4096 queries of 128 heads with 2048 keys each take
[[bench: sparse_mla/4096x128x8192x2048/forward/lesson.ms]] forward,
[[bench: sparse_mla/4096x128x8192x2048/forward/lesson.rate]], and
[[bench: sparse_mla/4096x128x8192x2048/backward/lesson.ms]] backward. PyTorch, which gathers the keys first, takes
[[bench: sparse_mla/4096x128x8192x2048/forward/PyTorch, keys gathered.ms]] and
[[bench: sparse_mla/4096x128x8192x2048/backward/PyTorch, keys gathered.ms]].

**Contract.** `q` is (T, H, W), absorbed, and `kv` (S, W): a latent of `rank` numbers, 1 to 512, then up to 64 rotated
ones. float32, float16 or bfloat16, any strides. `indices` is (T, K) int32, in any order: −1 anywhere means none, and a
key that is named twice counts twice. Any other number outside of [0, S) makes that query's results NaN, and with them
the gradients of its keys; nothing outside is read. Keys that nobody has selected may hold anything, and get a gradient
of 0. `scale` has no default: it is one over the square root of the width of a key before absorbing, and not of W.
Scores and sums are float32, that of a key's gradients in a fixed order float64, and the weights are rounded to the
inputs' dtype once, for the product.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    dot_rows, head, load_numbers, load_tile, log_sum_exp, lse_dtype, same_device, sink_gradient, store_numbers,
    store_tile, strided, weights,
)  # fmt: skip
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.latents import (
    default_tiles, latent_contract, latent_scores, load_parts, store_parts, widths,
)  # fmt: skip
from annotated_examples.common.products import input_precision, multiply_add, rows_by_rows
from annotated_examples.common.selected import (
    add_rows, is_key, launches, list_contract, load_keys, load_list, one_page, score_or_none,
)  # fmt: skip


# ## Reference
#
# A copy of the selected keys for each query, with a row of zeros for none.
def sparse_attention_reference(
    q, kv, indices, *, rank, scale, sinks=None, return_lse=False, deterministic=True
):  # fmt: skip
    none = (indices < 0)[:, None]
    rows = torch.nn.functional.pad(kv, (0, 0, 0, 1))[indices.masked_fill(indices < 0, len(kv)).long()]
    s = (scale * torch.einsum("thw,tkw->thk", q, rows)).masked_fill(none, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.to(s.dtype)[None, :, None].expand(len(s), -1, 1)], dim=-1)
    p = torch.softmax(s, dim=-1)[..., : indices.shape[1]].masked_fill(none, 0.0)
    o = torch.einsum("thk,tkr->thr", p, rows[..., :rank])
    lse = torch.logsumexp(s.to(torch.promote_types(s.dtype, torch.float32)), dim=-1)
    return (o, lse) if return_lse else o


# ## Forward
#
# A program has a query and a tile of its heads, and walks along the list. All that differs from
# [decoding](mla_decode.py) is where a row of the tile comes from: `load_list` says which keys, and `load_keys` fetches
# them.
#
# The list may begin with a whole tile of −1. Then all scores are −∞, and so would be their maximum, if it began at −∞:
# the difference of both is NaN, and stays in the sum for ever. So it begins at the lowest finite number.
@triton.jit
def sparse_attention_kernel(
    q_tensor, kv_tensor, lists_tensor,  # (pointer, four strides): (1, T, H, R + E), (1, S, 1, R + E), (1, T, K)
    sinks_ptr,  # (H,), or None
    o_tensor, lse_tensor,  # (1, T, H, R), (1, T, H)
    H, K, pages,  # pages: (pages, keys of a page)
    scale, R: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    t, offs_h = tl.program_id(0), tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    q, q_pe = load_parts(head(q_tensor, 0, t, 0), offs_h, H, R, E, BLOCK_R, BLOCK_E)
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    # A sink is one more score of every row, with a value of 0.
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + offs_h, mask=offs_h < H, other=0.0).to(tl.float32)
        row_max = tl.maximum(row_max, sink)
        row_sum = tl.exp(sink - row_max)
    acc = tl.zeros((BLOCK_M, BLOCK_R), tl.float32)
    for start in tl.range(0, K, BLOCK_N):
        # The second query of the example has nothing in its first tile: `pid=(1, 0), start=0: j = [-1, -1]`.
        j = load_list(lists_tensor, 0, t, start + tl.arange(0, BLOCK_N), K)
        c, c_pe = load_keys(kv_tensor, j, pages, R, E, BLOCK_R, BLOCK_E)
        # [[tag: SP-S]]
        s = score_or_none(latent_scores(q, q_pe, c, c_pe, scale, INPUT_PRECISION), j[None, :], pages)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = multiply_add(p.to(c.dtype), c, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max
    # [[tag: SP-O]] and [[tag: SP-lse]]. A query without keys gets 0 and −∞; with a sink, 0 and the sink.
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    store_tile(head(o_tensor, 0, t, 0), o, offs_h, H, R, BLOCK_R)
    lse = log_sum_exp(row_max, row_sum, lse_tensor)
    store_numbers(head(lse_tensor, 0, t, 0), lse, offs_h, H)


# ## Backward for the queries
#
# The same walk. What a row shares is one number, [[tag: AT-D]], and it is left for the next kernel. Only `ds` is
# rounded to 16 bits, once, for the product: P and the difference stay in float32.
@triton.jit
def sparse_attention_queries_kernel(
    do_tensor, q_tensor, kv_tensor, lists_tensor, o_tensor, dq_tensor,  # as above; do as o, dq as q
    dlse_tensor, lse_tensor, delta_tensor,  # (1, T, H)
    H, K, pages, scale, R: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    t, offs_h = tl.program_id(0), tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    q, q_pe = load_parts(head(q_tensor, 0, t, 0), offs_h, H, R, E, BLOCK_R, BLOCK_E)
    do = load_tile(head(do_tensor, 0, t, 0), offs_h, H, R, BLOCK_R)
    o = load_tile(head(o_tensor, 0, t, 0), offs_h, H, R, BLOCK_R)
    lse = load_numbers(head(lse_tensor, 0, t, 0), offs_h, H)
    delta = dot_rows(do, o, INPUT_PRECISION) - load_numbers(head(dlse_tensor, 0, t, 0), offs_h, H)
    store_numbers(head(delta_tensor, 0, t, 0), delta, offs_h, H)
    dq = tl.zeros((BLOCK_M, BLOCK_R), tl.float32)
    dq_pe = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for start in tl.range(0, K, BLOCK_N):
        j = load_list(lists_tensor, 0, t, start + tl.arange(0, BLOCK_N), K)
        c, c_pe = load_keys(kv_tensor, j, pages, R, E, BLOCK_R, BLOCK_E)
        # [[tag: SP-P]] for one of the times that a key is named. Where `lse` is −∞ it means nothing.
        s = score_or_none(latent_scores(q, q_pe, c, c_pe, scale, INPUT_PRECISION), j[None, :], pages)
        p = weights(s, lse[:, None])
        dp = rows_by_rows(do, c, INPUT_PRECISION)
        # [[tag: SP-dS]]. What is none comes last: zero times NaN would still be NaN.
        ds = tl.where((j == -1)[None, :], 0.0, p * (dp - delta[:, None]))
        # [[tag: SP-dQ]]
        dq = multiply_add(ds.to(c.dtype), c, dq, INPUT_PRECISION)
        dq_pe = multiply_add(ds.to(c.dtype), c_pe, dq_pe, INPUT_PRECISION)
    matrix = head(dq_tensor, 0, t, 0)
    store_parts(matrix, dq * scale, dq_pe * scale, offs_h, H, R, E, BLOCK_R, BLOCK_E)


# ## Backward for the keys
#
# A program has a query and a tile of its list, and goes through all heads: their parts of a key's gradient are summed
# here, in order. Rows of the tile are keys, so **Sᵀ**, **Pᵀ** and **dSᵀ** come from the inputs, and no product's
# result is turned round. A latent gets two terms, as a key and as a value, and both go into the same sum.
#
# The result is a row for each number of the list; or, with `rows_ptr` None, it is added to the keys' gradients.
@triton.jit
def sparse_attention_keys_kernel(
    do_tensor, q_tensor, kv_tensor, lists_tensor, lse_tensor, delta_tensor,  # as above
    rows_ptr, dkv_ptr,  # (queries of this launch, K, R + E) or None; (S, R + E); both float32
    first, H, K, pages, scale, R: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles, W = tl.cdiv(K, BLOCK_N), R + E
    place, offs_k = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    t = first + place
    j = load_list(lists_tensor, 0, t, offs_k, K)
    c, c_pe = load_keys(kv_tensor, j, pages, R, E, BLOCK_R, BLOCK_E)
    dc = tl.zeros((BLOCK_N, BLOCK_R), tl.float32)
    dc_pe = tl.zeros((BLOCK_N, BLOCK_E), tl.float32)
    for start in tl.range(0, H, BLOCK_M):
        offs_h = start + tl.arange(0, BLOCK_M)
        q, q_pe = load_parts(head(q_tensor, 0, t, 0), offs_h, H, R, E, BLOCK_R, BLOCK_E)
        do = load_tile(head(do_tensor, 0, t, 0), offs_h, H, R, BLOCK_R)
        lse = load_numbers(head(lse_tensor, 0, t, 0), offs_h, H)
        delta = load_numbers(head(delta_tensor, 0, t, 0), offs_h, H)
        s = score_or_none(latent_scores(c, c_pe, q, q_pe, scale, INPUT_PRECISION), j[:, None], pages)
        p = weights(s, lse[None, :])
        ds = (p * (rows_by_rows(c, do, INPUT_PRECISION) - delta[None, :]) * scale).to(q.dtype)
        # [[tag: SP-dC]], this query's part of it.
        dc = multiply_add(ds, q, dc, INPUT_PRECISION)
        dc = multiply_add(p.to(do.dtype), do, dc, INPUT_PRECISION)
        dc_pe = multiply_add(ds, q_pe, dc_pe, INPUT_PRECISION)
    if rows_ptr is not None:
        matrix = rows_ptr + place.to(tl.int64) * K * W, W, 1
        store_parts(matrix, dc, dc_pe, offs_k, K, R, E, BLOCK_R, BLOCK_E)
    else:
        add_tile((dkv_ptr, W), dc, j, pages, R, BLOCK_R)
        add_tile((dkv_ptr + R, W), dc_pe, j, pages, E, BLOCK_E)


# Two programs, or two rows of one tile, may add to the same number at the same time. `tl.atomic_add` makes each of
# these additions a single step, and says nothing about their order. What is no key has no place to be added to.
@triton.jit
def add_tile(matrix, values, j, pages, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride = matrix
    columns = tl.arange(0, BLOCK_D)
    mask = is_key(j, pages)[:, None] & (columns < D)[None, :]
    tl.atomic_add(ptr + j.to(tl.int64)[:, None] * stride + columns[None, :], values, mask=mask, sem="relaxed")


# ## The launchers
def launch_options(q, rank, BLOCK_M, BLOCK_N, best):
    """The constants of a kernel: the tiles that were asked for, or the best ones."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    M, N, num_warps, num_stages = best
    tiles = dict(BLOCK_M=BLOCK_M or M, BLOCK_N=BLOCK_N or N, num_warps=num_warps, num_stages=num_stages)
    return tiles | widths(q.shape[2], rank) | dict(INPUT_PRECISION=input_precision())


# Backward keeps two tiles of heads, `q` and `do`, and sums as wide as a latent. The kernel for the keys has the keys'
# tile as its own, and walks along the heads.
def backward_tiles(heads, rank, dtype, index):
    """For each of the two kernels (BLOCK_M, BLOCK_N, num_warps, num_stages)."""
    M, narrow, room = min(max(16, triton.next_power_of_2(heads)), 64), rank <= 128, device.shared_memory(index)
    if dtype == torch.float32 or not narrow and room < 160 * 2**10:
        few = dtype == torch.float32 and not narrow and room < 2**17
        return (8 if few else 16, 16, 4, 1), (16, 16, 4, 1)
    if narrow:
        return (M, 32, 4, 2), (min(M, 32), 64, 4, 2)
    # The kernel for the keys has a sum of 512 numbers for each of its keys: 64 of them would spill registers.
    large = room >= 227 * 2**10
    return (M if large else min(M, 32), 64 if large else 32, 8, 1), (min(M, 32), 32, 8, 1)


def as_tensors(q, kv, indices):
    """q, kv and the lists, as kernels take them."""
    return [strided(x) for x in (q[None], kv[None, :, None], indices[None])]


@opaque(
    "(Tensor q, Tensor kv, Tensor indices, Tensor? sinks, int rank, float scale) -> (Tensor, Tensor)",
    lambda q, kv, indices, sinks, rank, scale: (
        q.new_empty(*q.shape[:2], rank), q.new_empty(q.shape[:2], dtype=lse_dtype(q.dtype)),
    ),
)  # fmt: skip
def sparse_attention_forward(q, kv, indices, sinks, rank, scale, *, BLOCK_M=None, BLOCK_N=None):
    """`(o, lse)`, (T, H, rank) and (T, H), lse in `lse_dtype`. A tile has BLOCK_M heads or BLOCK_N keys."""
    launch = launch_options(q, rank, BLOCK_M, BLOCK_N, default_tiles(q.shape[1], rank, q.dtype, q.device.index))
    T, H, _ = q.shape
    o, lse = q.new_empty(T, H, rank), q.new_empty((T, H), dtype=lse_dtype(q.dtype))
    if o.numel():
        sparse_attention_kernel[(T, triton.cdiv(H, launch["BLOCK_M"]))](
            *as_tensors(q, kv, indices), None if sinks is None else sinks.contiguous(), strided(o[None]),
            strided(lse[None]), H, indices.shape[1], one_page(kv), scale, **launch,
        )  # fmt: skip
    return o, lse


# The rows of a few queries are made at a time, so that they take at most 256 MiB, or what a single query needs.
@opaque(
    "(Tensor do, Tensor dlse, Tensor q, Tensor kv, Tensor indices, Tensor? sinks, Tensor o, Tensor lse, int rank, "
    "float scale, bool deterministic) -> (Tensor, Tensor, Tensor)",
    lambda do, dlse, q, kv, indices, sinks, *rest: (
        torch.empty_like(q), kv.new_empty(kv.shape), q.new_empty(0) if sinks is None else torch.empty_like(sinks),
    ),
)  # fmt: skip
def sparse_attention_backward(
    do, dlse, q, kv, indices, sinks, o, lse, rank, scale, deterministic, *, BLOCK_M=None, BLOCK_N=None, queries=None
):
    """The gradients of q, kv and sinks (empty without sinks), from those of `o` and `lse`, which have any strides.

    queries: so many in each launch of the kernel for the keys.
    """
    (T, H, W), S, K, pages = q.shape, len(kv), indices.shape[1], one_page(kv)
    dq, delta = torch.empty_like(q), torch.empty_like(lse, dtype=torch.float32)
    dkv = kv.new_zeros((S, W), dtype=torch.float64 if deterministic else torch.float32)
    inputs, of_rows = as_tensors(q, kv, indices), [strided(x[None]) for x in (dlse, lse, delta)]
    of_queries, of_keys = backward_tiles(H, rank, q.dtype, q.device.index)
    if q.numel():
        launch = launch_options(q, rank, BLOCK_M, BLOCK_N, of_queries)
        sparse_attention_queries_kernel[(T, triton.cdiv(H, launch["BLOCK_M"]))](
            strided(do[None]), *inputs, strided(o[None]), strided(dq[None]), *of_rows, H, K, pages, scale, **launch,
        )  # fmt: skip
    launch = launch_options(q, rank, BLOCK_M, BLOCK_N, of_keys)
    for first, lists in launches(indices, W, queries if deterministic else max(T, 1)):
        rows = delta.new_empty((lists.numel(), W)) if deterministic else None
        if lists.numel():
            sparse_attention_keys_kernel[(len(lists) * triton.cdiv(K, launch["BLOCK_N"]),)](
                strided(do[None]), *inputs, *of_rows[1:], rows, dkv, first, H, K, pages, scale, **launch,
            )  # fmt: skip
        if deterministic:
            add_rows(rows, lists, dkv)
    dsinks = q.new_empty(0) if sinks is None else sink_gradient(sinks, lse.T[None], delta.T[None])
    return dq, dkv.to(kv.dtype), dsinks


# ## Joining autograd
def contract(q, kv, indices, rank, scale, sinks, return_lse, deterministic):
    """Checks the arguments, and returns the scale."""
    checks.tensors(q=q, kv=kv, indices=indices)
    checks.optional_tensors(sinks=sinks)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, kv=kv)
    checks.dtypes((torch.int32,), indices=indices)
    checks.dimensions("q", q, 3, "T, H, W")
    checks.dimensions("kv", kv, 2, "S, W")
    checks.dimensions("indices", indices, 2, "T, K")
    (T, H, W), S = q.shape, len(kv)
    checks.shape("kv", kv, (S, W), "the width of q")
    checks.programs("q", "heads", H)
    same_device(q=q, kv=kv, indices=indices)
    list_contract("indices", indices, S, (T, indices.shape[1]), "a list for each query")
    if sinks is not None:
        checks.dtypes((q.dtype, torch.float32), sinks=sinks)
        checks.shape("sinks", sinks, (H,), "one for each head of q")
        same_device(q=q, sinks=sinks)
    checks.choice("return_lse", return_lse, (True, False))
    checks.choice("deterministic", deterministic, (True, False))
    return latent_contract(q, rank, scale)


class SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, indices, sinks, rank, scale, deterministic, launch_forward):
        o, lse = launch_forward(q, kv, indices, sinks, rank, scale)
        ctx.save_for_backward(q, kv, indices, sinks, o, lse)
        ctx.options = rank, scale, deterministic
        return o, lse

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do, dlse):
        dq, dkv, dsinks = sparse_attention_backward(do, dlse, *ctx.saved_tensors, *ctx.options)
        return dq, dkv, None, None if ctx.saved_tensors[3] is None else dsinks, *[None] * 4


def attention(q, kv, indices, sinks, rank, scale, return_lse, deterministic, launch_forward):
    """Through the autograd `Function` if something needs a gradient."""
    if autograd.needs_frame(q, kv, sinks):
        o, lse = SparseAttention.apply(q, kv, indices, sinks, rank, scale, deterministic, launch_forward)
    else:
        o, lse = launch_forward(q, kv, indices, sinks, rank, scale)
    return (o, lse.float()) if return_lse else o


@replayed
def sparse_attention(q, kv, indices, *, rank, scale, sinks=None, return_lse=False, deterministic=True):
    r"""Attention of each query to the keys of its list, which are latents of all heads. Differentiable in `q`, `kv`,
    `sinks` and through the log-sum-exp.

    Args:
        q: (T, H, W), absorbed; float32, float16 or bfloat16, any strides.
        kv: (S, W), dtype of `q`: a latent and a rotated part for each token.
        indices: (T, K) int32: the keys of each query's list; −1 anywhere for none. A key that is named twice counts
            twice.
        rank: how many numbers of a row are the latent, 1 to 512, and at least W − 64.
        scale: of the scores, $1/\sqrt{D + E}$ of the keys that the latents stand for.
        sinks: (H,), dtype of `q` or float32: one more score for each row, not scaled, without a value.
        return_lse: whether to return the log-sum-exp of the scores as well, the sink's among them.
        deterministic: whether the gradients of `kv` are summed in a fixed order. If not, they are added by atomics.

    Returns:
        o, (T, H, rank) in the dtype of `q`, to be expanded; or (o, lse) with lse (T, H), float32, a natural logarithm.
        A query without keys gives 0 and −∞ (with a sink: 0 and the sink). A number that is neither a key nor −1 gives
        NaN for that query; nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes or devices don't fit, a number is out of range, or, on the CPU and with `ACADEMY_DEBUG=1` in
            the environment, an index is.

    Source: DeepSeek-AI, "DeepSeek-V3.2" (2025); sinks: as in `flash_attention`.
    """
    scale = contract(q, kv, indices, rank, scale, sinks, return_lse, deterministic)
    return attention(q, kv, indices, sinks, rank, scale, return_lse, deterministic, sparse_attention_forward)


# ## A run small enough to watch
#
# Two queries of two heads, four keys of two numbers and a rotated one, lists of four, in tiles of two. The first query
# names key 2 twice, and the second one has a single key, behind three −1.
def EXAMPLE():
    at = torch.arange(12, dtype=torch.float32, device=device.DEVICE)
    q, kv = (at * 5 % 7 - 3).view(2, 2, 3), (at * 3 % 5 - 2).view(4, 3)
    indices = torch.tensor([[2, 0, 2, 3], [-1, -1, -1, 1]], dtype=torch.int32, device=device.DEVICE)
    arguments, tiles = (q, kv, indices, None), dict(BLOCK_M=2, BLOCK_N=2)
    o, lse = sparse_attention_forward(*arguments, 2, 0.5, **tiles)
    dlse = torch.zeros_like(lse, dtype=torch.float32)
    sparse_attention_backward(o.clone(), dlse, *arguments, o, lse, 2, 0.5, True, **tiles)


if __name__ == "__main__":
    script.main(sparse_attention, sparse_attention_reference)
