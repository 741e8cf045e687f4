"""# What crosses a gate

`gate_gradient(m)` gets a matrix: `m[i, j]` is the part of the loss's gradient that passes from token `j` to a later
token `i`, for up to 32 tokens. What isn't below the diagonal is to be left out. The gradient of gate `t` is the sum
over all pairs with `j < t <= i`. The kernel takes it as a difference: the rows' sums from `t` on, less the columns'
sums from `t` on. Where large parts cancel, no digit is right. Find the bug: add up what crosses, and nothing else.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def gate_gradient_kernel(m_ptr, dg_ptr, T, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = (i[:, None] < T) & (i[None, :] < T)
    m = tl.load(m_ptr + i[:, None] * T + i[None, :], mask=mask, other=0.0)
    # <<<
    from_t = tl.cumsum(m, axis=0, reverse=True)
    dg = tl.sum(tl.where(i[None, :] < i[:, None], from_t, 0.0), axis=1)
    # ===
    # m = tl.where(i[:, None] > i[None, :], m, 0.0)
    # dg = tl.cumsum(tl.sum(m, axis=1) - tl.sum(m, axis=0), axis=0, reverse=True)
    # >>>
    tl.store(dg_ptr + i, dg, mask=i < T)


def gate_gradient(m):
    T = len(m)
    dg = torch.empty(T, device=m.device)
    gate_gradient_kernel[(1,)](m, dg, T, BLOCK=32)
    return dg


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "A pair of tokens that are both after gate t is in a row's sum and in a column's sum. It should be in neither.",
    "First, for each column j, the sum of its entries from row t on: a running sum from the end, `reverse=True`.",
    "Row t of that running sum holds it for every j. Which of them count?",
)
WHY = """Both sums contain every pair after the gate, and the difference removes them again, with their digits. At gates
of −10 what is left is e⁻¹⁰ of them, and off by about a thousandth; at −17 nothing but rounding is left."""


def check(t):
    def want(m):
        T = len(m)
        lower = torch.tril(m, -1)
        return torch.stack([lower[at:, :at].sum() for at in range(T)])

    def crossing(before, after):
        """With the columns up to `before(t)` and the rows from `after(t)` on."""
        return lambda m: torch.stack([torch.tril(m, -1)[after(t) :, : before(t)].sum() for t in range(len(m))])

    mistakes = {
        crossing(lambda t: t + 1, lambda t: t): "Gate t doesn't lie between token t and a later one: j < t.",
        crossing(lambda t: t, lambda t: t + 1): "Gate t lies before token t: i = t counts.",
    }
    few = ("an infinity", "minus infinity", "a NaN")  # of a difference of sums they make NaN elsewhere
    for T in (4, 32, t.random.randint(9, 31), 1, 16):
        case = t.counted(T, "token")
        t.compare(case, "gate_gradient", want, t.positive(T, T), name="dg", mistakes=mistakes, spare=few)
    note = "Only gate 3 is between tokens 2 and 3."
    m = t.positive(8, 8)
    m[3, 2] = 1e8
    dg = t.answer.run("gate_gradient", (m,)).result
    close = (dg.double() - want(m.double())).abs()[[0, 1, 2, 4, 5, 6, 7]].max() < 1e-4
    t.require(bool(close), f"dg is {dg.tolist()}. {note}", "100 million from token 2 to 3")
    m[3, 2] = float("inf")
    t.compare("infinity from token 2 to 3", "gate_gradient", want, m, name="dg", spare=few, note=note)


WRONG = (
    ("100 million from token 2 to 3: dg is",),
    (
        "between token t and a later one",
        "m = tl.where(i[:, None] > i[None, :], m, 0.0)\n"
        "from_t = tl.cumsum(m, axis=0, reverse=True)\n"
        "dg = tl.sum(tl.where(i[None, :] <= i[:, None], from_t, 0.0), axis=1)",
    ),
    ("4 tokens: dg[", "tl.cumsum(m, axis=0, reverse=True)", "tl.cumsum(m, axis=0)"),
    ("4 tokens: dg[0] is", "tl.sum(tl.where(i[None, :] < i[:, None], from_t, 0.0), axis=1)", "tl.sum(from_t, axis=1)"),
)
RIGHT = (
    (
        "inside = (i[None, :, None] >= i[:, None, None]) & (i[None, None, :] < i[:, None, None])\n"
        "dg = tl.sum(tl.sum(tl.where(inside, m[None, :, :], 0.0), axis=2), axis=1)",
    ),
    (
        "from_t = tl.cumsum(m, axis=0, reverse=True)\n"
        "dg = tl.sum(tl.where(i[:, None] > i[None, :], from_t, 0.0), axis=1)",
    ),
)
