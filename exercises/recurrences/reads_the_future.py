"""# It reads the future

`decay(g)` returns a matrix for a chunk of 16 tokens and one channel: what the gates leave of token `j` at token `i`,
`exp(g[j + 1] + … + g[i])`, and 0 for a later token. Two factors from the first token would overflow. So both are
counted from the chunk's middle. That only helps with weaker gates: at −30 they still overflow. And if a *later* gate of
the first half is −∞, which forgets everything before it, even the rows of tokens before it are NaN. Find the bug, and
use the halves of the lesson.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def decay_kernel(g_ptr, out_ptr, T: tl.constexpr):
    i = tl.arange(0, T)
    g = tl.load(g_ptr + i)
    # <<<
    next_g = tl.load(g_ptr + i + 1, mask=i < T - 1, other=0.0)
    left = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    for level in tl.static_range(0, 4):
        half = 2**level
        last = i % half == half - 1
        upto = tl.reshape(tl.cumsum(tl.reshape(g, (T // 2**level, 2**level)), axis=1), (T,))
        rest = tl.reshape(tl.where(last, 0.0, next_g), (T // 2**level, 2**level))
        after = tl.reshape(tl.cumsum(rest, axis=1, reverse=True), (T,))
        pair = i[:, None] // (2 * half) == i[None, :] // (2 * half)
        pair = pair & (i[:, None] // half > i[None, :] // half)
        left += tl.where(pair, tl.exp(upto)[:, None] * tl.exp(after)[None, :], 0.0)
    # ===
    # G = tl.cumsum(g, axis=0)
    # middle = tl.sum(tl.where(i < T // 2, g, 0.0), axis=0)
    # left = tl.exp(G - middle)[:, None] * tl.exp(middle - G)[None, :]
    # left = tl.where(i[:, None] >= i[None, :], left, 0.0)
    # >>>
    tl.store(out_ptr + i[:, None] * T + i[None, :], left)


def decay(g):
    out = torch.empty(16, 16, device=g.device)
    decay_kernel[(1,)](g, out, T=16)
    return out


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "The sum up to the middle contains gates that come after token 2. If one is −∞, what is `exp(G - middle)` there?",
    "Take one level first, halves of one token: the row's factor is `exp` of the reader's own gate, the column's is 1.",
    "On each level, sums of gates inside of halves: up to the reader, and after the writer. `tl.cumsum` of a block of "
    "rows adds along `axis=1`, and takes `reverse=True`.",
)
WHY = """A factor that is counted from a token in the middle contains gates that come later than the reader. With finite
gates the two factors cancel but for rounding, so earlier results change in their last bits when a later token changes:
a library had that in use. In halves no factor contains a gate that isn't between the two tokens."""


def check(t):
    def want(g):
        rows = []
        for i in range(16):
            row = [torch.exp(g[j + 1 : i + 1].sum()) if j <= i else torch.zeros_like(g[0]) for j in range(16)]
            rows.append(torch.stack(row))
        return torch.stack(rows)

    few = ("both signs", "one large number", "a NaN", "an infinity", "minus infinity")  # a gate is at most 0
    g = -t.positive(16, scale=0.3)
    t.compare("weak gates", "decay", want, t.surrounded(g), name="left", spare=few)
    note = "From a token to the chunk's middle there may be eight gates, and exp(240) is infinite."
    t.compare("gates of -30", "decay", want, t.surrounded(g * 0.0 - 30.0), name="left", spare=few, note=note)
    note = "Nothing that comes before a gate of −∞ depends on it."
    for at in (5, t.random.randint(1, 7), t.random.randint(8, 14), 15, 0):
        forgets = -t.positive(16, scale=0.3)
        forgets[at] = -float("inf")
        t.compare(f"-inf at token {at}", "decay", want, t.surrounded(forgets), name="left", spare=few, note=note)


WRONG = (
    ("gates of -30: left[",),
    (
        "weak gates: left[",
        "after = tl.reshape(tl.cumsum(rest, axis=1, reverse=True), (T,))",
        "after = tl.reshape(rest, (T,))",
    ),
    ("weak gates: left[", "tl.where(last, 0.0, next_g)", "next_g"),
    ("weak gates: left[", "mask=i < T - 1, other=0.0)", "mask=i < T - 1, other=0.0) * 0.0 + g"),
    (
        "-inf at token 5: left[",
        "G = tl.cumsum(g, axis=0)\n"
        "left = tl.exp(tl.where(i[:, None] >= i[None, :], G[:, None] - G[None, :], -float('inf')))",
    ),
)
RIGHT = (
    (
        "left = tl.cumsum(tl.where(i[:, None] > i[None, :], g[:, None], 0.0), axis=0)\n"
        "left = tl.where(i[:, None] >= i[None, :], tl.exp(left), 0.0)",
    ),
    (
        "left = tl.cumprod(tl.where(i[:, None] > i[None, :], tl.exp(g)[:, None], 1.0), axis=0)\n"
        "left = tl.where(i[:, None] >= i[None, :], left, 0.0)",
    ),
)
