# Exercise: matmul/k_loop

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        y = tl.load(y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn, mask=y_mask, other=0.0)
        acc = tl.dot(x, y, acc)
    z_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn, acc, mask=z_mask)


def product(x, y, BLOCK=4, BLOCK_K=4):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    product_kernel[grid](x, y, z, M, N, K, *x.stride(), *y.stride(), *z.stride(), BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return z
