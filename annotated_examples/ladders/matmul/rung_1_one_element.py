r"""# One element a program

The definition, $c_{mn} = \sum_k a_{mk} b_{kn}$. A program computes one element of C: it multiplies a row of A by a
column of B and adds up.

**Predict:** at 4096 in each direction there are 16 million programs, and each reads 8192 numbers to compute one.
"""

from academy.runtime import checks  # before anything imports triton

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0).to(tl.int64)
    pid_n = tl.program_id(1).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + pid_m * stride_am + offs_k * stride_ak
    b_ptrs = b_ptr + offs_k * stride_bk + pid_n * stride_bn

    acc = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=k_mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptrs, mask=k_mask, other=0.0).to(tl.float32)
        acc += a * b
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    c_ptrs = c_ptr + pid_m * stride_cm + pid_n * stride_cn
    tl.store(c_ptrs, tl.sum(acc, axis=0))


def matmul_forward(a, b):
    """`a @ b` of matrices with any strides."""
    (M, K), N = a.shape, b.shape[1]
    checks.programs("b", "columns", N)
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[(M, N)](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), BLOCK_K=256)
    return c
