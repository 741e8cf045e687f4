"""# The slope of a divergence

The loss of a query is the sum over its keys of `p * (log(p) - log(softmax(x)))`, where `x` are the indexer's scores and
`p` is a constant, not negative, that need not add up to 1. Complete `slope(x, p)`: the gradient of the loss for `x`.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def slope_kernel(x_ptr, p_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))
    p = tl.load(p_ptr + offsets, mask=offsets < n, other=0.0)
    weights = tl.exp(x - tl.max(x, axis=0))
    rho = weights / tl.sum(weights, axis=0)
    # <<<
    slope = rho * tl.sum(p, axis=0) - p
    # ===
    # slope = rho - p
    # >>>
    tl.store(out_ptr + offsets, slope, mask=offsets < n)


def slope(x, p):
    out = torch.empty_like(x)
    slope_kernel[(1,)](x, p, out, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return out


# %% checks
PAGE = "kernels/attention/indexer_loss.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "A score is in its own term, with the factor −p. And it is in the log-sum-exp. How often is that subtracted?",
    "The log-sum-exp is in every term, each time with the factor p. Its own slope is the softmax.",
)
WHY = """The gradient is the softmax times the sum of the target, less the target. With a sum of 1 it is the familiar
difference. Targets of attention with sinks have a smaller sum, and with the short form every score of such a query
would be pushed down a little, in each step."""


def check(t):
    def want(x, p):
        return torch.softmax(x, 0) * p.sum() - p

    mistakes = {
        lambda x, p: torch.softmax(x, 0) - p: "That is right for a `p` that adds up to 1.",
        lambda x, p: torch.softmax(x, 0) - p / p.sum(): "`p` stays as it is, whatever it adds up to.",
        lambda x, p: p - torch.softmax(x, 0) * p.sum(): "That is the slope of what is lost, with the other sign.",
    }
    for n in (1, 2, 5, 8, t.random.randint(9, 20)):
        t.compare(t.counted(n, "key"), "slope", want, t.values(n), t.positive(n), mistakes=mistakes, spare=("*",))
    p = t.positive(6)
    t.compare("a target of sum 1", "slope", want, t.values(6), p / p.sum(), spare=("*",))


WRONG = (
    ("That is right for a `p` that adds up to 1",),
    ("`p` stays as it is", "rho * tl.sum(p, axis=0) - p", "rho - p / tl.sum(p, axis=0)"),
    ("with the other sign", "rho * tl.sum(p, axis=0) - p", "p - rho * tl.sum(p, axis=0)"),
)
RIGHT = (
    ("slope = tl.sum(p, axis=0) * rho - p",),
    ("slope = -(p - rho * tl.sum(p, axis=0))",),
)
