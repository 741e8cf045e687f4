"""# Nobody has said that it is empty

Two partitions: one fetches, one multiplies. Before it fetches, the first waits until a buffer is `empty`. The kernel
hangs before anything has been copied. Find the bug.

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
        # <<<
        mbarrier.wait(empty.index(buffer), ((k // BUFFERS) & 1) ^ 1)
        # ===
        # mbarrier.wait(empty.index(buffer), (k // BUFFERS) & 1)
        # >>>
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
        mbarrier.arrive(empty.index((k + BUFFERS - 1) % BUFFERS), pred=k > 0)
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
PAGE = "learn/overlap.py"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "At the start all buffers are empty. Has anybody arrived at `empty`?",
    "A new barrier counts as having completed the phase before phase 0. What parity does that one have?",
)
WHY = """The first use of a buffer needs no arrival: the fetcher waits for the phase before the first, parity 1, and
for use number `u` for phase `u - 1`."""


def check(t):
    drawn = 8 * t.random.randint(33, 40), t.random.randint(3, 4)
    for K, buffers in ((96, 2), (64, 3), drawn):
        M, N = t.random.randint(33, 64), 8 * t.random.randint(2, 4)
        a, b = t.values(M, K, dtype=torch.float16), t.values(K, N, dtype=torch.float16)
        t.compare(f"{K} columns, {buffers} buffers", "product", lambda a, b, _: a @ b, a, b, buffers)


WRONG = (
    ("96 columns, 2 buffers: deadlock: no partition can go on.",),
    ("96 columns, 2 buffers: ", "mbarrier.wait(empty.index(buffer), 1)"),
    ("96 columns, 2 buffers: ", "mbarrier.wait(empty.index(buffer), (k & 1) ^ 1)"),
    ("race on a_s[0]: TMA load at line", "pass"),
    ("96 columns, 2 buffers: ", "if k > 0:\n    mbarrier.wait(empty.index(buffer), (k // BUFFERS) & 1)"),
)
RIGHT = (
    ("mbarrier.wait(empty.index(buffer), k // BUFFERS - 1)",),
    ("if k >= BUFFERS:\n    mbarrier.wait(empty.index(buffer), (k // BUFFERS - 1) & 1)",),
)
