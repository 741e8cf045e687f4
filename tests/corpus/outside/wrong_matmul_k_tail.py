# kind: last K block dropped; fault: K // BLOCK_K steps leave out what is left of K, which only matters where K is
# larger than a block (line 18)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"a": "m k", "b": "n k"}


@triton.jit
def _matmul_nt(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbn, sbk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK).to(tl.int64)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.maximum(K // BK, 1)):
        kk = step * BK + k
        a = tl.load(a_ptr + m[:, None] * sam + kk[None, :] * sak, mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + n[None, :] * sbn + kk[:, None] * sbk, mask=(n[None, :] < N) & (kk[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def matmul_nt(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise ValueError("a must be (m, k) and b (n, k)")
    if a.dtype not in (torch.float16, torch.bfloat16, torch.float32) or b.dtype != a.dtype:
        raise ValueError("a and b must both be float16, bfloat16 or float32")
    if a.requires_grad or b.requires_grad:
        raise ValueError("no backward pass")
    M, K = a.shape
    N = b.shape[0]
    if N > 65535 * 16:
        raise ValueError("n is too large")
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if c.numel():
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        _matmul_nt[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=16, BN=16, BK=32)
    return c


def matmul_nt_reference(a, b):
    return a @ b.t()
