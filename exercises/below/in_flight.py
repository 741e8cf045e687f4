"""# The copy that nobody waits for

This kernel doubles its tiles, and every one of them comes out right. But it asks for more tiles than there are: at the
end copies are still on their way, into shared memory that may belong to another program by then. Find the bug.

[[figure: below/ring]]
"""

# %% solution
from annotated_examples.common.hopper import described, tma_load, tma_store

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def ask(x_desc, buffer, bar, tile, pred):
    mbarrier.expect(bar, x_desc.block_type.nbytes, pred=pred)
    tma_load(x_desc, [tile * 8, 0], bar, buffer, pred=pred)


@gluon.jit
def double_kernel(x_desc, out_desc, tiles, BUFFERS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    x_s = gl.allocate_shared_memory(x_desc.dtype, [BUFFERS, 8, 32], x_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [8, 32], out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
    for s in gl.static_range(BUFFERS):
        # <<<
        ask(x_desc, x_s.index(s), full.index(s), s, s < tiles)
        # ===
        # ask(x_desc, x_s.index(s), full.index(s), s, True)
        # >>>
    for i in range(tiles):
        mbarrier.wait(full.index(i % BUFFERS), (i // BUFFERS) & 1)
        x = x_s.index(i % BUFFERS).load(layout)
        tma.store_wait(0)
        out_s.store(x * 2)
        fence_async_shared()
        tma_store(out_desc, [i * 8, 0], out_s)
        ask(x_desc, x_s.index(i % BUFFERS), full.index(i % BUFFERS), i + BUFFERS, i + BUFFERS < tiles)
    tma.store_wait(0)


def double(x, BUFFERS=3):
    out = torch.empty_like(x)
    tiles = triton.cdiv(x.shape[0], 8)
    double_kernel[(1,)](described(x, [8, 32]), described(out, [8, 32]), tiles, BUFFERS=BUFFERS, num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/tile_copy.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "How many tiles are asked for before the loop? And how many does the loop use, if there are fewer "
    "tiles than buffers?",
    "`pred` is a switch. The bytes must not be announced either, and `ask` passes it on to both.",
)
WHY = """With fewer tiles than buffers some copies have nobody who waits for them. A test of the result can't see it.
Triton's tutorial on persistent Gluon kernels had this bug: behind its last tile it began one more load, without
`pred`."""


def check(t):
    drawn = t.random.randint(4, 5), 8 * t.random.randint(1, 2) + 3
    for buffers, M in ((3, 40), (3, 16), (2, 8), (1, 17), drawn):
        t.compare(f"{buffers} buffers, {M} rows", "double", lambda x, _: 2 * x, t.values(M, 32), buffers)


WRONG = (
    ("3 buffers, 16 rows: the kernel ends, and nothing has waited for the TMA load",),
    ("3 buffers, 16 rows: the kernel ends", "ask(x_desc, x_s.index(s), full.index(s), s, s <= tiles)"),
    ("3 buffers, 40 rows: deadlock", "ask(x_desc, x_s.index(s), full.index(s), s, s < 1)"),
    ("3 buffers, 40 rows: ", "i + BUFFERS < tiles)\n    tma", "True)\n    tma"),
)
RIGHT = (
    ("ask(x_desc, x_s.index(s), full.index(s), s, tiles > s)",),
    ("wanted = s < tiles\nask(x_desc, x_s.index(s), full.index(s), s, wanted)",),
)
