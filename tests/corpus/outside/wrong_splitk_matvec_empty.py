# kind: split-K without zeroing; fault: the workspace that atomics add to comes from torch.empty (line 33)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"w": "n k", "x": "k"}


@triton.jit
def _matvec(w_ptr, x_ptr, acc_ptr, N, K, swn, swk, sx, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    k = tl.program_id(1).to(tl.int64) * BK + tl.arange(0, BK)
    mask = (n[:, None] < N) & (k[None, :] < K)
    w = tl.load(w_ptr + n[:, None] * swn + k[None, :] * swk, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + k * sx, mask=k < K, other=0.0).to(tl.float32)
    tl.atomic_add(acc_ptr + n, tl.sum(w * x[None, :], axis=1), mask=n < N)


def matvec(w, x):
    if w.dim() != 2 or x.shape != w.shape[1:]:
        raise ValueError("w must be (n, k) and x (k,)")
    if w.dtype not in (torch.float16, torch.bfloat16, torch.float32) or x.dtype != w.dtype:
        raise ValueError("w and x must both be float16, bfloat16 or float32")
    if w.requires_grad or x.requires_grad:
        raise ValueError("no backward pass")
    N, K = w.shape
    if K > 65535 * 64:
        raise ValueError("k is too large")
    if K == 0:
        return torch.zeros(N, dtype=w.dtype, device=w.device)
    acc = torch.empty(N, dtype=torch.float32, device=w.device)
    if N:
        grid = (triton.cdiv(N, 16), triton.cdiv(K, 64))
        _matvec[grid](w, x, acc, N, K, w.stride(0), w.stride(1), x.stride(0), BN=16, BK=64)
    return acc.to(w.dtype)


def matvec_reference(w, x):
    return w @ x
