"""# Asked too early

A product with a ring of buffers, in one group of warps. To gain time its author asks for the next tiles as soon as the
product has been asked for. It is right as long as no copy is faster than a product. What has to come first?

[[figure: below/ring]]
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
def product_kernel(a_desc, b_desc, c_desc, steps, BUFFERS: gl.constexpr):
    a_s = gl.allocate_shared_memory(a_desc.dtype, [BUFFERS, 64, 32], a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [BUFFERS, 32, 32], b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [64, 32], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
    for s in gl.static_range(BUFFERS):
        ask(a_desc, b_desc, a_s.index(s), b_s.index(s), full.index(s), s, s < steps)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    acc = gl.zeros([64, 32], gl.float32, layout)
    for k in range(steps):
        buffer, later = k % BUFFERS, k + BUFFERS
        mbarrier.wait(full.index(buffer), (k // BUFFERS) & 1)
        acc = warpgroup_mma(a_s.index(buffer), b_s.index(buffer), acc, is_async=True)
        # <<<
        acc = warpgroup_mma_wait(0, deps=(acc,))
        ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, later < steps)
        # ===
        # ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, later < steps)
        # acc = warpgroup_mma_wait(0, deps=(acc,))
        # >>>
    c_s.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [0, 0], c_s)
    tma.store_wait(0)


def product(a, b, BUFFERS=2):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    tiles = described(a, [64, 32]), described(b, [32, 32]), described(c, [64, 32])
    product_kernel[(1,)](*tiles, triton.cdiv(a.shape[1], 32), BUFFERS=BUFFERS, num_warps=4)
    return c


# %% checks
PAGE = "learn/overlap.py"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "With `is_async=True`, `warpgroup_mma` returns at once. What do the tensor cores read, and until when?",
    "The copy overwrites the buffer. It may begin when the product that reads it is done.",
)
WHY = """A copy into a buffer overwrites what a product reads, so the product has to be waited for first. The way to
keep the tensor cores busy all the same is to give back the buffer of the step *before*."""


def check(t):
    drawn = 8 * t.random.randint(33, 40), t.random.randint(3, 4)
    for K, buffers in ((96, 2), (64, 3), drawn):
        M, N = t.random.randint(33, 64), 8 * t.random.randint(2, 4)
        a, b = t.values(M, K, dtype=torch.float16), t.values(K, N, dtype=torch.float16)
        t.compare(f"{K} columns, {buffers} buffers", "product", lambda a, b, _: a @ b, a, b, buffers)


WRONG = (
    ("96 columns, 2 buffers: race on a_s[0]: TMA load at line",),
    (
        "race on a_s[0]: TMA load at line",
        "acc = warpgroup_mma_wait(1, deps=(acc,))\n"
        "ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, later < steps)",
    ),
    ("deadlock", "acc = warpgroup_mma_wait(0, deps=(acc,))"),
    (
        "the kernel ends, and nothing has waited for the TMA load",
        "acc = warpgroup_mma_wait(0, deps=(acc,))\n"
        "ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, True)",
    ),
)
RIGHT = (
    (
        "acc = warpgroup_mma_wait(0, deps=(acc,))\nmore = later < steps\n"
        "ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, more)",
    ),
    (
        "acc = warpgroup_mma_wait(0, deps=(acc,))\nif later < steps:\n"
        "    ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), later, True)",
    ),
)
