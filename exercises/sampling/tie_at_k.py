"""# One too many

`kept(x, k)` marks the `k` largest of up to 16 logits with a 1, all others with a 0. Of equal logits the first ones come
first. But where several equal logits compete for the last place, it keeps all of them. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def kept_kernel(x_ptr, out_ptr, n, k, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
    before = x[None, :] > x[:, None]
    # <<<
    before = before | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))
    # ===
    # >>>
    keep = tl.sum(before.to(tl.int32), axis=1) < k
    tl.store(out_ptr + i, keep.to(tl.int32), mask=i < n)


def kept(x, k):
    out = torch.empty(len(x), dtype=torch.int32, device=x.device)
    kept_kernel[(1,)](x, out, len(x), k, BLOCK=16)
    return out


# %% checks
PAGE = "derivations/sample.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "`before[i, j]` is whether logit j comes before logit i. When does it, if both are equal?",
    "Of equal logits the one with the smaller index comes first: `i[None, :] < i[:, None]`.",
)
WHY = """Without an order among equals, all of them have the same rank, and if that is small enough all are kept. Two
servers that break ties in different ways may give different answers to the same question."""


def check(t):
    def want(x, k):
        values = x.tolist()
        order = sorted(range(len(values)), key=lambda i: (-values[i], i))
        return torch.tensor(
            [int(order.index(i) < k) for i in range(len(values))], dtype=torch.int32, device=device.DEVICE
        )

    def logits(numbers):
        return t.surrounded(torch.tensor(numbers, dtype=torch.float32))

    no_nan = ("a NaN",)  # it has no place in an order
    t.compare("3, 1, 4, 2; k = 2", "kept", want, logits([3.0, 1.0, 4.0, 2.0]), 2, spare=no_nan)
    t.compare("5, 7, 7, 7; k = 2", "kept", want, logits([5.0, 7.0, 7.0, 7.0]), 2, spare=no_nan)
    t.compare(
        "logits that differ by a thousandth; k = 2", "kept", want, logits([2.001, 2.0, 2.003, 2.002]), 2, spare=no_nan
    )
    t.compare("seven equal logits; k = 3", "kept", want, logits([2.0] * 7), 3, spare=no_nan)
    t.compare("more than there are", "kept", want, logits([1.0, 1.0, -float("inf"), 0.0]), 9, spare=no_nan)
    n = t.random.randint(11, 16)
    numbers = [float(t.random.randint(0, 3)) for _ in range(n)]
    t.compare(f"{n} logits; k = 5", "kept", want, logits(numbers), 5, spare=no_nan)
    t.compare("k = 0", "kept", want, logits([1.0, 1.0, 2.0]), 0, spare=no_nan)
    t.compare("one logit; k = 1", "kept", want, logits([-3.0]), 1, spare=no_nan)
    t.compare("16 logits; k = 16", "kept", want, t.values(16), 16, spare=no_nan)
    t.compare("0 and minus 0; k = 2", "kept", want, logits([-0.0, 0.0, -1.0, 0.0]), 2, spare=no_nan)
    near = [number * (1 + 2.0**-23 * step) for step in (0, 1, 2, 3) for number in (1.0, -1.0, 1e-30, 1e30)]
    t.random.shuffle(near)
    for k in (1, 6, 9, 15):
        t.compare(f"logits that differ in their last bit; k = {k}", "kept", want, logits(near), k, spare=no_nan)


WRONG = (
    ("5, 7, 7, 7; k = 2: out[3] is",),
    ("5, 7, 7, 7; k = 2: out[", "i[None, :] < i[:, None]", "i[None, :] > i[:, None]"),
    ("3, 1, 4, 2; k = 2: out[", "i[None, :] < i[:, None]", "i[None, :] <= i[:, None]"),
    ("3, 1, 4, 2; k = 2: out[", "before = x[None, :] >= x[:, None]"),
    ("k = 0", "axis=1) < k", "axis=1) < tl.maximum(k, 1)"),
    (
        "differ in their last bit",
        "    before = x[None, :] > x[:, None]\n"
        "    before = before | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))",
        "    before = x[None, :] > x[:, None] + 1e-4\n"
        "    before = before | ((tl.abs(x[None, :] - x[:, None]) <= 1e-4) & (i[None, :] < i[:, "
        "None])) | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))",
    ),
)
RIGHT = (
    ("before = tl.where(x[None, :] == x[:, None], i[None, :] < i[:, None], before)",),
    ("before = before | ((x[None, :] >= x[:, None]) & (i[None, :] < i[:, None]))",),
)
