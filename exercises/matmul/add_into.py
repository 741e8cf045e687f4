"""# A product that is added

Residual connections need `c + scale * (x @ y)`. Fuse it: `add_product(c, x, y, scale)` returns the sum, and `c` stays
as it is. The kernel has the sums of its tile in `acc`. What does it have to load, and with which mask?
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def add_product_kernel(
    c_ptr, x_ptr, y_ptr, z_ptr, scale, M, N, K, stride_cm, stride_cn, stride_xm, stride_xk, stride_yk, stride_yn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        y = tl.load(y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn, mask=y_mask, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    # <<<
    c = tl.load(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, mask=mask, other=0.0)
    acc = c.to(tl.float32) + scale * acc
    # >>>
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


def add_product(c, x, y, scale, BLOCK=4, BLOCK_K=4):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    strides = (*c.stride(), *x.stride(), *y.stride())
    add_product_kernel[grid](c, x, y, z, scale, M, N, K, *strides, BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return z


# %% checks
PAGE = "kernels/classics/matmul.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The tile of `c` lies where the tile of the result does, but `c` has strides of its own.",
    "Its mask is the one of the store, which stands there already.",
    "Multiply and add in float32: convert `c`, and let the store round once.",
)
WHY = """The sum is formed in float32 and rounded once, by the store. Written as two operations of PyTorch, the
product is rounded before it is added, and the result makes two more passes over memory."""


def check(t):
    def want(c, x, y, scale):
        return c + scale * (x @ y)

    M, N, K = t.random.randint(3, 7), t.random.randint(5, 7), t.random.randint(2, 6)
    scale = t.random.uniform(0.5, 2)
    for case, c, x, y, by in (
        ("1 x 2 times 2 x 3", t.values(1, 3), t.values(1, 2), t.values(2, 3), 2.0),
        ("c transposed, 2 x 3 times 3 x 6", t.turned(2, 6), t.values(2, 3), t.values(3, 6), 1.0),
        ("c is one row, shown 5 times", t.values(1, 4).expand(5, 4), t.values(5, 2), t.values(2, 4), 0.5),
        ("0 times", t.values(2, 3), t.values(2, 3), t.values(3, 3), 0.0),
        ("-1e4 times", t.values(2, 3), t.values(2, 3), t.values(3, 3), -1e4),
        ("17 x 5 times 5 x 33", t.values(17, 33), t.values(17, 5), t.values(5, 33), -1.5),
        ("4 x 40 times 40 x 5", t.values(4, 5), t.values(4, 40), t.values(40, 5), 0.25),
        (f"{M} x {K} times {K} x {N}", t.cut(M, N), t.turned(M, K), t.turned(K, N), scale),
    ):
        t.compare(case, "add_product", want, c, x, y, by, name="z")


WRONG = (
    ("1 x 2 times 2 x 3: z[0, 0] is",),
    (
        "1 x 2 times 2 x 3: z[0, 0] is",
        "c.to(tl.float32) + scale * acc",
        "scale * (c.to(tl.float32) + acc)",
    ),
    (
        "c transposed, 2 x 3 times 3 x 6: ",
        "c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn",
        "c_ptr + offs_m[:, None] * N + offs_n[None, :]",
    ),
    (
        "1 x 2 times 2 x 3: program 0 of add_product_kernel does a load outside a tensor",
        "stride_cn, mask=mask, other=0.0",
        "stride_cn",
    ),
    (
        "add_product changes its argument 1",
        "tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)",
        "tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, acc, mask=mask)\n"
        "    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)",
    ),
    (
        "PyTorch computes the result",
        "acc = c.to(tl.float32) + scale * acc",
        "acc = scale * acc",
        "    return z",
        "    return c + z",
    ),
)
RIGHT = (
    (
        "acc = c.to(tl.float32) + scale * acc",
        "acc = acc * scale + c.to(tl.float32)",
    ),
    ("c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn\n"
     "acc *= scale\nacc += tl.load(c_ptrs, mask=mask, other=0.0)",),
)  # fmt: skip
