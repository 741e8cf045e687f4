r"""
# Flash attention: the matrix of scores that is never stored

[Causal attention](causal_attention.py) has the idea: scores are computed tile by tile, used and discarded, and backward
computes them again from one number per row. Models ask for more than that. This page adds it, one piece at a time, to
the same three kernels:

[[eq: AT-O]]

- **Other lengths.** $T$ new queries may follow a cache of older keys, so there are $S$ keys, and the queries belong to
  the last ones.
- **Masks as bounds.** Every query sees one stretch of keys, whether the mask is causal, a sliding window, or absent.
- **Groups.** Several query heads share one head of keys and values. Their gradients are summed.
- **A cap and sinks.** Scores may be squeezed into a range, and every row may have one more score without a value.
- **Packed sequences** of different lengths lie one after another in one tensor.
- **Any D** up to 256. A tile's width is the next power of two, at least 16, and columns past D are zeros.

**What it costs.** Forward takes two products of $T \cdot S \cdot D$ multiplications per head. Backward needs five and
computes seven. Tiles that nobody sees are skipped. Keys and values come mostly from L2, so memory isn't the limit: the
rate of the tensor cores is. With 4 sequences of 4096 tokens and 16 heads of 128, causal, this kernel reaches
[[bench: flash_attention:causal/4x16x16x4096x128/forward/lesson.share]] of it.

**Contract.** `q` is (B, H, T, D), `k` and `v` are (B, Hk, S, D), with any strides, in float32, float16 or bfloat16; H
is a multiple of Hk, D at most 256. Scores and sums are float32. A query that sees no key gets an output of 0, and so
does one whose scores are all $-\infty$. A NaN or $+\infty$ among the scores that a query sees makes its row NaN; a cap
makes infinite ones finite. A score that the mask hides changes nothing. But 0 · NaN and 0 · ∞ are NaN: a NaN or an
infinity in a value may also reach queries that don't see it, and in the backward pass so may one in a key or a query,
as in PyTorch's products.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math
from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    batches, contract, dot_rows, empty_like, head, load_numbers, load_tile, log_sum_exp, lse_dtype, new_rows,
    scale_and_cap, sequence, sink_gradient, store_numbers, store_tile, strided, varlen_contract, weights, window_bounds,
)  # fmt: skip
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.opaque_attention import opaque_attention
from annotated_examples.common.products import input_precision, multiply_add, rows_by_rows


# ## Reference
#
# The same in PyTorch, with all scores at once, in any dtype; in float64 it is what the kernels are measured against.
# The queries belong to the *last* keys: if 5 new tokens follow 100 old ones, the first is number 100, counted from 0.
def flash_attention_reference(
    q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None, return_lse=False
):
    left, right = window_bounds(causal, window)
    (H, T, D), (Hk, S) = q.shape[1:], k.shape[1:3]
    k, v = (x.repeat_interleave(H // Hk, dim=1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * (1 / math.sqrt(D) if scale is None else scale)
    s = softcap * torch.tanh(s / softcap) if softcap else s
    # The position of key j, seen from query i. What a query may not see has no part in the softmax.
    distance = torch.arange(S, device=q.device) - torch.arange(T, device=q.device)[:, None] - (S - T)
    hidden = (distance < -left) | (distance > right)
    s = s.masked_fill(hidden, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.to(s.dtype)[:, None, None].expand(*s.shape[:3], 1)], dim=-1)
    # A row of nothing but −∞ would give NaN, forward and backward. Its scores and results are replaced.
    empty = (hidden.all(-1, keepdim=True) if S else hidden.new_ones(T, 1)) & (sinks is None)
    s = torch.where(empty, torch.zeros_like(s[..., :1]), s)
    p = torch.softmax(s, dim=-1).masked_fill(empty, 0.0)[..., :S]
    s = s.to(torch.promote_types(s.dtype, torch.float32))
    lse = (torch.logsumexp(s, dim=-1) if s.shape[-1] else s.sum(-1)).masked_fill(empty[..., 0], -math.inf)
    return (p @ v, lse) if return_lse else p @ v


# ## Which keys does a query see?
# [[figure: attention/tiles]]


# Query i is at the position of key i + S − T. It sees the keys from `left` before that position to `right` after it:
# one stretch, from `first` up to, but not including, `last`, [[tag: AT-seen]]. In a causal mask `right` is 0. That is
# all there is to a mask, and every kernel calls this function for it. Rows past the end of the sequence see nothing.
@triton.jit
def keys_seen(offs_m, T, S, window):
    left, right = window
    first = tl.maximum(offs_m + (S - T) - left, 0)
    last = tl.minimum(offs_m + (S - T) + right + 1, S)
    return first, tl.where(offs_m < T, last, 0)


# ## Forward: a tile of queries, and all the keys that it sees
#
# The loop is that of causal attention. What is new stands before and after it: where the program's sequence begins,
# which keys its queries see, and a sum that may begin with a sink.
#
# Numbers that belong together arrive as a tuple, too. `lengths` says where the sequences lie, and `window` which keys a
# query sees.
@triton.jit
def attention_forward_kernel(
    q_tensor, k_tensor, v_tensor, o_tensor,  # (pointer, four strides): (B, H, T, D), or Hk and S for k and v
    lse_tensor,  # the same, with (B, H, T)
    sinks_ptr,  # (H,), or None
    lengths,  # (cu_q_ptr, cu_k_ptr, T, S, longest): where packed sequences begin, or None; the lengths
    window,  # (left, right): how many keys before and after its position a query sees
    group, scale, softcap: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    # Which tile, which sequence, which head? The second tile of the example begins at `pid=(1, 0): start_m = 2`.
    tiles = tl.cdiv(longest, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    k_head, v_head = head(k_tensor, b, h // group, start_k), head(v_tensor, b, h // group, start_k)

    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_tile(head(q_tensor, b, h, start_q), offs_m, T, D, BLOCK_D)
    first, last = keys_seen(offs_m, T, S, window)

    # The largest so far starts at the lowest *finite* number: a tile in which a row sees nothing would compute
    # −∞ − (−∞) otherwise, which is NaN. A sink is one more score of every row, with a value of 0, [[tag: AT-sink-O]].
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + h).to(tl.float32)
        row_max = tl.maximum(row_max, sink)
        row_sum = tl.exp(sink - row_max)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    # From the first key that any row sees to the last: `tl.min` takes the smallest of a block. The first two queries of
    # the example end at `pid=(0, 0): last = [5, 6]`. So there are two rounds, of four keys each, and the tile of key 8
    # is **skipped**.
    for start in tl.range(tl.min(first, axis=0) // BLOCK_N * BLOCK_N, tl.max(last, axis=0), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k, v = load_tile(k_head, offs_n, S, D, BLOCK_D), load_tile(v_head, offs_n, S, D, BLOCK_D)
        # [[tag: AT-S]]. `tl.trans` transposes a tile. In the tile of keys 0 to 3 every score counts: it is **full**.
        # The next one is **masked**.
        s, _ = scale_and_cap(tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION), scale, softcap)
        # −∞ gives an exponential of 0: `start=4: s[1] = [4, 3, -inf, -inf]`.
        s = tl.where((offs_n[None, :] >= first[:, None]) & (offs_n[None, :] < last[:, None]), s, -float("inf"))
        # That row's maximum grows from `start=0: new_max[1] = 3` to `start=4: new_max[1] = 4`. The earlier sum is
        # relative to the old maximum and is multiplied by a factor, `start=4: alpha[1] = 0.3679`: [[tag: AT-merge]].
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = multiply_add(p.to(v.dtype), v, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max

    # [[tag: AT-O]] and [[tag: AT-lse]]: `lse = [4.477, 4.555]`. A row that saw nothing has a sum of 0.
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = log_sum_exp(row_max, row_sum, lse_tensor)
    store_tile(head(o_tensor, b, h, start_q), o, offs_m, T, D, BLOCK_D)
    store_numbers(head(lse_tensor, b, h, start_q), lse, offs_m, T)


# ## Backward for the queries
#
# Three products as before, **S = Q Kᵀ**, **dP = dO Vᵀ** and **dQ = dS K**. A caller may also use the log-sum-exp, and
# then its gradient `dlse` reaches every score of the row: it goes into the number that the row shares, [[tag: AT-D]].
@triton.jit
def attention_backward_queries_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, o_tensor, dq_tensor,  # (pointer, four strides), as in forward
    dlse_tensor, lse_tensor, delta_tensor,  # the same, with (B, H, T)
    lengths, window, group, scale, softcap: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    tiles = tl.cdiv(longest, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    k_head, v_head = head(k_tensor, b, h // group, start_k), head(v_tensor, b, h // group, start_k)

    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_tile(head(q_tensor, b, h, start_q), offs_m, T, D, BLOCK_D)
    do = load_tile(head(do_tensor, b, h, start_q), offs_m, T, D, BLOCK_D)
    o = load_tile(head(o_tensor, b, h, start_q), offs_m, T, D, BLOCK_D)
    lse = load_numbers(head(lse_tensor, b, h, start_q), offs_m, T)
    dlse = load_numbers(head(dlse_tensor, b, h, start_q), offs_m, T)
    # [[tag: AT-D]], `pid=(0, 0): delta = [11.41, -9.60]`. Subtracting `dlse` is all that the gradient through the
    # log-sum-exp takes.
    delta = dot_rows(do, o, INPUT_PRECISION) - dlse
    store_numbers(head(delta_tensor, b, h, start_q), delta, offs_m, T)

    first, last = keys_seen(offs_m, T, S, window)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in tl.range(tl.min(first, axis=0) // BLOCK_N * BLOCK_N, tl.max(last, axis=0), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k, v = load_tile(k_head, offs_n, S, D, BLOCK_D), load_tile(v_head, offs_n, S, D, BLOCK_D)
        s, slope = scale_and_cap(tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION), scale, softcap)
        mask = (offs_n[None, :] >= first[:, None]) & (offs_n[None, :] < last[:, None])
        # [[tag: AT-P]]; it means nothing for keys that a query doesn't see.
        p = weights(s, lse[:, None])
        # [[tag: AT-dS]]; with a cap there is its slope too, [[tag: AT-cap-dS]]. The mask comes last: zero times the NaN
        # of a key that isn't seen would still be NaN.
        dp = rows_by_rows(do, v, INPUT_PRECISION)
        ds = tl.where(mask, p * (dp - delta[:, None]) * slope, 0.0)
        acc = multiply_add(ds.to(k.dtype), k, acc, INPUT_PRECISION)
    # [[tag: AT-dQ]], with the scale applied once.
    store_tile(head(dq_tensor, b, h, start_q), acc * scale, offs_m, T, D, BLOCK_D)


# ## Backward for the keys and values
#
# A program has a tile of keys, and walks over the queries that see it: those of every head of its group, so that the
# group's sum is computed in one place, in one order. As before scores have a row for each key, so `p` is Pᵀ and `ds` is
# dSᵀ, and four products follow from the loaded tiles: **Sᵀ = K Qᵀ**, **dV = Pᵀ dO**, **dPᵀ = V dOᵀ**, **dK = dSᵀ Q**.
@triton.jit
def attention_backward_keys_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, dk_tensor, dv_tensor, lse_tensor, delta_tensor,  # as before
    lengths, window, group, scale, softcap: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    tiles = tl.cdiv(longest, BLOCK_N)
    b, hk, start_n = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_N
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_n >= S:
        return
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_tile(head(k_tensor, b, hk, start_k), offs_n, S, D, BLOCK_D)
    v = load_tile(head(v_tensor, b, hk, start_k), offs_n, S, D, BLOCK_D)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)

    # `keys_seen`, solved for the query: key j is seen by queries j − (S − T) − right to j − (S − T) + left.
    left, right = window
    first_m = tl.maximum(start_n - (S - T) - right, 0) // BLOCK_M * BLOCK_M
    last_m = tl.minimum(tl.minimum(start_n + BLOCK_N, S) - (S - T) + left, T)
    for h in tl.range(hk * group, hk * group + group):
        q_head, do_head = head(q_tensor, b, h, start_q), head(do_tensor, b, h, start_q)
        lse_head, delta_head = head(lse_tensor, b, h, start_q), head(delta_tensor, b, h, start_q)
        for start in tl.range(first_m, last_m, BLOCK_M):
            offs_m = start + tl.arange(0, BLOCK_M)
            q, do = load_tile(q_head, offs_m, T, D, BLOCK_D), load_tile(do_head, offs_m, T, D, BLOCK_D)
            lse, delta = load_numbers(lse_head, offs_m, T), load_numbers(delta_head, offs_m, T)
            s, slope = scale_and_cap(tl.dot(k, tl.trans(q), input_precision=INPUT_PRECISION), scale, softcap)
            first, last = keys_seen(offs_m, T, S, window)
            mask = (offs_n[:, None] >= first[None, :]) & (offs_n[:, None] < last[None, :])
            p = tl.where(mask, weights(s, lse[None, :]), 0.0)
            # **dV = Pᵀ dO**, [[tag: AT-dV]]: a value is weighed by every head of the group.
            dv = multiply_add(p.to(do.dtype), do, dv, INPUT_PRECISION)
            dp = rows_by_rows(v, do, INPUT_PRECISION)
            ds = tl.where(mask, p * (dp - delta[None, :]) * slope, 0.0)
            # **dK = dSᵀ Q**, [[tag: AT-dK]]
            dk = multiply_add(ds.to(q.dtype), q, dk, INPUT_PRECISION)
    # Keys that no query sees get a gradient too: 0.
    store_tile(head(dk_tensor, b, hk, start_k), dk * scale, offs_n, S, D, BLOCK_D)
    store_tile(head(dv_tensor, b, hk, start_k), dv, offs_n, S, D, BLOCK_D)


# ## The launchers
#
# Wide heads and float32 leave room only for smaller tiles. A backward kernel may keep two sums: in 16 bits it has fewer
# stages, or for D above 128 smaller tiles.
def default_tiles(D, dtype, backward):
    """((BLOCK_M, BLOCK_N), num_warps, num_stages) for heads of D numbers."""
    if dtype == torch.float32:
        return ((32, 32), 4, 1) if D <= 64 else ((16, 16), 4 if D <= 128 else 8, 1)
    if D > 128:
        return ((32, 32), 8, 2) if backward else ((64, 32), 4, 2)
    return ((64, 64), 8 if D > 64 else 4, 2) if backward else ((64, 64), 4, 3)


def launch_options(q, softcap, BLOCK_M, BLOCK_N, *, backward):
    """The tiles, passed in or by default, and the other constants of a kernel."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    D = q.shape[-1]
    (M, N), num_warps, num_stages = default_tiles(D, q.dtype, backward)
    return dict(
        softcap=softcap, D=D, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M or M, BLOCK_N=BLOCK_N or N,
        BLOCK_D=max(16, triton.next_power_of_2(D)), num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip


def attention_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *, BLOCK_M=None, BLOCK_N=None):
    """`(o, lse)`: o like `q`, lse (B, H, T) in `lse_dtype`. A tile has BLOCK_M queries or BLOCK_N keys.

    q: (B, H, T, D), k and v: (B, Hk, S, D). With `cu_seqlens` B is 1, and all sequences lie along T and S.
    """
    launch = launch_options(q, options.softcap, BLOCK_M, BLOCK_N, backward=False)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    sinks = None if sinks is None else sinks.contiguous()
    o, lse = empty_like(q, cu_seqlens_q), new_rows(q, q.shape[:3], cu_seqlens_q, lse_dtype(q.dtype))
    programs = triton.cdiv(options.max_seqlen_q, launch["BLOCK_M"]) * batches(q, cu_seqlens_q)
    if programs * H:
        of_queries, of_keys = (partial(strided, cu_seqlens=cu_seqlens) for cu_seqlens in (cu_seqlens_q, cu_seqlens_k))
        attention_forward_kernel[(programs, H)](
            of_queries(q), of_keys(k), of_keys(v), of_queries(o), of_queries(lse), sinks,
            (cu_seqlens_q, cu_seqlens_k, T, S, options.max_seqlen_q), (options.left, options.right),
            H // Hk, options.scale, **launch,
        )  # fmt: skip
    return o, lse


