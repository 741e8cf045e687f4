"""# The scale of a step

`decoded_sums(q, scale)` adds up each row of `q`, whose codes have a scale for every eight columns. The loop takes
`BLOCK` columns at a time. With steps of eight it is right. With steps of four it isn't. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def decoded_sums_kernel(q_ptr, scale_ptr, out_ptr, K, stride_q, stride_scale, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for step in range(0, tl.cdiv(K, BLOCK)):
        offs_k = step * BLOCK + tl.arange(0, BLOCK)
        q = tl.load(q_ptr + row * stride_q + offs_k, mask=offs_k < K, other=0.0).to(tl.float32)
        # <<<
        scale = tl.load(scale_ptr + row * stride_scale + step * BLOCK // GROUP)
        # ===
        # scale = tl.load(scale_ptr + row * stride_scale + step)
        # >>>
        total += tl.sum(q, axis=0) * scale
    tl.store(out_ptr + row, total)


def decoded_sums(q, scale, BLOCK):
    M, K = q.shape
    out = torch.empty(M, device=q.device)
    decoded_sums_kernel[(M,)](q, scale, out, K, q.stride(0), scale.stride(0), GROUP=8, BLOCK=BLOCK)
    return out


# %% checks
PAGE = "kernels/fp8/scaled_matmul.md"
KIND = "find the bug"
ORDER = 7
HINTS = (
    "Which columns does step 1 take if `BLOCK` is 4? Which group are they in?",
    "A group is eight columns, whatever a step is. The first column of a step says which group it is in.",
)
WHY = """A scale belongs to a part of K. That its number is the number of the step is a coincidence of one size of tile,
and the tile is what gets tuned."""


def check(t):
    def want(q, scale, BLOCK):
        spread = torch.stack([scale] * 8, 2).flatten(1)[:, : q.shape[1]]
        return (q * spread).sum(1)

    for BLOCK in (8, 4, 2):
        for rows, K in ((1, 16), (3, 21), (2, t.random.randint(9, 30)), (2, 1), (1, 8), (2, 9), (1, 90)):
            groups = -(-K // 8)
            q, scale = t.values(rows, K).contiguous(), t.values(rows, groups).contiguous()
            t.compare(f"{rows} x {K} in steps of {BLOCK}", "decoded_sums", want, q, scale, BLOCK)


WRONG = (
    ("1 x 16 in steps of 4: program 0 of decoded_sums_kernel does a load outside a tensor: element 2 of scale_ptr",),
    ("in steps of 8: ", "step * BLOCK // GROUP", "step * BLOCK % GROUP"),
    ("in steps of 8: ", "step * BLOCK // GROUP", "step // GROUP * BLOCK"),
)
RIGHT = (
    ("step * BLOCK // GROUP", "step // (GROUP // BLOCK)"),
    ("step * BLOCK // GROUP", "tl.min(offs_k, axis=0) // GROUP"),
)
