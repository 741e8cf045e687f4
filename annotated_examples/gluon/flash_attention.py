r"""
# Attention, below Triton

[Flash attention](../attention/flash_attention.py) once more, for the case that takes most of the time in training:
dense sequences, with or without a causal mask.

[[eq: AT-O]]

What is left to gain? A step of the loop has two products and a softmax between them. The tensor cores do the products,
and during the softmax they have nothing to do: [the fast version in Triton](../fast/flash_attention.py) waits for the
scores, exponentiates, and only then issues the next product. Several programs on one SM fill a part of that
gap. Here the gap is closed by hand, in two ways:

- **Between groups of warps.** One warp fetches. Two groups of four warps, *warpgroups*, each own 64 queries, and share
  every tile of keys and values. While one is at its softmax, the other's products can run.
- **Within a group.** The scores of the *next* tile of keys and the output of *this* one are issued together. The
  softmax begins as soon as the scores are there, while the product with the values is still being computed.

[[figure: below/attention_step]]

Within a group it is the overlap of FlashAttention-3. Between groups, FlashAttention-3 makes them take turns with
barriers; here nothing does. [A copy](tile_copy.py) explains layouts, barriers and phases, and [the product](matmul.py)
partitions and `warpgroup_mma`; both come first.

**What it costs.** A tile of 128 queries and 128 keys, with heads of 128 numbers, keeps the tensor cores busy for 2048
cycles. Meanwhile each of the two groups exponentiates 8192 scores, and an SM computes 16 exponentials in a
cycle: 1024 cycles for both. So the exponentials fit behind the products, if they overlap. If they don't, they make the
step half as long again.

**Measured on an H200**, forward, with batch 4, 16 heads, 4096 tokens and heads of 128 numbers: causal
[[bench: gluon_flash_attention:causal/4x16x16x4096x128/forward/ms]], which is
[[bench: gluon_flash_attention:causal/4x16x16x4096x128/forward/rate]], and unmasked
[[bench: gluon_flash_attention:full/4x16x16x4096x128/forward/ms]] or
[[bench: gluon_flash_attention:full/4x16x16x4096x128/forward/rate]]. The fast version in Triton takes
[[bench: gluon_flash_attention:causal/4x16x16x4096x128/forward/Triton.ms]] and
[[bench: gluon_flash_attention:full/4x16x16x4096x128/forward/Triton.ms]]. Beside the best peer, cuDNN, this is
[[bench: gluon_flash_attention:causal/4x16x16x4096x128/forward/speedup]] and
[[bench: gluon_flash_attention:full/4x16x16x4096x128/forward/speedup]]. So the fast version hands large calls of this
kind over to this kernel.

**Where it falls behind.** Heads of 64 numbers have as many exponentials and half the products, and there this schedule
loses: causal, it is [[bench: gluon_flash_attention:causal/4x32x32x4096x64/forward/speedup]] of the best peer. Those
stay in Triton.

**Without a GPU** it runs in a simulator, which names a missing wait; on another GPU than Hopper it refuses to start.

**Contract.** `q` is (B, H, T, D), `k` and `v` are (B, Hk, S, D), float16 or bfloat16, with D of 64 or 128; H is a
multiple of Hk. With a causal mask T and S are equal. Strides are those that a descriptor fits: the last one 1, the
others multiples of 16 bytes. Other tensors are copied first. Scores and sums are float32. A NaN or $+\infty$ among the
scores that a query sees makes its row NaN, and so do scores that are all $-\infty$.

[The backward pass](flash_attention_backward.py) has a page of its own.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip

from annotated_examples.attention.flash_attention import attention, flash_attention_reference
from annotated_examples.common.attention import contract
from annotated_examples.common.attention_tiles import fitting, heads_at_a_time
from annotated_examples.common.constants import LN2, LOG2E, LOWEST
from annotated_examples.common.hopper import described, matrix, programs, tma_load, tma_store
from annotated_examples.gluon.flash_attention_backward import attention_backward


# ## Which tile?
#
# A program works off one tile of queries after another. Under a causal mask the last queries see the most keys. So
# their tiles come first, and short ones fill the gaps at the end. `HEADS` heads are done at a time, so that their keys
# and values stay in L2.
#
# A tile walks through its keys from the last one back to the first. That puts the tiles that need a mask at the
# beginning: those that cross the diagonal or, without a causal mask, the end of the keys. The rest needs none.
#
# `sizes` is a tuple of numbers that all partitions need: how many heads there are in all sequences together and in one,
# how many share a head of keys, how many tiles of queries a head has, and the lengths of both sequences.
@gluon.jit
def place(t, sizes, HEADS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    all_heads, heads, group, tiles_m, T, S = sizes
    at_a_time = gl.minimum(all_heads - t // (HEADS * tiles_m) * HEADS, HEADS)
    inside = t % (HEADS * tiles_m)
    head = t // (HEADS * tiles_m) * HEADS + inside % at_a_time
    start_m = (tiles_m - 1 - inside // at_a_time) * BLOCK_M
    if CAUSAL:
        # In the example the second tile of queries sees `pid=0: count = 3` tiles of keys and masks `pid=0: masked = 1`,
        # the one on its diagonal.
        count = gl.cdiv(gl.minimum(start_m + BLOCK_M, S), BLOCK_N)
        masked = count - start_m // BLOCK_N
    else:
        count = gl.cdiv(S, BLOCK_N)
        masked = 1 + 0 * count
    return head // heads, head % heads, start_m, count, masked


# ## One warp: the loads
#
# For each tile of queries it fetches, in the order in which they are needed: the queries of the first group, the last
# keys, the queries of the second group, the values; then keys and values in turn. Keys and values have barriers of
# their own. A group is done with a tile of keys long before it is done with the values, so the buffer can be refilled
# earlier.
#
# `n` counts tiles of queries, and `kv` tiles of keys over all of them. Buffer and phase follow from these, as in
# [the product](matmul.py).
#
# Which tile comes next? Under a causal mask tiles take different times, so a fixed share for each program would leave
# some waiting for others. Instead a program takes the next tile that nobody has taken, by an atomic addition. The
# groups have to be told, through two numbers in shared memory. Do these need barriers? No. The number is written before
# the tile's first keys are asked for, and a group reads it after it has waited for those. And it is overwritten two
# tiles later. Before it fetched the tile between, this warp waited until both groups had given back this tile's
# queries, which they do after reading the number.
@gluon.jit
def load_partition(
    q_desc, k_desc, v_desc, next_ptr, bufs, bars, sizes,
    HEADS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    q_s, k_s, v_s, tile_s = bufs
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    all_heads, heads, group, tiles_m, T, S = sizes
    n = 0
    kv = 0
    t = gl.program_id(0)
    while t < all_heads * tiles_m:
        b, h, start_m, count, masked = place(t, sizes, HEADS, BLOCK_M, BLOCK_N, CAUSAL)
        t = gl.atomic_add(next_ptr, 1)
        one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        tile_s.index(n % 2).store(gl.full([1], 0, gl.int32, one) + t)
        # To wait for the phase before the first returns at once: nobody has to give back a buffer that was never used.
        mbarrier.wait(q_empty.index(0), (n & 1) ^ 1)
        mbarrier.expect(q_full.index(0), q_desc.block_type.nbytes)
        tma_load(q_desc, [b, h, start_m, 0], q_full.index(0), q_s.index(0))
        for i in range(count):
            row = (count - 1 - i) * BLOCK_N
            stage = kv % STAGES
            parity = (kv // STAGES) & 1
            mbarrier.wait(k_empty.index(stage), parity ^ 1)
            mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
            tma_load(k_desc, [b, h // group, row, 0], k_full.index(stage), k_s.index(stage))
            if i == 0:
                mbarrier.wait(q_empty.index(1), (n & 1) ^ 1)
                mbarrier.expect(q_full.index(1), q_desc.block_type.nbytes)
                tma_load(q_desc, [b, h, start_m + BLOCK_M // 2, 0], q_full.index(1), q_s.index(1))
            mbarrier.wait(v_empty.index(stage), parity ^ 1)
            mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
            tma_load(v_desc, [b, h // group, row, 0], v_full.index(stage), v_s.index(stage))
            kv += 1
        n += 1


# ## Scores and softmax
#
# A query sees the keys that are there and, under a causal mask, those up to its own place.
@gluon.jit
def mask_scores(s, first_row, first_col, S, CAUSAL: gl.constexpr):
    rows = first_row + gl.arange(0, s.shape[0], gl.SliceLayout(1, s.type.layout))
    cols = first_col + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
    seen = cols[None, :] < S
    if CAUSAL:
        seen = seen & (cols[None, :] <= rows[:, None])
    return gl.where(seen, s, -float("inf"))


# The running maximum, the running sum and the factor `alpha` are those of [the
# lesson](../attention/causal_attention.py), in powers of two. The first tile of keys may be hidden from some rows
# altogether. Their maximum starts at the lowest finite number, so that $2^{-\infty}$ is 0 and nothing is NaN.
@gluon.jit
def softmax(s, row_max, row_sum, factor):
    new_max = gl.maximum(row_max, gl.max(s, 1) * factor)
    p = gl.exp2(s * factor - new_max[:, None])
    alpha = gl.exp2(row_max - new_max)
    return p, alpha, new_max, row_sum * alpha + gl.sum(p, 1)


# ## One step: two products and a softmax, at the same time
#
# When a step begins, `p` holds the weights of tile `kv`, and the keys of tile `kv + 1` have arrived. Both products are
# issued, one right after the other: the scores of tile `kv + 1`, then the output of tile `kv`. The tensor cores finish
# them in this order. So `warpgroup_mma_wait(1)`, at most one still running, means that the scores are done. From there
# on the softmax runs, and the other product with it.
#
# **The wait in the middle.** The keys of tile `kv + 2` are waited for *here*, after the softmax, and not when the next
# step needs them. Why? The assembler is free to move the last wait for the product upwards, and it does: above all the
# exponentials, so that nothing overlaps. It moves nothing across a loop, and waiting for a barrier is one. [What the
# compiler undoes](../../docs/guides/what-the-compiler-undoes.md) shows it. The price is a second buffer: these keys
# arrive while this tile's values are still held.
#
# Last, `p` becomes 16-bit numbers. Its registers are just where the tensor cores want their left factor, so this
# `convert_layout` moves nothing between threads.
@gluon.jit
def step(
    state, q, bufs, bars, first_row, first_col, S, factor, more,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    q_s, k_s, v_s, tile_s = bufs
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    acc, p, row_max, row_sum, kv = state
    BLOCK_N: gl.constexpr = k_s.type.shape[3]
    s_layout: gl.constexpr = row_max.type.layout.parent
    zero = gl.zeros([p.shape[0], BLOCK_N], gl.float32, s_layout)
    next_stage = (kv + 1) % STAGES
    stage = kv % STAGES

    s = warpgroup_mma(q, matrix(k_s.index(next_stage)).permute((1, 0)), zero, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(stage), (kv // STAGES) & 1)
    acc = warpgroup_mma(p, matrix(v_s.index(stage)), acc, is_async=True)

    s = warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(k_empty.index(next_stage))
    if MASKED:
        s = mask_scores(s, first_row, first_col, S, CAUSAL)
    weights, alpha, row_max, row_sum = softmax(s, row_max, row_sum, factor)

    mbarrier.wait(k_full.index((kv + 2) % STAGES), ((kv + 2) // STAGES) & 1, pred=more)

    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(v_empty.index(stage))
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, acc.type.layout))[:, None]
    return acc, gl.convert_layout(weights.to(p.dtype), p.type.layout), row_max, row_sum, kv + 1


# ## A warpgroup
#
# Each thread holds parts of two rows of the scores, and four threads together a whole row. So a maximum over a row
# needs two exchanges between neighbours, and no shared memory.
#
# The first tile has scores only, and after the last one an output is left over. In between every step does both.
@gluon.jit
def consumer_partition(
    o_desc, lse_ptr, bufs, bars, sizes, factor, W: gl.constexpr, D: gl.constexpr,
    HEADS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    q_s, k_s, v_s, tile_s = bufs
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    all_heads, heads, group, tiles_m, T, S = sizes
    ROWS: gl.constexpr = BLOCK_M // 2
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    n = 0
    kv = 0
    t = gl.program_id(0)
    while t < all_heads * tiles_m:
        b, h, start_m, count, masked = place(t, sizes, HEADS, BLOCK_M, BLOCK_N, CAUSAL)
        first_row = start_m + W * ROWS
        q = matrix(q_s.index(W))
        row_max = gl.full([ROWS], LOWEST, gl.float32, gl.SliceLayout(1, s_layout))
        row_sum = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, s_layout))
        acc = gl.zeros([ROWS, D], gl.float32, o_layout)

        stage = kv % STAGES
        mbarrier.wait(q_full.index(W), n & 1)
        mbarrier.wait(k_full.index(stage), (kv // STAGES) & 1)
        zero = gl.zeros([ROWS, BLOCK_N], gl.float32, s_layout)
        s = warpgroup_mma(q, matrix(k_s.index(stage)).permute((1, 0)), zero, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(stage))
        s = mask_scores(s, first_row, (count - 1) * BLOCK_N, S, CAUSAL)
        weights, alpha, row_max, row_sum = softmax(s, row_max, row_sum, factor)
        state = acc, gl.convert_layout(weights.to(o_desc.dtype), p_layout), row_max, row_sum, kv

        # There is a next tile of keys only if there is more than one.
        mbarrier.wait(k_full.index((kv + 1) % STAGES), ((kv + 1) // STAGES) & 1, pred=count > 1)
        for i in range(1, masked):
            state = step(state, q, bufs, bars, first_row, (count - 1 - i) * BLOCK_N, S, factor, i + 1 < count, True,
                         CAUSAL, STAGES)  # fmt: skip
        for i in range(masked, count):
            state = step(state, q, bufs, bars, first_row, (count - 1 - i) * BLOCK_N, S, factor, i + 1 < count, False,
                         CAUSAL, STAGES)  # fmt: skip

        acc, p, row_max, row_sum, kv = state
        stage = kv % STAGES
        mbarrier.wait(v_full.index(stage), (kv // STAGES) & 1)
        acc = warpgroup_mma(p, matrix(v_s.index(stage)), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(v_empty.index(stage))
        kv += 1

        # The queries have been read for the last time, so their buffer takes the output. Threads write it and the copy
        # unit reads it: hence the fence.
        o = acc * gl.convert_layout(1.0 / row_sum, gl.SliceLayout(1, o_layout))[:, None]
        q.store(o.to(o_desc.dtype))
        fence_async_shared()
        tma_store(o_desc, [b, h, first_row, 0], q_s.index(W))
        rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
        lse_row = lse_ptr + (b * heads + h).to(gl.int64) * T
        gl.store(lse_row + rows, (row_max + gl.log2(row_sum)) * LN2, mask=rows < T)
        one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        t = gl.sum(tile_s.index(n % 2).load(one), 0)
        # Only when the TMA unit has read the output may the next queries come into its place.
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index(W))
        n += 1


# ## The kernel
#
# Shared memory, barriers, partitions. `full` barriers expect one arrival, that of the fetching warp, and the bytes of a
# copy. `empty` ones expect whoever reads the buffer: one group for its own queries, both for keys and values.
#
# The descriptors know where a sequence ends. Past its last row the TMA unit delivers zeros, and stores nothing.
@gluon.jit
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc,  # of (B, H, T, D), or Hk and S for k and v
    lse_ptr,  # (B, H, T), contiguous
    next_ptr,  # (1,): the next tile that nobody has taken
    sizes, factor, D: gl.constexpr, HEADS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    gl.static_assert(STAGES >= 2, "one stage deadlocks: the next keys are waited for while these values are held")
    q_s = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_type.shape, q_desc.layout)
    k_s = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_type.shape, k_desc.layout)
    v_s = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_type.shape, v_desc.layout)
    tile_s = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(2):
        mbarrier.init(q_full.index(w), count=1)
        mbarrier.init(q_empty.index(w), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=2)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(v_empty.index(s), count=2)
    bufs = (q_s, k_s, v_s, tile_s)
    bars = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    # The warps of the first group get the registers that the others leave: 240 for each of their threads. A warp that
    # only fetches needs 24.
    gl.warp_specialize([
        (consumer_partition, (o_desc, lse_ptr, bufs, bars, sizes, factor, 0, D, HEADS, BLOCK_M, BLOCK_N, STAGES,
                              CAUSAL)),
        (consumer_partition, (o_desc, lse_ptr, bufs, bars, sizes, factor, 1, D, HEADS, BLOCK_M, BLOCK_N, STAGES,
                              CAUSAL)),
        (load_partition, (q_desc, k_desc, v_desc, next_ptr, bufs, bars, sizes, HEADS, BLOCK_M, BLOCK_N, STAGES,
                          CAUSAL)),
    ], [4, 1], [240, 24])  # fmt: skip


# ## The launcher
#
# It has the arguments of the lesson's launcher, so the lesson's autograd frame takes it as it is.
@replayed
def attention_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *, BLOCK_N=128, STAGES=2, HEADS=None):
    """`(o, lse)`, as the lesson's launcher: no sinks, no packed sequences. BLOCK_N: keys in a tile, a power of two."""
    checks.power_of_two(BLOCK_N=BLOCK_N, HEADS=HEADS)
    q, k, v = fitting(q), fitting(k), fitting(v)
    (B, H, T, D), (Hk, S) = q.shape, k.shape[1:3]
    o = torch.empty((B, H, T, D), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    if not (B and H and T and S):
        return o.zero_(), lse.fill_(-float("inf"))
    device.require("gluon", "flash_attention", q.device.index)
    tiles_m = triton.cdiv(T, 128)
    grid = programs(B * H * tiles_m, q.device.index)
    attention_kernel[(grid,)](
        described(q, [1, 1, 64, D]), described(k, [1, 1, BLOCK_N, D]), described(v, [1, 1, BLOCK_N, D]),
        described(o, [1, 1, 64, D]), lse, torch.full((1,), grid, dtype=torch.int32, device=q.device),
        (B * H, H, H // Hk, tiles_m, T, S), float(options.scale * LOG2E.value), D=D,
        HEADS=HEADS or heads_at_a_time(S, q), BLOCK_M=128, BLOCK_N=BLOCK_N, STAGES=STAGES, CAUSAL=options.right == 0,
        num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return o, lse


@replayed
def flash_attention(q, k, v, *, causal=False, scale=None, return_lse=False):
    r"""Softmax attention of `q` over `k` and `v`, differentiable. Needs a Hopper GPU, or none at all (the simulator).

    Args:
        q: (B, H, T, D), float16 or bfloat16, any strides, D 64 or 128.
        k, v: (B, Hk, S, D), dtype of `q`, any strides; H is a multiple of Hk. T and S may be 0.
        causal: query i sees the keys up to i; T and S must be equal.
        scale: of the scores, more than 0, default $1/\sqrt{D}$.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        o, (B, H, T, D) in the dtype of `q`; or (o, lse) with lse (B, H, T), float32, a natural logarithm.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or a number is out of range.
        RuntimeError: the GPU isn't a Hopper.

    Source: Shah et al., "FlashAttention-3" (arXiv 2407.08608).
    """
    options = contract(q, k, v, causal, scale, None, 0.0, None, return_lse)
    checks.dtypes((torch.float16, torch.bfloat16), q=q)
    if q.shape[-1] not in (64, 128):
        raise ValueError(f"q must have a head dimension of 64 or 128, got shape {tuple(q.shape)}")
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"k must have the length of q with causal=True, {q.shape[2]}, got {k.shape[2]}")
    if options.scale <= 0:
        raise ValueError(f"scale must be more than 0, got {scale}")
    o, lse = attention(q, k, v, None, None, None, options, attention_forward, attention_backward)
    return (o, lse) if return_lse else o


# ## A run small enough to watch
#
# A head of 136 queries and keys with 16 numbers, causal: two tiles of queries, and tiles of 64 keys.
def EXAMPLE():
    at = torch.arange(136 * 16, device=device.DEVICE)
    q, k, v = ((at * step % 7 - 3).half().view(1, 1, 136, 16) for step in (1, 3, 5))
    options = contract(q, k, v, True, 0.25, None, 0.0, None, True)
    attention_forward(q, k, v, None, None, None, options, BLOCK_N=64)


if __name__ == "__main__":
    script.main(flash_attention, flash_attention_reference)
