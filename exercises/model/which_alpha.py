"""# Whose factor is it?

A token of `n` streams has `2n + n²` numbers: `n` for what a layer reads, `n` for what it writes, and `n²` logits of the
mixture. Each of the three groups has a factor of its own in `alpha`. `coefficients(m, alpha, bias, n)` multiplies each
number by its factor, adds its bias, and takes the sigmoid of the first group, twice the sigmoid of the second, and the
third as it is. With one stream it is right, with two some numbers are wrong. Find the bug.

[[figure: streams/columns]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def coefficients_kernel(m_ptr, alpha_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    columns = 2 * n + n * n
    mask = column < columns
    m = tl.load(m_ptr + token * columns + column, mask=mask, other=0.0)
    # <<<
    group = (column >= n).to(tl.int32) + (column >= 2 * n).to(tl.int32)
    # ===
    # group = tl.minimum(3 * column // columns, 2)
    # >>>
    alpha = tl.load(alpha_ptr + group)
    z = m * alpha + tl.load(bias_ptr + column, mask=mask, other=0.0)
    share = 1.0 / (1.0 + tl.exp(-z))
    out = tl.where(group == 0, share, tl.where(group == 1, 2.0 * share, z))
    tl.store(out_ptr + token * columns + column, out, mask=mask)


def coefficients(m, alpha, bias, n):
    out = torch.empty_like(m)
    coefficients_kernel[(len(m),)](m, alpha, bias, out, n, BLOCK=triton.next_power_of_2(m.shape[1]))
    return out


# %% checks
PAGE = "kernels/model/stream_coefficients.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "How many columns has each group with two streams? Are they alike?",
    "The groups begin at 0, n and 2n. A comparison is True or False, and as a number 1 or 0.",
)
WHY = """With one stream each group has one column. With four they have 4, 4 and 16, and thirds of 8 would give half of
the mixture's logits the sigmoid of what is written: numbers between 0 and 2, so nothing overflows, and Sinkhorn's
rounds make a doubly stochastic matrix of anything. A comparison that counts works for any n, and needs no table."""


def check(t):
    def grouped(bounds, twice=2.0):
        def want(m, alpha, bias, n):
            first, second = bounds(n)
            z = (
                torch.cat([m[:, :first] * alpha[0], m[:, first:second] * alpha[1], m[:, second:] * alpha[2]], 1)
                + bias[None]
            )
            share = 1 / (1 + torch.exp(-z))
            return torch.cat([share[:, :first], twice * share[:, first:second], z[:, second:]], 1)

        return want

    def by(factor, function):
        """With the group of column `c` by two rules: for its factor, and for what becomes of it."""

        def wrong(m, alpha, bias, n):
            columns = range(m.shape[1])
            z = m * torch.stack([alpha[factor(c, n)] for c in columns])[None] + bias[None]
            share = 1 / (1 + torch.exp(-z))
            group = torch.tensor([function(c, n) for c in columns], device=m.device)[None]
            return torch.where(group == 0, share, torch.where(group == 1, 2 * share, z))

        return wrong

    def late(c, n):
        return (c > n) + (c > 2 * n)

    want = grouped(lambda n: (n, 2 * n))
    mistakes = {
        by(lambda c, n: min(c // n, 2), lambda c, n: min(3 * c // (2 * n + n * n), 2)): (
            "Each factor is the right one. Which columns get a sigmoid, and which get twice that?"
        ),
        by(late, late): "Columns count from 0, so the second group begins with column n.",
        grouped(
            lambda n: (-(-(2 * n + n * n) // 3), -(-2 * (2 * n + n * n) // 3))
        ): "The groups aren't thirds of the row.",
        grouped(lambda n: (n, 2 * n), twice=1.0): "What is written lies between 0 and 2.",
        grouped(lambda n: (n, n + n * n)): "First what is read, then what is written, and then the mixture.",
    }
    for tokens, n in ((2, 1), (1, 2), (2, 3), (3, 4), (1, t.random.randint(5, 8))):
        given = t.values(tokens, 2 * n + n * n), t.positive(3), t.values(2 * n + n * n), n
        case = f"{t.counted(tokens, 'token')} of {t.counted(n, 'stream')}"
        t.compare(case, "coefficients", want, *given, mistakes=mistakes, spare=("*",))


WRONG = (
    ("The groups aren't thirds of the row",),
    ("What is written lies between 0 and 2", "2.0 * share", "share"),
    ("then the mixture", "(column >= 2 * n)", "(column >= n + n * n)"),
    ("2 tokens of 1 stream: out[0, 1] is", "(column >= n)", "(column > n)"),
    ("begins with column n", "(column >= n)", "(column > n)", "(column >= 2 * n)", "(column > 2 * n)"),
    (
        "Each factor is the right one",
        "    z = m * alpha",
        "    group = tl.minimum(3 * column // columns, 2)\n    z = m * alpha",
    ),
    ("2 tokens of 1 stream: out[0, 0] is", "tl.where(group == 0, share, ", "tl.where(group == 0, 2.0 * share, "),
)
RIGHT = (
    ("group = tl.minimum(column // n, 2)",),
    ("group = tl.where(column < n, 0, tl.where(column < 2 * n, 1, 2))",),
)