def attention_backward(
    do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, *, BLOCK_M=None, BLOCK_N=None
):
    """`(dq, dk, dv, dsinks)` from the upstream gradients of `o` and `lse`, which have any strides, or are None."""
    launch = launch_options(q, options.softcap, BLOCK_M, BLOCK_N, backward=True)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    # A missing gradient becomes a single zero, expanded with strides of 0.
    do = q.new_zeros(()).expand(o.shape) if do is None else do
    dlse = q.new_zeros((), dtype=torch.float32).expand(lse.shape) if dlse is None else dlse
    dq, dk, dv = empty_like(o, cu_seqlens_q), empty_like(k, cu_seqlens_k), empty_like(k, cu_seqlens_k)
    delta = new_rows(q, lse.shape, cu_seqlens_q)
    of_queries, of_keys = (partial(strided, cu_seqlens=cu_seqlens) for cu_seqlens in (cu_seqlens_q, cu_seqlens_k))
    inputs = of_queries(do), of_queries(q), of_keys(k), of_keys(v)
    packed, rest = (cu_seqlens_q, cu_seqlens_k, T, S), ((options.left, options.right), H // Hk, options.scale)
    programs = triton.cdiv(options.max_seqlen_q, launch["BLOCK_M"]) * batches(q, cu_seqlens_q)
    if programs * H:
        attention_backward_queries_kernel[(programs, H)](
            *inputs, of_queries(o), of_queries(dq), of_queries(dlse), of_queries(lse), of_queries(delta),
            (*packed, options.max_seqlen_q), *rest, **launch,
        )  # fmt: skip
    programs = triton.cdiv(options.max_seqlen_k, launch["BLOCK_N"]) * batches(k, cu_seqlens_k)
    if programs * Hk:
        attention_backward_keys_kernel[(programs, Hk)](
            *inputs, of_keys(dk), of_keys(dv), of_queries(lse), of_queries(delta),
            (*packed, options.max_seqlen_k), *rest, **launch,
        )  # fmt: skip
    return dq, dk, dv, sink_gradient(sinks, lse, delta)


launchers = opaque_attention(attention_forward, attention_backward)  # operators inside torch.compile


# ## Joining autograd
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, launch_forward, launch_backward):
        o, lse = launch_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options)
        ctx.save_for_backward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse)
        ctx.options, ctx.launch_backward = options, launch_backward
        if not torch.compiler.is_compiling():  # Dynamo can't do this; it makes zeros for unused results
            ctx.set_materialize_grads(False)
        # Not `lse.float()`: where that changes nothing, it is the tensor that is kept, and torch 2.11's compiler loses
        # its gradient.
        return o, lse

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do, dlse):
        return *ctx.launch_backward(do, dlse, *ctx.saved_tensors, ctx.options), *[None] * 5


