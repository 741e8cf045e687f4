"""# The sum that stops growing

`total(x)` adds up a vector of float16 numbers. At 2048 the sum stops growing. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # <<<
    acc = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
        acc += tl.sum(x, axis=0)
    # ===
    # acc = tl.zeros((1,), dtype=tl.float16)
    # for start in range(0, n, BLOCK):
    #     offsets = start + tl.arange(0, BLOCK)
    #     x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    #     acc += tl.sum(x, axis=0)
    # >>>
    tl.store(out_ptr + tl.arange(0, 1), acc)


def total(x):
    out = torch.empty(1, dtype=x.dtype, device=x.device)
    total_kernel[(1,)](x, out, len(x), BLOCK=4)
    return out


# %% checks
PAGE = "guides/debugging.md"
KIND = "find the bug"
ORDER = 8
HINTS = (
    "float16 has eleven bits for the digits of a number. Which numbers lie next to 2048?",
    "2049 lies halfway between two of them, and is rounded back to 2048. In which dtype should the sum be kept?",
    "Change two places: the zeros that `acc` begins with, and `x`, which `tl.sum` adds up in its own dtype.",
)
WHY = """Convert before `tl.sum`, accumulate in float32, round once, at the end: here by the store. It is an exhibit of
the [museum of bugs](../../docs/guides/debugging.md#8-the-sum-that-stops-growing)."""


def check(t):
    def want(x):
        return x.sum().view(1)

    def halves(numbers):
        return t.surrounded(torch.tensor(numbers).to(torch.float16).to(device.DEVICE))

    t.compare("2048 and many quarters, float16", "total", want, halves([2048.0, 0, 0, 0, *[0.25] * 83]))
    block = [2048.0, 1.0, 1.0, 1.0]
    t.random.shuffle(block)
    note = "2051 lies between two numbers of float16: in which dtype does `tl.sum` add up a block?"
    t.compare("2048, 1, 1, 1 and -2048, float16", "total", want, halves([*block, -2048.0]), note=note)
    for n in (10, *t.sizes(4, many=100)):
        t.compare(f"{n} numbers, float32", "total", want, t.values(n), spare=("equal numbers",) if n > 40 else ())
    t.compare("9 numbers, float16", "total", want, t.values(9, dtype=torch.float16))


WRONG = (
    (
        "2048, 1, 1, 1 and -2048, float16: out[0] is",
        "other=0.0).to(tl.float32)",
        "other=0.0)",
    ),
    (
        "loop-carried variable acc has initial type fp16 but is re-assigned to fp32 in loop",
        "acc = tl.zeros((1,), dtype=tl.float32)",
        "acc = tl.zeros((1,), dtype=tl.float16)",
    ),
    ("many quarters, float16: out[0] is 2048, should be 2068",),
    (
        "float16: out has dtype torch.float32, should have torch.float16",
        "out = torch.empty(1, dtype=x.dtype, device=x.device)",
        "out = torch.empty(1, device=x.device)",
    ),
    (
        "2048, 1, 1, 1 and -2048, float16: out[0] is",
        "mask=offsets < n, other=0.0",
        "mask=offsets < n, other=1.0",
    ),
    (
        "many quarters, float16: out[0] is",
        "acc += tl.sum(x, axis=0)",
        "acc = tl.sum(x, axis=0) + acc * 0",
    ),
    ("NaN in x", "tl.sum(x", "tl.sum(tl.where(x == x, x, 0.0)"),
)
RIGHT = (
    (
        "acc = tl.zeros((1,), dtype=tl.float32)",
        "acc = 0.0 + tl.zeros((1,), dtype=tl.float32)",
    ),
    (
        "other=0.0).to(tl.float32)",
        "other=0.0)",
        "acc += tl.sum(x, axis=0)",
        "acc += tl.sum(x.to(tl.float32), axis=0)",
    ),
)
