"""# The wrong buffer is given back

The product of step `k` is asked for before that of step `k - 1` is waited for, so that the tensor cores always have a
next one. Then a buffer is given back. Which one?

[[figure: below/handshake]]
"""

# %% solution
from annotated_examples.common.hopper import described, tma_load, tma_store

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip


@gluon.jit
def ask(a_desc, b_desc, a, b, bar, k, pred):
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    tma_load(a_desc, [0, k * 32], bar, a, pred=pred)
    tma_load(b_desc, [k * 32, 0], bar, b, pred=pred)


@gluon.jit
def fetch(a_desc, b_desc, a_s, b_s, full, empty, steps, BUFFERS: gl.constexpr):
    for k in range(steps):
        buffer = k % BUFFERS
        mbarrier.wait(empty.index(buffer), ((k // BUFFERS) & 1) ^ 1)
        ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), k, True)


@gluon.jit
def multiply(c_desc, a_s, b_s, c_s, full, empty, steps, BUFFERS: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    acc = gl.zeros([64, 32], gl.float32, layout)
    for k in range(steps):
        buffer = k % BUFFERS
        mbarrier.wait(full.index(buffer), (k // BUFFERS) & 1)
        acc = warpgroup_mma(a_s.index(buffer), b_s.index(buffer), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        # <<<
        mbarrier.arrive(empty.index((k + BUFFERS - 1) % BUFFERS), pred=k > 0)
        # ===
        # mbarrier.arrive(empty.index(buffer))
        # >>>
    acc = warpgroup_mma_wait(0, deps=(acc,))
    c_s.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [0, 0], c_s)
    tma.store_wait(0)


@gluon.jit
def product_kernel(a_desc, b_desc, c_desc, steps, BUFFERS: gl.constexpr):
    a_s = gl.allocate_shared_memory(a_desc.dtype, [BUFFERS, 64, 32], a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [BUFFERS, 32, 32], b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [64, 32], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    gl.warp_specialize([
        (multiply, (c_desc, a_s, b_s, c_s, full, empty, steps, BUFFERS)),
        (fetch, (a_desc, b_desc, a_s, b_s, full, empty, steps, BUFFERS)),
    ], [1], [24])  # fmt: skip


def product(a, b, BUFFERS=2):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    tiles = described(a, [64, 32]), described(b, [32, 32]), described(c, [64, 32])
    product_kernel[(1,)](*tiles, triton.cdiv(a.shape[1], 32), BUFFERS=BUFFERS, num_warps=4)
    return c


# %% checks
PAGE = "kernels/gluon/matmul.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "`warpgroup_mma_wait(1)` leaves one product outstanding. Which one, and which buffer does it read?",
    "The one before it is done. In step 0 there is none before it.",
)
WHY = """What is done after `warpgroup_mma_wait(1)` is the product of step `k - 1`, so its buffer is free. This step's
own product is still reading. The last buffer is never given back, and nobody waits for it."""


def check(t):
    drawn = 8 * t.random.randint(33, 40), t.random.randint(3, 4)
    for K, buffers in ((96, 2), (64, 3), drawn):
        M, N = t.random.randint(33, 64), 8 * t.random.randint(2, 4)
        a, b = t.values(M, K, dtype=torch.float16), t.values(K, N, dtype=torch.float16)
        t.compare(f"{K} columns, {buffers} buffers", "product", lambda a, b, _: a @ b, a, b, buffers)


WRONG = (
    ("race on a_s[0]: TMA load at line",),
    ("deadlock", "mbarrier.arrive(empty.index((k + BUFFERS - 1) % BUFFERS), pred=k > 1)"),
    ("columns, 3 buffers: deadlock", "mbarrier.arrive(empty.index((k + BUFFERS - 1) % BUFFERS))"),
    ("deadlock", "pass"),
    ("96 columns, 2 buffers: deadlock", "mbarrier.arrive(empty.index(buffer), pred=k > 0)"),
)
RIGHT = (
    ("if k > 0:\n    mbarrier.arrive(empty.index((k - 1) % BUFFERS))",),
    ("acc = warpgroup_mma_wait(0, deps=(acc,))\nmbarrier.arrive(empty.index(buffer))",),
)
