"""# A mask makes a NaN

`entropy(x)` returns the entropy of each row. A model that may not choose some tokens gives them logits of minus
infinity, and then the entropy is NaN. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def entropy_kernel(x_ptr, out_ptr, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < N, other=-1e30)
    u = x - tl.max(x, axis=0)
    e = tl.exp(u)
    total = tl.sum(e, axis=0)
    # <<<
    weighted = tl.sum(tl.where(e == 0.0, 0.0, u * e), axis=0)
    # ===
    # weighted = tl.sum(u * e, axis=0)
    # >>>
    tl.store(out_ptr + row, tl.log(total) - weighted / total)


def entropy(x):
    out = torch.empty(x.shape[0], device=x.device)
    entropy_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "kernels/classics/token_logprobs.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "Lanes past the end hold −10³⁰, and do no harm. What is different about minus infinity?",
    "The exponential of minus infinity is 0. What is the product of both?",
    "`tl.where(condition, a, b)` chooses in each lane.",
)
WHY = """Zero times a large number is 0, and zero times infinity is NaN. The limit of u · e^u is 0, and a kernel has to
say so. In the backward pass the same product comes again, p · (mean − u), and needs the same care."""


def check(t):
    def want(x):
        log_p = x.log_softmax(1)
        return -torch.where(log_p > -1e30, log_p.exp() * torch.where(log_p > -1e30, log_p, 0.0), 0.0).sum(1)

    special = ("*",)
    for rows, columns in ((1, 4), (2, 8), (3, 5), (2, t.random.randint(9, 40))):
        t.compare(f"{rows} x {columns}", "entropy", want, t.cut(rows, columns), spare=special)
    for columns in (5, 8, t.random.randint(9, 30)):
        x = t.cut(2, columns)
        x[:, 1::3] = -float("inf")
        t.compare(f"2 x {columns}, every third is impossible", "entropy", want, x, spare=special)
    x = t.cut(2, 6)
    x += 500.0
    x[0, 2:] = -float("inf")
    t.compare("two are possible, around 500", "entropy", want, x, spare=special)


WRONG = (
    ("2 x 5, every third is impossible: out[0] is nan",),
    ("2 x 5, every third is impossible: out[0] is nan", "weighted = tl.sum(u * e, axis=0) * (total > 0)"),
    ("1 x 4: out[0] is", "weighted = tl.sum(tl.where(e == 0.0, 0.0, u), axis=0)"),
    ("1 x 4: out[0] is", "weighted = tl.sum(tl.where(e == 0.0, 0.0, x * e), axis=0)"),
    ("1 x 4: out[0] is", "weighted = 0.0"),
)
RIGHT = (
    ("weighted = tl.sum(tl.where(e > 0.0, u * e, e), axis=0)",),
    ("weighted = tl.sum(tl.maximum(u, -1e30) * e, axis=0)",),
)
