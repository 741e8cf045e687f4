"""# Before it is stored

`linear_relu(x, w, bias)` is `torch.relu(x @ w + bias)`, with one number of `bias` for each column. The loop is done,
and `acc` holds the sums. Write the *epilogue*: what happens to a tile of results while it is still in registers.
Where does the bias of this tile lie, and which shape does it have beside `acc`?
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, bias_ptr, z_ptr, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        w_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        w = tl.load(w_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn, mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    # <<<
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    acc = tl.maximum(acc + bias[None, :], 0.0)
    # >>>
    z_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=z_mask)


def linear_relu(x, w, bias, BLOCK=4, BLOCK_K=4):
    (M, K), N = x.shape, w.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    linear_relu_kernel[grid](x, w, bias, z, M, N, K, *x.stride(), *w.stride(), BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return z


# %% checks
PAGE = "kernels/classics/matmul.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "The columns of this tile are `offs_n`. Load the numbers of `bias` that belong to them, with a mask.",
    "`bias[None, :]` lays them down as a row, so that each is added to every row of its column.",
    "`tl.maximum(…, 0.0)` takes the larger of two numbers, lane by lane.",
)
WHY = """The bias costs N numbers a row of tiles, the ReLU nothing: `acc` is in registers already. As kernels of their
own they would read and write the whole result again."""


def check(t):
    def want(x, w, bias):
        return (x @ w + bias).relu()

    M, N, K = t.random.randint(3, 6), t.random.randint(5, 7), t.random.randint(2, 6)
    for case, x, w, bias in (
        ("1 x 2 times 2 x 3", t.values(1, 2), t.values(2, 3), t.values(3)),
        ("large negative bias, 2 x 3 times 3 x 6", t.values(2, 3), t.values(3, 6), t.positive(6, scale=99).neg()),
        (f"{M} x {K} times {K} x {N}", t.turned(M, K), t.turned(K, N), t.values(N)),
        ("17 x 5 times 5 x 33", t.values(17, 5), t.values(5, 33), t.values(33)),
        ("4 x 40 times 40 x 5", t.values(4, 40), t.values(40, 5), t.values(5)),
        ("a bias of both signs", t.values(3, 1), t.values(1, 9), t.values(9, scale=30)),
    ):
        t.compare(
            case, "linear_relu", want, x, w, bias, name="z", spare=("a NaN",)
        )  # the larger of NaN and 0 is 0 on a GPU


WRONG = (
    ("1 x 2 times 2 x 3: z[0, 0] is",),
    (
        "1 x 2 times 2 x 3: z[0, 1] is",
        "acc = tl.maximum(acc + bias[None, :], 0.0)",
        "acc = tl.maximum(acc, 0.0) + bias[None, :]",
    ),
    (
        ": z[",
        "acc + bias[None, :]",
        "acc + bias[:, None]",
    ),
    (
        "1 x 2 times 2 x 3: program 0 of linear_relu_kernel does a load outside a tensor",
        "tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)",
        "tl.load(bias_ptr + offs_n)",
    ),
    (
        ": z[",
        "bias_ptr + offs_n, mask=offs_n < N",
        "bias_ptr + tl.arange(0, BLOCK), mask=offs_n < N",
    ),
    (
        "PyTorch computes the result",
        "    return z",
        "    return z + 0 * bias",
    ),
)
RIGHT = (
    ("bias = tl.load(bias_ptr + offs_n[None, :], mask=offs_n[None, :] < N, other=0.0)\n"
     "acc += bias\nacc = tl.where(acc > 0, acc, 0.0)",),
    (
        "tl.maximum(acc + bias[None, :], 0.0)",
        "tl.maximum(0.0, bias[None, :] + acc)",
    ),
)  # fmt: skip
