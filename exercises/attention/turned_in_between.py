"""# Why a rotation can't be absorbed

Suppose that keys had no part of their own for positions. Key `j` would be made from latent `j` by the matrix `w`,
and then turned by its position; the query is at position `i`. Here both have two numbers, and position `n` turns by `n`
quarter turns: one of them makes (x, y) into (−y, x).

`rotated_scores(q, w, c, i)` is given an unrotated query (2,), `w` (2, R) and latents (S, R), and returns the score with
each key. It turns the query, multiplies it by the matrix and never forms a key. Only the keys at positions that are
multiples of four get the right score. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def rotated_scores_kernel(q_ptr, w_ptr, c_ptr, out_ptr, i, R, BLOCK_R: tl.constexpr):
    j = tl.program_id(0)
    # <<<
    turns = (i - j + tl.num_programs(0) * 4) % 4
    # ===
    # turns = i % 4
    # >>>
    cos = tl.where(turns == 0, 1.0, tl.where(turns == 2, -1.0, 0.0))
    sin = tl.where(turns == 1, 1.0, tl.where(turns == 3, -1.0, 0.0))
    x, y = tl.load(q_ptr), tl.load(q_ptr + 1)
    offsets = tl.arange(0, BLOCK_R)
    w_x = tl.load(w_ptr + offsets, mask=offsets < R, other=0.0)
    w_y = tl.load(w_ptr + R + offsets, mask=offsets < R, other=0.0)
    absorbed = (cos * x - sin * y) * w_x + (sin * x + cos * y) * w_y
    c = tl.load(c_ptr + j * R + offsets, mask=offsets < R, other=0.0)
    tl.store(out_ptr + j, tl.sum(absorbed * c, axis=0))


def rotated_scores(q, w, c, i):
    S, R = c.shape
    out = torch.empty(S, dtype=torch.float32, device=device.DEVICE)
    rotated_scores_kernel[(S,)](q, w, c, out, i, R, BLOCK_R=triton.next_power_of_2(R))
    return out


# %% checks
PAGE = "derivations/mla.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "The key is turned, too. Turning both vectors of a product back by j quarter turns doesn't change it.",
    "What is left is the query, turned by i − j quarter turns. Where the difference is negative, add a multiple of 4.",
)
WHY = """Now the scores are right, and the gain is lost: `absorbed` is another vector for every key, so the product with
the matrix is done once for every key, like decompressing. A rotation between the two factors is another matrix for each
position. That is why a key has a rotated part beside the latent, which never goes through the matrix."""


def check(t):
    def turned(turns):
        def scores(q, w, c, i):
            """The query, turned by `turns(i, j)` quarter turns, times each key; None leaves nothing of it."""
            found = []
            for j, key in enumerate(c @ w.T):
                query, quarters = q, turns(i, j)
                for _ in range((quarters or 0) % 4):
                    query = torch.stack([-query[1], query[0]])
                found.append((query * key).sum() if quarters is not None else 0 * key.sum())
            return torch.stack(found)

        return scores

    want = turned(lambda i, j: i - j)
    mistakes = {
        turned(lambda i, j: i): "Key j is turned as well, by j quarter turns.",
        turned(lambda i, j: i + j): "The query has to be turned back, by the turns of the key.",
        turned(lambda i, j: j - i): "That turns the query the other way.",
        turned(lambda i, j: i - j if i >= j or (i - j) % 4 == 0 else None): (
            "In a kernel `%` leaves a negative number negative, as in C: -1 % 4 is -1, and not 3 as in Python."
        ),
    }

    drawn = (t.random.randint(5, 12), t.random.randint(2, 9), t.random.randint(0, 20))
    for S, R, i in ((1, 3, 0), (5, 3, 3), (2, 4, 0), (9, 7, 2), drawn):
        arguments = t.values(2), t.values(2, R), t.values(S, R), i
        t.compare(f"{S} keys, a query at {i}", "rotated_scores", want, *arguments, mistakes=mistakes)


WRONG = (
    ("Key j is turned as well",),
    ("5 keys, a query at 3: out[1] is", "(i - j + tl", "(i + j + tl"),
    ("That turns the query the other way", "(i - j + tl", "(j - i + tl"),
    ("-1 % 4 is -1, and not 3 as in Python", "(i - j + tl.num_programs(0) * 4) % 4", "(i - j) % 4"),
    ("5 keys, a query at 3: out[1] is", "(i - j + tl.num_programs(0) * 4) % 4", "tl.where(i == 0, 3 * j, i + j) % 4"),
)
RIGHT = (
    ("turns = (i + 3 * j) % 4",),
    ("turns = (i - j) & 3",),
)
