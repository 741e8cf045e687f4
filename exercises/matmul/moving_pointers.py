"""# Pointers that move too far

This kernel computes its pointers once and moves them on in each round, as the lesson does. For matrices that lie row
after row it is right. As soon as `x` is a view it is wrong, or reads memory that isn't its own. Find the bug. (There
are two lines to look at.)

[[figure: layout/strides]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, stride_xm, stride_xk, stride_yk, stride_yn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    y_ptrs = y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = offs_k < K - start
        x = tl.load(x_ptrs, mask=(offs_m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(y_ptrs, mask=inside[:, None] & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        # <<<
        x_ptrs += BLOCK_K * stride_xk
        y_ptrs += BLOCK_K * stride_yk
        # ===
        # x_ptrs += BLOCK_K
        # y_ptrs += BLOCK_K * N
        # >>>
    z_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=z_mask)


def product(x, y, BLOCK=4, BLOCK_K=4):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    product_kernel[grid](x, y, z, M, N, K, *x.stride(), *y.stride(), BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return z


# %% checks
PAGE = "kernels/tutorials/matmul_blocked.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "How far apart are two neighbours of `x` along K, if `x` is transposed?",
    "`x_ptrs += BLOCK_K` moves on by that many *elements*. It should move on by that many *columns*.",
    "One column of `x` further is `stride_xk` elements, one row of `y` further `stride_yk`.",
)
WHY = """A pointer moves by elements, a tile by columns or rows; the stride translates. For a contiguous `x` the
column stride is 1, and for a contiguous `y` the row stride is N, so tests with fresh matrices can't notice."""


def check(t):
    def want(x, y):
        return x @ y

    K, N = t.random.randint(9, 11), t.random.randint(2, 6)
    for case, x, y in (
        ("5 x 9 times 9 x 2", t.values(5, 9), t.values(9, 2)),
        ("x transposed, 3 x 6 times 6 x 5", t.turned(3, 6), t.values(6, 5)),
        ("y cut out of wider rows, 2 x 9 times 9 x 3", t.values(2, 9), t.cut(9, 3)),
        ("17 x 5 times 5 x 33", t.values(17, 5), t.values(5, 33)),
        ("1 x 40 times 40 x 1", t.values(1, 40), t.values(40, 1)),
        (f"y transposed, 2 x {K} times {K} x {N}", t.cut(2, K), t.turned(K, N)),
    ):
        t.compare(case, "product", want, x, y, name="z")


WRONG = (
    ("x transposed, 3 x 6 times 6 x 5: ",),
    (
        "y cut out of wider rows, 2 x 9 times 9 x 3: ",
        "y_ptrs += BLOCK_K * stride_yk",
        "y_ptrs += BLOCK_K * N",
    ),
    (
        "5 x 9 times 9 x 2: ",
        "x_ptrs += BLOCK_K * stride_xk",
        "x_ptrs += BLOCK_K * stride_xm",
    ),
    (
        "5 x 9 times 9 x 2: ",
        "x_ptrs += BLOCK_K * stride_xk\n        y_ptrs += BLOCK_K * stride_yk",
        "x_ptrs += start * stride_xk\n        y_ptrs += start * stride_yk",
    ),
)
RIGHT = (
    ("x_ptrs = x_ptrs + BLOCK_K * stride_xk\ny_ptrs = y_ptrs + BLOCK_K * stride_yk",),
    ("offs = start + BLOCK_K + offs_k\n"
     "x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs[None, :] * stride_xk\n"
     "y_ptrs = y_ptr + offs[:, None] * stride_yk + offs_n[None, :] * stride_yn",),
)  # fmt: skip
