"""# Scales for the other product

`column_codes(x)` quantizes a matrix for a product that sums over its *rows*, as the gradient of a weight does. So its
scales must follow the columns: each puts the column's largest magnitude at 448, the largest of e4m3, and a column of
zeros has the scale 1. `q` holds what the codes stand for: `x` over the scale, rounded to e4m3 (`tl.float8e4nv`), in
float32. The kernel was copied from one for rows: fill in what is still missing.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def column_codes_kernel(x_ptr, q_ptr, scale_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    index = offs_m[:, None] * N + offs_n[None, :]
    x = tl.load(x_ptr + index, mask=mask, other=0.0)
    # <<<
    largest = tl.max(tl.abs(x), axis=0)
    scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))
    tl.store(scale_ptr + offs_n, scale, mask=offs_n < N)
    q = x * tl.div_rn(1.0, scale)[None, :]
    tl.store(q_ptr + index, q.to(tl.float8e4nv).to(tl.float32), mask=mask)
    # >>>


def column_codes(x):
    M, N = x.shape
    q, scale = torch.empty(M, N, device=x.device), torch.empty(N, device=x.device)
    grid = (triton.cdiv(N, 4),)
    column_codes_kernel[grid](x, q, scale, M, N, BLOCK_M=triton.next_power_of_2(M), BLOCK_N=4)
    return q, scale


# %% checks
PAGE = "kernels/fp8/linear.md"
KIND = "fill in"
ORDER = 10
HINTS = (
    "A reduction along axis 0 leaves one number for each column.",
    "A block with a number for each column is spread over the rows by `[None, :]`.",
)
WHY = """The largest magnitude of each column is a maximum over the rows, axis 0. Codes of the rows' scales would be
right for the other product only: here a row's scale can't leave the sum."""


def check(t):
    def want(x):
        largest = x.abs().amax(0)
        scale = torch.where(largest == 0, 1.0, largest / 448)
        return (x * (1 / scale)).to(torch.float8_e4m3fn).float(), scale

    no_nan = ("a NaN", "an infinity", "minus infinity")  # on a GPU the largest of a block passes a NaN by
    for rows, columns in ((4, 4), (3, 6), (t.random.randint(5, 9), t.random.randint(5, 11)), (1, 1), (33, 5), (2, 65)):
        x = t.values(rows, columns).contiguous()
        t.compare(f"{rows} x {columns}", "column_codes", want, x, name="q, scale", exact=True, spare=no_nan)
    x = t.values(4, 6).contiguous()
    x[:, 2] = 0
    t.compare("a column of zeros", "column_codes", want, x, name="q, scale", exact=True, spare=("*",))


WRONG = (
    ("column_codes_kernel stores nothing yet",),
    ("4 x 4: q[", "axis=0)", "axis=1)"),
    ("4 x 4: q[", "x * tl.div_rn(1.0, scale)[None, :]", "x * tl.div_rn(1.0, scale)[:, None]"),
    (
        "a column of zeros: q[",
        "tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))",
        "tl.div_rn(largest, 448.0)",
    ),
)
RIGHT = (
    ("tl.max(tl.abs(x), axis=0)", "tl.maximum(tl.max(x, axis=0), -tl.min(x, axis=0))"),
    ("tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))", "tl.where(largest > 0, tl.div_rn(largest, 448.0), 1.0)"),
)
