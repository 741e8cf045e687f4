"""# The offset that wraps around

`row_starts(rows, stride)` gives the offset at which each row of a matrix begins. From 2³¹ elements on it is
negative. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def row_starts_kernel(out_ptr, stride):
    # <<<
    row = tl.program_id(0).to(tl.int64)
    # ===
    # row = tl.program_id(0)
    # >>>
    tl.store(out_ptr + row, row * stride)


def row_starts(rows, stride):
    out = torch.empty(rows, dtype=torch.int64, device=device.DEVICE)
    row_starts_kernel[(rows,)](out, stride)
    return out


# %% checks
PAGE = "learn/softmax.py"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "How many bits does a program's number have? And its product with a stride that fits into 32 bits?",
    "Convert before the multiplication: afterwards the product has wrapped around already.",
)
WHY = """A program id is int32, and so is its product with a stride. No small test shows the bug. It is an exhibit of
the [museum of bugs](../../docs/guides/debugging.md#6-the-offset-that-wraps-around)."""


def check(t):
    def want(rows, stride):
        return torch.arange(rows, device=device.DEVICE) * stride

    t.compare("rows of 100", "row_starts", want, 3, 100)
    note = "2**31 doesn't fit into 32 bits."
    if "tl.int64" in t.source:
        note = "The product is converted too late: it was computed with 32 bits. Convert a factor."
    if "stride: tl.int64" in t.source:
        note = (
            "The compiler heeds the annotation of `stride`, Triton's interpreter doesn't: convert the program's number."
        )
    t.compare("rows of 2**30", "row_starts", want, 5, 2**30, note=note)
    rows, stride = t.random.randint(6, 12), t.random.randrange(2**30, 2**31)
    t.compare(f"rows of {stride}", "row_starts", want, rows, stride, note=note)
    t.compare("one row", "row_starts", want, 1, t.random.randint(1, 10**6))
    for rows, stride in ((t.random.randint(40, 70), 2**31 - 1), (9, 0), (300, 3)):
        t.compare(f"{rows} rows of {stride}", "row_starts", want, rows, stride, note=note)


WRONG = (
    ("rows of 2**30: out[2] is -2147483648, should be 2147483648",),
    (
        "The product is converted too late",
        "tl.program_id(0).to(tl.int64)",
        "tl.program_id(0)",
        "row * stride)",
        "(row * stride).to(tl.int64))",
    ),
    (
        "rows of 100: out[1] is 99, should be 100",
        "row * stride",
        "row * (stride - 1)",
    ),
    (
        "rows of 2**30: out[4] is 0, should be 4294967296",
        "tl.program_id(0).to(tl.int64)",
        "tl.program_id(0).to(tl.uint32)",
    ),
    (
        "The compiler heeds the annotation of `stride`, Triton's interpreter doesn't",
        "tl.program_id(0).to(tl.int64)",
        "tl.program_id(0)",
        "out_ptr, stride)",
        "out_ptr, stride: tl.int64)",
    ),
)
RIGHT = (
    (
        "row = tl.program_id(0).to(tl.int64)",
        "row = tl.program_id(0)",
        "row * stride)",
        "row.to(tl.int64) * stride)",
    ),
    ("row = tl.cast(tl.program_id(0), tl.int64)",),
)
