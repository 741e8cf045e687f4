"""# One scale per group

`dequantize(q, scales, group_size)` multiplies each weight of a column by its group's scale: rows 0 to
`group_size - 1` share `scales[0]`, the next ones `scales[1]`. Only the first group comes out right. Find the
bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def dequantize_kernel(q_ptr, scales_ptr, out_ptr, K, group_size, BLOCK_K: tl.constexpr):
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    q = tl.load(q_ptr + k, mask=k < K, other=0)
    # <<<
    group = k // group_size
    # ===
    # group = k // BLOCK_K // group_size
    # >>>
    scale = tl.load(scales_ptr + group, mask=k < K, other=0.0)
    tl.store(out_ptr + k, q.to(tl.float32) * scale, mask=k < K)


def dequantize(q, scales, group_size):
    out = torch.empty(len(q), device=q.device)
    dequantize_kernel[(triton.cdiv(len(q), 4),)](q, scales, out, len(q), group_size, BLOCK_K=4)
    return out


# %% checks
PAGE = "kernels/gemlite/gemm.md"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "`k` is already a row of the weight. What must it be divided by?",
    "A block of rows may lie inside one group, or span several.",
)
WHY = """A row's group doesn't depend on how the rows are divided among programs. A block of rows may lie inside one
group or span several, so each lane looks up its own."""


def check(t):
    def want(q, scales, group_size):
        rows = torch.arange(len(q), device=q.device) // group_size
        return q * scales[rows]

    drawn = t.random.randint(3, 9)
    for K, group in (
        (8, 8),
        (10, 2),
        (24, 12),
        (18, 6),
        (5, 1),
        (drawn * t.random.randint(2, 4), drawn),
        (1, 1),
        (128, 32),
        (390, 130),
        (300, 3),
    ):
        q, scales = t.values(K, dtype=torch.int32), t.values(K // group)
        t.compare(
            f"{K} rows, groups of {group}",
            "dequantize",
            want,
            q,
            scales,
            group,
            name="w",
            note="Which group is that row in?",
        )


WRONG = (
    (
        "18 rows, groups of 6: w[",
        "group = tl.where(group_size >= BLOCK_K, tl.program_id(0) * BLOCK_K // group_size, k // group_size)",
    ),
    ("10 rows, groups of 2: w[2] is",),
    (
        "8 rows, groups of 8: program 1 of dequantize_kernel does a load outside a tensor: element 1 of scales_ptr",
        "group = tl.program_id(0) + 0 * k",
    ),
    (
        "10 rows, groups of 2: w[2] is",
        "group = tl.program_id(0) * BLOCK_K // group_size + 0 * k",
    ),
    (
        "8 rows, groups of 8: program 0 of dequantize_kernel does a load outside",
        "group = k % group_size",
    ),
)
RIGHT = (
    ("group = (k - k % group_size) // group_size",),
    ("group = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)\ngroup = group // group_size",),
)
