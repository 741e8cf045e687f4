"""# Scales past the end

`row_scales(x)` computes a scale for each row, four rows a program. With five rows it stores eight scales: three of them
behind the end, in somebody else's memory. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def row_scales_kernel(x_ptr, scale_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x_ptrs = x_ptr + offs_m[:, None] * N + offs_n[None, :]
    x = tl.load(x_ptrs, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :], other=0.0)
    largest = tl.max(tl.abs(x), axis=1)
    scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))
    # <<<
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    # ===
    # tl.store(scale_ptr + offs_m, scale, mask=tl.arange(0, BLOCK_M) < M)
    # >>>


def row_scales(x):
    M, N = x.shape
    scale = torch.empty(M, device=x.device)
    row_scales_kernel[(triton.cdiv(M, 4),)](x, scale, M, N, BLOCK_M=4, BLOCK_N=triton.next_power_of_2(N))
    return scale


# %% checks
PAGE = "kernels/fp8/quantize.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "In the second program, which rows are rows 0 to 3 of its tile?",
    "The mask must say whether a row of the *matrix* exists.",
)
WHY = """A mask is about the row in the matrix, `offs_m`, and not about the row in the tile, which is always one of the
first four. The mistake shows only where the last tile isn't full."""


def check(t):
    def want(x):
        largest = x.abs().amax(1)
        return torch.where(largest == 0, 1.0, largest / 448)

    no_nan = ("a NaN",)  # on a GPU the largest of a block passes it by
    for rows, columns in (
        (4, 3),
        (5, 3),
        (3, 5),
        (1, 1),
        (t.random.randint(6, 11), t.random.randint(2, 9)),
        (2, 65),
        *((rows, 2) for rows in t.sizes(4)[:-1]),
    ):
        t.compare(f"{rows} x {columns}", "row_scales", want, t.values(rows, columns).contiguous(), spare=no_nan)
    x = t.values(6, 4).contiguous()
    x[4] = 0
    t.compare("6 x 4, a row of zeros", "row_scales", want, x, spare=no_nan)


WRONG = (
    ("5 x 3: program 1 of row_scales_kernel does a store outside a tensor: element 5 of scale_ptr",),
    ("does a store outside", "mask=offs_m < M", "mask=offs_m < M + 1"),
    ("4 x 3: no program of row_scales_kernel writes scale_ptr[3]", "mask=offs_m < M", "mask=offs_m < M - 1"),
    ("5 x 3: no program of row_scales_kernel writes scale_ptr[4]", "mask=offs_m < M", "mask=offs_m < BLOCK_M"),
)
RIGHT = (
    ("mask=offs_m < M", "mask=tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M) < M"),
    ("mask=offs_m < M", "mask=tl.arange(0, BLOCK_M) < M - tl.program_id(0) * BLOCK_M"),
)
