"""What the compiler makes of Gluon kernels, seen without a GPU: for the guide "What the compiler undoes"."""

# --8<-- [start:ask]
import os
import re

os.environ["TRITON_INTERPRET"] = "0"  # compile, even without a GPU

from academy.runtime import device
from academy.compiler import cards, machine_code, stand_in

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait,
)  # fmt: skip

from annotated_examples.common.hopper import described, tma_load, tma_store


def compiled(kernel, *args, num_warps=4, **options):
    """PTX, which is what was asked for, and machine code, which is what became of it: for a Hopper GPU."""
    with stand_in.on_card(cards.card(90)):
        made = kernel.run(*args, grid=(1,), warmup=True, num_warps=num_warps, **options)
    return made.asm["ptx"], machine_code.sass(made.asm["cubin"])[1]


def matrix(rows, columns, dtype=torch.bfloat16):
    with stand_in.on_card(cards.card(90)):
        return torch.empty(rows, columns, dtype=dtype, device=device.DEVICE)


# --8<-- [end:ask]
# --8<-- [start:overlap]
@gluon.jit
def softmax_beside_a_product(a_desc, b_desc, acc_ptr, sum_ptr, n, PIN: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(2):
        mbarrier.init(ready.index(s), count=1)
    zero = gl.zeros([64, 128], gl.float32, layout)
    acc = gl.zeros([64, 128], gl.float32, layout)
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, layout))
    for i in range(n):
        mbarrier.expect(ready.index(0), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma_load(a_desc, [0, i], ready.index(0), a)
        tma_load(b_desc, [i, 0], ready.index(0), b)
        mbarrier.wait(ready.index(0), i & 1)
        scores = warpgroup_mma(a, b, zero, use_acc=False, is_async=True)
        acc = warpgroup_mma(a, b, acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores,))  # the scores are there, the second product goes on
        total += gl.sum(gl.exp2(scores - gl.max(scores, 1)[:, None]), 1)
        if PIN:
            mbarrier.wait(ready.index(1), 1)  # the phase before the first: it returns at once
        acc = warpgroup_mma_wait(0, deps=(acc,))
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))
    cols = gl.arange(0, 128, gl.SliceLayout(0, layout))
    gl.store(acc_ptr + rows[:, None] * 128 + cols[None, :], acc)
    gl.store(sum_ptr + rows, total)


def left_before_the_wait(PIN):
    """How many of the exponentials that stand before the second wait in the PTX still do in the machine code."""
    inputs = described(matrix(64, 64), [64, 64]), described(matrix(64, 128), [64, 128])
    results = matrix(64, 128, torch.float32), matrix(64, 1, torch.float32)
    ptx, sass = compiled(softmax_beside_a_product, *inputs, *results, 7, PIN=PIN)
    asked = re.split(r"wgmma\.wait_group\.sync\.aligned", ptx)[1].count("ex2.approx")
    kept = re.split(r"WARPGROUP\.DEPBAR", sass)[1].count("MUFU.EX2")
    return f"{asked} exponentials asked for, {'nearly all' if kept > 0.9 * asked else 'hardly any'} left"


print(left_before_the_wait(PIN=False))  # → 64 exponentials asked for, hardly any left
print(left_before_the_wait(PIN=True))  # → 64 exponentials asked for, nearly all left


