"""# A state instead of all keys

Causal attention without a softmax is `torch.tril(q @ k.T) @ v`: every query looks at all keys up to its own. Compute
the same in one walk over the `T` tokens, which keeps nothing of earlier tokens but a matrix of `D` by `D` numbers. `q`,
`k` and `v` are (T, D) and contiguous.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def walk_kernel(q_ptr, k_ptr, v_ptr, o_ptr, T, D, BLOCK_D: tl.constexpr):
    d = tl.arange(0, BLOCK_D)
    state = tl.zeros((BLOCK_D, BLOCK_D), dtype=tl.float32)
    for t in range(0, T):
        q = tl.load(q_ptr + t * D + d, mask=d < D, other=0.0)
        k = tl.load(k_ptr + t * D + d, mask=d < D, other=0.0)
        v = tl.load(v_ptr + t * D + d, mask=d < D, other=0.0)
        # <<<
        state += k[:, None] * v[None, :]
        o = tl.sum(q[:, None] * state, axis=0)
        # ===
        # o = v
        # >>>
        tl.store(o_ptr + t * D + d, o, mask=d < D)


def walk(q, k, v):
    T, D = q.shape
    o = torch.empty_like(v)
    walk_kernel[(1,)](q, k, v, o, T, D, BLOCK_D=triton.next_power_of_2(D))
    return o


# %% checks
PAGE = "learn/without_a_cache.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "q · k times v, summed over all earlier tokens: what of that doesn't depend on the query?",
    "The outer product of a key and its value is `k[:, None] * v[None, :]`. Add it up.",
    "A query reads the product of its row with the state: multiply the rows by `q[:, None]` and add them up.",
)
WHY = """`(q · k) v` is `q` times the outer product of `k` and `v`. The outer products can be added up before any query
is known, and that is all that has to be kept. A token reads after it has written: the mask includes the diagonal."""


def check(t):
    import torch

    def want(q, k, v):
        return torch.stack([q[i] @ k[: i + 1].T @ v[: i + 1] for i in range(len(q))])

    for T, D in ((1, 3), (3, 2), (t.random.randint(4, 7), t.random.randint(3, 7)), (33, 2), (2, 33)):
        q, k, v = t.values(T, D), t.values(T, D), t.values(T, D)
        note = "Row i of the state belongs to number i of the key, and a token reads after it has written."
        case = f"{t.counted(T, 'token')}, D = {D}"
        run = t.compare(case, "walk", want, q, k, v, name="o", note=note)
        t.traffic(case, run, read=12 * T * D, written=4 * T * D)


WRONG = (
    ("1 token, D = 3: o[0, 0] is",),
    (
        "1 token, D = 3: o[0, 0] is",
        "o = tl.sum(q[:, None] * state, axis=0)\nstate += k[:, None] * v[None, :]",
    ),
    (
        "1 token, D = 3: o[0, 0] is",
        "state += k[:, None] * v[None, :]\no = tl.sum(q[:, None] * state, axis=1)",
    ),
    (
        "3 tokens, D = 2: o[1, 0] is",
        "state = k[:, None] * v[None, :]\no = tl.sum(q[:, None] * state, axis=0)",
    ),
)
RIGHT = (
    ("state = state + v[None, :] * k[:, None]\no = tl.sum(state * q[:, None], axis=0)",),
    ("state += k[:, None] * v[None, :]\no = tl.sum(tl.trans(q[:, None] * state), axis=1)",),
)
