"""# The stale end of a cache

`weigh(p, v, length)` weighs the rows of a cache `v` with the probabilities `p`. Past `length` the cache holds what an
older text left there, here NaN, and `p` is 0. Still, the result is NaN. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def weigh_kernel(p_ptr, v_ptr, out_ptr, length, S, D: tl.constexpr, BLOCK_S: tl.constexpr):
    j, d = tl.arange(0, BLOCK_S), tl.arange(0, D)
    p = tl.load(p_ptr + j, mask=j < S, other=0.0)
    # <<<
    mask = j[:, None] < length
    # ===
    # mask = j[:, None] < S
    # >>>
    v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + d, tl.sum(p[:, None] * v, axis=0))


def weigh(p, v, length):
    S, D = v.shape
    out = torch.empty(D, device=v.device)
    weigh_kernel[(1,)](p, v, out, length, S, D=D, BLOCK_S=triton.next_power_of_2(S))
    return out


# %% checks
PAGE = "kernels/attention/decode.md"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "What is 0 times NaN?",
    "A weight of zero doesn't make a value harmless. What must the lanes past the end read?",
)
WHY = "0 · NaN is NaN. Values that don't count must either not be loaded or be replaced before the product."


def check(t):
    def want(p, v, length):
        return p[:length] @ v[:length]

    size = t.random.randint(6, 12)
    shares = ("a NaN in p", "an infinity in p", "minus infinity in p")  # of all the rows that are loaded
    for rows, length, stale in (
        (5, 5, "nan"),
        (5, 3, "nan"),
        (5, 1, "inf"),
        (size, size - 2, "-inf"),
        (33, 17, "nan"),
        (130, 129, "inf"),
    ):
        p, v = t.values(rows).softmax(0), t.values(rows, 4)
        p[length:], v[length:] = 0.0, float(stale)
        t.compare(f"{length} of {rows} rows, then {stale}", "weigh", want, p, v, length, spare=shares)
    p, v = t.values(5).softmax(0), t.values(5, 4)
    p[3:], v[3:], v[1, 2], v[2, 0] = 0.0, float("nan"), float("nan"), float("inf")
    note = "A NaN before `length` belongs to the text: hiding it would hide a mistake."
    t.compare("3 of 5 rows, with a NaN and an infinity among them", "weigh", want, p, v, 3, note=note, spare=("*",))


WRONG = (
    (
        "A NaN before `length` belongs to the text",
        "mask = j[:, None] < length",
        "mask = j[:, None] < S",
        "    tl.store(out_ptr",
        "    v = tl.where((v == v) & (tl.abs(v) < 1e38), v, 0.0)\n    tl.store(out_ptr",
    ),
    (
        "1 of 5 rows, then inf: out[0] is nan",
        "mask = j[:, None] < length",
        "mask = j[:, None] < S",
        "    tl.store(out_ptr",
        "    v = tl.where(v == v, v, 0.0)\n    tl.store(out_ptr",
    ),
    ("3 of 5 rows, then nan: out[0] is nan",),
    (
        "5 of 5 rows, then nan: out[0] is",
        "mask = j[:, None] < length - 1",
    ),
    (
        "5 of 5 rows, then nan: program 0 of weigh_kernel does a load outside a tensor: element 20 of v_ptr",
        "mask = j[:, None] <= length",
    ),
    (
        "5 of 5 rows, then nan: program 0 of weigh_kernel does a load outside a tensor",
        "v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=mask, other=0.0)",
        "v = tl.load(v_ptr + j[:, None] * D + d[None, :])\n    v = tl.where(mask, v, 0.0)",
    ),
)
RIGHT = (
    ("mask = (j[:, None] < length) & (j[:, None] < S)",),
    (
        "v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=mask, other=0.0)",
        "v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < S, other=0.0)\n"
        "    v = tl.where(mask, v, 0.0)",
    ),
)
