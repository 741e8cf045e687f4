"""# Make it causal

`filtered(x, weight)` gives each of up to 64 tokens a sum of three numbers: its own times `weight[2]`, the one before it
times `weight[1]`, and the one before that times `weight[0]`. Before the first token there are zeros. The starter looks
ahead. Make it look back.

[[figure: recurrences/taps]]
"""

# %% solution
import torch
import triton
import triton.language as tl


@triton.jit
def filtered_kernel(x_ptr, weight_ptr, y_ptr, n, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    y = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(3):
        # <<<
        seen = t - (2 - j)
        # ===
        # seen = t + j
        # >>>
        x = tl.load(x_ptr + seen, mask=(seen >= 0) & (seen < n), other=0.0)
        y += tl.load(weight_ptr + j) * x
    tl.store(y_ptr + t, y, mask=t < n)


def filtered(x, weight):
    y = torch.empty_like(x)
    filtered_kernel[(1,)](x, weight, y, len(x), BLOCK=64)
    return y


# %% checks
PAGE = "kernels/recurrences/causal_conv1d.md"
KIND = "fill in"
ORDER = 8
HINTS = (
    "Which tap belongs to the token itself? For it, `seen` has to be `t`.",
    "Tap 1 sees one token back, tap 0 two.",
)
WHY = """Tap `j` of `W` sees `W - 1 - j` tokens back. A filter that looks ahead trains wonderfully, because it reads the
answer, and can't generate a word."""


def check(t):
    def want(x, weight):
        seen = torch.cat([torch.zeros_like(x[:1]), torch.zeros_like(x[:1]), x])
        n = len(x)
        return weight[0] * seen[:n] + weight[1] * seen[1 : n + 1] + weight[2] * seen[2:]

    weight = t.values(3)
    t.compare("one token", "filtered", want, t.values(1), weight, note="With nothing before it, only weight[2] counts.")
    t.compare("4 tokens", "filtered", want, t.values(4), weight, note="Which tap sees the token itself?")
    for n in (64, *t.sizes(32, most=64)):
        t.compare(f"{n} tokens", "filtered", want, t.values(n), t.values(3))


WRONG = (
    ("one token: out[0] is",),
    ("one token: out[0] is", "seen = t - j"),
    ("one token: out[0] is", "seen = t + j - 1"),
    ("4 tokens: out[", "seen = t - 2 * (2 - j)"),
    (
        "should be",
        "load(x_ptr + seen, mask=(seen >= 0) & (seen < n), other=0.0",
        "abs(tl.load(x_ptr + seen, mask=(seen >= 0) & (seen < n), other=0.0)",
    ),
)
RIGHT = (
    ("seen = t + j - 2",),
    ("seen = t - 2 + j",),
)
