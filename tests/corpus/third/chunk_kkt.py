"""K K^T of each chunk, scaled by beta (after fla-org/flash-linear-attention#1080)."""
import torch
import triton
import triton.language as tl

INPUTS = {"k": "batch time 2 16", "beta": "batch time 2"}


@triton.jit
def _kkt(k, beta, A, T, H: tl.constexpr, K: tl.constexpr, BT: tl.constexpr):
    i_t = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // H
    i_h = i_bh % H
    base = (i_b * T * H + i_h) * K
    t = i_t * BT + tl.arange(0, BT)
    d = tl.arange(0, K)
    b_k = tl.load(k + base + t[:, None] * (H * K) + d[None, :], mask=t[:, None] < T, other=0.0)
    b_b = tl.load(beta + i_b * T * H + i_h + t * H, mask=t < T, other=0.0).to(tl.float32)
    s = tl.dot(b_k, tl.trans(b_k), input_precision="ieee") * b_b[:, None]
    j = tl.arange(0, BT)
    s = tl.where(j[:, None] > j[None, :], s, 0.0)
    tl.store(A + (i_b * T * H + i_h) * BT + t[:, None] * (H * BT) + j[None, :], s, mask=t[:, None] < T)


def chunk_kkt(k, beta):
    B, T, H, K = k.shape
    if beta.shape != (B, T, H) or beta.dtype != k.dtype:
        raise ValueError("beta: (batch, time, heads)")
    if torch.is_grad_enabled() and (k.requires_grad or beta.requires_grad):
        raise RuntimeError("forward only")
    k, beta = k.contiguous(), beta.contiguous()
    A = torch.empty((B, T, H, 16), dtype=torch.float32, device=k.device)
    if A.numel():
        _kkt[(triton.cdiv(T, 16), B * H)](k, beta, A, T, H=H, K=K, BT=16)
    return A


def chunk_kkt_reference(k, beta):
    B, T, H, K = k.shape
    if beta.shape != (B, T, H):
        raise ValueError("beta")
    out = []
    for s in range(0, T, 16):
        c = k[:, s:s + 16].float()
        a = torch.einsum("bthd,bshd->bths", c, c) * beta[:, s:s + 16, :, None].float()
        n = c.shape[1]
        low = torch.ones(n, n, dtype=torch.bool).tril(-1)[:, None]
        out.append(torch.nn.functional.pad(torch.where(low, a, 0.0), (0, 16 - n)))
    return torch.cat(out, 1) if out else torch.empty(B, T, H, 16)
