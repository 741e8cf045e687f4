"""# Weights that add up to 1

With positive queries and keys, linear attention can be a weighted mean, as attention is: each output is divided by the
sum of its weights, `sum(q[i] · k[j] for j <= i)`. Add that to the walk, without a second pass over the keys. `q`, `k`
and `v` are (T, D), contiguous, and `D` is a power of two.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def mean_kernel(q_ptr, k_ptr, v_ptr, o_ptr, T, D: tl.constexpr):
    d = tl.arange(0, D)
    state = tl.zeros((D, D), dtype=tl.float32)
    # <<<
    keys = tl.zeros((D,), dtype=tl.float32)
    # ===
    # >>>
    for t in range(0, T):
        q = tl.load(q_ptr + t * D + d)
        k = tl.load(k_ptr + t * D + d)
        v = tl.load(v_ptr + t * D + d)
        state += k[:, None] * v[None, :]
        o = tl.sum(q[:, None] * state, axis=0)
        # <<<
        keys += k
        o = o / tl.sum(q * keys, axis=0)
        # >>>
        tl.store(o_ptr + t * D + d, o)


def mean(q, k, v):
    T, D = q.shape
    o = torch.empty_like(v)
    mean_kernel[(1,)](q, k, v, o, T, D=D)
    return o


# %% checks
PAGE = "kernels/recurrences/linear_attention.md"
KIND = "fill in"
ORDER = 4
HINTS = (
    "The sum of the weights is linear in the query, as the output is.",
    "It is what the output would be if every value were 1: a column of ones beside v.",
    "Keep the sum of the keys. Its dot product with the query is the sum of the weights.",
)
WHY = """The weights' sum is `q` times the sum of the keys so far: one more column of the state, for a value of 1. It is
why kernels can leave normalising to the caller, who appends that column to v."""


def check(t):
    import torch

    def want(q, k, v):
        def seen(i):
            p = q[i] @ k[: i + 1].T
            return p @ v[: i + 1] / p.sum()

        return torch.stack([seen(i) for i in range(len(q))])

    # With weights of both signs, or none, there is no mean.
    few = {f"{kind} in {name}" for kind in ("zeros", "ties", "both signs", "tiny numbers") for name in "qk"}
    for T, D in ((1, 2), (3, 2), (t.random.randint(4, 7), 4), (33, 2), (2, 32)):
        q, k, v = t.values(T, D).abs() + 0.25, t.values(T, D).abs() + 0.25, t.values(T, D)
        case = f"{t.counted(T, 'token')}, D = {D}"
        run = t.compare(case, "mean", want, q, k, v, name="o", spare=few)
        t.traffic(case, run, read=12 * T * D, written=4 * T * D)


WRONG = (
    ("1 token, D = 2: o[0, 0] is",),
    ("3 tokens, D = 2: o[1, 0] is", "keys += k\n", "keys = k\n"),
    ("1 token, D = 2: o[0, 0] is", "o = o / tl.sum(q * keys, axis=0)", "o = o / tl.sum(keys, axis=0)"),
    ("3 tokens, D = 2: o[1, 0] is", "o = o / tl.sum(q * keys, axis=0)", "o = o / (tl.sum(q * keys, axis=0) * (t + 1))"),
)
RIGHT = (
    ("o = o / tl.sum(q * keys, axis=0)", "o = o * (1.0 / tl.sum(keys * q, axis=0))"),
    ("keys += k\n", "keys = keys + k\n"),
)
