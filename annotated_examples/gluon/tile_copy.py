r"""
# A copy, below Triton

Triton's compiler decides which thread holds which element, when a tile is fetched, and who waits for what. **Gluon** is
the same language one floor down: here you write these decisions yourself. Why would you? Because the compiler doesn't
always find the best ones, and because the fastest kernels on Hopper are made of them. This page has the three things
that are new, with nothing else in the way: *layouts*, the *TMA unit* with its *barriers*, and a *ring* of buffers.

What it computes is almost nothing: a matrix times a number, [[tag: CP]]. The number keeps a tile from going straight
through; someone has to touch it.

**What it costs.** Every element is read once and written once, so memory decides: at 16384 x 8192 it reaches
[[bench: tile_copy/16384x8192/forward/share]] of the speed of a copy. What the third kernel changes is how much is under
way at a time: while one tile is being written, the next ones are already coming.

**Where it falls behind.** A copy is where one learns this, not where it pays: each thread has so little to do that the
hardware hides the waiting by itself, with many small programs on each SM. For 16384 rows of 8192 the ring
takes [[bench: tile_copy/16384x8192/forward/ms]], PyTorch's plain kernel
[[bench: tile_copy/16384x8192/forward/eager.ms]]. In a [matrix product](matmul.py) there is more to hide.

**Try it without a GPU.** Run this file anywhere: without a Hopper GPU the kernels run in a simulator (`academy.gluon`).
It knows what orders two accesses of shared memory. Delete a wait, and it names the two lines that race, or the store
that nobody waited for, even if the result happened to be right. *Watch* draws what overlapped: who works when, the
phases of each barrier, the use of each buffer. `academy simulate --lanes` draws the lanes of a file of your own in a
terminal, and says when each phase was complete; `--json` writes what each step waited for. On another GPU than Hopper
the functions refuse to start.

**Contract.** `x`: (M, N), float32, float16 or bfloat16, any strides, may be empty. What doesn't lie in rows that begin
at multiples of 16 bytes is copied first. The result has the dtype of `x`; the product is computed in float32. No input
is written to.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from annotated_examples.common.hopper import aligned, aligned_empty, described, programs, tma_load, tma_store


# ## Reference
def copy_reference(x, scale=1.0):
    return x * scale


# ## Layouts: which thread holds what
#
# In Triton a block is just a block. In Gluon it has a *layout*, which says for every element which thread holds it, and
# in which register. A `BlockedLayout` is written as four lists, one number for each dimension:
#
# - `[1, 8]`: a thread holds 8 neighbours of a row. In 16-bit numbers these are 16 bytes, Hopper's widest access.
# - `[4, 8]`: the 32 threads of a warp stand in 4 rows of 8. Eight threads side by side cover 64 columns.
# - `[4, 1]`: the 4 warps stand below one another. Together they cover 16 rows.
# - `[1, 0]`: dimension 1 runs fastest. Thread 1 is to the right of thread 0, not below it.
#
# So of a tile of 16 x 64 every thread holds eight elements, and lane 9 of warp 0 begins at row 1, column 8. A warp
# reads 4 rows of 128 bytes, each a whole cache line if rows begin with one. With `[32, 1]` in the second list each lane
# would stand in a row of its own: 16 bytes from each of 32 lines, eight times as many.
#
# A larger tile repeats the pattern: each thread then holds more. What the simulator and the compiler both insist on is
# that two tensors that are added have the same layout. Nothing is moved between threads behind your back;
# `gl.convert_layout` is how you ask for it.
COLUMNS = gl.constexpr(64)


# A vector of offsets along one dimension has the layout of the tile with the other dimension taken out, a
# `SliceLayout`. `[:, None]` puts it back. So `rows` says: as the rows of this tile are spread over the threads, so are
# these numbers. `gluon` has a decorator of its own, and `gl` takes the place of `tl`. The rest is Triton: pointers, a
# mask, a load and a store.
@gluon.jit
def copy_lanes_kernel(
    x_ptr, y_ptr,  # (M, N), rows stride_xm and stride_ym apart
    scale, M, N, stride_xm, stride_ym, ROWS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    rows = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    cols = gl.program_id(1) * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    # The example's matrix has 10 rows and 72 columns, so the last program is mostly outside of it. Its tile begins at
    # `pid=(1, 1): rows[0] = 8` and `cols[0] = 64`, and `mask[1, 6:9] = [1, 1, 0]`: its eighth column is the last.
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x_ptrs = x_ptr + rows.to(gl.int64)[:, None] * stride_xm + cols[None, :]
    y_ptrs = y_ptr + rows.to(gl.int64)[:, None] * stride_ym + cols[None, :]
    x = gl.load(x_ptrs, mask=mask, other=0.0)
    gl.store(y_ptrs, (x.to(gl.float32) * scale).to(x.dtype), mask=mask)


# ## The TMA unit, and a barrier
#
# The kernel above keeps every thread busy computing addresses, and its registers hold what is on the way. Hopper has a
# unit that does this alone, the *tensor memory accelerator*, TMA: one thread says *this tile, into that buffer*, and
# goes on. A tail at the edge of the matrix is the unit's business too: it reads zeros there, and writes nothing.
#
# But how does anyone know that the tile has arrived? `mbarrier` counts arrivals, in shared memory. It works in
# *phases*, numbered from 0. A phase is complete when two things have happened: as many arrivals as `init` said, and all
# the bytes that were announced. Then the next phase begins. `wait(bar, p)` waits as long as the phase that
# runs now has parity `p`. If it has the other one, the phase of parity `p` is the one before, and complete: the wait
# returns at once. It is given only the parity, because that is all the hardware keeps.
@gluon.jit
def copy_tile_kernel(x_desc, y_desc, scale, WARPS: gl.constexpr):  # of (M, N)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    # Two buffers in shared memory, with the descriptors' layout, and a barrier, whose count is one: one thread will
    # arrive. Shared memory holds whatever the last program left there. (In the simulator: NaN.)
    x_s = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    y_s = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_type.shape, y_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    row = gl.program_id(0) * x_desc.block_type.shape[0]
    col = gl.program_id(1) * COLUMNS

    # `expect` is the one arrival, and announces the bytes. `tma` has the TMA unit's functions; `tma_load` starts a
    # copy and returns at once.
    mbarrier.expect(full, x_desc.block_type.nbytes)
    tma_load(x_desc, [row, col], full, x_s)
    # Phase 0 has parity 0. Without this line the next one reads what happens to lie in the buffer. That is the bug of
    # asynchronous code: most of the time the tile *is* there already.
    mbarrier.wait(full, 0)
    # The same tile as above has arrived whole, `pid=(1, 1): x.shape = [8, 64]`, with zeros where there is no matrix:
    # `x[1, 5:10] = [21, 22, 23, 0, 0]`.
    x = x_s.load(layout)
    y_s.store((x.to(gl.float32) * scale).to(y_desc.dtype))

    # The TMA unit and the tensor cores don't see shared memory through the same door as the threads. Theirs is called
    # the *async proxy*. `fence_async_shared` makes what the threads have stored visible there. A barrier doesn't: all
    # threads may be past it. Leave the fence out, and the result may be right all the same.
    fence_async_shared()
    tma_store(y_desc, [row, col], y_s)
    # Nobody else waits for the way out, so wait here until the unit has read the buffer: when the program ends, the
    # next one gets this shared memory.
    tma.store_wait(0)


# ## A ring of buffers
#
# One tile at a time leaves memory idle while the threads work, and the threads idle while memory does. The remedy is to
# ask early: `STAGES` buffers, one barrier each, and the loads run `STAGES` tiles ahead. Tile `i` uses buffer `i %
# STAGES`, and it is that buffer's use number `i // STAGES`: that is its phase. So the parity to wait for is `(i //
# STAGES) & 1`. If it were always 0, tile 3 of the table would find phase 0 complete: the wait would return at once, and
# the buffer might still hold tile 0.
#
# [[figure: below/ring]]
#
# | tile | 0 | 1 | 2 | 3 | 4 | 5 | 6 |
# |---|---|---|---|---|---|---|---|
# | buffer, of 3 | 0 | 1 | 2 | 0 | 1 | 2 | 0 |
# | phase | 0 | 0 | 0 | 1 | 1 | 1 | 2 |
# | parity | 0 | 0 | 0 | 1 | 1 | 1 | 0 |
#
# A buffer must be empty before it is filled again. Here no barrier says so. The same threads read a tile and ask for
# the next, so the order of the program is enough. It has a price. The next load waits for all that stands before it,
# also for the store of this tile to be issued. Where one group of warps fetches and another computes, as in [the
# product](matmul.py), a second barrier for each buffer says *empty*.
#
# The kernel is *persistent*: there are as many programs as SMs, and each takes every `num_programs`-th
# tile. Only so does a program have a next tile to ask for.
@gluon.jit
def copy_ring_kernel(
    x_desc, y_desc,  # of (M, N)
    scale, tiles, tiles_n, STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    ROWS: gl.constexpr = x_desc.block_type.shape[0]
    x_s = gl.allocate_shared_memory(x_desc.dtype, [STAGES, ROWS, COLUMNS], x_desc.layout)
    y_s = gl.allocate_shared_memory(y_desc.dtype, [2, ROWS, COLUMNS], y_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    first = gl.program_id(0)
    # My tiles. In the example there are `tiles = 12` of them for four programs, so each has `count = 3`.
    count = gl.cdiv(tiles - first, gl.num_programs(0))

    # Fill the ring. `pred` is a switch: where it is false nothing happens, and no bytes are announced either. Both
    # lines have it. After an announcement without its copy a wait would never end.
    for s in gl.static_range(STAGES):
        tile = first + s * gl.num_programs(0)
        mbarrier.expect(full.index(s), x_desc.block_type.nbytes, pred=s < count)
        tma_load(
            x_desc, [tile // tiles_n * ROWS, tile % tiles_n * COLUMNS], full.index(s), x_s.index(s), pred=s < count
        )

    for i in range(count):
        # With two buffers the third tile, `i=2: tile = 8`, is in the first one again, `i=2: stage = 0`.
        tile = first + i * gl.num_programs(0)
        stage = i % STAGES
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        x = x_s.index(stage).load(layout)
        # The way out has two buffers of its own. `store_wait(1)` waits until at most one store is still reading: the
        # last one may, the one before it, which used this buffer, must have finished.
        tma.store_wait(1)
        y_s.index(i % 2).store((x.to(gl.float32) * scale).to(y_desc.dtype))
        # One fence for two purposes. The store below must see what was just written. And the load below overwrites what
        # the threads have just read: that, too, is an access through one door after one through the other.
        fence_async_shared()
        tma_store(y_desc, [tile // tiles_n * ROWS, tile % tiles_n * COLUMNS], y_s.index(i % 2))
        # This buffer is free: ask for the tile that will use it next, `STAGES` further on.
        # Only the first has one: `i=0: more = True`, `i=1: more = False`.
        more = i + STAGES < count
        tile += STAGES * gl.num_programs(0)
        mbarrier.expect(full.index(stage), x_desc.block_type.nbytes, pred=more)
        tma_load(
            x_desc, [tile // tiles_n * ROWS, tile % tiles_n * COLUMNS], full.index(stage), x_s.index(stage), pred=more
        )
    tma.store_wait(0)


# ## Launchers
#
# One for each kernel, so that they can be compared; the public function uses the ring. Tiles are `ROWS` x 64.
# `device.require` raises an error on a GPU that isn't a Hopper.
def copy_lanes(x, scale=1.0, *, ROWS=64, num_warps=4):
    checks.programs("x", "columns", x.shape[1], COLUMNS.value)
    x = aligned(x)
    y = aligned_empty(*x.shape, x.dtype, x.device)
    grid = triton.cdiv(x.shape[0], ROWS), triton.cdiv(x.shape[1], COLUMNS.value)
    if x.numel():
        device.require("gluon", "copy", x.device.index)
        strides = x.stride(0), y.stride(0)
        copy_lanes_kernel[grid](x, y, scale, *x.shape, *strides, ROWS=ROWS, WARPS=num_warps, num_warps=num_warps)
    return y


def copy_tile(x, scale=1.0, *, ROWS=64, num_warps=4):
    checks.programs("x", "columns", x.shape[1], COLUMNS.value)
    x = aligned(x)
    y = aligned_empty(*x.shape, x.dtype, x.device)
    grid = triton.cdiv(x.shape[0], ROWS), triton.cdiv(x.shape[1], COLUMNS.value)
    if x.numel():
        device.require("gluon", "copy", x.device.index)
        x_desc, y_desc = (described(each, [ROWS, COLUMNS.value]) for each in (x, y))
        copy_tile_kernel[grid](x_desc, y_desc, scale, WARPS=num_warps, num_warps=num_warps)
    return y


@replayed
def copy_forward(x, scale=1.0, *, ROWS=64, STAGES=4, num_warps=4):
    """The ring. ROWS: of a tile, a power of two. STAGES: buffers on the way in."""
    checks.power_of_two(ROWS=ROWS)
    x = aligned(x)
    y = aligned_empty(*x.shape, x.dtype, x.device)
    if x.numel():
        device.require("gluon", "copy", x.device.index)
        x_desc, y_desc = (described(each, [ROWS, COLUMNS.value]) for each in (x, y))
        tiles_n = triton.cdiv(x.shape[1], COLUMNS.value)
        tiles = triton.cdiv(x.shape[0], ROWS) * tiles_n
        copy_ring_kernel[(programs(tiles, x.device.index),)](
            x_desc, y_desc, scale, tiles, tiles_n, STAGES=STAGES, WARPS=num_warps, num_warps=num_warps
        )
    return y


# ## Joining autograd
#
# The gradient is a scaled copy too, [[tag: CP-X]].
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return copy_forward(x, scale)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return copy_forward(dy, ctx.scale), None


@replayed
def copy(x, scale=1.0):
    """A matrix times a number, differentiable in the matrix. Needs a Hopper GPU, or none at all (the simulator).

    Args:
        x: tensor of shape (M, N), float32, float16 or bfloat16, any strides.
        scale: a number.

    Returns:
        A new tensor of the shape and dtype of `x`. Its rows begin at multiples of 16 bytes, so they may lie further
        apart than they are long.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype isn't allowed, or `scale` isn't a number.
        ValueError: `x` doesn't have two dimensions, or is on the wrong device.
        RuntimeError: the GPU isn't a Hopper.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, 2, "M, N")
    checks.number("scale", scale)
    scale = float(scale)
    if not autograd.needs_frame(x):
        return copy_forward(x, scale)
    return Copy.apply(x, scale)


def EXAMPLE():
    x = (torch.arange(30 * 144, device=device.DEVICE) % 96).reshape(30, 144).half()[:, :136]
    copy_forward(x, 0.5, ROWS=8, STAGES=2, num_warps=1)
    copy_tile(x[:10, :72], 2.0, ROWS=8, num_warps=1)
    copy_lanes(x[:10, :72], 2.0, ROWS=8, num_warps=1)


if __name__ == "__main__":
    script.main(copy, copy_reference)
