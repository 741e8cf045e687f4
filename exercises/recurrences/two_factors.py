"""# Two factors

`decay(g)` returns a matrix: what is left of token `j` at token `i` is `exp(g[j + 1] + … + g[i])`, and 0 for a later
token. The kernel works with sums `G` from the first token. It is right for weak gates. With strong ones the result is
infinite or NaN, although every number of it lies between 0 and 1. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def decay_kernel(g_ptr, out_ptr, T, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    g = tl.load(g_ptr + i, mask=i < T, other=0.0)
    G = tl.cumsum(g, 0)
    earlier = i[:, None] >= i[None, :]
    # <<<
    between = tl.where(earlier, G[:, None] - G[None, :], -float("inf"))
    left = tl.exp(between)
    # ===
    # left = tl.where(earlier, tl.exp(G)[:, None] * tl.exp(-G)[None, :], 0.0)
    # >>>
    mask = (i[:, None] < T) & (i[None, :] < T)
    tl.store(out_ptr + i[:, None] * T + i[None, :], left, mask=mask)


def decay(g):
    (T,) = g.shape
    out = torch.empty(T, T, device=g.device)
    decay_kernel[(1,)](g, out, T, BLOCK=triton.next_power_of_2(T))
    return out


# %% checks
PAGE = "kernels/recurrences/linear_attention.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Gates of −40 and ten tokens: what is `exp(-G)` at the last one?",
    "A product of two exponentials may be small while one is infinite. What has to be done before the exponential?",
)
WHY = """As soon as the gates add up to less than −89, `exp(-G_j)` is infinite, and below −104 `exp(G_i)` is 0: the
product is infinite or NaN. Subtract first. Above the diagonal the difference is positive, and its exponential may be
infinite: `tl.where` drops that, but a product with a mask of zeros is NaN, and so is what autograd makes of either."""


def check(t):
    import torch

    def want(g):
        T = len(g)
        rows = [[torch.exp(g[j + 1 : i + 1].sum()) if j <= i else torch.zeros(()) for j in range(T)] for i in range(T)]
        return torch.stack([torch.stack(row) for row in rows])

    few = ("both signs", "one large number", "a NaN", "an infinity", "minus infinity")  # a gate is at most 0
    for T, size in (
        (1, 1.0),
        (5, 0.3),
        (5, 40.625),
        (t.random.randint(6, 9), 64.625),
        (9, 0.0),
        (8, 1e-6),
        (17, 300.5),
        (33, 0.01),
        (6, 1e5),
    ):
        g = t.values(T) * 0.0 - size
        g[T // 2] = -0.5
        t.compare(f"{T} tokens, gates of {-size:g}", "decay", want, g, name="left", spare=few)


WRONG = (
    ("5 tokens, gates of -40.625: left[",),
    (
        "5 tokens, gates of -0.3: left[0, 1] is",
        "left = tl.exp(G[:, None] - G[None, :])",
    ),
    (
        "5 tokens, gates of -40.625: left[",
        "left = earlier.to(tl.float32) * tl.exp(G[:, None] - G[None, :])",
    ),
    (
        "5 tokens, gates of -40.625: left[",
        "left = tl.where(earlier, tl.exp(G)[:, None] / tl.exp(G)[None, :], 0.0)",
    ),
    ("gates of -300.5", "    G = tl.cumsum(g, 0)", "    G = tl.maximum(tl.cumsum(g, 0), -600.0)"),
)
RIGHT = (
    ("left = tl.where(earlier, tl.exp(tl.minimum(G[:, None] - G[None, :], 0.0)), 0.0)",),
    (
        "left = tl.exp(tl.cumsum(tl.where(i[:, None] > i[None, :], g[:, None], 0.0), 0))\n"
        "left = tl.where(earlier, left, 0.0)",
    ),
)
