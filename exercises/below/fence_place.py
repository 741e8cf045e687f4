"""# A fence in the wrong place

`double(x)` has its wait, its fence and its `store_wait`, and still its result may be wrong. Find the bug.

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
def double_kernel(x_desc, out_desc):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    x_s = gl.allocate_shared_memory(x_desc.dtype, [16, 64], x_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [16, 64], out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    at = [gl.program_id(0) * 16, gl.program_id(1) * 64]
    mbarrier.expect(full, x_desc.block_type.nbytes)
    tma_load(x_desc, at, full, x_s)
    mbarrier.wait(full, 0)
    # <<<
    out_s.store(x_s.load(layout) * 2)
    fence_async_shared()
    # ===
    # fence_async_shared()
    # out_s.store(x_s.load(layout) * 2)
    # >>>
    tma_store(out_desc, at, out_s)
    tma.store_wait(0)


def double(x):
    out = torch.empty_like(x)
    grid = triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 64)
    double_kernel[grid](described(x, [16, 64]), described(out, [16, 64]), num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/tile_copy.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "The TMA has a door of its own to shared memory. Whose writes must have reached it, before which line?",
    "A fence is about what the threads have stored *before* it.",
)
WHY = """A fence makes earlier stores visible to the TMA. It does nothing for those that come after it."""


def check(t):
    for M, N in ((16, 4 * t.random.randint(5, 16)), (16 * t.random.randint(3, 4) + 1, 20), (5, 132)):
        t.compare(f"{M} rows", "double", lambda x: 2 * x, t.values(M, N))


WRONG = (
    ("16 rows: missing fence on out_s: TMA store at line",),
    ("16 rows: missing fence on out_s: TMA store at line", "out_s.store(x_s.load(layout) * 2)"),
    (
        "16 rows: missing fence on out_s: TMA store at line",
        "    fence_async_shared()\n    tma_store(out_desc, at, out_s)\n",
        "    tma_store(out_desc, at, out_s)\n    fence_async_shared()\n",
    ),
    (
        "16 rows: missing fence on out_s: TMA store at line",
        "x = x_s.load(layout)\nfence_async_shared()\nout_s.store(x * 2)",
    ),
)
RIGHT = (
    ("x = x_s.load(layout)\nout_s.store(x * 2)\nfence_async_shared()",),
    ("fence_async_shared()\nout_s.store(x_s.load(layout) * 2)\nfence_async_shared()",),
)
