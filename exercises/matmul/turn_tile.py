"""# A tile, turned

Write the kernel of `turned(x)`, which returns the transposed matrix: row 0 becomes column 0. Program (i, j) takes one
tile of `x`. Where do its lanes go? Nothing is multiplied here: a load and a store of two dimensions, each with its
own strides and its own mask.

[[figure: layout/strides]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def turned_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # <<<
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask, other=0.0)
    # Element (m, n) of x is element (n, m) of the result: the column number counts its rows.
    tl.store(out_ptr + offs_n[None, :] * M + offs_m[:, None], x, mask=mask)
    # >>>


def turned(x, BLOCK=4):
    M, N = x.shape
    out = torch.empty(N, M, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    turned_kernel[grid](x, out, M, N, *x.stride(), BLOCK=BLOCK)
    return out


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "The load is the one of the chapter. Lane (m, n) of the tile then holds element (m, n) of `x`.",
    "Lane (m, n) has to go to row n and column m of the result: `offs_n` is multiplied by M, the length of its rows.",
    "Both addresses have the shape of the tile, so one mask does for both: `(offs_m[:, None] < M) & "
    "(offs_n[None, :] < N)`.",
)
WHY = """A lane stays where it is: only its two addresses differ. In the result, the row numbers of `x` count columns,
and its column numbers count rows, which are M long. (Compiled for a GPU, a larger tile changes hands in shared memory
in between, so that load and store are both coalesced.)"""


def check(t):
    def want(x):
        return x.t().contiguous()

    M, N = t.random.randint(5, 9), t.random.randint(2, 4)
    for case, x in (
        ("1 x 1", t.values(1, 1)),
        ("2 x 7", t.values(2, 7)),
        ("rows cut out of wider ones, 5 x 3", t.cut(5, 3)),
        ("transposed, 3 x 5", t.turned(3, 5)),
        ("4 x 4", t.values(4, 4)),
        ("33 x 17", t.values(33, 17)),
        ("1 x 70", t.values(1, 70)),
        ("65 x 1", t.values(65, 1)),
        (f"{M} x {N}, every second column", t.values(M, 2 * N)[:, ::2]),
    ):
        run = t.compare(case, "turned", want, x, exact=True)
        t.grid(case, run, tuple(-(-size // 4) for size in x.shape))


WRONG = (
    ("1 x 1: turned_kernel stores nothing yet",),
    (
        "2 x 7: ",
        "out_ptr + offs_n[None, :] * M + offs_m[:, None]",
        "out_ptr + offs_m[:, None] * M + offs_n[None, :]",
    ),
    (
        "outside a tensor",
        "(offs_m[:, None] < M) & (offs_n[None, :] < N)",
        "(offs_m[:, None] < M) & (offs_n[None, :] <= N)",
    ),
    (
        "transposed, 3 x 5: ",
        "offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask",
        "offs_m[:, None] * stride_xm + offs_n[None, :], mask",
    ),
    (
        "1 x 1: PyTorch computes elements of the result",
        "    return out",
        "    return x.t().contiguous()",
    ),
)
RIGHT = (
    (
        "tl.store(out_ptr + offs_n[None, :] * M + offs_m[:, None], x, mask=mask)",
        "tl.store(out_ptr + offs_m[:, None] + offs_n[None, :] * M, x, mask=mask)",
    ),
    (
        "mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)",
        "mask = (offs_n[None, :] < N) & (offs_m < M)[:, None]",
    ),
)
