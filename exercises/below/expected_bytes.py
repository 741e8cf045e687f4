"""# One barrier for two tiles

`mixed_sum(x, y)` adds a float32 matrix and a float16 one. Both tiles arrive at the same barrier, so it must know the
bytes of both. How many are there to announce?

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
def sum_kernel(x_desc, y_desc, out_desc):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    x_s = gl.allocate_shared_memory(x_desc.dtype, [16, 64], x_desc.layout)
    y_s = gl.allocate_shared_memory(y_desc.dtype, [16, 64], y_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [16, 64], out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    at = [gl.program_id(0) * 16, gl.program_id(1) * 64]
    # <<<
    mbarrier.expect(full, x_desc.block_type.nbytes + y_desc.block_type.nbytes)
    # ===
    # mbarrier.expect(full, x_desc.block_type.nbytes)
    # >>>
    tma_load(x_desc, at, full, x_s)
    tma_load(y_desc, at, full, y_s)
    mbarrier.wait(full, 0)
    out_s.store(x_s.load(layout) + y_s.load(layout).to(gl.float32))
    fence_async_shared()
    tma_store(out_desc, at, out_s)
    tma.store_wait(0)


def mixed_sum(x, y):
    out = torch.empty_like(x)
    grid = triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 64)
    descriptors = [described(each, [16, 64]) for each in (x, y, out)]
    sum_kernel[grid](*descriptors, num_warps=4)
    return out


# %% checks
PAGE = "kernels/gluon/tile_copy.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "A tile has 16 x 64 elements, in the one case of four bytes, in the other of two.",
    "`desc.block_type.nbytes` are the bytes of a tile. (A tile at the edge counts in full: zeros arrive, too.)",
)
WHY = """A phase is complete when exactly the announced bytes have come. Announce too many, and the kernel hangs.
Announce too few, and the phase may end with the first tile, so that the other is read too early."""


def check(t):
    for M, N in ((16, 64), (16 * t.random.randint(3, 4) + 1, 24), (5, 8 * t.random.randint(9, 12)), (2, 520)):
        x, y = t.values(M, N), t.values(M, N, dtype=torch.float16)
        t.compare(f"{M} x {N}", "mixed_sum", lambda x, y: x + y.to(x.dtype), x, y)


WRONG = (
    ("16 x 64: race on y_s: load at line",),
    ("bytes more than expected", "mbarrier.expect(full, y_desc.block_type.nbytes)"),
    ("bytes still to come", "mbarrier.expect(full, 2 * x_desc.block_type.nbytes)"),
    ("too many arrivals at full in phase 0: its count is 1",
     "mbarrier.expect(full, x_desc.block_type.nbytes)\nmbarrier.expect(full, y_desc.block_type.nbytes)"),
)  # fmt: skip
RIGHT = (
    ("mbarrier.expect(full, 16 * 64 * 4 + 16 * 64 * 2)",),
    ("both: gl.constexpr = y_desc.block_type.nbytes + x_desc.block_type.nbytes\nmbarrier.expect(full, both)",),
)
