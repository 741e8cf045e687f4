"""# Heads past the last one

`averaged(scores, lse, indices)` turns one query's scores, a row for each head, into probabilities by the heads'
log-sum-exps, and averages them over the heads. What stands in `scores` where `indices` has −1 may be anything, and the
result is 0 there. A tile has room for 4 heads. With 4 heads the result is right, with 3 it is too large everywhere.
Where the list has none only, every log-sum-exp is −∞. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def averaged_kernel(s_ptr, lse_ptr, indices_ptr, out_ptr, H, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    j = tl.load(indices_ptr + k, mask=k < K, other=-1)
    total = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, H, BLOCK_M):
        h = start + tl.arange(0, BLOCK_M)
        mask = (h < H)[:, None] & (k < K)[None, :]
        s = tl.load(s_ptr + h[:, None] * K + k[None, :], mask=mask, other=0.0)
        lse = tl.load(lse_ptr + h, mask=h < H, other=0.0)
        # <<<
        counts = (h < H)[:, None] & (j != -1)[None, :]
        # ===
        # counts = (j != -1)[None, :]
        # >>>
        total += tl.sum(tl.where(counts, tl.exp(s - lse[:, None]), 0.0), axis=0)
    tl.store(out_ptr + k, total / H, mask=k < K)


def averaged(scores, lse, indices):
    H, K = scores.shape
    out = torch.empty(K, device=scores.device)
    averaged_kernel[(triton.cdiv(K, 4),)](scores, lse, indices, out, H, K, BLOCK_M=4, BLOCK_N=4)
    return out


# %% checks
PAGE = "kernels/attention/selected_probabilities.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "What do the lanes of the fourth head hold, of three? Which number is the exponential of that?",
    "0 − 0 is 0, and e⁰ is 1: a head that isn't there gives each key the probability 1.",
    "In a softmax a score of −∞ takes a lane out. Here the sum comes from outside, so a lane must be left out by hand.",
)
WHY = """A masked lane holds a number like any other, and its exponential is 1 here: with three heads of four that adds
a third to each probability. No heads of models show it, since 16, 64 and 128 fill their tiles. −∞ as `other` for scores
does as well, as long as the log-sum-exp beside it is finite: −∞ less −∞ is NaN. That is why what is none is chosen by
`tl.where`, and not by a product with 0."""


def check(t):
    def want(scores, lse, indices):
        listed = (indices != -1)[None, :] & (lse == lse)[:, None]
        p = torch.where(listed, scores - lse[:, None], torch.full_like(scores, -float("inf"))).exp()
        return torch.where(indices != -1, p.sum(0) / len(scores), 0.0)

    def padded(scores, lse, indices):
        """What a tile of four heads makes of those that aren't there."""
        return torch.where(indices != -1, want(scores, lse, indices) + (-len(scores) % 4) / len(scores), 0.0)

    def by_the_tile(scores, lse, indices):
        return want(scores, lse, indices) * len(scores) / (len(scores) + -len(scores) % 4)

    mistakes = {
        padded: "A head that isn't there has a probability, too.",
        lambda scores, lse, indices: torch.where(indices != -1, want(scores, lse, indices), float("nan")): (
            "0 times NaN is NaN: what is none has to be chosen away."
        ),
        by_the_tile: "The average is over the heads that there are, and not over those of a tile.",
    }

    def compared(H, K, none=0):
        indices = [t.random.randint(0, 50) for _ in range(K)]
        for place in t.random.sample(range(K), none):
            indices[place] = -1
        indices = t.surrounded(torch.tensor(indices, dtype=torch.int32))
        scores = t.values(H, K)
        held = torch.where((indices == -1)[None, :], torch.full_like(scores, -float("inf")), scores)
        largest = held.amax(1, keepdim=True)
        largest = torch.where(largest == -float("inf"), torch.zeros_like(largest), largest)
        lse = t.surrounded(((held - largest).exp().sum(1).log() + largest[:, 0]).float())
        kept = scores.clone()
        for place in range(K):
            if int(indices[place]) == -1:
                scores[:, place] = float("nan")
                kept[:, place] = 0.0
        case = f"{t.counted(H, 'head')}, {none} of {K} are none"
        run = t.compare(case, "averaged", want, scores, lse, indices, mistakes=mistakes, spare=("*",))
        of_heads = [access.elements.size for access in run.accesses if H != K and access.shape == (H,)]
        t.require(1 not in of_heads, "With one head at a time no lane is past the last. Which are, with four?", case)

    for H, K, none in ((4, 4, 0), (3, 4, 0), (4, 6, 2), (1, 5, 1), (6, 3, 3), (8, 9, 3)):
        compared(H, K, none)
    compared(t.random.randint(5, 15), t.random.randint(5, 12), 2)


WRONG = (
    ("3 heads, 0 of 4 are none: out[0] is",),
    (
        "A head that isn't there has a probability, too",
        "counts = (j != -1)[None, :] & (s == s)",
    ),
    ("4 heads, 2 of 6 are none: out[", "counts = (h < H)[:, None]"),
    ("over the heads that there are", "total / H", "total / (tl.cdiv(H, BLOCK_M) * BLOCK_M)"),
    ("0 times NaN is NaN", "tl.where(counts, tl.exp(s - lse[:, None]), 0.0)", "counts * tl.exp(s - lse[:, None])"),
    ("With one head at a time", "BLOCK_M=4", "BLOCK_M=1"),
)
RIGHT = (
    ("counts = mask & (j != -1)[None, :]",),
    (
        "counts = (h < H)[:, None] & (j != -1)[None, :]",
        "counts = (j != -1)[None, :]",
        "mask=mask, other=0.0)",
        'mask=mask, other=-float("inf"))',
    ),
    ("counts = (h[:, None] < H) & (j[None, :] >= 0)",),
)
