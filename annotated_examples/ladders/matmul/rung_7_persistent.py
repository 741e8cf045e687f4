r"""# One program for each SM

**What was slow?** Each program begins with a wait for its first tiles and ends with a store. Meanwhile, its tensor
cores have nothing to do.

**What changes?** There are as many programs as SMs, and each computes one tile after the other. The loop
over tiles and the loop along K are one: the next tile's loads are on their way while this one is stored.

**Predict:** 512 tiles on 132 SMs, about four for each: three beginnings and ends less.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch

from annotated_examples.common.activations import ACTIVATIONS
from annotated_examples.fast.matmul import matmul_descriptor_kernel, multiprocessors
from annotated_examples.ladders.matmul.rung_6_descriptors import descriptors


def matmul_forward(a, b):
    """`a @ b` of 16-bit matrices whose rows are contiguous and begin at multiples of 16 bytes."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    tiles = dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64)
    programs = multiprocessors(a.device.index)
    matmul_descriptor_kernel[(programs,)](
        *descriptors(a, b, c, **tiles), None, M, N, K, A_TRANSPOSED=False, B_TRANSPOSED=False, NUM_PROGRAMS=programs,
        WAVES="all", PIECES=1, OVERLAP=False, ACTIVATION=ACTIVATIONS[None], SAVE_Z=False, **tiles, GROUP_M=8,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return c
