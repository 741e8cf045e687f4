"""# With equal channels nobody sees it

`one_token(state, k, v, g, beta)` does one step of Kimi's delta rule for one head, and returns the new state: each of
its `D` rows fades by its own gate, then it is asked, then the difference is written. With the same gate in every
channel that is the gated delta rule, and the test with it passes. With gates that differ it is wrong. Find the bug.

[[figure: kda/rows]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def one_token_kernel(state_ptr, k_ptr, v_ptr, g_ptr, beta, new_ptr, D, BLOCK: tl.constexpr):
    d, e = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    mask = (d[:, None] < D) & (e[None, :] < D)
    state = tl.load(state_ptr + d[:, None] * D + e[None, :], mask=mask, other=0.0)
    k = tl.load(k_ptr + d, mask=d < D, other=0.0)
    v = tl.load(v_ptr + e, mask=e < D, other=0.0)
    # <<<
    g = tl.load(g_ptr + d, mask=d < D, other=0.0)
    state = state * tl.exp(g)[:, None]
    # ===
    # g = tl.load(g_ptr + e, mask=e < D, other=0.0)
    # state = state * tl.exp(g)[None, :]
    # >>>
    u = beta * (v - tl.sum(k[:, None] * state, axis=0))
    tl.store(new_ptr + d[:, None] * D + e[None, :], state + k[:, None] * u[None, :], mask=mask)


def one_token(state, k, v, g, beta):
    new = torch.empty_like(state)
    one_token_kernel[(1,)](state, k, v, g, beta, new, len(k), BLOCK=16)
    return new


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "A state has a row for each number of a key, and a column for each number of a value. Whose are the gates?",
    "What multiplies a whole row is a column of numbers: `[:, None]`.",
)
WHY = """A gate belongs to a channel of the key, so it multiplies a row. With equal gates rows and columns fade alike,
and a state with as many columns as rows hides the mistake: tests need gates that differ."""


def check(t):
    def want(state, k, v, g, beta):
        faded = state * torch.exp(g)[:, None]
        return faded + k[:, None] * (beta * (v - (k[:, None] * faded).sum(0)))[None, :]

    def updated(asked, kept):
        """With `asked(state, g)` for the state that is asked, and `kept` for the one that is added to."""
        return lambda state, k, v, g, beta: (
            kept(state, g) + k[:, None] * (beta * (v - (k[:, None] * asked(state, g)).sum(0)))[None, :]
        )

    def columns(state, g):
        return state * torch.exp(g)[None, :]

    def rows(state, g):
        return state * torch.exp(g)[:, None]

    mistakes = {
        updated(columns, columns): "A gate belongs to a row of the state, and that fades columns.",
        updated(lambda state, g: state, rows): "The state fades first, and then it is asked.",
        updated(lambda state, g: state, lambda state, g: state): "Nothing has faded.",
    }
    few = ("both signs", "one large number", "a NaN", "an infinity", "minus infinity")
    gates = tuple(f"{kind} in g" for kind in few)  # a gate is at most 0
    for case, D, equal in (("equal channels", 4, True), ("channels that differ", 3, False), ("16 channels", 16, False)):
        g = -t.positive(D)
        g = g * 0.0 - 0.5 if equal else g
        given = t.values(D, D), t.values(D, scale=0.3), t.values(D), g, t.random.uniform(0.2, 1.0)
        t.compare(case, "one_token", want, *given, mistakes=mistakes, spare=gates)
    g = -t.positive(5)
    g[t.random.randint(1, 4)] = -float("inf")
    given = t.values(5, 5), t.values(5, scale=0.3), t.values(5), g, 0.5
    t.compare("a row is forgotten", "one_token", want, *given, spare=gates)


WRONG = (
    ("that fades columns",),
    (
        "The state fades first, and then it is asked",
        "    state = state * tl.exp(g)[:, None]\n",
        "",
        "state + k[:, None] * u[None, :], mask=mask)",
        "state * tl.exp(g)[:, None] + k[:, None] * u[None, :], mask=mask)",
    ),
    ("equal channels: out[", "tl.exp(g)[:, None]", "g[:, None]"),
    (
        "channels that differ: out[",
        "    u = beta * (v - tl.sum(k[:, None] * state, axis=0))",
        "    u = beta * (v - tl.exp(tl.min(g)) * tl.sum(k[:, None] * state / tl.exp(g)[:, None], axis=0))",
    ),
)
RIGHT = (
    ("g = tl.load(g_ptr + d, mask=d < D, other=0.0)\nstate *= tl.exp(g[:, None])",),
    ("g = tl.load(g_ptr + d, mask=d < D, other=0.0)\nstate = tl.exp(g)[:, None] * state",),
)
