"""# What raises the entropy?

`entropy_gradient(x, dh)` is to return the gradient of each row's entropy with respect to its logits, times the row's
upstream gradient. The kernel has the probabilities `p`, the logits `u` less the largest, and their mean under `p`.
Write the last line. A logit of minus infinity has the probability 0, and the gradient 0.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def entropy_gradient_kernel(x_ptr, dh_ptr, dx_ptr, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride + offs, mask=mask, other=-float("inf"))
    u = x - tl.max(x, axis=0)
    e = tl.exp(u)
    p = e / tl.sum(e, axis=0)
    mean = tl.sum(tl.where(p == 0.0, 0.0, p * u), axis=0)
    dh = tl.load(dh_ptr + row)
    # <<<
    dx = tl.where(p == 0.0, 0.0, dh * p * (mean - u))
    # ===
    # dx = p  # your code here
    # >>>
    tl.store(dx_ptr + row * N + offs, dx, mask=mask)


def entropy_gradient(x, dh):
    dx = torch.empty(x.shape, device=x.device)
    BLOCK = triton.next_power_of_2(x.shape[1])
    entropy_gradient_kernel[(x.shape[0],)](x, dh, dx, x.shape[1], x.stride(0), BLOCK=BLOCK)
    return dx


# %% checks
PAGE = "derivations/token_logprobs.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The page has the gradient of the entropy. E / S is the mean of the logits, less the largest one.",
    "A logit above the mean lowers the entropy when it grows.",
    "Zero times minus infinity is NaN: choose with `tl.where`.",
)
WHY = """Each entry counts by its probability, so what is unlikely anyway changes nothing. The gradients of a row add up
to 0: the same number added to all logits changes no probability."""


def check(t):
    def want(x, dh):
        log_p = x.log_softmax(1)
        p = log_p.exp()
        finite = torch.where(p > 0, log_p, 0.0)
        return torch.where(p > 0, -dh[:, None] * p * (finite - (p * finite).sum(1, keepdim=True)), 0.0)

    def other(dx):
        """With `dx(p, u, mean, dh)` in the place of the gradient, where a logit isn't minus infinity."""

        def made(x, dh):
            p, u = x.softmax(1), x - x.amax(1, keepdim=True)
            u = torch.where(p > 0, u, 0.0)
            return dx(p, u, (p * u).sum(1, keepdim=True), dh[:, None])

        return made

    mistakes = {
        other(
            lambda p, u, mean, dh: dh * p * (u - mean)
        ): "The sign is the other one: a likely token lowers the entropy.",
        other(lambda p, u, mean, dh: -dh * p * u): "The mean is missing.",
        other(lambda p, u, mean, dh: p * (mean - u)): "The upstream gradient is missing.",
    }
    special = ("*",)
    for rows, columns in ((1, 4), (2, 8), (3, 5), (2, t.random.randint(9, 40))):
        case = f"{rows} x {columns}"
        given = t.cut(rows, columns), t.values(rows)
        t.compare(case, "entropy_gradient", want, *given, name="dx", mistakes=mistakes, spare=special)
    t.compare("equal logits", "entropy_gradient", want, t.cut(2, 4) * 0 + 3, t.values(2), name="dx", spare=special)
    x = t.cut(2, 7)
    x[:, 1::3] = -float("inf")
    t.compare("impossible entries", "entropy_gradient", want, x, t.values(2), name="dx", spare=special)
    far = t.cut(2, 6)
    far += 1000.0
    t.compare("logits around 1000", "entropy_gradient", want, far, t.values(2), name="dx", spare=special)


WRONG = (
    ("1 x 4: dx[0, 0] is",),
    ("impossible entries: dx[0, 1] is nan", "dx = dh * p * (mean - u)"),
    ("The sign is the other one", "dx = tl.where(p > 0.0, dh * p * (u - mean), 0.0)"),
    ("The mean is missing", "dx = tl.where(p > 0.0, -dh * p * u, 0.0)"),
    ("The upstream gradient is missing", "dx = tl.where(p > 0.0, p * (mean - u), 0.0)"),
)
RIGHT = (
    ('dx = dh * p * tl.where(u > -float("inf"), mean - u, 0.0)',),
    ("dx = tl.where(p > 0.0, dh * (p * mean - p * u), 0.0)",),
)
