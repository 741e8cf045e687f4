"""# Minus infinity minus minus infinity

`logsumexp(x)` goes along a vector in chunks of four, in the online form. If the first chunk is masked off, so that all
its scores are minus infinity, the result is NaN. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    biggest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))
        new = tl.maximum(biggest, tl.max(x, axis=0))
        # <<<
        shift = tl.where(new == -float("inf"), 0.0, new)  # nothing finite yet: nothing to subtract
        total = total * tl.exp(biggest - shift) + tl.sum(tl.exp(x - shift), axis=0)
        # ===
        # total = total * tl.exp(biggest - new) + tl.sum(tl.exp(x - new), axis=0)
        # >>>
        biggest = new
    tl.store(out_ptr, biggest + tl.log(total))


def logsumexp(x):
    out = torch.empty(1, device=x.device)
    logsumexp_kernel[(1,)](x, out, len(x), BLOCK=4)
    return out


# %% checks
PAGE = "kernels/tutorials/softmax.md"
KIND = "find the bug"
ORDER = 10
HINTS = (
    "After the first chunk, `biggest` and `new` are both minus infinity. What is their difference?",
    "Before the first finite score, any finite number may be subtracted: minus infinity stays minus infinity.",
    "`tl.where(condition, a, b)` chooses in each lane.",
)
WHY = """Minus infinity minus a finite number is minus infinity, and its exponential is 0, which is right. It is an
exhibit of the [museum of bugs](../../docs/guides/debugging.md#12-minus-infinity-minus-minus-infinity)."""


def check(t):
    def want(x):
        return x.logsumexp(0).view(1)

    none = torch.full((4,), -float("inf"), device=device.DEVICE)
    t.compare("10 scores", "logsumexp", want, t.values(10))
    t.compare("the first chunk is masked", "logsumexp", want, t.surrounded(torch.cat([none, t.values(5)])))
    t.compare(
        "the last chunk is masked", "logsumexp", want, t.surrounded(torch.cat([t.values(4, scale=20.0) - 100, none]))
    )
    t.compare("everything is masked", "logsumexp", want, t.surrounded(none))
    for low in (200, 1500, t.random.randint(3000, 10**6)):
        scores = t.surrounded(t.values(6) - low)
        t.compare(f"scores near -{low}", "logsumexp", want, scores)
        later = t.surrounded(torch.cat([none, scores]))
        t.compare(f"the first chunk is masked, then scores near -{low}", "logsumexp", want, later)
    for n in t.sizes(4):
        run = t.compare(f"{n} scores", "logsumexp", want, t.values(n, scale=5.0))
        t.traffic(f"{n} scores", run, read=4 * n, written=4)
    high = t.surrounded(torch.cat([none, t.values(t.random.randint(1, 9)) + 1500, none]))
    t.compare("scores near 1500 between masked chunks", "logsumexp", want, high)


WRONG = (
    (
        "scores near -1500: out[0] is",
        "shift = tl.maximum(new, -1000.0)\ntotal = total * tl.exp(biggest - shift) + tl.sum(tl.exp(x - shift), axis=0)",
    ),
    (
        "scores near -200: out[0] is -inf",
        'biggest, total = -float("inf"), 0.0',
        "biggest, total = 0.0, 0.0",
        'shift = tl.where(new == -float("inf"), 0.0, new)  # nothing finite yet: nothing to subtract',
        "shift = new",
    ),
    (
        "then scores near -200: out[0] is -inf",
        'if new == -float("inf"):\n    new = 0.0\n'
        "total = total * tl.exp(biggest - new) + tl.sum(tl.exp(x - new), axis=0)",
    ),
    ("the first chunk is masked: out[0] is nan",),
    (
        "out[0] is",
        "total = total + tl.sum(tl.exp(x - new), axis=0)",
    ),
    (
        "the last chunk is masked: out",
        'shift = tl.where(tl.max(x, axis=0) == -float("inf"), 0.0, new)\n'
        "total = total * tl.exp(biggest - shift) + tl.sum(tl.exp(x - shift), axis=0)",
    ),
    (
        "everything is masked: out",
        "x = tl.maximum(x, -1e30)\n"
        "new = tl.maximum(new, -1e30)\n"
        "total = total * tl.exp(biggest - new) + tl.sum(tl.exp(x - new), axis=0)",
    ),
)
RIGHT = (
    (
        "old = tl.where(biggest == new, 1.0, tl.exp(biggest - new))\n"
        'total = total * old + tl.sum(tl.where(x == -float("inf"), 0.0, tl.exp(x - new)), axis=0)',
    ),
    ("shift = tl.maximum(new, -1e30)\ntotal = total * tl.exp(biggest - shift) + tl.sum(tl.exp(x - shift), axis=0)",),
)
