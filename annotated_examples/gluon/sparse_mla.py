r"""
# Attention to selected keys, below Triton

[The fast version](../fast/sparse_mla.py) says what the time of the lesson's kernel is made of: of parts that wait for
one another. This kernel gives them to different warps, and computes the same, forward:

[[eq: SP-P]]

[[eq: SP-O]]

A program has a query and 64 of its heads, as the lesson's. Its twelve warps have three tasks:

- **Four warps copy keys**, a tile ahead of the others.
- **Four warps compute scores and weights**, and the left half of the output: 64 x 256 sums, of which each thread has
  128 in its registers.
- **Four warps compute the right half.** They get the weights through shared memory.

A tile of keys lies in shared memory once, and serves three products: as keys, as values to the left, and as values to
the right. [A copy](tile_copy.py) explains layouts, barriers and phases, and [attention](flash_attention.py) what its
groups of warps do; both come first.

[[figure: below/copy_score_sum]]

**What it costs.** The products of 64 heads with a tile of 64 keys take 1152 cycles of the tensor cores for scores and
1024 for the output. The tile is 74 KB, queries and weights are 82 KB, and two tiles just fit beside them: 230,528 of
232,448 bytes. On an H200 4096 queries of 128 heads with 2048 keys each took
[[bench: sparse_mla/ladder/below Triton/128_ms]] in the run in which the lesson took
[[bench: sparse_mla/ladder/lesson/128_ms]].

**What is left?** As for the lesson, parts were left out:

| | |
|---|---:|
| this kernel | [[bench: sparse_mla/ladder/below Triton/128_ms]] |
| without copying latents | [[bench: sparse_mla/ladder/below Triton/no_loads_ms]] |
| with keys that lie side by side | [[bench: sparse_mla/ladder/below Triton/no_gather_ms]] |
| without exponentials | [[bench: sparse_mla/ladder/below Triton/no_exp_ms]] |
| without the two fences before the scores, which isn't safe | [[bench: sparse_mla/ladder/below Triton/no_fence_ms]] |
| without the products with values | [[bench: sparse_mla/ladder/below Triton/no_values_ms]] |

The copies cost next to nothing any more, and it makes no difference where the keys lie. What is left is a row of steps
again, but a shorter one: scores, weights, output. While the first group computes weights, the tensor cores have little
to do.

**What was tried.** Both groups compute all scores, each for its own half of the output, and share nothing but the keys.
But the scores are more than half of the products, and that took
[[bench: sparse_mla/ladder/below Triton, scores twice/128_ms]].
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy, fence_async_shared, mbarrier, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip

from annotated_examples.attention.sparse_mla import contract, sparse_attention_reference
from annotated_examples.common.attention_tiles import fitting
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.hopper import DTYPES, cp_async, described, matrix, tma_load


# ## Four warps: the keys
#
# A key is 1152 bytes, somewhere in memory. The TMA unit moves tiles whose rows lie at equal distances, and these don't.
# So each thread copies 16 bytes at a time, by `cp.async`: it says from where to where, and goes on. Eight threads side
# by side take 128 bytes of a row.
#
# What is no key has no row. A copy that is masked reads nothing and writes zeros. So the score is 0, and a number from
# `bias_s` is added to it: −∞ for none, NaN for a mistake. For a key that number is 0.
#
# **When is a tile there?** Copies arrive at some time, in any order. `async_copy` keeps track of those that each thread
# has begun: its `mbarrier_arrive` makes each thread arrive when they are complete, and raises the number of arrivals
# that the phase waits for by as many. So the barrier's own count knows of one arrival only: the ordinary one in the
# next line, which comes after `bias_s` is written.
#
# The latents of a tile are in two halves, with barriers of their own. The first product needs the left half only, and
# each half is given back by the group that has it as its values.
@gluon.jit
def load_partition(
    q_desc, q_pe_desc, kv_ptr, lists_ptr, bufs, bars, place, sizes, R: gl.constexpr, E: gl.constexpr,
    BLOCK_N: gl.constexpr,
):  # fmt: skip
    q_s, q_pe_s, c_s, c_pe_s, bias_s, p_s, factor_s = bufs
    q_full, full, empty, p_full, p_empty = bars
    t, first_head = place
    S, K, stride_s, stride_t = sizes
    HALF: gl.constexpr = R // 2
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    # Heads lie at equal distances, so the queries come by TMA.
    mbarrier.expect(q_full, 2 * q_desc.block_type.nbytes + q_pe_desc.block_type.nbytes)
    for half in gl.static_range(2):
        tma_load(q_desc, [0, t, first_head, half * HALF], q_full, q_s.index(half))
    tma_load(q_pe_desc, [0, t, first_head, R], q_full, q_pe_s)
    columns = gl.arange(0, HALF, gl.SliceLayout(0, layout))[None, :]
    columns_pe = gl.arange(0, E, gl.SliceLayout(0, layout))[None, :]
    offs = gl.arange(0, BLOCK_N, gl.SliceLayout(1, layout))
    lists_ptr += t.to(gl.int64) * stride_t
    # The list is read a tile ahead: the copies need its numbers at once.
    j_next = gl.load(lists_ptr + offs, mask=offs < K, other=-1)
    for i in range(gl.cdiv(K, BLOCK_N)):
        j = j_next
        offs += BLOCK_N
        j_next = gl.load(lists_ptr + offs, mask=offs < K, other=-1)
        known = (j >= 0) & (j < S)
        mask = known[:, None]
        row = kv_ptr + (gl.where(known, j, 0).to(gl.int64) * stride_s)[:, None]
        for half in gl.static_range(2):
            part = i % 2 * 2 + half
            mbarrier.wait(empty.index(part), ((i // 2) & 1) ^ 1)
            cp_async(c_s.index(part), row + (columns + half * HALF), mask=mask)
            if half == 1:
                cp_async(c_pe_s.index(i % 2), row + (columns_pe + R), mask=mask)
                bias = gl.where(known, 0.0, gl.where(j == -1, -float("inf"), float("nan")))
                bias_s.index(i % 2).store(bias)
            async_copy.mbarrier_arrive(full.index(part))
            mbarrier.arrive(full.index(part))


# ## A warpgroup: the scores, and half of the output
#
# The scores of 64 heads and 64 keys are 36 steps of the tensor cores, and the order is that of the lesson: all of the
# latent, then the rotated part. So the sums are rounded as the backward kernels round them.
#
# From there on it is the lesson's softmax. The other group needs the same weights for its half of the columns. It gets
# them through shared memory, and with them the factor by which its sums so far are scaled. There is room for one tile
# of weights, so the next is written when this one has been read.
@gluon.jit
def scores_partition(
    o_tensor, lse_ptr, sinks_ptr, bufs, bars, place, sizes, scale, R: gl.constexpr, BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
):  # fmt: skip
    q_s, q_pe_s, c_s, c_pe_s, bias_s, p_s, factor_s = bufs
    q_full, full, empty, p_full, p_empty = bars
    t, first_head = place
    o_ptr, H = o_tensor
    S, K, stride_s, stride_t = sizes
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, R // 2, 16])
    heads = first_head + gl.arange(0, BLOCK_M, gl.SliceLayout(1, s_layout))
    row_max = gl.full([BLOCK_M], LOWEST, gl.float32, gl.SliceLayout(1, s_layout))
    row_sum = gl.full([BLOCK_M], 0.0, gl.float32, gl.SliceLayout(1, s_layout))
    if sinks_ptr is not None:
        sink = gl.load(sinks_ptr + heads, mask=heads < H, other=0.0).to(gl.float32)
        row_max = gl.maximum(row_max, sink)
        row_sum = gl.exp(sink - row_max)
    acc = gl.zeros([BLOCK_M, R // 2], gl.float32, o_layout)
    zero = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_layout)
    q0, q1, q_pe = matrix(q_s.index(0)), matrix(q_s.index(1)), matrix(q_pe_s)
    mbarrier.wait(q_full, 0)
    tiles = gl.cdiv(K, BLOCK_N)
    for i in range(tiles):
        stage = i % 2
        left = 2 * stage
        # Threads have written these tiles and the tensor cores read them: hence the fences.
        mbarrier.wait(full.index(left), i // 2 & 1)
        fence_async_shared()
        s = warpgroup_mma(q0, c_s.index(left).permute((1, 0)), zero, use_acc=False, is_async=True)
        mbarrier.wait(full.index(left + 1), i // 2 & 1)
        fence_async_shared()
        s = warpgroup_mma(q1, c_s.index(left + 1).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma(q_pe, c_pe_s.index(stage).permute((1, 0)), s, is_async=True)
        bias = bias_s.index(stage).load(gl.SliceLayout(0, s_layout))
        s = warpgroup_mma_wait(0, deps=(s,))
        # [[tag: SP-S]]
        s = s * scale + bias[None, :]
        new_max = gl.maximum(row_max, gl.max(s, 1))
        p = gl.exp(s - new_max[:, None])
        alpha = gl.exp(row_max - new_max)
        row_sum = row_sum * alpha + gl.sum(p, 1)
        row_max = new_max
        weights = p.to(c_s.dtype)
        mbarrier.wait(p_empty, (i & 1) ^ 1)
        p_s.store(weights)
        factor_s.store(alpha)
        fence_async_shared()
        mbarrier.arrive(p_full)
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, o_layout))[:, None]
        weights = gl.convert_layout(weights, gl.DotOperandLayout(0, o_layout, 2))
        acc = warpgroup_mma(weights, c_s.index(left), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(left))
    # The last factor is one over the sum: [[tag: SP-O]] and [[tag: SP-lse]]. A query without keys gets 0 and −∞.
    factor = 1.0 / gl.where(row_sum == 0.0, 1.0, row_sum)
    mbarrier.wait(p_empty, (tiles & 1) ^ 1)
    factor_s.store(factor)
    mbarrier.arrive(p_full)
    store_half(o_tensor, acc, gl.convert_layout(factor, gl.SliceLayout(1, o_layout)), place, 0, R)
    lse = gl.where(row_sum == 0.0, -float("inf"), row_max + gl.log(row_sum))
    gl.store(lse_ptr + t.to(gl.int64) * H + heads, lse, mask=heads < H)


# ## The other warpgroup: the other half of the output
#
# It waits for weights, and needs no other barrier: they are made of scores, so whoever made them has waited for the
# keys. Its fence holds here, too, because it comes before the arrival.
@gluon.jit
def values_partition(o_tensor, bufs, bars, place, sizes, R: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    q_s, q_pe_s, c_s, c_pe_s, bias_s, p_s, factor_s = bufs
    q_full, full, empty, p_full, p_empty = bars
    S, K, stride_s, stride_t = sizes
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, R // 2, 16])
    acc = gl.zeros([BLOCK_M, R // 2], gl.float32, o_layout)
    tiles = gl.cdiv(K, BLOCK_N)
    for i in range(tiles):
        right = i % 2 * 2 + 1
        mbarrier.wait(p_full, i & 1)
        acc = acc * factor_s.load(gl.SliceLayout(1, o_layout))[:, None]
        acc = warpgroup_mma(p_s, c_s.index(right), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(p_empty)
        mbarrier.arrive(empty.index(right))
    mbarrier.wait(p_full, tiles & 1)
    store_half(o_tensor, acc, factor_s.load(gl.SliceLayout(1, o_layout)), place, R // 2, R)


# Each thread stores the sums that it has. That is 0.5 GB once, of which the loop doesn't see anything.
@gluon.jit
def store_half(o_tensor, acc, factor, place, first_column, R: gl.constexpr):
    o_ptr, H = o_tensor
    t, first_head = place
    heads = first_head + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
    columns = first_column + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
    o_ptrs = o_ptr + ((t.to(gl.int64) * H + heads) * R)[:, None] + columns[None, :]
    o = acc * factor[:, None]
    gl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=(heads < H)[:, None])


# ## The kernel
#
# Shared memory, barriers, partitions. `full` barriers count the one ordinary arrival of the copying warps; whatever has
# one reader has an `empty` barrier that expects one arrival.
@gluon.jit
def sparse_attention_kernel(
    q_desc, q_pe_desc,  # of (1, T, H, R + E)
    kv_ptr, lists_ptr, sinks_ptr,  # (S, R + E), (T, K), rows without gaps; (H,) or None
    o_tensor, lse_ptr,  # the pointer to (T, H, R), and H; (T, H)
    sizes, scale, c_layout: gl.constexpr, c_pe_layout: gl.constexpr, p_layout: gl.constexpr,
    R: gl.constexpr, E: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_s = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_type.shape, q_desc.layout)
    q_pe_s = gl.allocate_shared_memory(q_desc.dtype, q_pe_desc.block_type.shape, q_pe_desc.layout)
    c_s = gl.allocate_shared_memory(q_desc.dtype, [4, BLOCK_N, R // 2], c_layout)
    c_pe_s = gl.allocate_shared_memory(q_desc.dtype, [2, BLOCK_N, E], c_pe_layout)
    p_s = gl.allocate_shared_memory(q_desc.dtype, [BLOCK_M, BLOCK_N], p_layout)
    bias_s = gl.allocate_shared_memory(gl.float32, [2, BLOCK_N], plain)
    factor_s = gl.allocate_shared_memory(gl.float32, [BLOCK_M], plain)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    p_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    p_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    mbarrier.init(p_full, count=1)
    mbarrier.init(p_empty, count=1)
    for part in gl.static_range(4):
        mbarrier.init(full.index(part), count=1)
        mbarrier.init(empty.index(part), count=1)
    o_ptr, H = o_tensor
    tiles = gl.cdiv(H, BLOCK_M)
    place = (gl.program_id(0) // tiles, gl.program_id(0) % tiles * BLOCK_M)
    bufs = (q_s, q_pe_s, c_s, c_pe_s, bias_s, p_s, factor_s)
    bars = (q_full, full, empty, p_full, p_empty)
    # A thread of a group keeps 128 sums. Those of the first one get the registers that the others leave, 240.
    gl.warp_specialize([
        (scores_partition, (o_tensor, lse_ptr, sinks_ptr, bufs, bars, place, sizes, scale, R, BLOCK_M, BLOCK_N)),
        (values_partition, (o_tensor, bufs, bars, place, sizes, R, BLOCK_M, BLOCK_N)),
        (load_partition, (q_desc, q_pe_desc, kv_ptr, lists_ptr, bufs, bars, place, sizes, R, E, BLOCK_N)),
    ], [4, 4], [184, 80])  # fmt: skip


# ## The launcher
#
# It has the arguments of the lesson's launcher. Triton can tell that a copy of 16 bytes begins at a multiple of 16 if
# the distance between keys is a multiple of 16 numbers. Other keys are copied first.
def rows_of(kv):
    aligned = kv.stride(1) == 1 and kv.stride(0) % 16 == 0 and kv.data_ptr() % 16 == 0
    return kv if aligned else kv.clone(memory_format=torch.contiguous_format)


@replayed
def sparse_attention_forward(q, kv, indices, sinks, rank, scale, *, BLOCK_N=64):
    """`(o, lse)`, as the lesson's launcher, in 16 bits. rank: 64, 128, 256 or 512, and 16, 32 or 64 less than W.
    BLOCK_N: keys in a tile, a power of two."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    device.require("gluon", "sparse_attention", q.device.index)
    (T, H, W), S, K = q.shape, len(kv), indices.shape[1]
    o, lse = q.new_empty(T, H, rank), q.new_empty((T, H), dtype=torch.float32)
    if not o.numel():
        return o, lse
    q, kv, lists = q[None], rows_of(kv), indices if indices.stride(1) == 1 else indices.contiguous()
    q = fitting(q)
    c, c_pe, p = (
        gl.NVMMASharedLayout.get_default_for([rows, columns], DTYPES[q.dtype])
        for rows, columns in ((BLOCK_N, rank // 2), (BLOCK_N, W - rank), (64, BLOCK_N))
    )  # fmt: skip
    sparse_attention_kernel[(T * triton.cdiv(H, 64),)](
        described(q, [1, 1, 64, rank // 2]), described(q, [1, 1, 64, W - rank]), kv, lists,
        None if sinks is None else sinks.contiguous(), (o, H), lse, (S, K, kv.stride(0), lists.stride(0)), scale,
        c_layout=c, c_pe_layout=c_pe, p_layout=p, R=rank, E=W - rank, BLOCK_M=64, BLOCK_N=BLOCK_N, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
    return o, lse


# ## A run small enough to watch
#
# A query of three heads, and a list of 70 numbers in tiles of 32. Latents have 64 numbers, rotated parts 16.
def EXAMPLE():
    at = torch.arange(40 * 80, device=device.DEVICE)
    kv = (at * 5 % 7 - 3).half().view(40, 80)
    indices = torch.where(at[:70] % 9 == 4, -1, at[:70] * 11 % 40).int()[None]
    sparse_attention_forward(kv[:3][None], kv, indices, None, 64, 0.25, BLOCK_N=32)


def call(q, kv, indices, *, rank, scale):
    contract(q, kv, indices, rank, scale, None, False, True)
    return sparse_attention_forward(q, kv, indices, None, rank, scale)[0]


if __name__ == "__main__":
    indices = (torch.arange(4 * 150, device=device.DEVICE) * 7 % 51 - 1).int().view(4, 150)
    case = dict(q=(4, 70, 192), kv=(50, 192), indices=indices, rank=128, scale=0.1)
    halves = dict(dtypes=(torch.float16, torch.bfloat16), differentiable=False)
    script.main(call, sparse_attention_reference, case, **halves)
