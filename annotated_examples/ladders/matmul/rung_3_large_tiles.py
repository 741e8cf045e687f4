r"""# Tiles of 128 x 256

**What was slow?** The product is still limited by loads: each number serves 32 sums, and the L2 cache has to deliver
all of A and B 128 times.

**What changes?** Only sizes. A tile of C has 128 x 256 sums, half of the registers of 8 warps, and a step along K has
64 numbers. There is one stage: a tile is loaded, then multiplied, then the next one is loaded.

**Predict:** each number now serves 128 or 256 sums.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton

from annotated_examples.common.products import input_precision
from annotated_examples.tutorials.matmul_blocked import matmul_kernel


def launch_large_tiles(a, b, num_stages):
    """`a @ b` by tiles of 128 x 256, of which `num_stages` - 1 are on their way while one is multiplied."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    BLOCK_K = 128 // a.element_size()
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 256))
    matmul_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), INPUT_PRECISION=input_precision(),
        BLOCK_M=128, BLOCK_N=256, BLOCK_K=BLOCK_K, num_warps=8, num_stages=num_stages,
    )  # fmt: skip
    return c


def matmul_forward(a, b):
    """`a @ b` of matrices with any strides."""
    return launch_large_tiles(a, b, num_stages=1)
