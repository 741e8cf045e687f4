"""# A noise that is infinite

`noise(words)` makes Gumbel noise of random words, whole numbers from 0 to 2³² − 1: each becomes a number `v` between 0
and 1, and that −log(−log(1 − v)). Once in four billion words the result is infinite, and its token wins, however
unlikely it is. Once in 34 million it is minus infinity. Find the bug: for every word `v` has to lie between 0 and 1,
and be neither.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def noise_kernel(words_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    word = tl.load(words_ptr + offsets, mask=mask, other=1).to(tl.float32)
    # <<<
    v = tl.minimum((word + 0.5) / 4294967296.0, 0.99999994)
    # ===
    # v = word / 4294967296.0
    # >>>
    w = 1.0 - v
    time = tl.where(w == 1.0, v, -tl.log(w) * v / (1.0 - w))
    tl.store(out_ptr + offsets, -tl.log(time), mask=mask)


def noise(words):
    out = torch.empty(len(words), device=words.device)
    noise_kernel[(1,)](words, out, len(words), BLOCK=16)
    return out


# %% checks
PAGE = "kernels/sampling/sample.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "What are `v` and `time` for the word 0?",
    "Half a step added to every word keeps it away from 0. What does the largest word become as a float32?",
    "The largest float32 below 1 is 0.99999994. `tl.minimum` takes the smaller of two numbers.",
)
WHY = """A float32 keeps 24 bits, so every word from 2³² − 128 on becomes 2³², and `v` becomes 1. A time of 0 wins
against every other. If its token has a logit of minus infinity, the sum is NaN, which PyTorch's `argmax` takes. With
150,000 tokens a row and a thousand rows a second, once in four billion is every half minute."""


def check(t):
    import math

    def want(words):
        found = []
        for word in words.tolist():
            v = min((word + 0.5) / 2**32, 1 - 2.0**-24)
            found.append(-math.log(-math.log1p(-v)))
        return torch.tensor(found, device=device.DEVICE)

    def numbers(values):
        return t.surrounded(torch.tensor(values, dtype=torch.int64))

    t.compare("words in the middle", "noise", want, numbers([2**31, 2**30, 3 * 2**30, 123456789]))
    t.compare("small words", "noise", want, numbers([0, 1, 2, 3]))
    t.compare("large words", "noise", want, numbers([2**32 - 1, 2**32 - 2, 2**32 - 100, 2**32 - 2**20]))
    words = [2**power + part for power in range(24, 32, 2) for part in (-1, 0, 1, 255)]
    t.compare("beside powers of two", "noise", want, numbers(words))
    n = t.random.randint(5, 16)
    t.compare(f"{n} words", "noise", want, numbers([t.random.randint(0, 2**32 - 2**20) for _ in range(n)]))


WRONG = (
    ("small words: out[0] is inf",),
    ("large words: out[0] is -inf", "tl.minimum((word + 0.5) / 4294967296.0, 0.99999994)", "(word + 0.5) / 2**32"),
    ("small words: out[0] is inf", "(word + 0.5)", "word"),
    ("small words: out[0] is", "(word + 0.5)", "tl.maximum(word, 100.0)"),
)  # fmt: skip
RIGHT = (
    ("v = tl.where(word > 4294967000.0, 0.99999994, (word + 0.5) / 4294967296.0)",),
    ("v = tl.minimum(word / 4294967296.0 + 0.5 / 4294967296.0, 0.99999994)",),
)
