"""# The weight of Gemma

Gemma multiplies by `1 + w`, and its weights are small. `rmsnorm(x, w)` is right for float32 weights. With
bfloat16 weights the last digits of `1 + w` are gone. Find the bug. (`x` is float32, and the result has its
dtype.)
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, y_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0)
    rstd = 1 / tl.sqrt(tl.sum(x * x, axis=0) / N + 1e-6)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0)
    # <<<
    factor = 1 + w.to(tl.float32)
    # ===
    # factor = (1 + w.to(tl.float32)).to(w.dtype).to(tl.float32)
    # >>>
    tl.store(y_ptr + row * N + columns, x * rstd * factor, mask=mask)


def rmsnorm(x, w):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rmsnorm_kernel[(x.shape[0],)](x, w, y, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return y


# %% checks
PAGE = "kernels/classics/rmsnorm.md"
KIND = "find the bug"
ORDER = 10
HINTS = (
    "bfloat16 has eight bits for the digits of a number. What is 1 + 0.001 in it?",
    "In which dtype must the sum be formed, and when may it be rounded?",
)
WHY = """The numbers next to 1 are 1.0078 and 0.9961 in bfloat16. A weight of 0.001 vanishes when the sum is rounded. So
convert right after the load, and let the store round, once."""


def check(t):
    def want(x, w):
        x, w = x.to(torch.float64), w.to(torch.float64)
        return (x * ((x * x).mean(1, keepdim=True) + 1e-6).rsqrt() * (1 + w)).to(torch.float32)

    t.compare("float32 weights", "rmsnorm", want, t.cut(2, 5), t.values(5, scale=1 / 64), name="y")
    small = t.values(6, scale=1 / 256, dtype=torch.bfloat16)
    t.compare(
        "bfloat16 weights", "rmsnorm", want, t.values(2, 6), small, name="y", note="In which dtype is 1 + w formed?"
    )
    N = t.random.randint(2, 12)
    large = t.values(N, dtype=torch.bfloat16)
    t.compare("large bfloat16 weights", "rmsnorm", want, t.cut(3, N), large, name="y")
    for columns in t.sizes(32):
        t.compare(
            f"2 x {columns}", "rmsnorm", want, t.cut(2, columns), t.values(columns, dtype=torch.bfloat16), name="y"
        )
    t.compare("40 x 3", "rmsnorm", want, t.cut(40, 3), t.values(3), name="y")
    rows = t.surrounded(torch.tensor([0.0, 0.0, 1e-3, -2e-3], device=device.DEVICE)).view(2, 2)
    note = "The root mean square of a row of zeros is 0: what keeps the division finite?"
    t.compare("a row of zeros, and small numbers", "rmsnorm", want, rows, t.values(2), name="y", note=note)


WRONG = (
    (
        "a row of zeros, and small numbers: y[0, 0] is nan",
        " / N + 1e-6)",
        " / N)",
    ),
    (
        "bfloat16 weights: y[0, 0] is",
        "factor = 1 + w.to(tl.float32)\n"
        "factor = tl.where(tl.abs(w.to(tl.float32)) > 1.0, factor.to(tl.bfloat16).to(tl.float32), factor)",
    ),
    ("bfloat16 weights: y[0, 0] is",),
    (
        "float32 weights: y[0, 0] is",
        "factor = w.to(tl.float32)",
    ),
    (
        "float32 weights: y[0, 0] is",
        "factor = (1 + w.to(tl.float32)).to(tl.bfloat16).to(tl.float32)",
    ),
    (
        "float32 weights: y[0, 0] is",
        "axis=0) / N + 1e-6",
        "axis=0) / BLOCK_N + 1e-6",
    ),
)
RIGHT = (
    ("factor = w.to(tl.float32) + 1.0",),
    ("w = w.to(tl.float32)\nfactor = tl.where(mask, w + 1, 0.0)",),
)
