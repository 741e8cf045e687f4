"""# The mask that forgets K

`product(x, y)` is right in every test of its author, whose matrices have 8, 16 and 32 columns. Yours have 6, cut out
of wider rows, and the result is NaN. Find the bug.

[[figure: layout/masks]]
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
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        # <<<
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        # ===
        # x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < start + BLOCK_K)
        # y_mask = (offs_k[:, None] < start + BLOCK_K) & (offs_n[None, :] < N)
        # >>>
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        y = tl.load(y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn, mask=y_mask, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
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
ORDER = 2
HINTS = (
    "With K = 6 and blocks of 4, which K numbers does the second round have?",
    "A K number that isn't below `K` belongs to no column of `x` and to no row of `y`.",
    "In both masks it has to be `offs_k < K`. Is it enough to mend one of them?",
)
WHY = """One of the masks alone isn't enough: zero times NaN is NaN, and memory past the end may well hold one. Sizes
that are multiples of the block hide this mistake, so test with others."""


def check(t):
    def want(x, y):
        return x @ y

    M, N, K = (t.random.randint(5, 7) for _ in range(3))
    for case, x, y in (
        ("2 x 8 times 8 x 3", t.values(2, 8), t.values(8, 3)),
        ("3 x 6 times 6 x 5, both cut out of wider ones", t.cut(3, 6), t.cut(6, 5)),
        ("x transposed, 5 x 3 times 3 x 1", t.turned(5, 3), t.values(3, 1)),
        ("17 x 5 times 5 x 33", t.values(17, 5), t.values(5, 33)),
        ("1 x 40 times 40 x 1", t.values(1, 40), t.values(40, 1)),
        (f"{M} x {K} times {K} x {N}", t.cut(M, K), t.turned(K, N)),
    ):
        t.compare(case, "product", want, x, y, name="z")


WRONG = (
    ("3 x 6 times 6 x 5, both cut out of wider ones: ",),
    (
        "does a load outside a tensor",
        "x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)",
        "x_mask = offs_m[:, None] < M",
    ),
    (
        "does a load outside a tensor",
        "y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)",
        "y_mask = (offs_k[:, None] < start + BLOCK_K) & (offs_n[None, :] < N)",
    ),
    (
        "3 x 6 times 6 x 5, both cut out of wider ones: z[0, 0] is",
        "range(0, K, BLOCK_K)",
        "range(0, K - BLOCK_K + 1, BLOCK_K)",
    ),
    (
        "2 x 8 times 8 x 3: z[0, 0] is",
        "offs_k[None, :] < K",
        "offs_k[None, :] < K - 1",
        "offs_k[:, None] < K",
        "offs_k[:, None] < K - 1",
    ),
)
RIGHT = (
    ("inside = offs_k < K\nx_mask = (offs_m < M)[:, None] & inside[None, :]\n"
     "y_mask = inside[:, None] & (offs_n < N)[None, :]",),
    ("x_mask = (offs_m[:, None] < M) & (offs_k[None, :] <= K - 1)\n"
     "y_mask = (offs_k[:, None] <= K - 1) & (offs_n[None, :] < N)",),
)  # fmt: skip
