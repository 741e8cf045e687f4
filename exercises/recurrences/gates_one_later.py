"""# Which gate?

`gradient_of_x(a, dh)` gets the gates of `h[t] = a[t] * h[t - 1] + x[t]` and the upstream gradient of `h`, for up to 64
tokens. It computes the gradient of `x`, from the last token to the first. With gates that are all alike it is right.
Find the bug.
"""

# %% solution
import torch
import triton
import triton.language as tl


@triton.jit
def join(a, x, b, y):
    return a * b, b * x + y


@triton.jit
def gradient_kernel(a_ptr, dh_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    # <<<
    a = tl.load(a_ptr + offs + 1, mask=offs + 1 < n, other=1.0)
    # ===
    # a = tl.load(a_ptr + offs, mask=mask, other=1.0)
    # >>>
    dh = tl.load(dh_ptr + offs, mask=mask, other=0.0)
    decay, dx = tl.associative_scan((a, dh), 0, join, reverse=True)
    tl.store(dx_ptr + offs, dx, mask=mask)


def gradient_of_x(a, dh):
    dx = torch.empty_like(dh)
    gradient_kernel[(1,)](a, dh, dx, len(dh), BLOCK=64)
    return dx


# %% checks
PAGE = "kernels/recurrences/linear_recurrence.md"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "Write down h[1] and h[2], counted from 0. Which gate stands between x[1] and h[2]?",
    "x[t] reaches h[t + 1] through a[t + 1].",
    "The last token has no gate behind it: the mask of that load ends one place earlier.",
)
WHY = """A state reaches the next one through the next one's gate. If all gates are alike, nothing shows the mistake: a
test of a recurrence needs gates that differ."""


def check(t):
    def want(a, dh):
        total, found = 0.0, []
        for token in reversed(range(len(dh))):
            total = dh[token] + (a[token + 1] * total if token + 1 < len(dh) else 0.0)
            found.append(total)
        return torch.stack(found[::-1])

    gates = ("large numbers in a", "an infinity in a", "minus infinity in a")
    t.compare("one gate for all", "gradient_of_x", want, t.surrounded(torch.full((6,), 0.5)), t.values(6), spare=gates)
    for n in (2, 5, 64, *t.sizes(32, most=64)):
        t.compare(f"{n} tokens", "gradient_of_x", want, t.values(n, scale=0.3), t.values(n), spare=gates)


WRONG = (
    ("2 tokens: out[0] is",),
    ("one gate for all: out[0] is", "a_ptr + offs + 1, mask=offs + 1 < n", "a_ptr + offs - 1, mask=mask & (offs > 0)"),
    ("one gate for all: out[0] is", ", reverse=True", ""),
    ("one gate for all: out[", "a_ptr + offs + 1, mask=offs + 1 < n", "a_ptr + offs + 1, mask=offs + 2 < n"),
)
RIGHT = (
    ("a = tl.load(a_ptr + 1 + offs, mask=offs < n - 1, other=1.0)",),
    ("a = tl.load(a_ptr + offs + 1, mask=offs + 1 < n, other=0.0)",),
)
