"""# Whose turn is it?

Two partitions take turns: of every four tiles, the first doubles two, the second the other two. `turn[W]` is a baton.
A partition waits for its own, reads its two tiles, and hands over the other's. Which parity does it wait for, in its
turn number `turns`? Partition 0 begins.

[[figure: below/turns]]
"""

# %% solution
from annotated_examples.common.hopper import described, tma_load, tma_store

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def fetch(x_desc, x_s, full, empty, tiles, BUFFERS: gl.constexpr):
    for i in range(tiles):
        buffer = i % BUFFERS
        mbarrier.wait(empty.index(buffer), ((i // BUFFERS) & 1) ^ 1)
        mbarrier.expect(full.index(buffer), x_desc.block_type.nbytes)
        tma_load(x_desc, [i * 8, 0], full.index(buffer), x_s.index(buffer))


@gluon.jit
def consume(out_desc, x_s, out_s, full, empty, turn, tiles, W: gl.constexpr, BUFFERS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    turns = 0
    for first in range(2 * W, tiles, 4):
        # <<<
        mbarrier.wait(turn.index(W), (turns & 1) ^ (W == 0))
        # ===
        # mbarrier.wait(turn.index(W), turns & 1)
        # >>>
        for i in range(first, gl.minimum(first + 2, tiles)):
            buffer = i % BUFFERS
            mbarrier.wait(full.index(buffer), (i // BUFFERS) & 1)
            x = x_s.index(buffer).load(layout)
            tma.store_wait(0)
            out_s.index(W).store(x * 2)
            fence_async_shared()
            tma_store(out_desc, [i * 8, 0], out_s.index(W))
            mbarrier.arrive(empty.index(buffer))
        mbarrier.arrive(turn.index(1 - W))
        turns += 1
    tma.store_wait(0)


@gluon.jit
def double_kernel(x_desc, out_desc, tiles, BUFFERS: gl.constexpr):
    x_s = gl.allocate_shared_memory(x_desc.dtype, [BUFFERS, 8, 32], x_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [2, 8, 32], out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    for w in gl.static_range(2):
        mbarrier.init(turn.index(w), count=1)
    gl.warp_specialize([
        (consume, (out_desc, x_s, out_s, full, empty, turn, tiles, 0, BUFFERS)),
        (consume, (out_desc, x_s, out_s, full, empty, turn, tiles, 1, BUFFERS)),
        (fetch, (x_desc, x_s, full, empty, tiles, BUFFERS)),
    ], [4, 1], [64, 24])  # fmt: skip


def double(x, BUFFERS=1):
    out = torch.empty_like(x)
    tiles = triton.cdiv(x.shape[0], 8)
    double_kernel[(1,)](described(x, [8, 32]), described(out, [8, 32]), tiles, BUFFERS=BUFFERS, num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/matmul.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Partition 1 gets its baton after the first turn of partition 0. That is phase 0 of `turn[1]`.",
    "Partition 0 begins without having got anything: it waits for the phase before the first, and in its "
    "turn number `t` for "
    "phase `t - 1`.",
    "So the one has the parity of `turns`, the other the opposite one.",
)
WHY = """Without the turn a partition may wait for a phase of `full` that comes after the next one. Only parities are
compared, so an earlier phase ends the wait, and the tile isn't there. One buffer ends in a deadlock, two or three in a
race. With four, every buffer belongs to one partition, and nothing goes wrong."""


def check(t):
    for buffers, M in ((1, 64), (2, 75), (1, 8), (1, 17), (t.random.randint(2, 3), t.random.randint(33, 90))):
        t.compare(f"{buffers} buffers, {M} rows", "double", lambda x, _: 2 * x, t.values(M, 32), buffers)


WRONG = (
    ("1 buffers, 64 rows: deadlock: no partition can go on.",),
    ("1 buffers, 64 rows: ", "pass"),
    ("1 buffers, 64 rows: ", "mbarrier.wait(turn.index(W), (turns & 1) ^ 1)"),
    ("1 buffers, 64 rows: out[0, 0] is", "mbarrier.wait(turn.index(W), (turns & 1) ^ (W == 1))"),
    ("1 buffers, 64 rows: ", "mbarrier.wait(turn.index(W), 1 - W)"),
)
RIGHT = (
    ("mbarrier.wait(turn.index(W), turns + (W == 0))",),
    ("if W == 0:\n    mbarrier.wait(turn.index(W), turns - 1)\nelse:\n    mbarrier.wait(turn.index(W), turns)",),
)
