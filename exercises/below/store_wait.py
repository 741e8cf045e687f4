"""# The way out is used again

Tiles come in through a ring, and all of them leave through one buffer. Whether the result is right depends on who is
faster. Find the line that is missing, and where it belongs.

[[figure: below/doors]]
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
        ask(x_desc, x_s.index(s), full.index(s), s, s < tiles)
    for i in range(tiles):
        mbarrier.wait(full.index(i % BUFFERS), (i // BUFFERS) & 1)
        x = x_s.index(i % BUFFERS).load(layout)
        # <<<
        tma.store_wait(0)
        out_s.store(x * 2)
        fence_async_shared()
        tma_store(out_desc, [i * 8, 0], out_s)
        # ===
        # out_s.store(x * 2)
        # fence_async_shared()
        # tma_store(out_desc, [i * 8, 0], out_s)
        # >>>
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
ORDER = 4
HINTS = (
    "`tma_store` returns at once. Who reads `out_s` after it, and until when?",
    "`tma.store_wait(n)` waits until at most `n` stores still read shared memory. With one buffer, how "
    "many may that be?",
)
WHY = """The TMA may still be reading the last tile when the threads write the next one into the same buffer.
The lesson's ring has two buffers on the way out, so there one store may stay outstanding."""


def check(t):
    for buffers, M in ((2, 40), (3, 16), (1, 17), (t.random.randint(2, 4), t.random.randint(33, 50))):
        t.compare(f"{buffers} buffers, {M} rows", "double", lambda x, _: 2 * x, t.values(M, 32), buffers)


WRONG = (
    ("2 buffers, 40 rows: race on out_s: store at line",),
    (
        "race on out_s: store at line",
        "        tma.store_wait(0)\n        out_s",
        "        tma.store_wait(1)\n        out_s",
    ),
    (
        "missing fence on out_s: TMA store at line",
        "tma.store_wait(0)\nout_s.store(x * 2)\ntma_store(out_desc, [i * 8, 0], out_s)\nfence_async_shared()",
    ),
    (
        "race on out_s: store at line",
        "out_s.store(x * 2)\ntma.store_wait(0)\nfence_async_shared()\ntma_store(out_desc, [i * 8, 0], out_s)",
    ),
    (
        "the kernel ends, and nothing has waited for the TMA store",
        "i + BUFFERS < tiles)\n    tma.store_wait(0)",
        "i + BUFFERS < tiles)",
    ),
)
RIGHT = (
    ("out = x * 2\ntma.store_wait(0)\nout_s.store(out)\nfence_async_shared()\ntma_store(out_desc, [i * 8, 0], out_s)",),
    ("out_s.store(x * 2)\nfence_async_shared()\ntma_store(out_desc, [i * 8, 0], out_s)\ntma.store_wait(0)",),
)
