r"""# One pass

**What was slow?** The second pass waits for a row that was in registers a moment ago.

**What changes?** The whole row is one block, and stays in registers while mean, variance and result are computed. 16
warps share it, so each thread holds 8 of its 4096 numbers.

**Predict:** every byte moves once. Is it faster?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton

from annotated_examples.fast.layernorm import layernorm_forward_kernel
from annotated_examples.ladders.layernorm.rung_2_two_trips import outputs


def layernorm_forward(x, weight, bias, eps=1e-5):
    """`y`, mean and rstd of the rows of a matrix whose rows are contiguous."""
    y, mean, rstd = outputs(x)
    M, N = x.shape
    BLOCK_N = triton.next_power_of_2(N)
    layernorm_forward_kernel[(M,)](
        x, weight, bias, y, mean, rstd, M, N, x.stride(0), eps, BLOCK_M=1, BLOCK_N=BLOCK_N, num_warps=16
    )
    return y, mean, rstd
