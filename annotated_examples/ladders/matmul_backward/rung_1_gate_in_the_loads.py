r"""# The gate in the loads

Behind a ReLU both gradients need the upstream gradient with zeros where C isn't positive. Why write that to memory?
Both products load it anyway. So each load of `dc` is followed by one of C, its gate, and what isn't let through becomes
zero on the way to the tensor cores. The second product gates its left factor too: it computes the transposed gradient,
and writes it into `db.T`.

**Predict:** one matrix less is written. But each product fetches two tiles for its left factor, the gradient and the
gate. What else happens to a tile that has to be changed?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.products import input_precision, multiply_add
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.tutorials.matmul_grouped import tile_sizes


@triton.jit
def gated_matmul_kernel(
    a_ptr,  # (M, K)
    gate_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_gm,
    stride_gk,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_mask = offs_m < M
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    gate_ptrs = gate_ptr + offs_m[:, None] * stride_gm + offs_k[None, :] * stride_gk
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        gate = tl.load(gate_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        acc = multiply_add(tl.where(gate > 0, a, 0.0).to(b.dtype), b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        gate_ptrs += BLOCK_K * tl.cast(stride_gk, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=m_mask[:, None] & n_mask[None, :])


def multiply_gated_(c, a, gate, b):
    """Write `a @ b` into `c`, where `a` counts as 0 if its `gate` isn't positive. Any strides."""
    tiles = tile_sizes(a)
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, tiles["BLOCK_M"]) * triton.cdiv(N, tiles["BLOCK_N"]),)
    strides = *a.stride(), *gate.stride(), *b.stride(), *c.stride()
    gated_matmul_kernel[grid](a, gate, b, c, M, N, K, *strides, INPUT_PRECISION=input_precision(), **tiles)


def matmul_backward(dc, a, b, saved, activation):
    """`(da, db)` of `relu(a @ b)` from the gradient of the result, `saved`."""
    da, db = torch.empty_like(a), torch.empty_like(b)
    multiply_gated_(da, dc, saved, b.T)
    multiply_gated_(db.T, dc.T, saved.T, a)
    return da, db
