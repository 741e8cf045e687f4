r"""# Two passes

One program takes 64 queries of a head (fewer in float32) and never holds more than a tile of scores, 64 by 64. A
softmax needs the largest score of a row and the sum of the exponentials before it can give the first weight. So the
program passes over the keys twice: once for these two numbers, and once for the sum of the weighted values. The second
pass computes every score again.

**Predict:** three products instead of two. How much of the time is that?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import math

import torch
import triton
import triton.language as tl

from annotated_examples.attention.causal_attention import launch_options
from annotated_examples.common.attention import head, load_tile, store_tile, strided


@triton.jit
def scores(q, k_head, offs_m, start_n, T, scale, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_tile(k_head, offs_n, T, D, D)
    s = tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION) * scale
    return tl.where(offs_n[None, :] <= offs_m[:, None], s, -float("inf"))


@triton.jit
def flash_attention_kernel(
    q_tensor, k_tensor, v_tensor, o_tensor,  # (pointer, four strides) of (B, H, T, D)
    T, scale, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    k_head, v_head = head(k_tensor, b, h, 0), head(v_tensor, b, h, 0)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_tile(head(q_tensor, b, h, 0), offs_m, T, D, D)
    end = tl.minimum(start_m + BLOCK_M, T)

    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    for start_n in tl.range(0, end, BLOCK_N):
        s = scores(q, k_head, offs_m, start_n, T, scale, D, INPUT_PRECISION, BLOCK_N)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(s - new_max[:, None]), axis=1)
        row_max = new_max

    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in tl.range(0, end, BLOCK_N):
        s = scores(q, k_head, offs_m, start_n, T, scale, D, INPUT_PRECISION, BLOCK_N)
        p = tl.exp(s - row_max[:, None]) / row_sum[:, None]
        v = load_tile(v_head, start_n + tl.arange(0, BLOCK_N), T, D, D)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=INPUT_PRECISION)
    store_tile(head(o_tensor, b, h, 0), acc, offs_m, T, D, D)


def flash_attention(q, k, v, *, causal=True):
    """Causal attention of (B, H, T, D), D a power of two."""
    o, launch = torch.empty_like(q), launch_options(q, None, None)
    B, H, T, D = q.shape
    grid = (B * triton.cdiv(T, launch["BLOCK_M"]), H)
    flash_attention_kernel[grid](*(strided(x) for x in (q, k, v, o)), T, 1 / math.sqrt(D), **launch)
    return o
