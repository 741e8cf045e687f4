"""Split-K matmul: the programs of axis 1 add their parts to a float32 workspace with atomics."""

import torch
import triton
import triton.language as tl

INPUTS = {"a": "m k", "b": "k n"}


@triton.jit
def splitk_kernel(
    A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    pid_k = tl.program_id(1)
    grid_n = tl.cdiv(N, BLOCK_N)
    rm = (pid // grid_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid % grid_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = pid_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = A + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_ptrs = B + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = K - k * (BLOCK_K * SPLIT_K)
        a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BLOCK_K * SPLIT_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * SPLIT_K * tl.cast(stride_bk, tl.int64)
    c_ptrs = C + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.atomic_add(c_ptrs, acc, mask=(rm[:, None] < M) & (rn[None, :] < N), sem="relaxed")


@torch.no_grad()
def splitk_gemm(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("a and b must both be float16, bfloat16 or float32")
    if a.device != b.device:
        raise ValueError("a and b must be on one device")
    if a.requires_grad or b.requires_grad:
        raise ValueError("splitk_gemm has no backward")
    M, K = a.shape
    N = b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    if c.numel() and K:
        split_k = 1 if K <= 32 else min(4, triton.cdiv(K, 32))
        grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32), split_k)
        splitk_kernel[grid](
            a, b, c, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
            BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, SPLIT_K=split_k,
        )  # fmt: skip
    return c.to(a.dtype)


def splitk_gemm_reference(a, b):
    return a @ b
