r"""
# Products of scaled codes, below Triton

Hopper's tensor cores keep about 14 bits of a sum of products of codes. So after each 128 of K their sum is
**promoted**: added to another one, in float32, by the ordinary cores. [The lesson](../fp8/scaled_matmul.py) does that,
and pays for it: while the ordinary cores add, the tensor cores wait. With scales of blocks there is a factor in it,
too:

[[eq: SM-block]]

Who could work meanwhile? Another group of warps, with sums of its own. Here two groups multiply, each with two sums of
64 rows of the same tile, or three, with one each: while one adds, the tensor cores work for the others. A warp of its
own fetches, and with scales of blocks another one loads these. All of that is [the matrix product below
Triton](matmul.py) again, where the ring, its barriers and the partitions are explained.

[[figure: fp8/promotion]]

**What it costs.** For each 128 of K and each tile of 64 x 128 sums: 256 cycles of the tensor cores at their best, and
64 additions in each thread of four warps, side by side with the tensor cores' work for others. A tile of 256 x 128
loads 48 bytes in each of these cycles; one of 128 x 128 would load 64.

In one call with the library, with a cold cache each time; 128 rows are multiplied by 8192 x 8192, the others are
squares:

| | `torch._scaled_mm` | this page |
|---|---:|---:|
| 2048, row | [[bench: scaled_matmul/ladder/lib row/2048_ms]] | [[bench: scaled_matmul/ladder/row/2048_ms]] |
| 4096, row | [[bench: scaled_matmul/ladder/lib row/4096_ms]] | [[bench: scaled_matmul/ladder/row/4096_ms]] |
| 8192, row | [[bench: scaled_matmul/ladder/lib row/8192_ms]] | [[bench: scaled_matmul/ladder/row/8192_ms]] |
| 128, row | [[bench: scaled_matmul/ladder/lib row/128_ms]] | [[bench: scaled_matmul/ladder/row/128_ms]] |
| 2048, tensor | [[bench: scaled_matmul/ladder/lib tensor/2048_ms]] | [[bench: scaled_matmul/ladder/tensor/2048_ms]] |
| 4096, tensor | [[bench: scaled_matmul/ladder/lib tensor/4096_ms]] | [[bench: scaled_matmul/ladder/tensor/4096_ms]] |
| 8192, tensor | [[bench: scaled_matmul/ladder/lib tensor/8192_ms]] | [[bench: scaled_matmul/ladder/tensor/8192_ms]] |
| 128, tensor | [[bench: scaled_matmul/ladder/lib tensor/128_ms]] | [[bench: scaled_matmul/ladder/tensor/128_ms]] |
| 2048, blocks | [[bench: scaled_matmul/ladder/lib blocks/2048_ms]] | [[bench: scaled_matmul/ladder/blocks/2048_ms]] |
| 4096, blocks | [[bench: scaled_matmul/ladder/lib blocks/4096_ms]] | [[bench: scaled_matmul/ladder/blocks/4096_ms]] |
| 8192, blocks | [[bench: scaled_matmul/ladder/lib blocks/8192_ms]] | [[bench: scaled_matmul/ladder/blocks/8192_ms]] |

At 8192 the card's power is the limit, and whoever comes later gets less of it: later in the call the library took
[[bench: scaled_matmul/ladder/lib row/8192_again_ms]] with rows and
[[bench: scaled_matmul/ladder/lib blocks/8192_again_ms]] with blocks, this page
[[bench: scaled_matmul/ladder/row/8192_again_ms]] and [[bench: scaled_matmul/ladder/blocks/8192_again_ms]].

**Where it falls behind.** At 2048 with one scale a tensor or a row, at 8192 with scales of blocks, and with 128 rows
and one scale a tensor. With 128 rows
each of 128 programs reads all of `a` again, 200 MB through the L2 cache in all, and Triton 3.6.0 can't let two SMs
share what the TMA unit fetches.

**A scale for each column** of `b`, as well as for each row of `a`: the gradient of a weight has both. Then each sum has
a factor of its own. With one sum a group that took [[bench: scaled_matmul/ladder/columns, two groups/8192_ms]], in
[the lesson](../fp8/scaled_matmul.py) [[bench: scaled_matmul/ladder/columns in Triton/8192_ms]].

**What was tried.** Three groups with one sum each, in tiles of 192 x 128:
[[bench: scaled_matmul/ladder/promoted, three groups/4096_ms]] at 4096, in a call in which the library took
[[bench: scaled_matmul/ladder/torch, one scale a row/4096_ms]]; there are 704 such tiles for 132 SMs, five each and 44
left over. Two groups with one sum each: [[bench: scaled_matmul/ladder/promoted, two groups/4096_ms]], and at 8192
[[bench: scaled_matmul/ladder/promoted, two groups/8192_ms]] instead of
[[bench: scaled_matmul/ladder/promoted, three groups/8192_ms]]. Scales of blocks that each group loads by itself, a step
ahead: [[bench: scaled_matmul/ladder/blocks, three groups/4096_ms]] at 4096. Scales that their warp multiplied right
after loading them, with two steps ahead: [[bench: scaled_matmul/ladder/blocks, factors at once/8192_ms]] at 8192.

With 128 rows, K divided in two, in tiles of 128 columns whose parts a second kernel adds:
[[bench: scaled_matmul/ladder/in two parts/128_ms]] with one scale a row.

Two programs on an SM, in Triton, each with two tiles of 64 rows: the compiler waits for a product right after it is
issued, [[bench: scaled_matmul/ladder/promoted in Triton/4096_ms]] at 4096; with scales of blocks, in one tile,
[[bench: scaled_matmul/ladder/blocks in Triton/4096_ms]]. Below Triton, a group with two sums that take turns, so that a
product is in flight while the last one is added: the assembler finds that the additions read registers while a product
is in flight, and makes all products wait for each other,
[[bench: scaled_matmul/ladder/promoted, two sums in turns/4096_ms]].

**Contract.** Part of [the fast version](../fast/scaled_matmul.py), which sees to it: `a` is (M, K), rows that begin at
multiples of 16 bytes, `b` the transpose of such a matrix (N, K), and none of the three is 0. Scales of blocks are one
for 128 of K and, for `b`, 128 columns or a single one. The sum is rounded once. Hopper only, or the simulator.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, launch
from academy.runtime.replay import replayed

import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip

from annotated_examples.common.fp8 import eps_of_sums
from annotated_examples.common.hopper import aligned, aligned_empty, programs, tma_load, tma_store
from annotated_examples.fp8.scaled_matmul import exactly, in_float32


# ## Who fetches
#
# One warp asks for the tiles of a step: 64 rows of `a` for each sum, and one tile of `b` for all of them. A single
# barrier expects the bytes of all. The order of tiles is that of [the product](matmul.py).
@gluon.jit
def place(t, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    per_group = GROUP_M * tiles_n
    group = t // per_group
    rows = gl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    inside = t - group * per_group
    return group * GROUP_M + inside % rows, inside // rows


@gluon.jit
def load_partition(
    a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps,
    SUMS: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s, scale_a_s, scale_b_s = bufs
    full, empty = bars
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = b_desc.block_type.shape[1]
    # In the example `a` is 70 x 96 and `b` is 96 x 24, in tiles of 256 x 16 with 32 of K at a time: a row of
    # `pid=0: tiles_n = 2` tiles, each of which takes `pid=0: steps = 3` steps.
    i = 0
    for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place(t, tiles_m, tiles_n, GROUP_M)
        for k in range(steps):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, SUMS * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(b_desc, [n * BLOCK_N, k * BLOCK_K], bar, b_s.index(stage))
            for w in gl.static_range(SUMS):
                tma_load(a_desc, [(m * SUMS + w) * ROWS, k * BLOCK_K], bar, a_s.index(stage * SUMS + w))
            i += 1


# Scales of blocks are numbers of four bytes that may lie anywhere, which isn't for the TMA unit. Another warp loads
# them, a step ahead, multiplies them and leaves the products in shared memory: a factor for each row of the tile. Where
# `b` has a scale for each of its columns (`COLUMNS`), these lie beside it. The barrier of a step expects this warp,
# too. It must not multiply right after loading: then it would wait for memory in each step.
@gluon.jit
def load_scales(a_at, b_at, offs, more, COLUMNS: gl.constexpr):
    rows, columns, m_mask, n_mask = offs
    s_a = gl.load(a_at + rows, mask=m_mask & more, other=0.0)
    if COLUMNS:
        s_b = gl.load(b_at + columns, mask=n_mask & more, other=0.0)
    else:
        s_b = gl.load(b_at, mask=more, other=0.0)
    return s_a, s_b


@gluon.jit
def scale_partition(
    bufs, bars, scale_a, scale_b, tiles_m, tiles_n, steps, M, N,
    BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, TILES: gl.constexpr, SUMS: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s, scale_a_s, scale_b_s = bufs
    full, empty = bars
    BLOCK_M: gl.constexpr = SUMS * a_s.shape[1]
    BLOCK_N: gl.constexpr = b_s.shape[1]
    line: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    i = 0
    if BLOCKS:
        for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
            m, n = place(t, tiles_m, tiles_n, GROUP_M)
            offs_m = m * BLOCK_M + gl.arange(0, BLOCK_M, layout=line)
            offs_n = n * BLOCK_N + gl.arange(0, BLOCK_N, layout=line)
            offs = offs_m.to(gl.int64) * scale_a[1], offs_n.to(gl.int64) * scale_b[1], offs_m < M, offs_n < N
            # `TILES` tiles share a block of `b`.
            a_at = scale_a[0]
            b_at = scale_b[0] if COLUMNS else scale_b[0] + (n // TILES).to(gl.int64) * scale_b[1]
            s_a, s_b = load_scales(a_at, b_at, offs, True, COLUMNS)
            for k in range(steps):
                a_at += scale_a[2]
                b_at += scale_b[2]
                next_a, next_b = load_scales(a_at, b_at, offs, k + 1 < steps, COLUMNS)
                mbarrier.wait(empty.index(i % STAGES), ((i // STAGES) & 1) ^ 1)
                if COLUMNS:
                    scale_a_s.index(i % STAGES).store(s_a)
                    scale_b_s.index(i % STAGES).store(s_b)
                else:
                    scale_a_s.index(i % STAGES).store(s_a * s_b)
                mbarrier.arrive(full.index(i % STAGES))
                s_a, s_b = next_a, next_b
                i += 1


# ## Who multiplies, and adds
#
# A group has one sum of 64 rows, or two. With two it multiplies for the first, adds that while the tensor cores work on
# the second, and then adds that one: while it does, the other group has the tensor cores.
#
# A thread then has 128 sums and 64 numbers of a product, and may have 232 registers. The assembler would put additions
# off until the next product is in flight, and keep both products: too many. It moves nothing past a loop, though, and
# to wait for a barrier is one. So with scales of blocks a group waits for what is there already, after instructions
# that copy the sums, and that keep the compiler from moving the additions. Without, a product of 8192 takes
# [[bench: scaled_matmul/ladder/blocks, additions put off/8192_ms]] instead of
# [[bench: scaled_matmul/ladder/blocks/8192_ms]].
@gluon.jit
def settled(x, there, phase):
    x = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=1)
    mbarrier.wait(there, phase)
    return x


# A product starts from zero, whatever the registers held.
@gluon.jit
def added(acc, a, b, scale_a_s, s_b, bar, LAST: gl.constexpr, BLOCKS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = acc.type.layout
    product = gl.zeros(acc.shape, gl.float32, layout)
    product = warpgroup_mma(a, b, product, use_acc=False, is_async=True)
    if BLOCKS:
        factor = gl.expand_dims(scale_a_s.load(gl.SliceLayout(1, layout)), 1)
        if COLUMNS:
            factor = factor * gl.expand_dims(s_b.load(gl.SliceLayout(0, layout)), 0)
    product = warpgroup_mma_wait(0, deps=(product,))
    if LAST:
        mbarrier.arrive(bar)
    # Here one group adds, and the tensor cores work for the other.
    return acc + (product * factor if BLOCKS else product)


# One scale for a row and a column is a factor of the whole sum, [[tag: SM-row]]; so is one for the matrix,
# [[tag: SM-tensor]]. The bias is added before the only rounding.
@gluon.jit
def store_sum(acc, s_a, s_b, bias, c_desc, c_buf, at):
    if s_a is not None:
        acc = acc * (s_a if s_b is None else gl.expand_dims(s_a, 1) * gl.expand_dims(s_b, 0))
    if bias is not None:
        acc += gl.expand_dims(bias, 0)
    tma.store_wait(0)
    c_buf.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, at, c_buf)


@gluon.jit
def consumer_partition(
    c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, W: gl.constexpr,
    BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, SUMS: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s, scale_a_s, scale_b_s = bufs
    full, empty = bars
    ROWS: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    OWN: gl.constexpr = 2 if SUMS == 4 else 1
    FIRST: gl.constexpr = W * OWN
    # An instruction multiplies 32 codes along K, twice as many as numbers of sixteen bits.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    by_column: gl.constexpr = gl.SliceLayout(0, layout)
    i = 0
    for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place(t, tiles_m, tiles_n, GROUP_M)
        start_m = (m * SUMS + FIRST) * ROWS
        offs_m = (start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))).to(gl.int64)
        offs_n = n * BLOCK_N + gl.arange(0, BLOCK_N, layout=line)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        second = acc
        # What the end of the tile needs is asked for here, a number of a row or column once in a group of warps.
        s_a, s_a2, s_b, bias = None, None, None, None
        if not BLOCKS:
            if scale_a[1] is None:
                s_a = gl.load(scale_a[0]) * gl.load(scale_b[0])
                s_a2 = s_a
            else:
                s_a = gl.load(scale_a[0] + offs_m * scale_a[1], mask=offs_m < M, other=0.0)
                s_a2 = gl.load(scale_a[0] + (offs_m + ROWS) * scale_a[1], mask=offs_m + ROWS < M, other=0.0)
                s_b = gl.load(scale_b[0] + offs_n.to(gl.int64) * scale_b[1], mask=offs_n < N, other=0.0)
        if bias_ptr is not None:
            bias = gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(gl.float32)
        for _ in range(steps):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), (i // STAGES) & 1)
            b, own = b_s.index(stage).permute((1, 0)), stage * SUMS + FIRST
            s_r, s_c, bar = scale_a_s.index(stage), scale_b_s.index(stage), empty.index(stage)
            rows = s_r.slice(FIRST * ROWS, ROWS) if BLOCKS else s_r
            acc = added(acc, a_s.index(own), b, rows, s_c, bar, OWN == 1, BLOCKS, COLUMNS)
            if OWN == 2:
                if BLOCKS:
                    acc = settled(acc, full.index(stage), (i // STAGES) & 1)
                rows = s_r.slice((FIRST + 1) * ROWS, ROWS) if BLOCKS else s_r
                second = added(second, a_s.index(own + 1), b, rows, s_c, bar, True, BLOCKS, COLUMNS)
            i += 1
        if s_b is not None:
            s_b = gl.convert_layout(s_b, by_column)
        if bias is not None:
            bias = gl.convert_layout(bias, by_column)
        store_sum(acc, s_a, s_b, bias, c_desc, c_s.index(W), [start_m, n * BLOCK_N])
        if OWN == 2:
            at = [start_m + ROWS, n * BLOCK_N]
            store_sum(second, s_a2, s_b, bias, c_desc, c_s.index(W), at)
    tma.store_wait(0)


# ## The kernel
#
# `empty` expects an arrival from each group, `full` one of the warp that fetches and, with blocks, one of the warp with
# the scales.
@gluon.jit
def promoted_kernel(
    a_desc, b_desc, c_desc,  # of (M, K); of (N, K); of (M, N)
    scale_a, scale_b, bias_ptr,  # (pointer, two strides): (M, 1) or (M, steps); (1, N) or (steps, N // 128 or N); (N,)
    tiles_m, tiles_n, steps, M, N,
    BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, TILES: gl.constexpr, SUMS: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s = gl.allocate_shared_memory(a_desc.dtype, [STAGES * SUMS] + a_desc.block_type.shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    GROUPS: gl.constexpr = 3 if SUMS == 3 else 2
    c_s = gl.allocate_shared_memory(c_desc.dtype, [GROUPS] + c_desc.block_type.shape, c_desc.layout)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    number: gl.constexpr = scale_a[0].dtype.element_ty
    scale_a_s = gl.allocate_shared_memory(number, [STAGES, SUMS * ROWS if BLOCKS else 1], plain)
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[0]
    scale_b_s = gl.allocate_shared_memory(number, [STAGES, BLOCK_N if COLUMNS else 1], plain)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=2 if BLOCKS else 1)
        mbarrier.init(empty.index(s), count=GROUPS)
    bufs = (a_s, b_s, c_s, scale_a_s, scale_b_s)
    bars = (full, empty)
    if GROUPS == 3:
        gl.warp_specialize([
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 0,
                                  BLOCKS, COLUMNS, SUMS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 1,
                                  BLOCKS, COLUMNS, SUMS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 2,
                                  BLOCKS, COLUMNS, SUMS, STAGES, GROUP_M)),
            (load_partition, (a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps, SUMS, STAGES, GROUP_M)),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 0,
                                  BLOCKS, COLUMNS, SUMS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 1,
                                  BLOCKS, COLUMNS, SUMS, STAGES, GROUP_M)),
            (load_partition, (a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps, SUMS, STAGES, GROUP_M)),
            (scale_partition, (bufs, bars, scale_a, scale_b, tiles_m, tiles_n, steps, M, N,
                               BLOCKS, COLUMNS, TILES, SUMS, STAGES, GROUP_M)),
        ], [4, 1, 1], [232, 40, 40])  # fmt: skip


# ## Launcher
ROWS = 64  # of a sum: what one instruction multiplies


def tiles_of(x, rows, columns):
    return Tiles(x, x.shape, x.stride(), (rows, columns))


# Four sums of 64 rows, two in each group, or two, or three in as many groups? And how many columns? Large tiles load
# less for each product. But the last wave of programs may be emptier, and 128 rows of 8192 columns are 64 tiles of
# 128 x 128: half of the SMs would be idle. So what counts is how much the busiest SM computes. Tiles of 64 columns are
# slower by half where there is enough to do. Results of four bytes, and a factor for each sum, leave no room for a
# second sum in a group; scales of blocks are loaded for a power of two of rows.
@functools.cache
def tile_for(M, N, multiprocessors, blocks, one_sum):
    """(sums, columns) of a tile."""

    def of_the_busiest(tile):
        sums, columns = tile
        tiles = triton.cdiv(M, ROWS * sums) * triton.cdiv(N, columns)
        return triton.cdiv(tiles, multiprocessors) * sums * (columns if columns > 64 else 96)

    tiles = [(4, 128)] * (not one_sum) + [(3, 128)] * (not blocks) + [(2, 128), (2, 64)]
    return min(tiles, key=of_the_busiest)


@replayed
def promoted_forward(
    a, b, scale_a, scale_b, bias, out_dtype, blocks, *, SUMS=None, BLOCK_N=None, BLOCK_K=128, STAGES=None, GROUP_M=8
):
    """The product of checked arguments. blocks: whether scales are those of blocks of BLOCK_K x BLOCK_N, or 128."""
    device.require("gluon", "scaled_matmul", a.device.index)
    a, weight = aligned(a), aligned(b.t())
    (M, K), N, c = a.shape, len(weight), aligned_empty(a.shape[0], b.shape[1], out_dtype, a.device)
    multiprocessors = programs(1 << 30, a.device.index)
    columns = blocks and scale_b.shape[1] == N > 1
    sums, wide = tile_for(M, N, multiprocessors, blocks, columns or out_dtype.itemsize > 2)
    SUMS, TILES, BLOCK_N = SUMS or sums, 1 if BLOCK_N else 128 // wide, BLOCK_N or wide
    checks.power_of_two(BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    # Shared memory holds 227 KB: a result of each group, and as many stages as fit beside them, with their scales.
    step = (SUMS * ROWS + BLOCK_N) * (BLOCK_K + 4 * blocks)
    STAGES = STAGES or (224 * 1024 - (3 if SUMS == 3 else 2) * ROWS * BLOCK_N * out_dtype.itemsize) // step
    tiles_m, tiles_n = triton.cdiv(M, ROWS * SUMS), triton.cdiv(N, BLOCK_N)
    s_a, s_b = ((scale_a, *scale_a.stride()), (scale_b, *scale_b.t().stride())) if scale_a.dim() else (
        (scale_a, None, None), (scale_b, None, None)
    )  # fmt: skip
    launch(
        promoted_kernel, (min(tiles_m * tiles_n, multiprocessors),),
        (
            tiles_of(a, ROWS, BLOCK_K), tiles_of(weight, BLOCK_N, BLOCK_K), tiles_of(c, ROWS, BLOCK_N), s_a, s_b,
            None if bias is None else bias.contiguous(),
        ),
        (tiles_m, tiles_n, triton.cdiv(K, BLOCK_K), M, N),
        BLOCKS=blocks, COLUMNS=columns, TILES=TILES, SUMS=SUMS, STAGES=STAGES, GROUP_M=GROUP_M, num_warps=4,
    )  # fmt: skip
    return c.contiguous()


# ## A run small enough to watch
def EXAMPLE():
    a = ((torch.arange(70 * 96, device=device.DEVICE) % 5 - 1).view(70, 96).float()).to(torch.float8_e4m3fn)
    b = ((torch.arange(24 * 96, device=device.DEVICE) % 7 - 3).view(24, 96).float()).to(torch.float8_e4m3fn).t()
    scale_a = torch.tensor([1, 0.5, 2], device=device.DEVICE).expand(70, 3)
    scale_b = torch.tensor([[1, 1], [2, 2], [0.25, 4]], device=device.DEVICE)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, STAGES=2, SUMS=4, GROUP_M=2)
    promoted_forward(a, b, scale_a, scale_b, None, torch.float32, True, **tiles)


def call(a, b, scale_a, scale_b, recipe, out_dtype):
    return promoted_forward(a, b, scale_a, scale_b, None, out_dtype, recipe == "block")


if __name__ == "__main__":
    a = torch.randn(200, 400).to(device.DEVICE, torch.float8_e4m3fn)
    b = torch.randn(136, 400).to(device.DEVICE, torch.float8_e4m3fn).t()
    scales = {"tensor": ((), ()), "row": ((200, 1), (1, 136)), "block": ((200, 4), (4, 2))}
    cases = [
        dict(zip(("a", "b", "scale_a", "scale_b"), (a, b, *(torch.rand(s).to(device.DEVICE) + 0.5 for s in shapes))))
        | dict(recipe=recipe, out_dtype=torch.float32) for recipe, shapes in scales.items()
    ]  # fmt: skip
    options = dict(pytorch=in_float32, dtypes=(torch.float32,), differentiable=False, eps=eps_of_sums())
    script.main(call, exactly, *cases, **options)
