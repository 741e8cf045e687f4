"""# Scales through the ReLU

Queries and keys are codes. A head's codes stand for numbers `sigma[h]` times as large, a key's for numbers `kappa[j]`
times as large; all scales are positive. The score is that of the numbers:

    score[j] = sum over h of weights[h] * relu(sum over d of (sigma[h] * q[h, d]) * (kappa[j] * k[j, d]))

The products of the codes are there: `z = q @ k.T`, of shape (H, S), so nothing has to be decoded. Complete
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

    def scaled(by):
        """What it would be with `by(sigma, kappa)` as the scales of the products, (H, S) or what broadcasts to it."""
        return lambda z, weights, sigma, kappa: (
            torch.where(z <= 0, torch.zeros_like(z), z) * weights[:, None] * by(sigma, kappa)
        ).sum(0)

    mistakes = {
        scaled(lambda sigma, kappa: sigma[:, None]): "The scales of the keys are missing.",
        scaled(lambda sigma, kappa: kappa[None]): "The scales of the heads are missing.",
        scaled(lambda sigma, kappa: sigma[:, None] * kappa[0]): "That is the scale of key 0 for all keys.",
    }
    drawn = (t.random.randint(2, 7), t.random.randint(2, 9))
    for H, S in ((1, 1), (2, 3), (5, 4), drawn):
        arguments = t.values(H, S), t.values(H), t.positive(H), t.positive(S)
        # A scale is positive, and of ordinary size.
        spare = ("* in sigma", "* in kappa")
        t.compare(
            f"{t.counted(H, 'head')}, {t.counted(S, 'key')}", "scores", want, *arguments, mistakes=mistakes, spare=spare
        )


WRONG = (
    ("1 head, 1 key: out[0] is",),
    ("The scales of the keys are missing", " * tl.load(kappa_ptr + j)", ""),
    ("The scales of the heads are missing", "weights * sigma * left", "weights * left"),
    ("That is the scale of key 0 for all keys", "tl.load(kappa_ptr + j)", "tl.load(kappa_ptr)"),
)
RIGHT = (
    ("weights * sigma * left", "weights * (sigma * left)"),
    ("score = tl.load(kappa_ptr + j) * tl.sum(left * (sigma * weights), axis=0)",),
)
