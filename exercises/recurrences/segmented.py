"""# Sums that begin again

Documents are packed one after the other, and `begins` is 1 where one of them begins and 0 elsewhere. Each needs running
sums of its own. `tl.associative_scan` scans pairs as well as numbers. Write the function `combine`, which joins two
neighbouring stretches: what it gets is, of each, whether a document begins in it, and the sum since the last beginning.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def combine(begins_a, sum_a, begins_b, sum_b):
    # <<<
    return begins_a | begins_b, tl.where(begins_b > 0, sum_b, sum_a + sum_b)
    # ===
    # return begins_b, sum_a + sum_b
    # >>>


@triton.jit
def segmented_kernel(begins_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    begins = tl.load(begins_ptr + offs, mask=mask, other=0)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    begins, y = tl.associative_scan((begins, x), 0, combine)
    tl.store(y_ptr + offs, y, mask=mask)


def segmented(begins, x):
    y = torch.empty_like(x)
    segmented_kernel[(1,)](begins, x, y, len(x), BLOCK=64)
    return y


# %% checks
PAGE = "kernels/recurrences/cumsum.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "If a document begins in the right stretch, what does the left one matter for the sum?",
    "`tl.where(begins_b > 0, …, …)` chooses the sum.",
    "And the flag? A document begins in the two together if one begins in either of them: `|`.",
)
WHY = """With the flag, the operation is associative: the pairs may be joined in any order, and a scan does join them in
another order than a loop. Without the flag of the left stretch, a beginning is forgotten after one round."""


def check(t):
    def want(begins, x):
        sums, total = [], 0.0
        for begin, value in zip(begins.tolist(), x):
            total = value if begin else total + value
            sums.append(total)
        return torch.stack(sums)

    def at(n, *places):
        begins = torch.zeros(n, dtype=torch.int32)
        for place in places:
            begins[place] = 1
        return t.surrounded(begins)

    t.compare("one document", "segmented", want, at(9, 0), t.values(9))
    t.compare("two documents", "segmented", want, at(9, 0, 4), t.values(9))
    t.compare("each a document", "segmented", want, at(6, *range(6)), t.values(6))
    t.compare("none begins", "segmented", want, at(5), t.values(5))
    for n in (64, *t.sizes(32, most=64)):
        places = t.random.sample(range(n), min(n, 5))
        note = "Which beginnings are still known after the pairs were joined once?"
        t.compare(f"{n} elements", "segmented", want, at(n, *places), t.values(n), note=note)


WRONG = (
    ("two documents: out[4] is",),
    (
        "out[",
        "begins_a | begins_b, ",
        "begins_b, ",
    ),
    (
        "one document: out[1] is",
        "tl.where(begins_b > 0, sum_b, sum_a + sum_b)",
        "tl.where(begins_a > 0, sum_b, sum_a + sum_b)",
    ),
    (
        "one document: out[1] is",
        "tl.where(begins_b > 0, sum_b, sum_a + sum_b)",
        "tl.where(begins_b > 0, sum_b, sum_b)",
    ),
    ("tl.where", "begins_b > 0", "begins_b"),
)
RIGHT = (
    ("return tl.maximum(begins_a, begins_b), tl.where(begins_b == 0, sum_a + sum_b, sum_b)",),
    ("return begins_a | begins_b, sum_b + tl.where(begins_b == 0, sum_a, 0.0)",),
)
