"""# The last query lines up with the last key

`causal_mask(T, S)` stores 1 where query `i` of `T` may see key `j` of `S`. With a cache of older keys, `S`
is larger than `T`, and the newest query must see all of them. It doesn't. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def causal_mask_kernel(out_ptr, T, S, BLOCK_S: tl.constexpr):
    i = tl.program_id(0)
    j = tl.arange(0, BLOCK_S)
    # <<<
    sees = j <= i + S - T
    # ===
    # sees = j <= i
    # >>>
    tl.store(out_ptr + i * S + j, sees.to(tl.int32), mask=j < S)


def causal_mask(T, S):
    out = torch.empty(T, S, dtype=torch.int32, device=device.DEVICE)
    causal_mask_kernel[(T,)](out, T, S, BLOCK_S=triton.next_power_of_2(S))
    return out


# %% checks
PAGE = "learn/attention.py"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Query `T - 1` is the newest token, and its own key is the last one, `S - 1`.",
    "If the last query lines up with the last key, which key does query `i` line up with?",
)
WHY = """The mask is aligned at its bottom right corner, in the backward pass too. With `T = S` aligning it at the top
left gives the same mask, so test with lengths that differ."""


def check(t):
    def want(T, S):
        i, j = torch.arange(T, device=device.DEVICE), torch.arange(S, device=device.DEVICE)
        return (j[None, :] <= i[:, None] + S - T).to(torch.int32)

    for T, S in (
        (4, 4),
        (2, 5),
        (4, 3),
        (1, 1),
        (t.random.randint(2, 5), t.random.randint(6, 12)),
        (5, 2),
        (9, 1),
        (1, 33),
        (33, 65),
        (65, 33),
        (2, 300),
    ):
        note = "The last query must see every key." if T != S else ""
        t.compare(f"{T} queries, {S} keys", "causal_mask", want, T, S, name="mask", note=note)


WRONG = (
    ("2 queries, 5 keys: mask[0, 1] is 0, should be 1; row 0 is the first that is wrong",),
    (
        "4 queries, 4 keys: mask[0, 0] is 0, should be 1",
        "sees = j < i + S - T",
    ),
    (
        "4 queries, 3 keys: mask[",
        "sees = j <= i + tl.maximum(S - T, 0)",
    ),
    (
        "2 queries, 5 keys: mask[0, 4] is 1, should be 0",
        "sees = (j <= i) | (S != T)",
    ),
    (
        "2 queries, 5 keys: mask[0, 0] is 0, should be 1; row 0 is the first that is wrong",
        "sees = j <= i + T - S",
    ),
    (
        "4 queries, 4 keys: mask[0, 1] is 1, should be 0",
        "sees = j >= i + S - T",
    ),
    ("mask[0, 0]", "i + S - T", "tl.maximum(i + S - T, 0)"),
)
RIGHT = (
    ("sees = S - j >= T - i",),
    ("diagonal = S - T\nsees = j - diagonal <= i",),
)
