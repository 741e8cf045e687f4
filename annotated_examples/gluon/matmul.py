r"""
# Matrix multiplication, below Triton

[[tag: MM-Z]] once more, this time with everything done by hand: the TMA unit brings tiles into a ring of buffers,
Hopper's tensor cores read them from shared memory, and two groups of warps take turns. [Tiles and
barriers](tile_copy.py) comes first: layouts, `mbarrier`, phases and the ring are explained there.

There are two kernels. The first has one group of warps that does everything in order. The second gives each job its own
warps, which is called *warp specialisation*: one warp fetches, two groups multiply.

**What it costs.** For large matrices the tensor cores decide. A product of 128 x 256 x 64 keeps them busy for about
half a microsecond; in that time 48 KiB must arrive. So the art is to keep them supplied, and never to make them wait
for a thread that is busy with something else, such as writing a finished tile.

At 8192 in each direction the second kernel takes [[bench: gluon_matmul/8192x8192x8192/forward/ms]], cuBLAS
[[bench: gluon_matmul/8192x8192x8192/forward/cuBLAS.ms]], and [our fast version](../fast/matmul.py), written in Triton,
[[bench: gluon_matmul/8192x8192x8192/forward/Triton.ms]].

**Where it falls behind.** At 2048 no SM gets more than one tile, so nothing overlaps with the next one:
[[bench: gluon_matmul/2048x2048x2048/forward/ms]], and cuBLAS takes
[[bench: gluon_matmul/2048x2048x2048/forward/cuBLAS.ms]].

**Without a GPU** it runs in a simulator, which names a missing wait; on another GPU than Hopper it refuses to start.

**Contract.** `a`: (M, K), `b`: (K, N), float16 or bfloat16, any strides, may be empty. The sums are float32, rounded
once. What doesn't lie in rows (or, for `b`, columns) that begin at multiples of 16 bytes is copied first. Both
gradients are products of the same kind. No input is written to. The result's rows may lie further apart than they are
long.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip

from annotated_examples.common.hopper import (
    aligned, aligned_empty, described, is_aligned, programs, tma_load, tma_store,
)  # fmt: skip
from annotated_examples.common.products import Product, contract, product_gradients


# ## Reference
def matmul_reference(a, b):
    return a @ b


# ## One group of warps
#
# `warpgroup_mma` multiplies two tiles that lie in **shared memory**. On older GPUs each thread first had to load its
# share of both factors into registers; here only the sums are there. How they are spread over the threads is not up to
# us: the instruction says so. That is what `NVMMADistributedLayout([3, 0], warps, [16, N, 16])` means: version 3 is
# Hopper's, and each warp holds 16 rows of `N` columns. Four warps that execute it together, 128 threads, are a
# *warpgroup*.
#
# The instruction is *asynchronous*: it is issued, and computes while the threads do something else.
# `warpgroup_mma_wait(n)` waits until at most `n` products are still being computed. Until then nobody may touch the
# sums or overwrite a factor.
#
# [[figure: products/k_loop]]
@gluon.jit
def matmul_tile_kernel(
    a_desc, b_desc, c_desc,  # of (M, K); of (K, N), or with B_NK of (N, K); of (M, N)
    steps, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    B_NK: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    a_s = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    row = gl.program_id(0) * BLOCK_M
    col = gl.program_id(1) * BLOCK_N
    # Ask for the first tiles of both factors. One barrier serves both: it expects the bytes of the two together.
    for s in gl.static_range(STAGES):
        fetch(a_desc, b_desc, a_s.index(s), b_s.index(s), full.index(s), row, col, s * BLOCK_K,
              s < steps, B_NK)  # fmt: skip

    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, BLOCK_N, 16])
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for k in range(steps):
        stage = k % STAGES
        mbarrier.wait(full.index(stage), (k // STAGES) & 1)
        acc = warpgroup_mma(a_s.index(stage), factor(b_s.index(stage), B_NK), acc, is_async=True)
        # Wait for the product before its buffers are asked for anew. This is what the second kernel does better: here
        # the tensor cores have nothing to do until the next product is issued.
        acc = warpgroup_mma_wait(0, deps=(acc,))
        fetch(a_desc, b_desc, a_s.index(stage), b_s.index(stage), full.index(stage), row, col, (k + STAGES) * BLOCK_K,
              k + STAGES < steps, B_NK)  # fmt: skip

    # The way out: round, into shared memory, and the TMA unit takes it from there. The fence is the one that
    # [the copy](tile_copy.py) explains.
    c_s.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [row, col], c_s)
    tma.store_wait(0)


# Both factors of one step: announce the bytes, start two copies.
@gluon.jit
def fetch(a_desc, b_desc, a, b, bar, row, col, k, pred, B_NK: gl.constexpr):
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    tma_load(a_desc, [row, k], bar, a, pred=pred)
    if B_NK:
        tma_load(b_desc, [col, k], bar, b, pred=pred)
    else:
        tma_load(b_desc, [k, col], bar, b, pred=pred)


# `b` may be given as the transpose of a matrix whose rows are contiguous, as the weights of a linear layer are. Then
# its tiles arrive as [N, K]. The tensor cores can read 16-bit tiles either way, so turning one around costs nothing:
# `permute` moves no byte, it only says how the buffer is to be read.
@gluon.jit
def factor(b, B_NK: gl.constexpr):
    if B_NK:
        b = b.permute((1, 0))
    return b


# ## One job, one group of warps
#
# What keeps the tensor cores waiting above? The same warps have to issue copies, wait for them, wait for products, and
# in the end write a tile, while nothing is multiplied. `gl.warp_specialize` gives each job its own warps, its
# *partition*. Partitions share no registers, so they talk through shared memory and barriers:
#
# - `full[s]`: buffer `s` holds the tiles of a step. The fetching warp announces, the TMA unit completes.
# - `empty[s]`: buffer `s` may be overwritten. Whoever has multiplied arrives.
#
# Round and round: the fetcher waits for `empty`, a multiplier for `full`. And at the start, when all buffers are empty
# and nobody has said so? The fetcher waits for the phase **before** the first, parity 1. A new barrier counts as having
# completed it. Hence the `^ 1`.
#
# This warp has one thread's work to do, so it gives up most of its registers: 24 for each thread instead of 168. The
# others take them, for their sums.
@gluon.jit
def load_partition(
    a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
    B_NK: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s = bufs
    full, empty, turn = bars
    # `i` counts steps over all tiles of this program. It never starts again: buffer and phase follow from it. So the
    # first steps of the next tile are fetched while this one is still being multiplied or written. (In the example a
    # tile has `pid=0: steps = 3` steps and there are two buffers, so this program's next tile begins in the other
    # buffer: `t=4, k=0: stage = 1`.)
    i = 0
    for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place(t, tiles_m, tiles_n, GROUP_M)
        for k in range(steps):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            fetch(a_desc, b_desc, a_s.index(stage), b_s.index(stage), full.index(stage), m * BLOCK_M, n * BLOCK_N,
                  k * BLOCK_K, True, B_NK)  # fmt: skip
            i += 1


# Tiles are numbered down a group of `GROUP_M` rows first, so that programs that run at the same time share what they
# read. It is the order of [matmul_grouped](../tutorials/matmul_grouped.py).
@gluon.jit
def place(t, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    # In the example one row of tiles is all there is: `tiles_m = 1`, so `rows = 1`.
    per_group = GROUP_M * tiles_n
    group = t // per_group
    rows = gl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    inside = t - group * per_group
    return group * GROUP_M + inside % rows, inside // rows


# ## Multiplying
#
# The product of step `k` is issued **before** that of step `k - 1` is waited for. `warpgroup_mma_wait(1)` leaves one
# outstanding, the newest: so the older one is done, and its buffers, those of step `i - 1`, are free. The tensor cores
# have the next product in their queue before they finish the last.
#
# Look at which buffer is given back: `(i + STAGES - 1) % STAGES` is the one *before* this step's. To give back this
# step's own would be the classic mistake. Its product is still reading.
@gluon.jit
def multiply(
    acc, i, steps, bufs, bars, ROW: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, B_NK: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s = bufs
    full, empty, turn = bars
    for k in range(steps):
        stage = i % STAGES
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        a = a_s.index(stage).slice(ROW, ROWS)
        # `use_acc` is false in a tile's first step: the product replaces what the registers held, and no zeros have to
        # be written first.
        acc = warpgroup_mma(a, factor(b_s.index(stage), B_NK), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=k > 0)
        i += 1
    return acc, i


# ## Writing
#
# A tile leaves through a buffer in shared memory. With two `HALVES` it leaves in halves of its columns, one after the
# other through the same buffer. That costs a wait in the middle, and makes room for one more stage of the ring.
@gluon.jit
def write(c_desc, acc, c_buf, row, col, HALVES: gl.constexpr):
    if HALVES == 2:
        half: gl.constexpr = acc.shape[1] // 2
        left, right = acc.reshape([acc.shape[0], 2, half]).permute((0, 2, 1)).split()
        # The TMA unit may still be reading what the last tile left here.
        tma.store_wait(0)
        c_buf.store(left.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [row, col], c_buf)
        tma.store_wait(0)
        c_buf.store(right.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [row, col + half], c_buf)
    else:
        tma.store_wait(0)
        c_buf.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [row, col], c_buf)


# ## Two multipliers, together or in turns
#
# A tile of 128 x 256 sums is too much for one warpgroup: 256 registers in each thread. There are two ways to use two of
# them.
#
# **Together**: each computes half of the rows of the same tile. The right factor is shared, so less has to be fetched
# for each product. But both write at the same time, and then the tensor cores rest.
#
# **In turns** (`PINGPONG`): each has a tile of its own. While one writes, the other multiplies. `turn[w]` is a baton: a
# group waits for its own before it begins to issue products, and hands the other one over when its last product has
# been issued.
#
# Is the turn only a matter of speed? No. Both groups read the same ring, and each skips the steps of the other's tiles.
# Without the turn the second group would wait for a phase of `full` while the one before it still runs. A barrier knows
# a phase only by its parity, so the wait would take an *old* phase of the same parity for it, and multiply what isn't
# there yet. The turn keeps a group from waiting before the phase before its own is complete. (Remove that wait, and the
# simulator says: *nothing has been written there yet*.)
@gluon.jit
def consumer_partition(
    c_desc, bufs, bars, tiles_m, tiles_n, steps, W: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr, B_NK: gl.constexpr,
    PINGPONG: gl.constexpr, HALVES: gl.constexpr,
):  # fmt: skip
    a_s, b_s, c_s = bufs
    full, empty, turn = bars
    ROWS: gl.constexpr = BLOCK_M if PINGPONG else BLOCK_M // 2
    ROW: gl.constexpr = 0 if PINGPONG else W * ROWS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
    i = 0
    if PINGPONG:
        # Every second tile of this program is mine, and so is every second run of `steps` steps.
        i += W * steps
        turns = 0
        start = gl.program_id(0) + W * gl.num_programs(0)
        for t in range(start, tiles_m * tiles_n, 2 * gl.num_programs(0)):
            m, n = place(t, tiles_m, tiles_n, GROUP_M)
            # Group 0 begins, by waiting for the phase before the first.
            mbarrier.wait(turn.index(W), (turns & 1) ^ (W == 0))
            acc, i = multiply(acc, i, steps, bufs, bars, ROW, ROWS, STAGES, B_NK)
            mbarrier.arrive(turn.index(1 - W))
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
            write(c_desc, acc, c_s.index(W), m * BLOCK_M, n * BLOCK_N, HALVES)
            i += steps
            turns += 1
    else:
        for t in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
            m, n = place(t, tiles_m, tiles_n, GROUP_M)
            acc, i = multiply(acc, i, steps, bufs, bars, ROW, ROWS, STAGES, B_NK)
            # The last product of a tile has no successor that would wait for it.
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
            write(c_desc, acc, c_s.index(W), m * BLOCK_M + ROW, n * BLOCK_N, HALVES)
    tma.store_wait(0)


# ## The kernel
#
# It only lays out shared memory, initialises the barriers and starts the partitions. The first one in the list goes on
# in the warps that the kernel was launched with; the others get warps of their own: `[4, 1]` of them, with `[240, 24]`
# registers for each thread.
#
# `empty` expects as many arrivals as there are readers of a buffer: two if the groups work together, one if they take
# turns.
@gluon.jit
def matmul_kernel(
    a_desc, b_desc, c_desc,  # of (M, K); of (K, N), or with B_NK of (N, K); of (M, N)
    tiles_m, tiles_n, steps, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_NK: gl.constexpr, PINGPONG: gl.constexpr, HALVES: gl.constexpr,
):  # fmt: skip
    a_s = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [2] + c_desc.block_type.shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1 if PINGPONG else 2)
    for w in gl.static_range(2):
        mbarrier.init(turn.index(w), count=1)
    bufs = (a_s, b_s, c_s)
    bars = (full, empty, turn)
    # The tuples of arguments stand in the call itself: given a name first, their constants would turn into run-time
    # values.
    gl.warp_specialize([
        (consumer_partition, (c_desc, bufs, bars, tiles_m, tiles_n, steps, 0, BLOCK_M, BLOCK_N, STAGES, GROUP_M, B_NK,
                              PINGPONG, HALVES)),
        (consumer_partition, (c_desc, bufs, bars, tiles_m, tiles_n, steps, 1, BLOCK_M, BLOCK_N, STAGES, GROUP_M, B_NK,
                              PINGPONG, HALVES)),
        (load_partition, (a_desc, b_desc, bufs, bars, tiles_m, tiles_n, steps, BLOCK_M, BLOCK_N, BLOCK_K, STAGES,
                          GROUP_M, B_NK)),
    ], [4, 1], [240, 24])  # fmt: skip


# ## Launchers
#
# The left factor is read row by row. The right one may come either way, so a transposed `b` isn't copied. (The backward
# pass multiplies with `a.T` on the left: that one is.) `matmul_tile` launches the first kernel, `matmul_forward` the
# second.
def _prepared(a, b):
    a = aligned(a)
    B_NK = not is_aligned(b) and is_aligned(b.T)
    return a, (b.T if B_NK else aligned(b)), B_NK, aligned_empty(a.shape[0], b.shape[1], a.dtype, a.device)


def matmul_tile(a, b, *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, STAGES=4, num_warps=8):
    """One tile a program, one group of warps. Tiles: powers of two; BLOCK_M a multiple of 16 num_warps."""
    checks.programs("b", "columns", b.shape[1], BLOCK_N)
    a, right, B_NK, c = _prepared(a, b)
    (M, K), N = a.shape, b.shape[1]
    if not (M and N and K):
        return c.zero_()
    device.require("gluon", "matmul", a.device.index)
    a_desc, c_desc = described(a, [BLOCK_M, BLOCK_K]), described(c, [BLOCK_M, BLOCK_N])
    b_desc = described(right, [BLOCK_N, BLOCK_K] if B_NK else [BLOCK_K, BLOCK_N])
    matmul_tile_kernel[triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N)](
        a_desc, b_desc, c_desc, triton.cdiv(K, BLOCK_K), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        STAGES=STAGES, B_NK=B_NK, WARPS=num_warps, num_warps=num_warps,
    )  # fmt: skip
    return c


@replayed
def matmul_forward(
    a, b, activation=None, *, BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, STAGES=4, GROUP_M=8, HALVES=2, PINGPONG=False
):
    """Warp-specialised and persistent. With PINGPONG a group has BLOCK_M rows, else half of them; HALVES: 1 or 2."""
    a, right, B_NK, c = _prepared(a, b)
    (M, K), N = a.shape, b.shape[1]
    if not (M and N and K):
        return c.zero_()
    device.require("gluon", "matmul", a.device.index)
    a_desc = described(a, [BLOCK_M, BLOCK_K])
    b_desc = described(right, [BLOCK_N, BLOCK_K] if B_NK else [BLOCK_K, BLOCK_N])
    c_desc = described(c, [BLOCK_M if PINGPONG else BLOCK_M // 2, BLOCK_N // HALVES])
    tiles_m, tiles_n = triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N)
    matmul_kernel[(programs(tiles_m * tiles_n, a.device.index),)](
        a_desc, b_desc, c_desc, tiles_m, tiles_n, triton.cdiv(K, BLOCK_K), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K, STAGES=STAGES, GROUP_M=GROUP_M, B_NK=B_NK, PINGPONG=PINGPONG, HALVES=HALVES, num_warps=4,
    )  # fmt: skip
    return c


def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True)):
    """`(da, db)`: [[tag: MM-X]] and [[tag: MM-Y]]."""
    return product_gradients(matmul_forward, dc, a, b, needs=needs)


@replayed
def matmul(a, b):
    """`a @ b`, differentiable. Needs a Hopper GPU, or none at all (the simulator).

    Args:
        a: tensor of shape (M, K), float16 or bfloat16, any strides.
        b: tensor of shape (K, N), the dtype of `a`, any strides.

    Returns:
        A new tensor of shape (M, N) and the dtype of `a`. Its rows begin at multiples of 16 bytes, so they may lie
        further apart than they are long.

    Raises:
        TypeError: `a` or `b` isn't a tensor, or the dtypes differ or aren't allowed.
        ValueError: the shapes don't fit, or a tensor is on the wrong device.
        RuntimeError: the GPU isn't a Hopper.

    Source: the schedule is that of CUTLASS's warp-specialised kernels for Hopper.
    """
    contract(a=a, b=b)
    checks.dtypes((torch.float16, torch.bfloat16), a=a)
    if not autograd.needs_frame(a, b):
        return matmul_forward(a, b)
    return Product.apply(a, b, None, matmul_forward, matmul_backward)


def EXAMPLE():
    rows, columns = torch.arange(70, device=device.DEVICE), torch.arange(72, device=device.DEVICE)
    a = ((rows[:, None] + columns[:40]) % 3 - 1).half()
    b = ((columns[:40, None] * columns) % 3 - 1).half()
    matmul_forward(a, b, BLOCK_N=16, BLOCK_K=16, STAGES=2, GROUP_M=2)
    matmul_forward(a[:64], b[:, :56], BLOCK_M=64, BLOCK_N=8, BLOCK_K=16, STAGES=2, HALVES=1, PINGPONG=True)
    matmul_tile(a[:64], b[:, :24], BLOCK_M=64, BLOCK_N=16, BLOCK_K=16, STAGES=2, num_warps=4)


if __name__ == "__main__":
    script.main(matmul, matmul_reference)
