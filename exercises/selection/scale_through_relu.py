"""# Scales through the ReLU

Queries and keys are codes. A head's codes stand for numbers `sigma[h]` times as large, a key's for numbers `kappa[j]`
times as large; all scales are positive. The score is that of the numbers:

    score[j] = sum over h of weights[h] * relu(sum over d of (sigma[h] * q[h, d]) * (kappa[j] * k[j, d]))

`products` is what the codes give: `z = q @ k.T`, of shape (H, S), so nothing has to be decoded. Complete
`scores(z, weights, sigma, kappa)`.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scores_kernel(z_ptr, weights_ptr, sigma_ptr, kappa_ptr, out_ptr, H, S, BLOCK_H: tl.constexpr):
    j, h = tl.program_id(0), tl.arange(0, BLOCK_H)
    z = tl.load(z_ptr + h * S + j, mask=h < H, other=0.0)
    weights = tl.load(weights_ptr + h, mask=h < H, other=0.0)
    sigma = tl.load(sigma_ptr + h, mask=h < H, other=0.0)
    left = tl.where(z <= 0.0, 0.0, z)
    # <<<
    score = tl.sum(weights * sigma * left, axis=0) * tl.load(kappa_ptr + j)
    # ===
    # score = tl.sum(weights * left, axis=0)
    # >>>
    tl.store(out_ptr + j, score)


def scores(z, weights, sigma, kappa):
    H, S = z.shape
    out = torch.empty(S, dtype=torch.float32, device=device.DEVICE)
    scores_kernel[(S,)](z, weights, sigma, kappa, out, H, S, BLOCK_H=triton.next_power_of_2(H))
    return out


# %% checks
PAGE = "kernels/attention/indexer.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "max(c · z, 0) is c · max(z, 0) for a positive c. Which of the scales is the same for all heads?",
    "`sigma` belongs beside the weights, inside the sum. `kappa[j]` is the same in every term.",
)
WHY = """A positive factor doesn't change which products the ReLU keeps. So the query's scale can be multiplied into its
weight before the kernel is called, and the key's is one multiplication for each score, in place of one for each of its
numbers. A negative scale would turn the ReLU round, and an offset, as four-bit weights have it, can't pass at all."""


def check(t):
    def want(z, weights, sigma, kappa):
        product = sigma[:, None] * kappa[None, :] * z
        return (torch.where(product <= 0, torch.zeros_like(product), product) * weights[:, None]).sum(0)

    drawn = (t.random.randint(2, 7), t.random.randint(2, 9))
    for H, S in ((1, 1), (2, 3), (5, 4), drawn):
        arguments = t.values(H, S), t.values(H), t.positive(H), t.positive(S)
        # A scale is positive, and of ordinary size.
        t.compare(f"{H} heads, {S} keys", "scores", want, *arguments, spare=("* in sigma", "* in kappa"))


WRONG = (
    ("1 heads, 1 keys: out[0] is",),
    ("1 heads, 1 keys: out[0] is", " * tl.load(kappa_ptr + j)", ""),
    ("2 heads, 3 keys: out[", "tl.load(kappa_ptr + j)", "tl.load(kappa_ptr)"),
)
RIGHT = (
    ("weights * sigma * left", "weights * (sigma * left)"),
    ("score = tl.load(kappa_ptr + j) * tl.sum(left * (sigma * weights), axis=0)",),
)
