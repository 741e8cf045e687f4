"""# Which width scales the score?

Queries are absorbed: each has `rank` numbers that meet the latent and some more that meet the rotated part.
`absorbed_scores(q, cache, rank, D)` multiplies them with each row of the cache, and scales. A key that the latent
stands for would have `D` numbers and the rotated part. The scores must be those that the query had with such keys.
They are too small. Find the bug.
"""

# %% solution
from academy.runtime import device

import math

import torch
import triton
import triton.language as tl


@triton.jit
def absorbed_scores_kernel(q_ptr, cache_ptr, out_ptr, W, scale, BLOCK_W: tl.constexpr):
    h, j, keys = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    offsets = tl.arange(0, BLOCK_W)
    q = tl.load(q_ptr + h * W + offsets, mask=offsets < W, other=0.0)
    c = tl.load(cache_ptr + j * W + offsets, mask=offsets < W, other=0.0)
    tl.store(out_ptr + h * keys + j, tl.sum(q * c, axis=0) * scale)


def absorbed_scores(q, cache, rank, D):
    (H, W), keys = q.shape, len(cache)
    out = torch.empty(H, keys, dtype=torch.float32, device=device.DEVICE)
    # <<<
    scale = 1 / math.sqrt(D + W - rank)
    # ===
    # scale = 1 / math.sqrt(W)
    # >>>
    absorbed_scores_kernel[(H, keys)](q, cache, out, W, scale, BLOCK_W=triton.next_power_of_2(W))
    return out


# %% checks
PAGE = "kernels/attention/mla_decode.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "Absorbing changes the order of a product, and not the score. Which width did the query have before?",
    "The rotated part has W − rank numbers, in the cache as in a key.",
)
WHY = """An absorbed query is wider than a key, 576 numbers in place of 192, and the score is the same number. So its
scale is the same, too. With the other one every weight is too even, and nothing crashes: the text only gets worse."""


def check(t):
    def want(q, cache, rank, D):
        return q @ cache.T / (D + q.shape[1] - rank) ** 0.5

    def scaled(width):
        return lambda q, cache, rank, D: q @ cache.T / width(q.shape[1], rank, D) ** 0.5

    mistakes = {
        scaled(lambda W, rank, D: W): "That is scaled by the width of a row of the cache.",
        scaled(lambda W, rank, D: D): "A key has a rotated part, too.",
        scaled(lambda W, rank, D: rank): "That is scaled by the width of the latent.",
        scaled(lambda W, rank, D: 1): "That isn't scaled.",
    }
    drawn = (t.random.randint(1, 3), t.random.randint(1, 4), t.random.randint(8, 30), t.random.randint(0, 3))
    for H, keys, rank, rotated in ((1, 1, 8, 2), (2, 3, 12, 3), (3, 2, 16, 0), (1, 5, 7, 1), drawn):
        D = t.random.choice((4, 16)) - rotated  # the width of a key is a power of four: its root needs no rounding
        q, cache = t.values(H, rank + rotated), t.values(keys, rank + rotated)
        case = f"{rank} and {rotated} numbers for keys of {D}"
        t.compare(case, "absorbed_scores", want, q, cache, rank, D, mistakes=mistakes)


WRONG = (
    ("That is scaled by the width of a row of the cache",),
    ("A key has a rotated part, too", "D + W - rank", "D"),
    ("That is scaled by the width of the latent", "D + W - rank", "rank"),
)
RIGHT = (
    ("rotated = W - rank\nscale = (D + rotated) ** -0.5",),
    ("scale = 1 / math.sqrt(q.shape[1] - rank + D)",),
)
