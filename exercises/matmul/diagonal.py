"""# The diagonal

Write the kernel of `diagonal(x)`, which copies the diagonal of a square matrix with one block of pointers.
It should work for any strides.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def diagonal_kernel(x_ptr, out_ptr, n, stride_m, stride_k, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    # <<<
    values = tl.load(x_ptr + i * (stride_m + stride_k), mask=i < n, other=0.0)
    tl.store(out_ptr + i, values, mask=i < n)
    # >>>


def diagonal(x):
    n = x.shape[0]
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    diagonal_kernel[(1,)](x, out, n, *x.stride(), BLOCK=triton.next_power_of_2(n))
    return out


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Element (i, k) lies `i * stride_m + k * stride_k` elements after the first. On the diagonal, `k` is `i`.",
    "One block of pointers with one dimension is enough: `x_ptr + i * (stride_m + stride_k)`.",
)
WHY = "One step down and one to the right is one step by the sum of the two strides."


def check(t):
    t.compare("1 x 1", "diagonal", torch.diagonal, t.values(1, 1), exact=True)
    t.compare("5 x 5", "diagonal", torch.diagonal, t.values(5, 5), exact=True)
    t.compare("rows cut out of wider ones", "diagonal", torch.diagonal, t.cut(11, 11), exact=True)
    t.compare("transposed", "diagonal", torch.diagonal, t.turned(9, 9), exact=True)
    t.compare("every second column", "diagonal", torch.diagonal, t.values(6, 12)[:, ::2], exact=True)
    for n in (2, 16, 17, 33, 130):
        t.compare(f"{n} x {n}", "diagonal", torch.diagonal, t.values(n, n), exact=True)
    t.compare("every column five times as far", "diagonal", torch.diagonal, t.values(7, 35)[:, ::5], exact=True)
    n = t.random.randint(6, 16)
    t.compare(f"{n} x {n}, every third row", "diagonal", torch.diagonal, t.values(3 * n, n)[::3], exact=True)


WRONG = (
    ("stores nothing yet",),
    (
        "rows cut out of wider ones: program 0 of diagonal_kernel does a load outside a tensor",
        "stride_m + stride_k",
        "n + 1",
    ),
    (
        "transposed: out[1] is",
        "stride_m + stride_k",
        "stride_m + 1",
    ),
    (
        "5 x 5: program 0 of diagonal_kernel does a load outside a tensor",
        "mask=i < n, other=0.0",
        "mask=i <= n, other=0.0",
    ),
)
RIGHT = (
    (
        "i * (stride_m + stride_k)",
        "i * stride_m + i * stride_k",
    ),
    (
        "tile = x_ptr + i[:, None] * stride_m + i[None, :] * stride_k\n"
        "on = (i[:, None] == i[None, :]) & (i[:, None] < n)\n"
        "tl.store(out_ptr + i, tl.sum(tl.load(tile, mask=on, other=0.0), axis=1), mask=i < n)",
    ),
)
