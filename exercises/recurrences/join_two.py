"""# Join two stretches

`recurrence(a, x)` computes `h[t] = a[t] * h[t - 1] + x[t]` from zero, for up to 64 tokens. A stretch of tokens is a
pair: the product of its gates, and what it makes of a state of zero. Write `join`, which makes one pair of two
neighbours, the left one (`a`, `x`) and the right one (`b`, `y`).
"""

# %% solution
import torch
import triton
import triton.language as tl


@triton.jit
def join(a, x, b, y):
    # <<<
    return a * b, b * x + y
    # ===
    # return a * b, x + y
    # >>>


@triton.jit
def recurrence_kernel(a_ptr, x_ptr, h_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    a = tl.load(a_ptr + offs, mask=mask, other=1.0)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    decay, h = tl.associative_scan((a, x), 0, join)
    tl.store(h_ptr + offs, h, mask=mask)


def recurrence(a, x):
    h = torch.empty_like(x)
    recurrence_kernel[(1,)](a, x, h, len(x), BLOCK=64)
    return h


# %% checks
PAGE = "kernels/recurrences/linear_recurrence.md"
KIND = "fill in"
ORDER = 5
HINTS = (
    "Which of the two comes first in time? Its sum goes through the gates of the other.",
    "After the left stretch the state is x. What do the gates of the right one, with product b, make of it?",
)
WHY = """The sum of the left stretch is multiplied by the product of the right one's gates. A scan joins stretches of
all lengths, so the first number of the pair has to be that product, and not the last gate alone."""


def check(t):
    def want(a, x):
        state, states = 0.0, []
        for gate, value in zip(a, x):
            state = gate * state + value
            states.append(state)
        return torch.stack(states)

    def gates(n):
        return t.values(n, scale=0.3)

    few = ("large numbers in a", "an infinity in a", "minus infinity in a")
    t.compare("gates of 1", "recurrence", want, t.surrounded(torch.ones(7)), t.values(7), spare=few)
    t.compare(
        "two tokens",
        "recurrence",
        want,
        gates(2),
        t.values(2),
        note="The first sum goes through the second gate.",
        spare=few,
    )
    note = "In the second round stretches of two tokens are joined: which pair stands for two tokens?"
    t.compare("4 tokens", "recurrence", want, gates(4), t.values(4), note=note, spare=few)
    for n in (64, *t.sizes(32, most=64)):
        t.compare(f"{n} tokens", "recurrence", want, gates(n), t.values(n), spare=few)


WRONG = (
    ("two tokens: out[1] is",),
    ("two tokens: out[1] is", "b * x + y", "a * y + x"),
    ("4 tokens: out[", "a * b, b * x + y", "b, b * x + y"),
    ("two tokens: out[1] is", "b * x + y", "a * x + y"),
)
RIGHT = (
    ("return b * a, y + x * b",),
    ("return a * b, tl.fma(b, x, y)",),
)
