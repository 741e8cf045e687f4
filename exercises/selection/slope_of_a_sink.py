"""# What a sink changes on the way back

A sink is one more score of every row of a head, without a value. `slope(sink, lse, delta)` computes its gradient. For
one head, `lse` has the log-sum-exp of each row, the sink among its terms, and `delta` the row's number D. The gradient
of a score is its probability times (what its value gets − D). Complete it for a score that has no value.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def slope_kernel(sink_ptr, lse_ptr, delta_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    sink = tl.load(sink_ptr)
    lse = tl.load(lse_ptr + offsets, mask=offsets < n, other=float("inf"))
    delta = tl.load(delta_ptr + offsets, mask=offsets < n, other=0.0)
    # <<<
    parts = -tl.exp(sink - lse) * delta
    # ===
    # parts = tl.exp(sink - lse)
    # >>>
    tl.store(out_ptr, tl.sum(parts, axis=0))


def slope(sink, lse, delta):
    out = torch.empty(1, dtype=torch.float32, device=device.DEVICE)
    slope_kernel[(1,)](sink, lse, delta, out, len(lse), BLOCK=triton.next_power_of_2(len(lse)))
    return out


# %% checks
PAGE = "derivations/sparse_mla.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The probability of the sink in a row is the exponential of `sink − lse`.",
    "A value that isn't there gets 0. What is left in the brackets is −D.",
)
WHY = """Nothing else changes: the gradients of all other scores have the same form, and the sink is in them through the
log-sum-exp. Leave the sink out of that, and every probability on the way back is too large, while the output still
looks right."""


def check(t):
    def want(sink, lse, delta):
        return -(torch.exp(sink - lse) * delta).sum().view(1)

    def other(share):
        return lambda sink, lse, delta: (torch.exp(sink - lse) * share(delta)).sum().view(1)

    mistakes = {
        other(lambda delta: 1 + 0 * delta): "That is the probability. What is it multiplied by?",
        other(lambda delta: delta): "What the value gets comes first, and D is subtracted.",
        other(lambda delta: 1 - delta): "A value that isn't there gets 0.",
    }
    for n in (1, 2, 5, t.random.randint(6, 12)):
        given = t.values(1), t.values(n), t.values(n)
        t.compare(t.counted(n, "row"), "slope", want, *given, mistakes=mistakes, spare=("*",))


WRONG = (
    ("That is the probability. What is it multiplied by?",),
    ("and D is subtracted", "-tl.exp(sink - lse) * delta", "tl.exp(sink - lse) * delta"),
    ("A value that isn't there gets 0", "-tl.exp(sink - lse) * delta", "tl.exp(sink - lse) * (1.0 - delta)"),
    ("1 row: out[0] is", "-tl.exp(sink - lse) * delta", "-tl.exp(lse - sink) * delta"),
)
RIGHT = (
    ("parts = (0.0 - delta) * tl.exp(sink - lse)",),
    ("p = tl.exp(sink - lse)\nparts = -(p * delta)",),
)
