r"""
# Attention backward, below Triton

The backward pass of [attention below Triton](flash_attention.py), in one kernel. It recomputes the scores tile by tile,
and makes these gradients of them:

[[eq: AT-dS]]

[[eq: AT-dQ]]

[[eq: AT-dK]]

[[eq: AT-dV]]

**Five products instead of seven.** [The fast version in Triton](../fast/flash_attention_backward.py) has two kernels.
One walks along the keys for dQ, the other along the queries for dK and dV, and both compute S and dP: seven products of
each tile. In that form, which the picture shows, no sum ever leaves its program.

[[figure: fast/backward_walks]]

Five would do: S, dP, dV, dK and dQ. Here a program has a tile of keys and keeps dK and dV in registers, as before. But
its part of dQ has to be added to a sum in memory, to which the tiles of all the other keys add, too. Two things make
that cheap:

- **The TMA unit adds** a tile of dQ from shared memory to global memory. No thread that computes has to carry it.
- **Everyone has a turn.** The sum of floats depends on the order. So the tiles of keys add in theirs: first tile 0,
  then tile 1, and so on, for each tile of queries. A counter says whose turn it is. Every call gives the same bits.

Would that not make them wait for each other? Hardly. All walk along the queries from the last to the first. A program
whose turn is far off waits at its first steps. After that it runs behind the others, and its turn has come in time.

[[figure: below/sums_in_turn]]

| barrier | who arrives | who waits |
|---|---|---|
| `kv_full`; `full` of a stage | the loading warp, with keys and values; with queries | the groups, before their use |
| `kv_empty` | both groups, when dK and dV are stored | the loading warp, before the next keys |
| `done` of a stage | both groups, when a step is over and its dQ there | both warps; the groups, before dK is stored |
| `ds_full` | both groups, when their dS is written | both groups, before dQ |
| `dq_empty` | the adding warp, when dQ has been read | the groups, before they write the next dQ |

[[figure: below/backward_phases]]

**What it costs.** A step has 64 queries and 128 keys, and heads of 128 numbers: five products of 2 · 64 · 128 · 128
operations are 10.5 million, for which the tensor cores need 2560 cycles. Seven would take 3584. Shared memory is full:
64 KB of keys and values, three stages of 32 KB with queries and upstream gradients, 32 KB of dS and 32 of dQ are 224 of
227 KB. The sums for dQ are float32 and lie in global memory until the call is over, 4 · D bytes for each query.

**Measured on an H200**, in one run, with batch 4, 16 heads, 4096 tokens and heads of 128 numbers:

| backward | time |
|---|---:|
| causal, this page | [[bench: gluon_flash_attention:causal/4x16x16x4096x128/backward/ms]] |
| causal, two kernels in Triton | [[bench: gluon_flash_attention:causal/4x16x16x4096x128/backward/Triton.ms]] |
| causal, cuDNN | [[bench: gluon_flash_attention:causal/4x16x16x4096x128/backward/cuDNN (SDPA).ms]] |
| unmasked, this page | [[bench: gluon_flash_attention:full/4x16x16x4096x128/backward/ms]] |
| unmasked, two kernels in Triton | [[bench: gluon_flash_attention:full/4x16x16x4096x128/backward/Triton.ms]] |
| unmasked, cuDNN | [[bench: gluon_flash_attention:full/4x16x16x4096x128/backward/cuDNN (SDPA).ms]] |

**Where it falls behind.** Each launch makes seven descriptors in Python. So small calls stay in Triton. With 16 x 16
heads of 64 numbers and 1024 tokens, causal, it takes [[bench: flash_attention:causal/16x16x16x1024x64/backward/ms]],
and cuDNN [[bench: flash_attention:causal/16x16x16x1024x64/backward/cuDNN (SDPA).ms]].

**Contract.** As [flash_attention](flash_attention.py), whose autograd takes it. The gradient of the log-sum-exp may be
None. Without a GPU it runs in a simulator, which names a missing wait; on another GPU than Hopper it refuses to start.
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

from annotated_examples.attention.flash_attention import attention, attention_forward, flash_attention_reference
from annotated_examples.common.attention import contract
from annotated_examples.common.attention_tiles import fitting
from annotated_examples.common.constants import LOG2E
from annotated_examples.common.hopper import described, matrix, programs, tma_load, tma_store
from annotated_examples.common.hopper_sums import pass_turn, tma_add, wait_for_turn


# ## Two numbers of each query
#
# A first kernel computes what all tiles of keys need of a query: its log-sum-exp in base 2, and D, [[tag: AT-D]]. It
# also sets the counters to 0. Past the last query of a head, both numbers are 0, and the TMA unit brings zeros for its
# query and its upstream gradient. So P is 1 there, dP is 0, and nothing comes of it.
@gluon.jit
def row_numbers_kernel(
    o_tensor, do_tensor, dlse_tensor,  # (pointer, strides): (B, H, T, D); (B, H, T), or None
    lse_ptr,  # (B, H, T), contiguous
    lse2_ptr, delta_ptr,  # (B, H, tiles of queries, BLOCK_M)
    turn_ptr, next_ptr,  # (B, H, tiles of queries), and (2,)
    H, T, D: gl.constexpr, BLOCK_M: gl.constexpr,
):  # fmt: skip
    o_ptr, o_strides = o_tensor
    do_ptr, do_strides = do_tensor
    dlse_ptr, dlse_strides = dlse_tensor
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 * 8 // D, D // 8], [4, 1], [1, 0])
    row, tile = gl.program_id(0).to(gl.int64), gl.program_id(1)
    b, h = row // H, row % H
    offs_m = tile * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout)).to(gl.int64)
    offs_d = gl.arange(0, D, gl.SliceLayout(0, layout))[None, :]
    inside = offs_m < T
    o_rows = o_ptr + b * o_strides[0] + h * o_strides[1] + offs_m * o_strides[2]
    do_rows = do_ptr + b * do_strides[0] + h * do_strides[1] + offs_m * do_strides[2]
    o = gl.load(o_rows[:, None] + offs_d, mask=inside[:, None], other=0.0)
    do = gl.load(do_rows[:, None] + offs_d, mask=inside[:, None], other=0.0)
    delta = gl.sum(o.to(gl.float32) * do.to(gl.float32), 1)
    if dlse_ptr is not None:
        dlse_rows = dlse_ptr + b * dlse_strides[0] + h * dlse_strides[1] + offs_m * dlse_strides[2]
        delta -= gl.load(dlse_rows, mask=inside, other=0.0)
    lse = gl.load(lse_ptr + row * T + offs_m, mask=inside, other=0.0)
    padded = gl.num_programs(1) * BLOCK_M
    gl.store(lse2_ptr + row * padded + offs_m, lse * LOG2E)
    gl.store(delta_ptr + row * padded + offs_m, delta)
    gl.store(turn_ptr + row * gl.num_programs(1) + tile, 0)
    first = (tile == 0) & (row == 0)
    gl.store(next_ptr, 0, mask=first)
    gl.store(next_ptr + 1, 0, mask=first)


# ## Which tile, and which step?
#
# A program works off one tile of 128 keys after another. Which one? The next that nobody has taken, by an atomic
# addition: a *ticket*, as at a counter. Why not a fixed share for each? Because a tile waits for the one before it.
# Whoever has that one has begun, and itself waits only for still lower tickets. The lowest that isn't done waits for
# nobody. So nothing can deadlock, whatever the order in which the card starts programs.
#
# Under a causal mask the first keys are seen by the most queries, so they come first. `HEADS` heads are done at a time.
#
# `sizes` is a tuple of numbers that all partitions need: how many heads of keys there are in all sequences together and
# in one, how many heads share one, how many tiles of queries and of keys a head has, and the number of keys.
@gluon.jit
def place(t, sizes, HEADS: gl.constexpr, BLOCK_M: gl.constexpr, CAUSAL: gl.constexpr):
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    at_a_time = gl.minimum(all_heads - t // (HEADS * tiles_n) * HEADS, HEADS)
    inside = t % (HEADS * tiles_n)
    head = t // (HEADS * tiles_n) * HEADS + inside % at_a_time
    j = inside // at_a_time
    # In the example all keys are seen by the only tile of queries, `pid=0: count = 1`. Under a causal mask no query
    # before a tile's first key sees it.
    count = tiles_m
    if CAUSAL:
        count = tiles_m - j * (128 // BLOCK_M)
    return head // heads, head % heads, j, count


# A step is a tile of queries of one head. They are walked through from the last tile to the first, and each tile for
# all heads that share the keys. Why heads inside, and not tiles? The later keys see fewer queries. With the tiles
# inside they would be through with the first head early, and then wait until the first keys, which see all queries,
# have come to the second.
@gluon.jit
def queries_of(step, head, sizes):
    b, hk = head
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    h = hk * group + step % group
    m = tiles_m - 1 - step // group
    return h, m, (b * heads * group + h) * tiles_m + m


# ## One warp: the loads
#
# Keys and values once for each tile, and for each step queries, upstream gradients and their two numbers, which belong
# into the same buffer of the ring. The TMA unit brings the tiles. The numbers are a float for each query, which the
# warp carries itself: loaded before it waits for the buffer, stored after. The `expect` that follows is an arrival, so
# who waits for the barrier sees them, too.
#
# The queries of the next tile's first step are asked for while this tile is still being computed. Its keys and values
# have to wait until both groups have given back their buffers, which take dK and dV at the end.
#
# **The next ticket** is taken as late as possible: with the last step of a tile. The others are told through shared
# memory. It needs no barrier: the groups read it after they have waited for that step. `STAGES + 2` places take turns.
# A place is used again only when two steps after its tile's last are done, and by then everybody has read the number.
@gluon.jit
def load_partition(
    descs, lse2_ptr, delta_ptr, next_ptr, t, bufs, bars, sizes, HEADS: gl.constexpr, BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    q_desc, do_desc, k_desc, v_desc = descs
    q_s, do_s, k_s, v_s, ds_s, dq_s, lse2_s, delta_s, tile_s = bufs
    kv_full, kv_empty, full, done, ds_full, dq_empty = bars
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    rows = gl.arange(0, BLOCK_M, gl.BlockedLayout([BLOCK_M // 32], [32], [gl.num_warps()], [0]))
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    n = 0
    i = 0
    while t < all_heads * tiles_n:
        b, hk, j, count = place(t, sizes, HEADS, BLOCK_M, CAUSAL)
        for step in range(count * group):
            h, m, tile = queries_of(step, (b, hk), sizes)
            stage = i % STAGES
            lse2 = gl.load(lse2_ptr + tile * BLOCK_M + rows)
            delta = gl.load(delta_ptr + tile * BLOCK_M + rows)
            # To wait for the phase before the first returns at once: [phases](tile_copy.py) are told by parity.
            mbarrier.wait(done.index(stage), ((i // STAGES) & 1) ^ 1)
            lse2_s.index(stage).store(lse2)
            delta_s.index(stage).store(delta)
            if step == count * group - 1:
                t = gl.atomic_add(next_ptr, 1)
                tile_s.index(n % tile_s.shape[0]).store(gl.full([1], 0, gl.int32, one) + t)
            mbarrier.expect(full.index(stage), q_desc.block_type.nbytes + do_desc.block_type.nbytes)
            tma_load(q_desc, [b, h, m * BLOCK_M, 0], full.index(stage), q_s.index(stage))
            tma_load(do_desc, [b, h, m * BLOCK_M, 0], full.index(stage), do_s.index(stage))
            if step == 0:
                mbarrier.wait(kv_empty, (n & 1) ^ 1)
                mbarrier.expect(kv_full, 2 * k_desc.block_type.nbytes + 2 * v_desc.block_type.nbytes)
                for w in gl.static_range(2):
                    tma_load(k_desc, [b, hk, j * 128 + 64 * w, 0], kv_full, k_s.index(w))
                    tma_load(v_desc, [b, hk, j * 128 + 64 * w, 0], kv_full, v_s.index(w))
            i += 1
        n += 1


@gluon.jit
def next_ticket(tile_s, n):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    return gl.sum(tile_s.index(n % tile_s.shape[0]).load(one), 0)


# ## Another warp: the sums
#
# When both groups are done with a step, their halves of dQ lie in shared memory. This warp waits for its turn, has the
# TMA unit add them, gives the buffer back, and passes the turn on. The first keys don't add, they store. So nobody has
# to set the sums to zero before.
#
# Two waits, one after the other. The TMA unit has *read* the tile: the groups may overwrite it. The tile has
# *arrived*: the next program may add. [`pass_turn`](../common/hopper_sums.py) has the second one.
@gluon.jit
def sum_partition(
    dq_desc, turn_ptr, t, bufs, bars, sizes, HEADS: gl.constexpr, BLOCK_M: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    q_s, do_s, k_s, v_s, ds_s, dq_s, lse2_s, delta_s, tile_s = bufs
    kv_full, kv_empty, full, done, ds_full, dq_empty = bars
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    n = 0
    i = 0
    while t < all_heads * tiles_n:
        b, hk, j, count = place(t, sizes, HEADS, BLOCK_M, CAUSAL)
        for step in range(count * group):
            h, m, tile = queries_of(step, (b, hk), sizes)
            mbarrier.wait(done.index(i % STAGES), (i // STAGES) & 1)
            if j == 0:
                tma_store(dq_desc, [b, h, m * BLOCK_M, 0], dq_s.index(0))
                tma_store(dq_desc, [b, h, m * BLOCK_M, D // 2], dq_s.index(1))
            else:
                wait_for_turn(turn_ptr + tile, j)
                tma_add(dq_desc, [b, h, m * BLOCK_M, 0], dq_s.index(0))
                tma_add(dq_desc, [b, h, m * BLOCK_M, D // 2], dq_s.index(1))
            tma.store_wait(0)
            mbarrier.arrive(dq_empty)
            pass_turn(turn_ptr + tile, j)
            i += 1
        t = next_ticket(tile_s, n)
        n += 1


# ## One step of a group
#
# Scores have a row for each key and a column for each query. What a query doesn't see becomes $-\infty$, and P is 0.
@gluon.jit
def hide(s, first_key, first_query, S, CAUSAL: gl.constexpr):
    keys = first_key + gl.arange(0, s.shape[0], gl.SliceLayout(1, s.type.layout))[:, None]
    queries = first_query + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))[None, :]
    if CAUSAL:
        return gl.where(keys <= queries, s, -float("inf"))
    else:
        return gl.where(keys < S, s, -float("inf"))


# [[figure: below/backward_step]]
#
# A group of four warps, `W`, has 64 of the 128 keys and computes S = K Qᵀ, a row for each key: what the formulas call
# S, transposed. **dV** and **dK** are then sums of P dO and dS Q, with P and dS as left factors, and a left factor may
# stay in registers. All others are in shared memory. A product is waited for as late as possible. While dP = V dOᵀ is
# being computed, S becomes P; beside dV goes the arithmetic of dS, and dQ is stored while dK is being computed.
#
# **dQ**, dSᵀ K, is a sum over all 128 keys, so it needs dS of both groups. Each stores its own in shared memory,
# arrives at `ds_full`, and waits for the other. Then each computes half of the columns of dQ, from all keys. There are
# two pairs of buffers for dS, for even steps and odd ones: one group may write the next while the other still reads
# this. Two are enough: no group gets two steps ahead, because the phase of the step between waits for both to arrive.
#
# [Of the two fences](tile_copy.py) the first is for the tensor cores, which read dS, the last for the TMA unit, which
# reads dQ. Right before a wait for products it would make the assembler of CUDA 12.8 (Triton 3.6 and 3.7) crash.
@gluon.jit
def step(
    dk, dv, i, first_key, first_query, masked, S, factor, bufs, bars,
    W: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    q_s, do_s, k_s, v_s, ds_s, dq_s, lse2_s, delta_s, tile_s = bufs
    kv_full, kv_empty, full, done, ds_full, dq_empty = bars
    BLOCK_M: gl.constexpr = q_s.type.shape[3]
    HALF: gl.constexpr = q_s.type.shape[4] // 2
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    a_layout: gl.constexpr = gl.DotOperandLayout(0, dv.type.layout, 2)
    columns: gl.constexpr = gl.SliceLayout(0, s_layout)
    stage = i % STAGES
    q = matrix(q_s.index(stage))
    do = matrix(do_s.index(stage))
    zero = gl.zeros([64, BLOCK_M], gl.float32, s_layout)

    mbarrier.wait(full.index(stage), (i // STAGES) & 1)
    s = warpgroup_mma(matrix(k_s.index(W)), q.permute((1, 0)), zero, use_acc=False, is_async=True)
    dp = warpgroup_mma(matrix(v_s.index(W)), do.permute((1, 0)), zero, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(1, deps=(s,))
    if masked:
        s = hide(s, first_key, first_query, S, CAUSAL)
    p = gl.exp2(s * factor - lse2_s.index(stage).load(columns)[None, :])
    dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), a_layout), do, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=(dp,))
    ds = (p * (dp - delta_s.index(stage).load(columns)[None, :])).to(q.dtype)

    pair = (i % 2) * 2
    ds_s.index(pair + W).store(ds)
    fence_async_shared()
    mbarrier.arrive(ds_full)
    ds = gl.convert_layout(ds, a_layout)
    mbarrier.wait(ds_full, i & 1)
    dq = gl.zeros([BLOCK_M, HALF], gl.float32, dq_layout)
    k0 = matrix(k_s.index(0)).slice(W * HALF, HALF, 1)
    k1 = matrix(k_s.index(1)).slice(W * HALF, HALF, 1)
    dq = warpgroup_mma(ds_s.index(pair).permute((1, 0)), k0, dq, use_acc=False, is_async=True)
    dq = warpgroup_mma(ds_s.index(pair + 1).permute((1, 0)), k1, dq, is_async=True)
    dk = warpgroup_mma(ds, q, dk, is_async=True)

    dv = warpgroup_mma_wait(3, deps=(dv,))
    mbarrier.wait(dq_empty, (i & 1) ^ 1)
    dq = warpgroup_mma_wait(1, deps=(dq,))
    matrix(dq_s.index(W)).store(dq)
    dk = warpgroup_mma_wait(0, deps=(dk,))
    fence_async_shared()
    mbarrier.arrive(done.index(stage))
    return dk, dv


# ## The last turn: rounding
#
# After the last tile of keys it is the rounding's turn: the sum of a tile of queries is scaled, and becomes 16-bit
# numbers. A group that finds no more tiles of keys takes tickets of a second kind, one for each tile of queries.
#
# Why not a kernel of its own at the end? Without a mask all tiles of keys take the same time, and in the measured call
# there are 2048 of them for 132 SMs. So in the sixteenth round only half of these have one. The others
# round meanwhile. A kernel of its own took nearly 3 % of the whole.
@gluon.jit
def round_queries(sums, turn_ptr, next_ptr, sizes, scale, BLOCK_M: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr):
    sums_ptr, dq_ptr, T = sums
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 * 8 // D, D // 8], [4, 1], [1, 0])
    rows = gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    offs_d = gl.arange(0, D, gl.SliceLayout(0, layout))[None, :]
    t = gl.atomic_add(next_ptr, 1)
    while t < all_heads * group * tiles_m:
        h = t // tiles_m
        m = tiles_m - 1 - t % tiles_m
        # In the example both tiles of keys have to be there, `pid=0: adders = 2`. Under a causal mask only the keys up
        # to the diagonal add. Tile 5 of 64 queries begins at query 320, in the third tile of 128 keys: it is complete
        # after three.
        adders = tiles_n
        if CAUSAL:
            adders = m * BLOCK_M // 128 + 1
        wait_for_turn(turn_ptr + h * tiles_m + m, adders)
        offs_m = m * BLOCK_M + rows
        offs = (h.to(gl.int64) * T + offs_m)[:, None] * D + offs_d
        inside = offs_m[:, None] < T
        dq = gl.load(sums_ptr + offs, mask=inside, other=0.0) * scale
        gl.store(dq_ptr + offs, dq.to(dq_ptr.dtype.element_ty), mask=inside)
        t = gl.atomic_add(next_ptr, 1)


# ## A group
#
# Which steps need a mask? Under a causal mask the last ones: those on the diagonal, one tile of queries or two, for
# each head. Without a causal mask only keys past the last one have to be hidden, from all queries: P = exp(−lse) may be
# infinite there, and infinity · 0 is NaN. Whether there are any, `RAGGED`, is known when the kernel is compiled.
#
# At the end the buffer of the group's own values takes dV, and that of its keys takes dK. The keys were a factor of the
# other group's dQ, too. So dK waits until the last step is done in both.
@gluon.jit
def gradient_partition(
    dk_desc, dv_desc, sums, turn_ptr, next_ptr, t, bufs, bars, sizes, scale, W: gl.constexpr, HEADS: gl.constexpr,
    BLOCK_M: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    q_s, do_s, k_s, v_s, ds_s, dq_s, lse2_s, delta_s, tile_s = bufs
    kv_full, kv_empty, full, done, ds_full, dq_empty = bars
    all_heads, heads, group, tiles_m, tiles_n, S = sizes
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    n = 0
    i = 0
    while t < all_heads * tiles_n:
        b, hk, j, count = place(t, sizes, HEADS, BLOCK_M, CAUSAL)
        dk = gl.zeros([64, D], gl.float32, sum_layout)
        dv = gl.zeros([64, D], gl.float32, sum_layout)
        first_key = j * 128 + W * 64
        mbarrier.wait(kv_full, n & 1)
        unmasked = (tiles_m - gl.cdiv(first_key + 63, BLOCK_M)) * group
        for walked in range(count * group):
            first_query = (tiles_m - 1 - walked // group) * BLOCK_M
            if CAUSAL:
                masked = walked >= unmasked
            else:
                masked: gl.constexpr = RAGGED
            dk, dv = step(dk, dv, i, first_key, first_query, masked, S, scale * LOG2E, bufs, bars, W, CAUSAL, STAGES)
            i += 1

        matrix(v_s.index(W)).store(dv.to(dv_desc.dtype))
        fence_async_shared()
        tma_store(dv_desc, [b, hk, first_key, 0], v_s.index(W))
        dk = (dk * scale).to(dk_desc.dtype)
        mbarrier.wait(done.index((i - 1) % STAGES), ((i - 1) // STAGES) & 1)
        matrix(k_s.index(W)).store(dk)
        fence_async_shared()
        tma_store(dk_desc, [b, hk, first_key, 0], k_s.index(W))
        t = next_ticket(tile_s, n)
        tma.store_wait(0)
        mbarrier.arrive(kv_empty)
        n += 1
    round_queries(sums, turn_ptr, next_ptr + 1, sizes, scale, BLOCK_M, D, CAUSAL)


# ## The kernel: shared memory, barriers, partitions
@gluon.jit
def attention_backward_kernel(
    q_desc, do_desc, k_desc, v_desc,  # of (B, H, T, D), or Hk and S for k and v
    dq_desc, dk_desc, dv_desc,  # the same; dq is float32, and isn't scaled yet
    lse2_ptr, delta_ptr, turn_ptr, next_ptr,  # as above
    sums,  # pointers to the memory of dq_desc and to dq, (B, H, T, D), contiguous, and T
    sizes, scale, D: gl.constexpr, HEADS: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BLOCK_M], dtype)
    row_layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_s = gl.allocate_shared_memory(dtype, [STAGES] + q_desc.block_type.shape, q_desc.layout)
    do_s = gl.allocate_shared_memory(dtype, [STAGES] + do_desc.block_type.shape, do_desc.layout)
    k_s = gl.allocate_shared_memory(dtype, [2] + k_desc.block_type.shape, k_desc.layout)
    v_s = gl.allocate_shared_memory(dtype, [2] + v_desc.block_type.shape, v_desc.layout)
    ds_s = gl.allocate_shared_memory(dtype, [4, 64, BLOCK_M], ds_layout)
    dq_s = gl.allocate_shared_memory(gl.float32, [2] + dq_desc.block_type.shape, dq_desc.layout)
    lse2_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], row_layout)
    delta_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], row_layout)
    tile_s = gl.allocate_shared_memory(gl.int32, [STAGES + 2, 1], row_layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    kv_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    dq_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_full, count=1)
    mbarrier.init(kv_empty, count=2)
    mbarrier.init(ds_full, count=2)
    mbarrier.init(dq_empty, count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(done.index(s), count=2)
    bufs = (q_s, do_s, k_s, v_s, ds_s, dq_s, lse2_s, delta_s, tile_s)
    bars = (kv_full, kv_empty, full, done, ds_full, dq_empty)
    t = gl.atomic_add(next_ptr, 1)
    # A thread of the groups has 240 registers: dK and dV take 2 · 64 · 128 / 128 of them, scores and a part of dQ more.
    gl.warp_specialize([
        (gradient_partition, (dk_desc, dv_desc, sums, turn_ptr, next_ptr, t, bufs, bars, sizes, scale, 0, HEADS,
                              BLOCK_M, D, STAGES, CAUSAL, RAGGED)),
        (gradient_partition, (dk_desc, dv_desc, sums, turn_ptr, next_ptr, t, bufs, bars, sizes, scale, 1, HEADS,
                              BLOCK_M, D, STAGES, CAUSAL, RAGGED)),
        (load_partition, ((q_desc, do_desc, k_desc, v_desc), lse2_ptr, delta_ptr, next_ptr, t, bufs, bars, sizes,
                          HEADS, BLOCK_M, STAGES, CAUSAL)),
        (sum_partition, (dq_desc, turn_ptr, t, bufs, bars, sizes, HEADS, BLOCK_M, D, STAGES, CAUSAL)),
    ], [4, 1, 1], [240, 24, 24])  # fmt: skip


# ## The launcher
#
# Heads of 64 numbers have half as large sums, and room for two stages of 128 queries. Without a mask two heads
# at a time are best, or four of 64 numbers; we don't know why.
TILES = {64: (128, 2, 4), 128: (64, 3, 2)}


# Under a causal mask a tile of late keys waits in each of its few steps until all earlier keys have had their turn: the
# less, the more heads lie between two tiles of a head. But L2 should hold their queries, upstream gradients and sums,
# 2²⁴ bytes at best. Of 16 x 16 heads of 64 numbers and 1024 tokens these are 32 heads, and the pass takes
# [[bench: flash_attention/ladder/32 heads/short_ms]]. With 8 it is [[bench: flash_attention/ladder/8 heads/short_ms]].
def causal_heads(q, group):
    heads = max(2**24 // (8 * q[0, 0].numel() * group), 4 if group == 1 else 2)
    return 1 << min(heads, 64).bit_length() - 1


@replayed
def attention_backward(
    do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, *, BLOCK_M=None, STAGES=None, HEADS=None
):
    """`(dq, dk, dv, None)`, as the lesson's launcher: no sinks, no packed sequences.

    BLOCK_M: queries in a tile, 64 or 128. STAGES: tiles of queries in shared memory.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, HEADS=HEADS)
    do = torch.zeros_like(o) if do is None else do
    q, k, v, o, do = (fitting(x) for x in (q, k, v, o, do))
    (B, H, T, D), (Hk, S), causal = q.shape, k.shape[1:3], options.right == 0
    dq = torch.empty((B, H, T, D), dtype=q.dtype, device=q.device)
    dk, dv = (torch.empty((B, Hk, S, D), dtype=q.dtype, device=q.device) for _ in "kv")
    if not (B and H and T and S):
        return dq.zero_(), dk.zero_(), dv.zero_(), None
    device.require("gluon", "flash_attention", q.device.index)
    queries, stages, heads = TILES[64 if D <= 64 else 128]
    BLOCK_M, STAGES = BLOCK_M or queries, STAGES or stages
    checks.programs("q", "queries", T, BLOCK_M)
    tiles_m, tiles_n = triton.cdiv(T, BLOCK_M), triton.cdiv(S, 128)
    lse2, delta = torch.empty((2, B, H, tiles_m * BLOCK_M), dtype=torch.float32, device=q.device)
    turn = torch.empty((B * H * tiles_m + 2,), dtype=torch.int32, device=q.device)
    sums = torch.empty((B, H, T, D), dtype=torch.float32, device=q.device)
    row_numbers_kernel[(B * H, tiles_m)](
        (o, o.stride()), (do, do.stride()), (dlse, (0, 0, 0) if dlse is None else dlse.stride()),
        lse.contiguous(), lse2, delta, turn, turn[-2:], H, T, D=D, BLOCK_M=BLOCK_M, num_warps=4,
    )  # fmt: skip
    attention_backward_kernel[(programs(tiles_n * B * Hk, q.device.index),)](
        *(described(x, [1, 1, BLOCK_M, D]) for x in (q, do)), *(described(x, [1, 1, 64, D]) for x in (k, v)),
        described(sums, [1, 1, BLOCK_M, D // 2]), *(described(x, [1, 1, 64, D]) for x in (dk, dv)),
        lse2, delta, turn, turn[-2:], (sums, dq, T), (B * Hk, Hk, H // Hk, tiles_m, tiles_n, S), float(options.scale),
        D=D, HEADS=HEADS or (causal_heads(q, H // Hk) if causal else heads), BLOCK_M=BLOCK_M, STAGES=STAGES,
        CAUSAL=causal, RAGGED=S % 128 > 0, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return dq, dk, dv, None


# ## A run small enough to watch
#
# A head of 40 queries and 136 keys with 16 numbers, without a mask: one tile of queries, and two of keys.
def EXAMPLE():
    at = torch.arange(136 * 16, device=device.DEVICE)
    k, v = ((at * step % 7 - 3).half().view(1, 1, 136, 16) for step in (3, 5))
    q, do = ((at * step % 7 - 3).half().view(1, 1, 136, 16)[:, :, :40] for step in (1, 2))
    options = contract(q, k, v, False, 0.25, None, 0.0, None, True)
    o, lse = flash_attention_reference(q.double(), k.double(), v.double(), scale=0.25, return_lse=True)
    attention_backward(do, None, q, k, v, None, None, None, o.half(), lse.float(), options, BLOCK_M=64)


if __name__ == "__main__":

    def flash_attention(q, k, v, causal=False):
        options = contract(q, k, v, causal, None, None, 0.0, None, False)
        return attention(q, k, v, None, None, None, options, attention_forward, attention_backward)[0]

    shapes = dict.fromkeys("qkv", (1, 2, 150, 64))
    script.main(flash_attention, flash_attention_reference, shapes | dict(causal=True), shapes,
                dtypes=(torch.float16, torch.bfloat16))  # fmt: skip
