"""# The tile that may not be there yet

`double(x)` lets the TMA bring a tile of 16 x 64 into shared memory, doubles it, and sends it on its way out. In some
orders of events the result is right. Find the bug.

[[figure: below/phases]]

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
def double_kernel(x_desc, out_desc):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    x_s = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_type.shape, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    row = gl.program_id(0) * 16
    mbarrier.expect(full, x_desc.block_type.nbytes)
    tma_load(x_desc, [row, 0], full, x_s)
    # <<<
    mbarrier.wait(full, 0)
    # ===
    # >>>
    out_s.store(x_s.load(layout) * 2)
    fence_async_shared()
    tma_store(out_desc, [row, 0], out_s)
    tma.store_wait(0)


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.shape[0], 16),)](described(x, [16, 64]), described(out, [16, 64]), num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/tile_copy.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "`tma_load` starts a copy and returns at once. Which line reads what it brings?",
    "A barrier's first phase is number 0, so its parity is 0.",
)
WHY = """Nothing but a wait orders the TMA's write and the threads' read. The simulator says so in every schedule. A GPU
says nothing: the threads read what happens to be in shared memory, and a copy seldom is there at once."""


def check(t):
    for M, N in ((16, 4 * t.random.randint(5, 16)), (16 * t.random.randint(4, 5) + 1, 20)):
        t.compare(f"{M} rows", "double", lambda x: 2 * x, t.values(M, N))


WRONG = (
    ("16 rows: race on x_s: load at line",),
    ("16 rows: deadlock: no partition can go on. kernel waits at line", "mbarrier.wait(full, 1)"),
    ("16 rows: race on x_s: load at line", "fence_async_shared()"),
    (
        "16 rows: race on x_s: load at line",
        "    mbarrier.wait(full, 0)\n    out_s.store(x_s.load(layout) * 2)\n",
        "    out_s.store(x_s.load(layout) * 2)\n    mbarrier.wait(full, 0)\n",
    ),
    ("16 rows: missing fence on out_s: TMA store at line", "    fence_async_shared()\n    tma", "    tma"),
    ("16 rows: the kernel ends, and nothing has waited for the TMA store", "    tma.store_wait(0)\n\n\ndef", "\n\ndef"),
)
RIGHT = (
    ("mbarrier.wait(full, 2)",),
    ("phase = 0\nmbarrier.wait(full, phase)",),
)