def attention(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, launch_forward, launch_backward):
    """`(o, lse)`, through the autograd `Function` if something needs a gradient."""
    arguments = q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options
    if not autograd.needs_frame(q, k, v, sinks):
        o, lse = launch_forward(*arguments)
    else:
        o, lse = FlashAttention.apply(*arguments, launch_forward, launch_backward)
    return o, lse.float()


# Packed tensors have tokens before heads, and no batch dimension. The launchers need heads first, and a batch.
def attention_varlen(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, launch_forward, launch_backward):
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    cu_seqlens = cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    o, lse = attention(q, k, v, sinks, *cu_seqlens, options, launch_forward, launch_backward)
    return o.squeeze(0).transpose(0, 1), lse.squeeze(0)


@replayed
def flash_attention(q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None, return_lse=False):
    r"""Softmax attention of `q` over `k` and `v`, differentiable in all three, in `sinks` and through the log-sum-exp.

    Args:
        q: (B, H, T, D), float32, float16 or bfloat16, any strides, D at most 256.
        k, v: (B, Hk, S, D), dtype of `q`, any strides; H is a multiple of Hk. T and S may be 0.
        causal: query i sees the keys up to i + S − T: the last query sees all.
        scale: of the scores, default $1/\sqrt{D}$.
        window: an int w, with `causal`: the last w keys, including the query's own. A pair (left, right): that many
            keys before and after position i + S − T, −1 for no limit; `causal` cuts off what comes after.
        softcap: t in $t \tanh(s / t)$, after the scale. 0.0 turns it off.
        sinks: (H,), dtype of `q` or float32: one more score for each row, neither scaled nor capped, without a value.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        o, (B, H, T, D) in the dtype of `q`; or (o, lse) with lse (B, H, T), float32, a natural logarithm. A row that
        sees no key gives 0 and −∞ (with a sink: 0 and the sink).

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or a number is out of range.

    Source: Dao, "FlashAttention-2" (arXiv 2307.08691); sinks: Xiao et al. (arXiv 2309.17453), as in gpt-oss.
    """
    options = contract(q, k, v, causal, scale, window, softcap, sinks, return_lse)
    o, lse = attention(q, k, v, sinks, None, None, options, *launchers)
    return (o, lse) if return_lse else o


