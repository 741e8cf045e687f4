"""# Which buffer, which phase?

`double(x, BUFFERS)` sends tiles of eight rows through a ring of `BUFFERS` buffers. Tile `i` has been asked for in
time; its barrier is that of its buffer. Only the wait is still that of tile 0. For which barrier, and for which
parity, does tile `i` wait?

[[figure: below/phases]]
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
        # <<<
        mbarrier.wait(full.index(i % BUFFERS), (i // BUFFERS) & 1)
        # ===
        # mbarrier.wait(full.index(0), 0)
        # >>>
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
PAGE = "learn/overlap.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "With three buffers, tiles 0, 3 and 6 use buffer 0. Which number does each of these uses have?",
    "Use number `i // BUFFERS` of a buffer is phase `i // BUFFERS` of its barrier. A wait wants the parity only.",
)
WHY = """The buffer is the remainder, the phase the quotient. PTX defines `wait` for the parities 0 and 1 only. The
simulator takes `i // BUFFERS` without `& 1`, too, and Hopper's instruction looks at the lowest bit alone."""


def check(t):
    drawn = t.random.randint(4, 5), t.random.randint(33, 50)
    for buffers, M in ((1, 24), (2, 40), (3, 56), (2, 7), drawn):
        t.compare(f"{buffers} buffers, {M} rows", "double", lambda x, _: 2 * x, t.values(M, 32), buffers)


WRONG = (
    ("1 buffers, 24 rows: ",),
    ("1 buffers, 24 rows: ", "mbarrier.wait(full.index(i % BUFFERS), 0)"),
    ("2 buffers, 40 rows: ", "mbarrier.wait(full.index(i % BUFFERS), i & 1)"),
    ("1 buffers, 24 rows: deadlock", "mbarrier.wait(full.index(i % BUFFERS), (i // BUFFERS + 1) & 1)"),
    ("2 buffers, 40 rows: ", "mbarrier.wait(full.index(0), (i // BUFFERS) & 1)"),
)
RIGHT = (
    ("mbarrier.wait(full.index(i % BUFFERS), i // BUFFERS)",),
    ("use = i // BUFFERS\nmbarrier.wait(full.index(i - use * BUFFERS), use % 2)",),
)
