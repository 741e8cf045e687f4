r"""
# Products of scaled codes, below Triton

Hopper's tensor cores keep about 14 bits of a sum of products of codes. So after each 128 of K their sum is
**promoted**: added to another one, in float32, by the ordinary cores. [The lesson](../fp8/scaled_matmul.py) does that,
and pays for it: while the ordinary cores add, the tensor cores wait. With scales of blocks there is a factor in it,
too:

[[eq: SM-block]]

Who could work meanwhile? Another group of warps, with sums of its own. Here three of them multiply, each with 64 rows
of the same tile, and they drift apart: while one adds, the tensor cores work for the others. A warp of its own fetches.
All of that is [the matrix product below Triton](matmul.py) again, where the ring, its barriers and the partitions are
explained.

[[figure: fp8/promotion]]

**What it costs.** For each 128 of K and each tile of 64 x 128 sums: 256 cycles of the tensor cores at their best, and
64 additions in each thread of four warps. Three groups need 192 cycles for those, side by side with the 768 of the
tensor cores.

At 8192 in each direction, one scale a row, it takes [[bench: scaled_matmul/ladder/promoted, three groups/8192_ms]]; the
library took [[bench: scaled_matmul/ladder/torch, one scale a row/8192_ms]] before and
[[bench: scaled_matmul/ladder/torch, one scale a row/8192_again_ms]] after. Scales of blocks take
[[bench: scaled_matmul/ladder/blocks, three groups/8192_ms]], the library's
[[bench: scaled_matmul/ladder/torch, scales of blocks/8192_ms]] and
[[bench: scaled_matmul/ladder/torch, scales of blocks/8192_again_ms]]. (At this size the card's power is the limit, and
whoever comes later gets less of it.)

**A scale for each column** of `b`, as well as for each row of `a`: the gradient of a weight has both. Then each sum has
a factor of its own, and a thread needs registers for 64 of them. Two groups have room for that:
[[bench: scaled_matmul/ladder/columns, two groups/8192_ms]]. Three keep them in memory,
[[bench: scaled_matmul/ladder/columns, three groups/8192_ms]]. The lesson takes
[[bench: scaled_matmul/ladder/columns in Triton/8192_ms]].

**Where it falls behind.** At 4096 there are 704 tiles of 192 x 128 for 132 SMs, five each and 44 left over:
[[bench: scaled_matmul/ladder/promoted, three groups/4096_ms]] against
[[bench: scaled_matmul/ladder/torch, one scale a row/4096_ms]], and with blocks
[[bench: scaled_matmul/ladder/blocks, three groups/4096_ms]] against
[[bench: scaled_matmul/ladder/torch, scales of blocks/4096_ms]].

**What was tried.** Two programs on an SM, in Triton, each with two tiles of 64 rows: the compiler waits for a product
right after it is issued, [[bench: scaled_matmul/ladder/promoted in Triton/4096_ms]] at 4096; with scales of blocks, in
one tile, [[bench: scaled_matmul/ladder/blocks in Triton/4096_ms]]. Below Triton, a group with two sums that take turns,
so that a product is in flight while the last one is added: the assembler finds that the additions read registers while
a product is in flight, and makes all products wait for each other,
[[bench: scaled_matmul/ladder/promoted, two sums in turns/4096_ms]]. Two groups with one sum each,
[[bench: scaled_matmul/ladder/promoted, two groups/4096_ms]], are as good as three there, but not at 8192, with
[[bench: scaled_matmul/ladder/promoted, two groups/8192_ms]].

**Contract.** Part of [the fast version](../fast/scaled_matmul.py), which sees to it: `a` is (M, K), rows that begin at
multiples of 16 bytes, `b` the transpose of such a matrix (N, K), and none of the three is 0. Scales of blocks are one
for 128 of K and, for `b`, 128 columns or a single one. The sum is rounded once. Hopper only, or the simulator.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, launch
from academy.runtime.replay import replayed

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
# One warp asks for the tiles of a step: 64 rows of `a` for each group of warps, and one tile of `b` for all of them. A
# single barrier expects the bytes of all. The order of tiles is that of [the product](matmul.py).
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
    GROUPS: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s = bufs
    full, empty = bars
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = b_desc.block_type.shape[1]
    # In the example `a` is 70 x 96 and `b` is 96 x 24, in tiles of 128 x 16 with 32 of K at a time: a row of
    # `pid=0: tiles_n = 2` tiles, each of which takes `pid=0: steps = 3` steps.
    i = 0
    for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place(t, tiles_m, tiles_n, GROUP_M)
        for k in range(steps):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, GROUPS * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            for w in gl.static_range(GROUPS):
                tma_load(a_desc, [(m * GROUPS + w) * ROWS, k * BLOCK_K], bar, a_s.index(stage * GROUPS + w))
            tma_load(b_desc, [n * BLOCK_N, k * BLOCK_K], bar, b_s.index(stage))
            i += 1


# ## Who multiplies, and adds
#
# Each group asks for the scales of a step before it needs them: they arrive while the tensor cores work. `b` has one
# for the whole tile, or (`COLUMNS`) one for each of its columns.
@gluon.jit
def scales_of_b(at, stride, start, N, more, BLOCK_N: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    if COLUMNS:
        columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
        return gl.load(at + columns * stride, mask=(start + columns < N) & more, other=0.0)
    else:
        return gl.load(at, mask=more, other=0.0)


@gluon.jit
def consumer_partition(
    c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, W: gl.constexpr,
    BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s = bufs
    full, empty = bars
    a_ptr, stride_am, stride_ak = scale_a
    b_ptr, stride_bn, stride_bk = scale_b
    ROWS: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    # An instruction multiplies 32 codes along K, twice as many as numbers of sixteen bits.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    i = 0
    for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place(t, tiles_m, tiles_n, GROUP_M)
        start_m = (m * GROUPS + W) * ROWS
        offs_m = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
        offs_n = n * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        a_ptrs = a_ptr + offs_m.to(gl.int64) * stride_am
        b_at = b_ptr + (n * BLOCK_N if COLUMNS else n).to(gl.int64) * stride_bn
        if BLOCKS:
            s_a = gl.load(a_ptrs, mask=offs_m < M, other=0.0)
            s_b = scales_of_b(b_at, stride_bn, n * BLOCK_N, N, True, BLOCK_N, COLUMNS, layout)
        for k in range(steps):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), (i // STAGES) & 1)
            # Each product starts from zero, whatever the registers held.
            product = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
            a, b = a_s.index(stage * GROUPS + W), b_s.index(stage).permute((1, 0))
            product = warpgroup_mma(a, b, product, use_acc=False, is_async=True)
            if BLOCKS:
                # While the tensor cores work: this step's factors, and a request for the scales of the next one.
                factor = gl.expand_dims(s_a, 1) * gl.expand_dims(s_b, 0) if COLUMNS else gl.expand_dims(s_a * s_b, 1)
                b_at += stride_bk
                s_b = scales_of_b(b_at, stride_bn, n * BLOCK_N, N, k + 1 < steps, BLOCK_N, COLUMNS, layout)
                a_ptrs += stride_ak
                s_a = gl.load(a_ptrs, mask=(offs_m < M) & (k + 1 < steps), other=0.0)
            product = warpgroup_mma_wait(0, deps=(product,))
            mbarrier.arrive(empty.index(stage))
            # Here one group adds, and the tensor cores work for the others.
            if BLOCKS:
                acc += product * factor
            else:
                acc += product
            i += 1
        # One scale for a row and a column is a factor of the whole sum, [[tag: SM-row]]; all strides are 0 where there
        # is one for the matrix, [[tag: SM-tensor]]. The bias is added before the only rounding.
        if not BLOCKS:
            s_a = gl.load(a_ptrs, mask=offs_m < M, other=0.0)
            s_b = gl.load(b_ptr + offs_n.to(gl.int64) * stride_bn, mask=offs_n < N, other=0.0)
            acc = acc * (gl.expand_dims(s_a, 1) * gl.expand_dims(s_b, 0))
        if bias_ptr is not None:
            acc += gl.expand_dims(gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(gl.float32), 0)
        c_buf = c_s.index(W)
        tma.store_wait(0)
        c_buf.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [start_m, n * BLOCK_N], c_buf)
    tma.store_wait(0)


# ## The kernel
#
# Registers decide how many groups there are. A thread holds 64 sums and 64 of a product. Three groups may have 160
# registers for each thread, and the warp that fetches gets by with 24. `empty` expects an arrival from each group.
@gluon.jit
def promoted_kernel(
    a_desc, b_desc, c_desc,  # of (M, K); of (N, K); of (M, N)
    scale_a, scale_b, bias_ptr,  # (pointer, two strides): (M, 1) or (M, steps); (1, N) or (steps, N // 128 or N); (N,)
    tiles_m, tiles_n, steps, M, N,
    BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    a_s = gl.allocate_shared_memory(a_desc.dtype, [STAGES * GROUPS] + a_desc.block_type.shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [GROUPS] + c_desc.block_type.shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=GROUPS)
    bufs = (a_s, b_s, c_s)
    bars = (full, empty)
    if GROUPS == 3:
        gl.warp_specialize([
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 0,
                                  BLOCKS, COLUMNS, GROUPS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 1,
                                  BLOCKS, COLUMNS, GROUPS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 2,
                                  BLOCKS, COLUMNS, GROUPS, STAGES, GROUP_M)),
            (load_partition, (a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps, GROUPS, STAGES, GROUP_M)),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 0,
                                  BLOCKS, COLUMNS, GROUPS, STAGES, GROUP_M)),
            (consumer_partition, (c_desc, bufs, bars, scale_a, scale_b, bias_ptr, tiles_m, tiles_n, steps, M, N, 1,
                                  BLOCKS, COLUMNS, GROUPS, STAGES, GROUP_M)),
            (load_partition, (a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps, GROUPS, STAGES, GROUP_M)),
        ], [4, 1], [240, 24])  # fmt: skip


# ## Launcher
ROWS = 64  # of a group: what one instruction multiplies


def tiles_of(x, rows, columns):
    return Tiles(x, x.shape, x.stride(), (rows, columns))


# Three groups or two? With scales of columns two, see above. Otherwise three overlap better. But their tiles are 192
# rows high, and the last row of tiles, or the last wave of programs, may be emptier. So what counts is how many rows
# the busiest SM computes.
def groups_for(M, N, BLOCK_N, sms):
    def rows_of_the_busiest(groups):
        tiles = triton.cdiv(M, ROWS * groups) * triton.cdiv(N, BLOCK_N)
        return triton.cdiv(tiles, sms) * groups

    return 3 if rows_of_the_busiest(3) <= 1.15 * rows_of_the_busiest(2) else 2


@replayed
def promoted_forward(
    a, b, scale_a, scale_b, bias, out_dtype, blocks, *, BLOCK_N=128, BLOCK_K=128, GROUPS=None, STAGES=None, GROUP_M=8
):
    """The product of checked arguments. blocks: whether scales are those of blocks of BLOCK_K x BLOCK_N."""
    device.require("gluon", "scaled_matmul", a.device.index)
    checks.power_of_two(BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    a, weight = aligned(a), aligned(b.t())
    (M, K), N, c = a.shape, len(weight), aligned_empty(a.shape[0], b.shape[1], out_dtype, a.device)
    sms = programs(1 << 30, a.device.index)
    columns = blocks and scale_b.shape[1] == N > 1
    GROUPS = GROUPS or (2 if columns else groups_for(M, N, BLOCK_N, sms))
    # Shared memory holds 227 KB: a tile of sums for each group, and as many stages as fit beside it.
    step = (GROUPS * ROWS + BLOCK_N) * BLOCK_K
    STAGES = STAGES or (224 * 1024 - GROUPS * ROWS * BLOCK_N * out_dtype.itemsize) // step
    tiles_m, tiles_n = triton.cdiv(M, ROWS * GROUPS), triton.cdiv(N, BLOCK_N)
    s_a, s_b = ((scale_a, *scale_a.stride()), (scale_b, *scale_b.t().stride())) if scale_a.dim() else (
        (scale_a, 0, 0), (scale_b, 0, 0)
    )  # fmt: skip
    launch(
        promoted_kernel, (min(tiles_m * tiles_n, sms),),
        (
            tiles_of(a, ROWS, BLOCK_K), tiles_of(weight, BLOCK_N, BLOCK_K), tiles_of(c, ROWS, BLOCK_N), s_a, s_b,
            None if bias is None else bias.contiguous(),
        ),
        (tiles_m, tiles_n, triton.cdiv(K, BLOCK_K), M, N),
        BLOCKS=blocks, COLUMNS=columns, GROUPS=GROUPS, STAGES=STAGES, GROUP_M=GROUP_M, num_warps=4,
    )  # fmt: skip
    return c.contiguous()


# ## A run small enough to watch
def EXAMPLE():
    a = ((torch.arange(70 * 96, device=device.DEVICE) % 5 - 1).view(70, 96).float()).to(torch.float8_e4m3fn)
    b = ((torch.arange(24 * 96, device=device.DEVICE) % 7 - 3).view(24, 96).float()).to(torch.float8_e4m3fn).t()
    scale_a = torch.tensor([1, 0.5, 2], device=device.DEVICE).expand(70, 3)
    scale_b = torch.tensor([[1, 1], [2, 2], [0.25, 4]], device=device.DEVICE)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, STAGES=2, GROUPS=2, GROUP_M=2)
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