@replayed
def flash_attention_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None,
    return_lse=False, max_seqlen_q=None, max_seqlen_k=None,
):  # fmt: skip
    """`flash_attention` of sequences of different lengths, packed one after another.

    Args:
        q: (total_q, H, D). k, v: (total_k, Hk, D), any strides.
        cu_seqlens_q, cu_seqlens_k: (sequences + 1,) int32: where each sequence begins, and where the last ends, from 0
            to the total. Checked on the CPU and with `ACADEMY_DEBUG=1`; else rows of no sequence hold NaN.
        max_seqlen_q, max_seqlen_k: the longest sequence. By default the grid has room for one of the total length.
        causal, scale, window, softcap, sinks, return_lse: as in `flash_attention`.

    Returns:
        o, (total_q, H, D); or (o, lse) with lse (H, total_q).

    Raises:
        TypeError, ValueError: as `flash_attention`; ValueError also for offsets that don't rise from 0 to the total.

    Source: as `flash_attention`.
    """
    options = contract(q, k, v, causal, scale, window, softcap, sinks, return_lse, layout="total, H, D")
    options = varlen_contract(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options)
    o, lse = attention_varlen(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *launchers)
    return (o, lse) if return_lse else o


# ## A run small enough to watch
#
# Five queries and nine keys, causal, in tiles of two queries and four keys.
def EXAMPLE():
    at = torch.arange(9 * 3, dtype=torch.float32, device=device.DEVICE)
    q = (at[:15] * 5 % 7 - 3).view(1, 1, 5, 3)
    k, v = (at * 3 % 5 - 2).view(1, 1, 9, 3), (at * 7 % 11 - 5).view(1, 1, 9, 3)
    options = contract(q, k, v, True, 0.5, None, 0.0, None, True)
    o, lse = attention_forward(q, k, v, None, None, None, options, BLOCK_M=2, BLOCK_N=4)
    attention_backward(v[:, :, :5].clone(), None, q, k, v, None, None, None, o, lse, options, BLOCK_M=2, BLOCK_N=4)


if __name__ == "__main__":
    script.main(flash_attention, flash_attention_reference)
