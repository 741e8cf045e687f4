"""# The one number that backward needs

Complete `with_lse(q, k, v, BLOCK_N)`: attention in one pass over the keys, for all queries as one block. It returns the
output and the log-sum-exp of each row of scores. Besides the output, that is all the backward pass needs from the
forward pass.
"""

# %% solution
import math

import torch


def with_lse(q, k, v, BLOCK_N):
    row_max, row_sum = torch.full((len(q), 1), -math.inf).to(q), torch.zeros(len(q), 1).to(q)
    acc = torch.zeros_like(q)
    for start in range(0, len(k), BLOCK_N):
        s = q @ k[start : start + BLOCK_N].T / math.sqrt(q.shape[1])
        new_max = torch.maximum(row_max, s.amax(1, keepdim=True))
        p, alpha = torch.exp(s - new_max), torch.exp(row_max - new_max)
        # <<<
        row_sum = row_sum * alpha + p.sum(1, keepdim=True)
        acc = acc * alpha + p @ v[start : start + BLOCK_N]
        # ===
        # row_sum = row_sum + p.sum(1, keepdim=True)
        # acc = acc + p @ v[start : start + BLOCK_N]
        # >>>
        row_max = new_max
    # <<<
    return acc / row_sum, (row_max + torch.log(row_sum)).squeeze(1)
    # ===
    # return acc / row_sum, row_max.squeeze(1)
    # >>>


# %% checks
PAGE = "learn/attention.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "When a larger score turns up, what was added up before is relative to the old maximum. `alpha` is "
    "the factor between the two.",
    "The sum is relative to the largest score. The logarithm turns the factor that was taken out into a term.",
)
WHY = """The sum is relative to the largest score. The logarithm turns the factor that was taken out into a term."""


def check(t):
    def want(q, k, v, BLOCK_N):
        s = q @ k.T / q.shape[1] ** 0.5
        return s.softmax(1) @ v, s.logsumexp(1)

    for keys, scale, block in (
        (3, 1.0, 4),
        (10, 1.0, 4),
        (9, 30.0, 4),
        (t.random.randint(11, 16), 3.0, 3),
        (8, 1.0, 4),
        (1, 1.0, 1),
        (33, 2.0, 8),
        (5, 1.0, 64),
    ):
        inputs = t.values(2, 4, scale=scale), t.values(keys, 4), t.values(keys, 4), block
        t.compare(f"{keys} keys in blocks of {block}", "with_lse", want, *inputs, name="o, lse", kernel=False)
    q, k, v = t.values(6, 4), t.values(9, 4), t.values(9, 4)
    q[0] = 0.0
    k[:4] = k[:1] * -50
    t.compare(
        "more queries, scores far below the others first", "with_lse", want, q, k, v, 2, name="o, lse", kernel=False
    )


WRONG = (
    ("3 keys in blocks of 4: lse[0] is",),
    (
        "10 keys in blocks of 4: o[0, 0] is",
        "acc * alpha + p",
        "acc + p",
    ),
    (
        "10 keys in blocks of 4: o[0, 0] is",
        "row_sum * alpha + p.sum",
        "row_sum + p.sum",
    ),
    (
        "3 keys in blocks of 4: lse[0] is",
        "row_max + torch.log(row_sum)",
        "torch.log(row_sum)",
    ),
    (
        "3 keys in blocks of 4: lse has shape (2, 1), should have (2,)",
        ".squeeze(1)",
        "",
    ),
)
RIGHT = (
    (
        "(row_max + torch.log(row_sum)).squeeze(1)",
        "(torch.log(row_sum) + row_max)[:, 0]",
    ),
    (
        "row_sum = row_sum * alpha + p.sum(1, keepdim=True)",
        "row_sum *= alpha\n        row_sum += p.sum(1, keepdim=True)",
    ),
)
