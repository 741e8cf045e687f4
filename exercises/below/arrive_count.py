"""# Two readers, one barrier

Two partitions share each tile of 16 rows: one doubles the upper half, one the lower. Both arrive at `empty` when they
have read theirs, and the fetcher overwrites the buffer after that. Find the bug.

[[figure: below/handshake]]
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
        tma_load(x_desc, [i * 16, 0], full.index(buffer), x_s.index(buffer))


@gluon.jit
def consume(out_desc, x_s, out_s, full, empty, tiles, W: gl.constexpr, BUFFERS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    for i in range(tiles):
        buffer = i % BUFFERS
        mbarrier.wait(full.index(buffer), (i // BUFFERS) & 1)
        x = x_s.index(buffer).slice(W * 8, 8).load(layout)
        tma.store_wait(0)
        out_s.index(W).store(x * 2)
        fence_async_shared()
        tma_store(out_desc, [i * 16 + W * 8, 0], out_s.index(W))
        mbarrier.arrive(empty.index(buffer))
    tma.store_wait(0)


@gluon.jit
def double_kernel(x_desc, out_desc, tiles, BUFFERS: gl.constexpr):
    x_s = gl.allocate_shared_memory(x_desc.dtype, [BUFFERS, 16, 32], x_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [2, 8, 32], out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
        # <<<
        mbarrier.init(empty.index(s), count=2)
        # ===
        # mbarrier.init(empty.index(s), count=1)
        # >>>
    gl.warp_specialize([
        (consume, (out_desc, x_s, out_s, full, empty, tiles, 0, BUFFERS)),
        (consume, (out_desc, x_s, out_s, full, empty, tiles, 1, BUFFERS)),
        (fetch, (x_desc, x_s, full, empty, tiles, BUFFERS)),
    ], [4, 1], [64, 24])  # fmt: skip


def double(x, BUFFERS=2):
    out = torch.empty_like(x)
    tiles = triton.cdiv(x.shape[0], 16)
    double_kernel[(1,)](described(x, [16, 32]), described(out, [8, 32]), tiles, BUFFERS=BUFFERS, num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/matmul.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "A phase of `empty` must not be complete before both halves have been read.",
    "How many arrivals complete a phase is said once, where the barrier is initialised.",
)
WHY = """With a count of one, the first of the two readers completes the phase, and the copy overwrites what the other
is still reading. The arrival of the second reader then completes another phase."""


def check(t):
    for buffers, M in ((2, 64), (1, 33), (t.random.randint(2, 3), t.random.randint(50, 90))):
        t.compare(f"{buffers} buffers, {M} rows", "double", lambda x, _: 2 * x, t.values(M, 32), buffers)


WRONG = (
    ("2 buffers, 64 rows: ",),
    ("2 buffers, 64 rows: deadlock", "mbarrier.init(empty.index(s), count=3)"),
    ("a count of 0", "mbarrier.init(empty.index(s), count=0)"),
    ("2 buffers, 64 rows: ", "mbarrier.init(empty.index(s), count=256)"),
    (
        "missing fence on x_s",
        "        fence_async_shared()\n        tma_store(out_desc, [i * 16 + W * 8, 0], out_s.index(W))\n"
        "        mbarrier.arrive(empty.index(buffer))\n",
        "        mbarrier.arrive(empty.index(buffer))\n        fence_async_shared()\n"
        "        tma_store(out_desc, [i * 16 + W * 8, 0], out_s.index(W))\n",
    ),
)
RIGHT = (
    ("readers: gl.constexpr = 2\nmbarrier.init(empty.index(s), count=readers)",),
    ("mbarrier.init(empty.index(s), count=1 + 1)",),
)
