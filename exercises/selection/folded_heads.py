"""# Folded heads

An indexer scores a key with `H` heads, which must not be added up too early. The score of a key is the sum over the
heads of the weight times what a ReLU leaves of the product of the head's query and the key. `scores(q, k, weights)`
computes it for one query: q is (H, D), k is (S, D), weights is (H,). The heads are added up first, which saves all
products but one for each key. Find the bug.

[[figure: indexer/heads]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scores_kernel(q_ptr, k_ptr, weights_ptr, out_ptr, H, D, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    j = tl.program_id(0)
    h, d = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + h[:, None] * D + d[None, :], mask=(h < H)[:, None] & (d < D)[None, :], other=0.0)
    k = tl.load(k_ptr + j * D + d, mask=d < D, other=0.0)
    weights = tl.load(weights_ptr + h, mask=h < H, other=0.0)
    # <<<
    z = tl.sum(q * k[None, :], axis=1)
    score = tl.sum(weights * tl.where(z <= 0.0, 0.0, z), axis=0)
    # ===
    # folded = tl.sum(weights[:, None] * q, axis=0)
    # z = tl.sum(folded * k, axis=0)
    # score = tl.where(z <= 0.0, 0.0, z)
    # >>>
    tl.store(out_ptr + j, score)


def scores(q, k, weights):
    (H, D), S = q.shape, len(k)
    out = torch.empty(S, dtype=torch.float32, device=device.DEVICE)
    blocks = dict(BLOCK_H=triton.next_power_of_2(H), BLOCK_D=triton.next_power_of_2(D))
    scores_kernel[(S,)](q, k, weights, out, H, D, **blocks)
    return out


# %% checks
PAGE = "kernels/attention/indexer.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "With one head of a positive weight both are the same. What does a head with a negative product add?",
    "First the products of all heads, a sum along each row. Then the ReLU, then the weights, then the sum.",
)
WHY = """A sum can move through a product, and not through a ReLU. Folded, a head that finds a key useless votes against
it, so that a key that suits one head only loses to one that suits none. Without the ReLU folding would be right, and a
single head would do."""


def check(t):
    def want(q, k, weights):
        z = q @ k.T
        return (torch.where(z <= 0, torch.zeros_like(z), z) * weights[:, None]).sum(0)

    def relu(z):
        return torch.where(z <= 0, torch.zeros_like(z), z)

    mistakes = {
        lambda q, k, weights: relu(((q @ k.T) * weights[:, None]).sum(0)): "Each head has a ReLU of its own.",
        lambda q, k, weights: relu((q @ k.T) * weights[:, None]).sum(0): (
            "The ReLU comes before the weight: a negative weight makes a score smaller."
        ),
        lambda q, k, weights: ((q @ k.T) * weights[:, None]).sum(0): "That is the sum without any ReLU.",
    }
    drawn = tuple(t.random.randint(2, 6) for _ in range(3))
    for H, D, S in ((3, 5, 6), (1, 3, 5), (2, 2, 4), drawn):
        arguments = t.values(H, D), t.values(S, D), t.values(H)
        t.compare(f"{t.counted(H, 'head')} of {D}, {S} keys", "scores", want, *arguments, mistakes=mistakes)


WRONG = (
    ("Each head has a ReLU of its own",),
    ("That is the sum without any ReLU", "tl.where(z <= 0.0, 0.0, z)", "z"),
    (
        "The ReLU comes before the weight",
        "weights * tl.where(z <= 0.0, 0.0, z)",
        "tl.maximum(weights * z, 0.0)",
    ),
    (
        "heads of",
        "score = tl.sum(weights * tl.where(z <= 0.0, 0.0, z), axis=0)",
        "score = tl.maximum(tl.sum(weights * tl.where(z <= 0.0, 0.0, z), axis=0), 0.0)",
    ),
)
RIGHT = (
    ("tl.where(z <= 0.0, 0.0, z)", "tl.where(z > 0.0, z, tl.where(z == z, 0.0, z))"),
    ("weights * tl.where(z <= 0.0, 0.0, z)", "tl.where(z <= 0.0, 0.0, z) * weights"),
)
