"""# Add and normalise

`add_rmsnorm(x, residual)` returns `s = x + residual` and `y`, in which each row of `s` is divided by its root mean
square. One kernel writes `s`, and a second one reads it again. Make it one kernel, which reads 8 bytes for each float32
element and writes 8.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


# <<<
@triton.jit
def add_rmsnorm_kernel(x_ptr, residual_ptr, y_ptr, s_ptr, N, BLOCK_N: tl.constexpr):
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    offsets = tl.program_id(0).to(tl.int64) * N + columns
    s = tl.load(x_ptr + offsets, mask=mask, other=0.0) + tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    tl.store(s_ptr + offsets, s, mask=mask)
    rstd = 1 / tl.sqrt(tl.sum(s * s, axis=0) / N + 1e-6)
    tl.store(y_ptr + offsets, s * rstd, mask=mask)


def add_rmsnorm(x, residual):
    M, N = x.shape
    y, s = torch.empty_like(x), torch.empty_like(x)
    add_rmsnorm_kernel[(M,)](x, residual, y, s, N, BLOCK_N=triton.next_power_of_2(N))
    return y, s


# ===
# @triton.jit
# def add_kernel(x_ptr, residual_ptr, s_ptr, N, BLOCK_N: tl.constexpr):
#     columns = tl.arange(0, BLOCK_N)
#     mask = columns < N
#     offsets = tl.program_id(0).to(tl.int64) * N + columns
#     s = tl.load(x_ptr + offsets, mask=mask, other=0.0) + tl.load(residual_ptr + offsets, mask=mask, other=0.0)
#     tl.store(s_ptr + offsets, s, mask=mask)
#
#
# @triton.jit
# def rmsnorm_kernel(s_ptr, y_ptr, N, BLOCK_N: tl.constexpr):
#     columns = tl.arange(0, BLOCK_N)
#     mask = columns < N
#     offsets = tl.program_id(0).to(tl.int64) * N + columns
#     s = tl.load(s_ptr + offsets, mask=mask, other=0.0)
#     rstd = 1 / tl.sqrt(tl.sum(s * s, axis=0) / N + 1e-6)
#     tl.store(y_ptr + offsets, s * rstd, mask=mask)
#
#
# def add_rmsnorm(x, residual):
#     M, N = x.shape
#     y, s = torch.empty_like(x), torch.empty_like(x)
#     add_kernel[(M,)](x, residual, s, N, BLOCK_N=triton.next_power_of_2(N))
#     rmsnorm_kernel[(M,)](s, y, N, BLOCK_N=triton.next_power_of_2(N))
#     return y, s
# >>>


# %% checks
PAGE = "kernels/fast/rmsnorm.md"
KIND = "read fewer bytes"
ORDER = 5
HINTS = (
    "The program that has computed a row of `s` has it in registers. It can normalise the row at once.",
    "One kernel with two inputs and two outputs: store `s`, then reduce it, then store `y`.",
)
WHY = """`s` is still written, because the residual stream needs it, but it isn't read again: 16 bytes for each
element instead of 20."""


def check(t):
    def want(x, residual):
        s = x + residual
        return s * ((s * s).mean(1, keepdim=True) + 1e-6).rsqrt(), s

    for M, N in ((1, 1), (2, 5), (3, t.random.randint(6, 12)), (40, 3), *((2, columns) for columns in t.sizes(32))):
        case, n = f"{M} x {N}", M * N
        run = t.compare(case, "add_rmsnorm", want, t.values(M, N), t.values(M, N), name="y, s")
        t.traffic(case, run, read=8 * n, written=8 * n)
    x = t.values(2, 3)
    note = "The root mean square of a row of zeros is 0: what keeps the division finite?"
    t.compare("rows that cancel", "add_rmsnorm", want, x, t.surrounded(-x.flatten()).view(2, 3), name="y, s", note=note)
    t.compare("small rows", "add_rmsnorm", want, t.values(2, 3, scale=1e-3), t.values(2, 3, scale=1e-3), name="y, s")


WRONG = (
    (
        "y",
        " / N + 1e-6)",
        " / N)",
    ),
    ("1 x 1: 12 bytes are read, 8 are enough",),
    (
        "1 x 1: s[0, 0] was never written",
        "    tl.store(s_ptr + offsets, s, mask=mask)\n",
        "",
    ),
    (
        "1 x 1: 12 bytes are read, 8 are enough",
        "    rstd =",
        "    s = tl.load(s_ptr + offsets, mask=mask, other=0.0)\n    rstd =",
    ),
    (
        "2 x 5: y[0, 0] is",
        "axis=0) / N",
        "axis=0) / BLOCK_N",
    ),
    (
        "1 x 1: y[0, 0] is",
        "return y, s",
        "return s, y",
    ),
    (
        "1 x 1: PyTorch computes what the kernel loads as x_ptr. Here the kernel must do all of the work",
        " + tl.load(residual_ptr + offsets, mask=mask, other=0.0)\n    tl.store(s_ptr + offsets, s, mask=mask)\n",
        "\n",
        "y, s = torch.empty_like(x), torch.empty_like(x)",
        "y, s = torch.empty_like(x), x + residual",
        "(x, residual, y, s, N",
        "(s, residual, y, s, N",
    ),
    ("tiny numbers in x", "s * rstd", "tl.where(tl.abs(s) < 1e-20, 0.0, s * rstd)"),
)
RIGHT = (
    (
        "s * rstd",
        "rstd * s",
    ),
    (
        "    tl.store(s_ptr + offsets, s, mask=mask)\n",
        "",
        "    tl.store(y_ptr + offsets, s * rstd, mask=mask)",
        "    tl.store(y_ptr + offsets, s * rstd, mask=mask)\n    tl.store(s_ptr + offsets, s, mask=mask)",
    ),
)
