r"""# Tiles by descriptor, and fewer instructions

**What was slow?** Threads compute the addresses of what they load, and every tile of scores is masked, though
only the tile on the diagonal needs it.

**What changes?** The card's TMA fetches a tile by itself. Tiles that every query sees as a whole have a
loop without a mask. Exponentials are powers of 2, which the hardware has an instruction for, and the scale and the
change of base are one factor.

**Predict:** fewer instructions in every round, but a round still waits for its tiles.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from annotated_examples.common.constants import LOG2E


@triton.jit
def flash_attention_kernel(
    q_desc, k_desc, v_desc, o_desc,  # descriptors of (B · H, T, D)
    T, scale, D: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BLOCK)
    head, start_m = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK
    q = tl.reshape(q_desc.load([head, start_m, 0]), (BLOCK, D))
    offs_m = start_m + tl.arange(0, BLOCK)
    factor = scale * LOG2E

    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    edges = (0, start_m, tl.minimum(start_m + BLOCK, T))
    for PART in tl.static_range(2):
        for start_n in tl.range(edges[PART], edges[PART + 1], BLOCK, num_stages=STAGES):
            k = tl.reshape(k_desc.load([head, start_n, 0]), (BLOCK, D))
            v = tl.reshape(v_desc.load([head, start_n, 0]), (BLOCK, D))
            s = tl.dot(q, tl.trans(k), input_precision="ieee")
            if PART == 1:
                s = tl.where((start_n + tl.arange(0, BLOCK))[None, :] <= offs_m[:, None], s, -float("inf"))
            new_max = tl.maximum(row_max, tl.max(s, axis=1) * factor)
            p = tl.exp2(s * factor - new_max[:, None])
            alpha = tl.exp2(row_max - new_max)
            row_sum = row_sum * alpha + tl.sum(p, axis=1)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
            row_max = new_max
    o = (acc / row_sum[:, None]).to(q.dtype)
    o_desc.store([head, start_m, 0], tl.reshape(o, (1, BLOCK, D)))


def launch(kernel, q, k, v, **constants):
    """Runs a kernel with tiles of 64 queries and 64 keys. q, k and v are 16-bit, contiguous and (B, H, T, D)."""
    o, (B, H, T, D) = torch.empty_like(q), q.shape
    descriptors = [TensorDescriptor(x, [B * H, T, D], [T * D, D, 1], [1, 64, D]) for x in (q, k, v, o)]
    kernel[(B * H * triton.cdiv(T, 64),)](*descriptors, T, 1 / math.sqrt(D), D=D, BLOCK=64, **constants)
    return o


def flash_attention(q, k, v, *, causal=True):
    """Causal attention of (B, H, T, D), D a power of two."""
    return launch(flash_attention_kernel, q, k, v, STAGES=1)
