"""# A list that begins with none

`log_sums(x)` computes the log-sum-exp of each row of scores, four at a time, as attention does. A score of what is none
is −∞. Most rows are right, but one that begins with four times none is NaN, whatever comes after. Find the bug.
"""

# %% solution
from academy.runtime import device

import math

import torch
import triton
import triton.language as tl


@triton.jit
def log_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    # <<<
    row_max = tl.full((), -3.4028234663852886e38, tl.float32)
    # ===
    # row_max = tl.full((), -float("inf"), tl.float32)
    # >>>
    row_sum = 0.0
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=-float("inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
    tl.store(out_ptr + row, tl.where(row_sum == 0.0, -float("inf"), row_max + tl.log(row_sum)))


def log_sums(x):
    out = torch.empty(len(x), dtype=torch.float32, device=device.DEVICE)
    log_sums_kernel[(len(x),)](x, out, x.shape[1], BLOCK=4)
    return out


# %% checks
PAGE = "kernels/attention/sparse_mla.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "What is `row_max - new_max` while both are −∞?",
    "−∞ less −∞ is NaN, and NaN stays in the sum. Begin with a number that is lower than every score, and finite.",
)
WHY = """A causal mask hides the end of a row, never its first tile, so the same line has been right in many kernels. A
list has gaps anywhere. Tests whose gaps are all at the end of the list don't notice."""


def check(t):
    inf, nan = float("inf"), float("nan")

    def log_sum(row):
        if any(x != x for x in row) or max(row) == inf:
            return nan
        most = max(row)
        return -inf if most == -inf else most + math.log(sum(math.exp(x - most) for x in row))

    def want(x):
        return torch.tensor([log_sum(row) for row in x.tolist()], dtype=torch.float32, device=device.DEVICE)

    gap = t.surrounded(torch.tensor([[1.0, -inf, 2.0, -inf, 4.0]]))
    t.compare("a gap", "log_sums", want, gap)
    t.compare("2 rows of 5 scores", "log_sums", want, t.values(2, 5))
    first = t.surrounded(torch.tensor([[-inf] * 4 + [1.0, t.random.randint(-3, 3) / 2]]))
    t.compare("a first tile of none", "log_sums", want, first)
    low = t.surrounded(torch.tensor([[-1000.0, -inf, -1001.0, -999.0, -inf]]))
    note = "What the row begins with has to be lower than every score, and these are low."
    t.compare("scores around -1000", "log_sums", want, low, note=note)
    t.compare("nothing at all", "log_sums", want, t.surrounded(torch.tensor([[-inf] * 6])))


WRONG = (
    ("a first tile of none: out[0] is nan",),
    ("a gap: out[0] is", "row_sum * tl.exp(row_max - new_max)", "row_sum"),
    ("these are low", "-3.4028234663852886e38", "0.0"),
    ("a gap: out[0] is nan", "-3.4028234663852886e38", 'float("inf")'),
)
RIGHT = (
    ("-3.4028234663852886e38", "-1e30"),
    ("row_max = tl.full((), -1e38, tl.float32)",),
)