# --8<-- [end:overlap]
# --8<-- [start:serial]
@gluon.jit
def product_by_steps(a_desc, b_desc, c_desc, K):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    a_s = gl.allocate_shared_memory(a_desc.dtype, [2, 64, 64], a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [2, 64, 128], b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [64, 128], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    # As if it were the result of a product, so that its type stays the same.
    acc = warpgroup_mma_init(gl.zeros([64, 128], gl.float32, layout))
    buffer = 0
    phase = 0
    for k in range(0, K, 64):
        mbarrier.expect(full, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma_load(a_desc, [0, k], full, a_s.index(buffer))
        tma_load(b_desc, [k, 0], full, b_s.index(buffer))
        mbarrier.wait(full, phase)
        acc = warpgroup_mma_wait(0, deps=(acc,))  # the product of the round before
        acc = warpgroup_mma(a_s.index(buffer), b_s.index(buffer), acc, is_async=True)
        buffer ^= 1
        phase ^= 1
    acc = warpgroup_mma_wait(0, deps=(acc,))
    c_s.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [0, 0], c_s)
    tma.store_wait(0)


def starts():
    """How often the machine code begins a batch of instructions for the tensor cores. One step has four of them."""
    tiles = [described(matrix(*shape), block) for shape, block in (
        ((64, 512), [64, 64]), ((512, 128), [64, 128]), ((64, 128), [64, 128]),
    )]  # fmt: skip
    return compiled(product_by_steps, *tiles, 512)[1].count("WARPGROUP.ARRIVE")


print(starts() == (4 if triton.__version__.startswith("3.6.") else 1))  # → True


# --8<-- [end:serial]
# --8<-- [start:names]
@gluon.jit
def a_name_used_twice(n):
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(2):
        mbarrier.init(bars.index(stage), count=1)
    for i in range(n):
        stage = i % 2
        mbarrier.arrive(bars.index(stage))
        mbarrier.wait(bars.index(stage), (i // 2) & 1)


@gluon.jit
def fill(buffer, N: gl.constexpr):
    buffer.store(gl.full([N], 1.0, gl.float32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))


@gluon.jit
def arguments_with_a_name(N: gl.constexpr, NAMED: gl.constexpr):
    buffers = gl.allocate_shared_memory(gl.float32, [2, N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    if NAMED:
        arguments = (buffers.index(0), N)
        gl.warp_specialize([(fill, arguments), (fill, (buffers.index(1), N))], [1], [24])
    else:
        gl.warp_specialize([(fill, (buffers.index(0), N)), (fill, (buffers.index(1), N))], [1], [24])


def compiles(kernel, *args):
    try:
        return bool(compiled(kernel, *args))
    except Exception as error:
        return "changed type" in str(error) and "a name changed its type"


print(compiles(a_name_used_twice, 5))  # → a name changed its type
print(compiles(arguments_with_a_name, 256, False))  # → True
print(compiles(arguments_with_a_name, 256, True))  # → False


# --8<-- [end:names]
# --8<-- [start:arrivals]
@gluon.jit
def arrivals(x_ptr, N: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(4):
        mbarrier.init(bars.index(s), count=1)
    gl.store(x_ptr + gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])), 1.0)
    for s in gl.static_range(N):
        mbarrier.arrive(bars.index(s))


barriers = [compiled(arrivals, matrix(1, 128), count)[0].count("bar.sync") for count in (1, 4)]
print(barriers[1] - barriers[0] >= 3)  # → True


# --8<-- [end:arrivals]
# --8<-- [start:boxes]
@gluon.jit
def one_tile(x_desc):
    tile = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x_desc.block_type.nbytes)
    tma_load(x_desc, [0, 0], full, tile)
    mbarrier.wait(full, 0)


def copies_of_a_tile(columns):
    """Instructions for the TMA, and announcements, of one warp that fetches 64 rows."""
    ptx, _ = compiled(one_tile, described(matrix(64, 256), [64, columns]), num_warps=1)
    return ptx.count("cp.async.bulk.tensor"), ptx.count("expect_tx")


print(*map(copies_of_a_tile, (64, 128, 256)))  # → (1, 1) (2, 1) (4, 1)


# --8<-- [end:boxes]
# --8<-- [start:in_flight]
@gluon.jit
def asks_for_two(x_desc, tiles, COPY_PRED: gl.constexpr, EXPECT_PRED: gl.constexpr):
    buffers = gl.allocate_shared_memory(x_desc.dtype, [2, 8, 64], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(2):
        mbarrier.init(full.index(s), count=1)
        mbarrier.expect(full.index(s), x_desc.block_type.nbytes, pred=s < tiles or not EXPECT_PRED)
        tma_load(x_desc, [s * 8, 0], full.index(s), buffers.index(s), pred=s < tiles or not COPY_PRED)
    for i in range(tiles):
        mbarrier.wait(full.index(i), 0)


def simulated(tiles, *PRED):
    from academy import gluon as simulator

    try:
        simulator.simulate(asks_for_two, (1,), described(torch.ones(8 * tiles, 64), [8, 64]), tiles, *PRED)
    except simulator.GluonError as error:
        return type(error).__name__
    return "nothing is wrong"


print(simulated(2, False, False))  # → nothing is wrong
print(simulated(1, False, False))  # → InFlight
print(simulated(1, False, True))  # → InFlight
print(simulated(1, True, False))  # → nothing is wrong
print(simulated(1, True, True))  # → nothing is wrong
# --8<-- [end:in_flight]
# --8<-- [start:versions]
print(hasattr(tma, "async_load") == (triton.__version__ >= "3.8"))  # → True
print(hasattr(gl, "barrier") or hasattr(gl, "thread_barrier"))  # → True
# --8<-- [end:versions]
