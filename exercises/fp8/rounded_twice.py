"""# Rounded twice

`scaled_sums(x, scale, bias)` adds up each row of `x`, scales the sum by the row's scale, adds the row's bias, and
returns float16. Some results are a step off. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_sums_kernel(x_ptr, scale_ptr, bias_ptr, out_ptr, N, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    scaled = tl.sum(x, axis=0) * tl.load(scale_ptr + row)
    # <<<
    tl.store(out_ptr + row, scaled + tl.load(bias_ptr + row))
    # ===
    # scaled = scaled.to(tl.float16)
    # tl.store(out_ptr + row, scaled + tl.load(bias_ptr + row).to(tl.float16))
    # >>>


def scaled_sums(x, scale, bias):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float16, device=x.device)
    scaled_sums_kernel[(M,)](x, scale, bias, out, N, BLOCK_N=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "kernels/fp8/scaled_matmul.md"
KIND = "find the bug"
ORDER = 8
HINTS = (
    "From 2048 to 4096 float16 has the even numbers only. What is 2049 + 1 if each step of the way is a float16?",
    "Everything up to the store can stay in float32.",
)
WHY = """The sum is 2049, which float16 rounds to 2048, and 2048 + 1 is rounded to 2048 again. In float32 it is 2050,
which float16 has. A bias that is rounded first can tip a sum just as well: 1024 + 0.50024 is nearer to 1025, and
1024 + 0.5 becomes 1024. A store rounds by itself, so nothing before it needs to."""


def check(t):
    def want(x, scale, bias):
        return (x.sum(1) * scale + bias).half()

    def of(*rows):
        x = torch.tensor([[row[0], row[1], 1.0] for row in rows], device=device.DEVICE)
        scale, bias = (torch.tensor([row[i] for row in rows], device=device.DEVICE) for i in (2, 3))
        return x, scale, bias

    t.compare("small numbers", "scaled_sums", want, *of((3.0, 4.0, 0.5, 1.0)), exact=True)
    t.compare("a sum of 2049", "scaled_sums", want, *of((1024.0, 1024.0, 1.0, 1.0)), exact=True)
    between = 0.5 + 2.0**-12  # a float32, halfway between two numbers of float16
    t.compare("a bias of 0.50024", "scaled_sums", want, *of((511.0, 512.0, 1.0, between)), exact=True)
    t.compare(
        "below zero", "scaled_sums", want, *of((-1024.0, -1026.0, 1.0, -1.0), (1.0, 1.0, -1025.0, 0.0)), exact=True
    )
    rows = [(float(t.random.randint(500, 900)), 2.0 * t.random.randint(600, 800), 1.0, 1.0) for _ in range(6)]
    t.compare("six rows", "scaled_sums", want, *of((1026.0, 1024.0, 2.0, -1.0), *rows), exact=True)


WRONG = (
    ("a sum of 2049: out[0] is 2048, should be 2050",),
    ("a sum of 2049: out[0] is", "scaled + tl.load(bias_ptr + row)", "scaled.to(tl.float16) + tl.load(bias_ptr + row)"),
    ("a bias of 0.50024: out[0] is 1024, should be 1025", "bias_ptr + row))", "bias_ptr + row).to(tl.float16))"),
    ("small numbers: out[0] is", "scaled + tl.load(bias_ptr + row)", "scaled"),
)
RIGHT = (
    ("tl.store(out_ptr + row, scaled + tl.load(bias_ptr + row))",
     "tl.store(out_ptr + row, (scaled + tl.load(bias_ptr + row)).to(tl.float16))"),
    ("scaled + tl.load(bias_ptr + row)", "tl.load(bias_ptr + row) + scaled"),
)  # fmt: skip
