"""# Up to the reader, after the writer

`factors(g, half)` gets the gates of up to 32 tokens and how many tokens a half has, a power of two. It returns two
vectors: for each token the sum of the gates from its half's first token up to it, its own included; and the sum of
those after it, to the end of its half. Fill in the two sums. Subtract nothing: a gate may be −∞.

[[figure: kda/levels]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def factors_kernel(g_ptr, upto_ptr, after_ptr, n, BLOCK: tl.constexpr, HALF: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    g = tl.load(g_ptr + offs, mask=offs < n, other=0.0)
    next_g = tl.load(g_ptr + offs + 1, mask=offs + 1 < n, other=0.0)
    # <<<
    upto = tl.reshape(tl.cumsum(tl.reshape(g, (BLOCK // HALF, HALF)), axis=1), (BLOCK,))
    rest = tl.where(offs % HALF == HALF - 1, 0.0, next_g)
    after = tl.reshape(tl.cumsum(tl.reshape(rest, (BLOCK // HALF, HALF)), axis=1, reverse=True), (BLOCK,))
    # ===
    # upto = g
    # after = next_g
    # >>>
    tl.store(upto_ptr + offs, upto, mask=offs < n)
    tl.store(after_ptr + offs, after, mask=offs < n)


def factors(g, half):
    upto, after = torch.empty_like(g), torch.empty_like(g)
    factors_kernel[(1,)](g, upto, after, len(g), BLOCK=32, HALF=half)
    return upto, after


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "As a matrix a block has a row for each half: `tl.reshape(g, (BLOCK // HALF, HALF))`. And back with `(BLOCK,)`.",
    "`tl.cumsum` along `axis=1` adds up inside of a row, and from its end with `reverse=True`.",
    "What comes after a token begins with the next token's gate. A half's last token has none after it.",
)
WHY = """Both are running sums inside of halves. The second one is over the next tokens' gates: the running sum from the
end, less the token's own gate, would be −∞ + ∞ at a gate of −∞, and loses digits beside a large one."""


def check(t):
    def want(g, half):
        upto, after = [], []
        for i in range(len(g)):
            start = i // half * half
            upto.append(g[start : i + 1].sum())
            after.append(g[i + 1 : start + half].sum())
        return torch.stack(upto), torch.stack(after)

    few = ("both signs", "one large number", "a NaN", "an infinity", "minus infinity")  # a gate is at most 0
    for n, half in ((8, 4), (32, 16), (5, 1), (t.random.randint(9, 31), 8), (32, 2), (1, 4)):
        g = -t.positive(n)
        t.compare(
            f"{t.counted(n, 'token')} in halves of {half}",
            "factors",
            want,
            t.surrounded(g),
            half,
            name="upto, after",
            note="A sum begins anew in each half, and `after` leaves the token's own gate out.",
            spare=few,
        )
    g = -t.positive(16)
    at = t.random.randint(4, 7)
    g[at] = -float("inf")
    note = "−∞ less −∞ is NaN, and so is 0 · −∞."
    t.compare(f"-inf at token {at}", "factors", want, t.surrounded(g), 8, name="upto, after", spare=few, note=note)


WRONG = (
    ("8 tokens in halves of 4: upto[1] is",),
    ("8 tokens in halves of 4: after[0] is", "tl.where(offs % HALF == HALF - 1, 0.0, next_g)", "next_g"),
    ("8 tokens in halves of 4: after[0] is", "axis=1, reverse=True)", "axis=1)"),
    (
        "−∞ less −∞ is NaN",
        "rest = tl.where(offs % HALF == HALF - 1, 0.0, next_g)",
        "rest = g",
        "axis=1, reverse=True), (BLOCK,))",
        "axis=1, reverse=True), (BLOCK,)) - g",
    ),
)
RIGHT = (
    (
        "same = offs[:, None] // HALF == offs[None, :] // HALF\n"
        "upto = tl.sum(tl.where(same & (offs[:, None] <= offs[None, :]), g[:, None], 0.0), axis=0)\n"
        "after = tl.sum(tl.where(same & (offs[:, None] > offs[None, :]), g[:, None], 0.0), axis=0)",
    ),
    ("axis=1), (BLOCK,))", "1), (BLOCK,))"),
)
