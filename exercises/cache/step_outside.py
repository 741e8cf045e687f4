"""# The step leaves the sum

A cache holds codes, and key `j` stands for the numbers `lowest[j] + step[j] * codes[j, d]`. Decoding all of them would
be a multiplication and an addition for each number. The kernel multiplies each query by the codes as they are, and adds
the query's own numbers up:

    z[h, j] = sum over d of q[h, d] * codes[j, d]        q_sum[h] = sum over d of q[h, d]

Complete `scores(z, q_sum, step, lowest)`, which makes of these the products of the queries with the *keys*, (H, S).
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scores_kernel(z_ptr, q_sum_ptr, step_ptr, lowest_ptr, out_ptr, S, BLOCK_S: tl.constexpr):
    h, j = tl.program_id(0), tl.arange(0, BLOCK_S)
    z = tl.load(z_ptr + h * S + j, mask=j < S, other=0.0)
    q_sum = tl.load(q_sum_ptr + h)
    step = tl.load(step_ptr + j, mask=j < S, other=0.0)
    lowest = tl.load(lowest_ptr + j, mask=j < S, other=0.0)
    # <<<
    score = step * z + lowest * q_sum
    # ===
    # score = z
    # >>>
    tl.store(out_ptr + h * S + j, score, mask=j < S)


def scores(z, q_sum, step, lowest):
    H, S = z.shape
    out = torch.empty(H, S, dtype=torch.float32, device=device.DEVICE)
    scores_kernel[(H,)](z, q_sum, step, lowest, out, S, BLOCK_S=triton.next_power_of_2(S))
    return out


# %% checks
PAGE = "derivations/quantized_cache.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Write the sum of `q[h, d] * (lowest[j] + step[j] * codes[j, d])` out. Which factors don't have a d?",
    "The step is multiplied to `z[h, j]`. The lowest value is there once for each number of the query.",
)
WHY = """Two multiplications and an addition for each score, in place of one each for every *number* of a key: with
heads of 128 numbers that is far less. And what is multiplied in the loop are whole numbers, exact in sixteen bits."""


def check(t):
    def want(z, q_sum, step, lowest):
        return step[None, :] * z + lowest[None, :] * q_sum[:, None]

    mistakes = {
        lambda z, q_sum, step, lowest: z: "Those are the products with the codes.",
        lambda z, q_sum, step, lowest: step * z: "The lowest values are missing.",
        lambda z, q_sum, step, lowest: step * z + lowest: "Each number of the query meets the lowest value.",
        lambda z, q_sum, step, lowest: step * (z + lowest * q_sum[:, None]): "The step belongs to the codes alone.",
    }
    for H, S in ((1, 1), (2, 3), (3, 5), (t.random.randint(2, 5), t.random.randint(2, 9))):
        arguments = t.values(H, S), t.values(H), t.positive(S), t.values(S)
        t.compare(f"H = {H}, S = {S}", "scores", want, *arguments, mistakes=mistakes)


WRONG = (
    ("Those are the products with the codes",),
    ("Each number of the query meets the lowest value", "lowest * q_sum", "lowest"),
    ("The step belongs to the codes alone", "step * z + lowest * q_sum", "step * (z + lowest * q_sum)"),
)
RIGHT = (
    ("score = lowest * q_sum + z * step",),
    ("score = tl.fma(step, z, lowest * q_sum)",),
)
