"""# Three vectors, one pass

`add_three(x, y, z)` adds two vectors, writes their sum to memory, reads it again and adds the third. Make it
one kernel that reads each number once. Then it reads 12 bytes for each element instead of 16, and writes 4
instead of 8.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


# <<<
@triton.jit
def add_three_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    z = tl.load(z_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + y + z, mask=mask)


def add_three(x, y, z, BLOCK=64):
    out = torch.empty_like(x)
    add_three_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, z, out, x.numel(), BLOCK=BLOCK)
    return out


# ===
# @triton.jit
# def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
#     y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, x + y, mask=mask)
#
#
# def add_three(x, y, z, BLOCK=64):
#     grid = (triton.cdiv(x.numel(), BLOCK),)
#     part, out = torch.empty_like(x), torch.empty_like(x)
#     add_kernel[grid](x, y, part, x.numel(), BLOCK=BLOCK)
#     add_kernel[grid](part, z, out, x.numel(), BLOCK=BLOCK)
#     return out
# >>>


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "read fewer bytes"
ORDER = 6
HINTS = (
    "The intermediate sum needn't be in memory at all: a program that has loaded `x` and `y` can add `z` at once.",
    "Give the kernel a third input, `z_ptr`, and load it like the other two.",
)
WHY = """The intermediate sum is neither written nor read again: 8 bytes of 24. Bytes are time here, so a third of it
is saved."""


def check(t):
    for n in (1000, *t.sizes(64)):
        run = t.compare(f"n = {n}", "add_three", lambda x, y, z: x + y + z, t.values(n), t.values(n), t.values(n))
        t.traffic(f"n = {n}", run, read=12 * n, written=4 * n)


WRONG = (
    ("n = 1000: 16000 bytes are read, 12000 are enough (an element is 4 bytes)",),
    (
        "add_three launches no kernel",
        "    add_three_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, z, out, x.numel(), BLOCK=BLOCK)\n    return out",
        "    return x + y + z",
    ),
    (
        "n = 1000: out[0] is",
        "x + y + z",
        "x + y",
    ),
    (
        "n = 1000: 16000 bytes are read, 12000 are enough (an element is 4 bytes): z_ptr[0] is loaded 2 times",
        "x + y + z",
        "x + y + tl.load(z_ptr + offsets, mask=mask, other=0.0)",
    ),
    (
        "n = 1000: 8000 bytes are written, 4000 are enough (an element is 4 bytes): out_ptr[0] is stored 2 times",
        "    tl.store(out_ptr + offsets, x + y + z, mask=mask)",
        "    tl.store(out_ptr + offsets, x + y, mask=mask)\n    tl.store(out_ptr + offsets, x + y + z, mask=mask)",
    ),
    (
        "n = 1000: PyTorch computes what the kernel loads as x_ptr. Here the kernel must do all of the work",
        "add_three_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y,",
        "add_three_kernel[(triton.cdiv(x.numel(), BLOCK),)](x + y, torch.zeros_like(y),",
    ),
    (
        "n = 1000: PyTorch computes the result. Here the kernel must do all of the work",
        "x + y + z, mask=mask)",
        "x + y, mask=mask)",
        "return out",
        "return out + z",
    ),
)
RIGHT = (
    (
        "x + y + z",
        "x + (y + z)",
    ),
    (
        "    z = tl.load(z_ptr + offsets, mask=mask, other=0.0)\n    tl.store(out_ptr + offsets, x + y + z, mask=mask)",
        "    y += tl.load(z_ptr + offsets, mask=mask, other=0.0)\n    tl.store(out_ptr + offsets, x + y, mask=mask)",
    ),
)
