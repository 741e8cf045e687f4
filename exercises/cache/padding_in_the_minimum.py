"""# Padding in the minimum

`steps(x)` returns the step and the lowest value of each row of x, (M, 2), with which it is going to be quantized to
four bits. The step is a fifteenth of the range from the lowest number to the highest. It has been tested with random
normal numbers, and was right. In use, where rows lie far from 0, codes come out as 14 and 15 only. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def steps_kernel(x_ptr, out_ptr, N, BLOCK_N: tl.constexpr):
    row, n = tl.program_id(0), tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)
    # <<<
    lowest = tl.min(tl.where(n < N, x, float("inf")), axis=0)
    highest = tl.max(tl.where(n < N, x, -float("inf")), axis=0)
    # ===
    # lowest = tl.min(x, axis=0)
    # highest = tl.max(x, axis=0)
    # >>>
    tl.store(out_ptr + row * 2, (highest - lowest) / 15.0)
    tl.store(out_ptr + row * 2 + 1, lowest)


def steps(x):
    M, N = x.shape
    out = torch.empty(M, 2, dtype=torch.float32, device=device.DEVICE)
    steps_kernel[(M,)](x, out, N, BLOCK_N=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "kernels/attention/quantized_cache.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "A row of 96 numbers is loaded into a block of 128. What do the lanes behind the row hold?",
    "In a row of positive numbers 0 would be the lowest. What is never lower than anything, what never higher?",
)
WHY = """Rows of 64 and 128 numbers have no padding, and rows that lie on both sides of 0 don't show it. So the tests
were green, and a model with heads of 96 lost three of its four bits. Test with data that is shifted."""


def check(t):
    def want(x):
        low, high = x.amin(1), x.amax(1)
        return torch.stack([(high - low) / 15, low], 1)

    # What a NaN does to a range is another question.
    spare = ("a NaN", "many NaN", "an infinity", "minus infinity")
    for M, N in ((2, 4), (2, 6), (3, 5), (2, t.random.randint(9, 15))):
        t.compare(f"rows of {N}", "steps", want, t.values(M, N), spare=spare)
        note = "What the lanes behind the row hold must be neither the lowest nor the highest of any row."
        for case, around in (("all positive", 100.0), ("all negative", -100.0), ("far up", 1e5), ("far down", -1e5)):
            x = t.surrounded(t.values(M, N) + around)
            t.compare(f"rows of {N}, {case}", "steps", want, x, note=note, spare=spare)


WRONG = (
    ("rows of 6, all positive: out[0, 0] is",),
    ("all negative: out[0, 0] is", 'tl.where(n < N, x, -float("inf"))', "x"),
    ("far down: out[0, 0] is", '-float("inf")), axis=0)', "-1000.0), axis=0)"),
    ("all positive: out[0, 0] is", 'tl.where(n < N, x, float("inf"))', "x"),
)
RIGHT = (
    ('float("inf")), axis=0)\n    highest', "3.4e38), axis=0)\n    highest"),
    (
        'lowest = tl.min(tl.load(x_ptr + row * N + n, mask=n < N, other=float("inf")), axis=0)\n'
        'highest = tl.max(tl.load(x_ptr + row * N + n, mask=n < N, other=-float("inf")), axis=0)',
    ),
)
