"""# The view taken for a copy

`row_sums(x)` adds up each row of a matrix. For fresh tensors it is right. For a transposed one it adds up the wrong
elements. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_m + cols * stride_n, mask=cols < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def row_sums(x):
    M, N = x.shape
    out = torch.empty(M, device=x.device)
    # <<<
    strides = x.stride()
    # ===
    # strides = (N, 1)
    # >>>
    row_sum_kernel[(M,)](x, out, N, *strides, BLOCK=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Which strides does `x.T` have, for a matrix of 3 rows and 4 columns?",
    "The kernel multiplies by the strides that it is given. Which ones is it given?",
)
WHY = """Test with `x.T`, `x[:, ::2]` and `x.expand(...)`, not only with fresh tensors. It is an exhibit of the
[museum of bugs](../../docs/guides/debugging.md#5-the-view-taken-for-a-copy)."""


def check(t):
    def want(x):
        return x.sum(1)

    M, N = t.random.randint(3, 6), t.random.randint(7, 12)
    for case, x in (
        ("3 x 4", t.values(3, 4)),
        ("transposed, 3 x 4", t.turned(3, 4)),
        ("every second column", t.values(2, 10)[:, ::2]),
        ("one row shown 3 times", t.values(1, 5).expand(3, 5)),
        ("20 x 65", t.values(20, 65)),
        ("1 x 1", t.values(1, 1)),
        ("2 x 300", t.values(2, 300)),
        ("rows cut out of wider ones", t.cut(M, N)),
        ("every third row of a transposed one", t.turned(3 * M, N)[::3]),
    ):
        t.compare(case, "row_sums", want, x, host=("copies",))


WRONG = (
    ("transposed, 3 x 4: out[0] is",),
    (
        "3 x 4: ",
        "strides = (x.stride(1), x.stride(0))",
    ),
    (
        "every second column: ",
        "strides = (x.stride(0), 1) if x.stride(1) < x.stride(0) else (1, x.stride(1))",
    ),
    (
        "one row shown 3 times: ",
        "strides = (max(x.stride(0), 1), x.stride(1))",
    ),
)
RIGHT = (
    ("strides = (x.stride(0), x.stride(1))",),
    ("x = x.contiguous()\nstrides = (N, 1)",),
)
