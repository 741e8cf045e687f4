"""# The loop along K

Write the loop of a matrix product. `acc` is the program's tile of sums; `offs_m` and `offs_n` say which rows of `x`
and which columns of `y` it belongs to. Take a tile of `x` and a tile of `y` in each round, and multiply them with
`tl.dot(…, input_precision="ieee")`. No size needs to be a multiple of a block.

[[figure: products/k_loop]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    # <<<
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        y = tl.load(y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn, mask=y_mask, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    # >>>
    z_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn, acc, mask=z_mask)


def product(x, y, BLOCK=4, BLOCK_K=4):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    product_kernel[grid](x, y, z, M, N, K, *x.stride(), *y.stride(), *z.stride(), BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return z


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "fill in"
ORDER = 5
HINTS = (
    "`for start in range(0, K, BLOCK_K):` walks along K. Which K numbers does a round have?",
    "A tile of `x` has rows `offs_m` and columns `offs_k`; a tile of `y` has rows `offs_k` and columns `offs_n`. Each "
    "load needs a mask for both of its dimensions.",
    '`acc = tl.dot(x, y, acc, input_precision="ieee")` adds to what is in `acc`. Without the third argument the sum of '
    "the rounds before is lost.",
)
WHY = """Lanes past the end of K read zero in both tiles, so they add nothing. Lanes past the end of M or N would only
spoil results that are never stored, but they would read memory that isn't yours."""


def check(t):
    def want(x, y):
        return x @ y

    M, N, K = t.random.randint(5, 7), t.random.randint(5, 7), t.random.randint(9, 11)
    for case, x, y in (
        ("2 x 1 times 1 x 3", t.values(2, 1), t.values(1, 3)),
        ("4 x 8 times 8 x 4", t.values(4, 8), t.values(8, 4)),
        ("3 x 6 times 6 x 5, both cut out of wider ones", t.cut(3, 6), t.cut(6, 5)),
        ("x transposed, 5 x 7 times 7 x 2", t.turned(5, 7), t.values(7, 2)),
        ("17 x 5 times 5 x 33", t.values(17, 5), t.values(5, 33)),
        ("1 x 40 times 40 x 1", t.values(1, 40), t.values(40, 1)),
        (f"{M} x {K} times {K} x {N}, y transposed", t.values(M, K), t.turned(K, N)),
        ("float16, 2 x 9 times 9 x 2", t.values(2, 9, dtype=torch.float16), t.values(9, 2, dtype=torch.float16)),
    ):
        t.compare(case, "product", want, x, y, name="z")


WRONG = (
    ("2 x 1 times 1 x 3: z[0, 0] is 0, should be",),
    (
        "4 x 8 times 8 x 4: z[0, 0] is",
        "acc = tl.dot(x, y, acc, input_precision",
        "acc = tl.dot(x, y, input_precision",
    ),
    (
        "4 x 8 times 8 x 4: z[0, 0] is",
        "offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)",
        "offs_k = tl.arange(0, BLOCK_K).to(tl.int64)",
    ),
    (
        "outside a tensor",
        "x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)",
        "x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < start + BLOCK_K)",
    ),
    (
        "3 x 6 times 6 x 5, both cut out of wider ones: z[0, 0] is",
        "range(0, K, BLOCK_K)",
        "range(0, K - K % BLOCK_K if K > BLOCK_K else K, BLOCK_K)",
    ),
    (
        "2 x 1 times 1 x 3: z[0, 0] is",
        "x_mask, other=0.0",
        "x_mask, other=1.0",
        "y_mask, other=0.0",
        "y_mask, other=1.0",
    ),
    (
        "3 x 6 times 6 x 5, both cut out of wider ones: ",
        "offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk",
        "offs_m[:, None] * K + offs_k[None, :]",
    ),
    (
        "PyTorch computes the result",
        "    return z",
        "    return x @ y",
    ),
    ('input_precision="ieee"', ', input_precision="ieee"', ""),
)
RIGHT = (
    (
        "for step in range(0, tl.cdiv(K, BLOCK_K)):\n"
        "    offs_k = step * BLOCK_K + tl.arange(0, BLOCK_K)\n"
        "    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk\n"
        "    y_ptrs = y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn\n"
        "    x = tl.load(x_ptrs, mask=(offs_m < M)[:, None] & (offs_k < K)[None, :], other=0.0)\n"
        "    y = tl.load(y_ptrs, mask=(offs_k < K)[:, None] & (offs_n < N)[None, :], other=0.0)\n"
        '    acc += tl.dot(x, y, input_precision="ieee")',
    ),
    (
        "range(0, K, BLOCK_K)",
        "range(0, tl.cdiv(K, BLOCK_K) * BLOCK_K, BLOCK_K)",
    ),
)
