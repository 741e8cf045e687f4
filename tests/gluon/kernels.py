"""Small Gluon kernels, right and wrong, for the simulator's own tests."""

# ruff: noqa: I001  academy.runtime.device must come before triton

from academy.runtime import device  # noqa: F401

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from annotated_examples.common import hopper_sums

if hasattr(tma, "async_load"):
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global
cp_async = hopper.async_copy
copy_elements = getattr(cp_async, "async_load", None) or cp_async.async_copy_global_to_shared


@gluon.jit
def tile_copy(x_desc, y_desc, WAIT: gl.constexpr, FENCE: gl.constexpr, DONE: gl.constexpr, BYTES: gl.constexpr):
    """One tile in by TMA, plus one, and out by TMA; each constant leaves out one thing."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    tile = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    out = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_type.shape, y_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    row = gl.program_id(0) * x_desc.block_type.shape[0]
    mbarrier.expect(ready, x_desc.block_type.nbytes + BYTES)
    tma_load(x_desc, [row, 0], ready, tile)
    if WAIT:
        mbarrier.wait(ready, 0)
    value = tile.load(layout)
    if FENCE == "too early":
        fence_async_shared()
    out.store((value.to(gl.float32) + 1).to(y_desc.dtype))
    if FENCE == True:  # noqa: E712
        fence_async_shared()
    tma_store(y_desc, [row, 0], out)
    if DONE:
        tma.store_wait(0)


@gluon.jit
def elements(x_ptr, y_ptr, n, WAIT: gl.constexpr, COMMIT: gl.constexpr, BLOCK: gl.constexpr):
    """Two buffers, filled by cp.async: the next chunk is under way while this one is used."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    buffers = gl.allocate_shared_memory(gl.float32, [2, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    offs = gl.arange(0, BLOCK, layout)
    copy_elements(buffers.index(0), x_ptr + offs, mask=offs < n)
    if COMMIT:
        cp_async.commit_group()
    for i in range(gl.cdiv(n, BLOCK)):
        following = (i + 1) * BLOCK + offs
        copy_elements(buffers.index((i + 1) % 2), x_ptr + following, mask=following < n)
        cp_async.commit_group()
        cp_async.wait_group(WAIT)
        here = i * BLOCK + offs
        gl.store(y_ptr + here, buffers.index(i % 2).load(layout) * 2, mask=here < n)
    cp_async.wait_group(0)


@gluon.jit
def _larger(value, index, value2, index2):
    first = value > value2
    return gl.where(first, value, value2), gl.where(first, index, index2)


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def along_rows(x_ptr, largest_ptr, where_ptr, scan_ptr, back_ptr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """reduce with two tensors and a function of one's own; associative_scan in both directions."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    offs = rows[:, None] * COLUMNS + columns[None, :]
    x = gl.load(x_ptr + offs)
    index = gl.full([ROWS, COLUMNS], 0, gl.int32, layout) + columns[None, :]
    largest, where = gl.reduce((x, index), 1, _larger)
    gl.store(largest_ptr + rows, largest)
    gl.store(where_ptr + rows, where)
    gl.store(scan_ptr + offs, gl.associative_scan(x, 1, _add))
    gl.store(back_ptr + offs, gl.associative_scan(x, 0, _add, reverse=True))


@gluon.jit
def scalars(out_ptr, a, b):
    """Whole numbers: quotient and remainder round towards zero, and 32 bits wrap."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    lane = gl.arange(0, 1, one)
    gl.store(out_ptr + lane, lane + a // b)
    gl.store(out_ptr + 1 + lane, lane + a % b)
    gl.store(out_ptr + 2 + lane, (lane + 65536) * 65536)
    gl.store(out_ptr + 3 + lane, lane + (gl.program_id(0).to(gl.int64) + 1))


@gluon.jit
def wrong_layout(x_ptr, CASE: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    x = gl.full([32, 32], 1.0, gl.float32, rows)
    if CASE == "two":
        x + gl.full([32, 32], 1.0, gl.float32, columns)
    if CASE == "slice":
        gl.arange(0, 32, gl.SliceLayout(0, rows))[:, None]
    if CASE == "warps":
        gl.arange(0, 32, gl.BlockedLayout([1], [32], [8], [0]))
    if CASE == "trivial":
        gl.convert_layout(x, columns, assert_trivial=True)
    if CASE == "written":
        x + gl.full([32, 32], 1.0, gl.float32, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])).permute([0, 1])
        same: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
        x + gl.full([32, 32], 1.0, gl.float32, same)
    if CASE == "split":
        x.reshape([32, 2, 16]).permute([0, 2, 1]).split()


@gluon.jit
def waits_for(bar, phase: gl.constexpr):
    mbarrier.wait(bar, phase)


@gluon.jit
def arrives_late(bar, other):
    mbarrier.wait(other, 0)
    mbarrier.arrive(bar)


@gluon.jit
def stuck():
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=2 - i)
    gl.warp_specialize([(waits_for, (bars.index(0), 0)), (arrives_late, (bars.index(0), bars.index(1)))], [4], [24])


@gluon.jit
def hands_on(buffer, bar, layout: gl.constexpr):
    buffer.store(gl.full([128], 1.0, gl.float32, layout))
    mbarrier.arrive(bar)


@gluon.jit
def takes(buffer, bar, out_ptr, layout: gl.constexpr, WAIT: gl.constexpr):
    if WAIT:
        mbarrier.wait(bar, 0)
    gl.store(out_ptr + gl.arange(0, 128, layout), buffer.load(layout))


@gluon.jit
def two_partitions(out_ptr, WAIT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(takes, (buffer, bar, out_ptr, layout, WAIT)), (hands_on, (buffer, bar, layout))], [4], [24])


@gluon.jit
def adds_up(x_desc, y_desc, counter, FIRST: gl.constexpr, READ: gl.constexpr, ARRIVED: gl.constexpr):
    """Every program adds its tile to the same one of the result, in turn; each constant leaves out one thing."""
    tile = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, x_desc.block_type.nbytes)
    turn = gl.program_id(0) + FIRST
    tma_load(x_desc, [turn * x_desc.block_type.shape[0], 0], ready, tile)
    mbarrier.wait(ready, 0)
    hopper_sums.wait_for_turn(counter, turn)
    hopper_sums.tma_add(y_desc, [0, 0], tile)
    if READ:
        tma.store_wait(0)
    if ARRIVED:
        hopper_sums.pass_turn(counter, turn)
    else:
        gl.atomic_xchg(counter, turn + 1, sem="release")
