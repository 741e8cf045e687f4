"""Weights of four bits, eight in an int32, with zero points and scales by groups: dequantized in the kernel's loop."""
import torch
import triton
import triton.language as tl

GROUP = 16


def matmul_w4_inputs(m, n, g):
    k = max(g, 1) * GROUP
    n8 = max(-(-n // 8), 1)
    r = torch.Generator().manual_seed(m + n * 5 + g * 11)
    word = lambda *s: torch.randint(-2**31, 2**31 - 1, s, generator=r, dtype=torch.int64).to(torch.int32)  # noqa: E731
    return {"x": torch.randn(m, k, generator=r), "qweight": word(k, n8), "qzeros": word(k // GROUP, n8),
            "scales": torch.rand(k // GROUP, n8 * 8, generator=r) * 0.1 + 0.01}


@triton.jit
def _w4(X, QW, QZ, S, Y, M, N, K, sxm, sxk, ssg, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    rn = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    word = rn // 8
    shift = ((rn % 8) * 4).to(tl.int32)
    words = N // 8
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for g in range(0, K // GROUP):
        rk = (g * GROUP + tl.arange(0, GROUP)).to(tl.int64)
        x = tl.load(X + rm[:, None] * sxm + rk[None, :] * sxk, mask=rm[:, None] < M, other=0.0)
        q = tl.load(QW + rk[:, None] * words + word[None, :], mask=rn[None, :] < N, other=0)
        z = tl.load(QZ + tl.cast(g, tl.int64) * words + word, mask=rn < N, other=0)
        s = tl.load(S + tl.cast(g, tl.int64) * ssg + rn, mask=rn < N, other=0.0).to(tl.float32)
        code = (q >> shift[None, :]) & 15
        zero = (z >> shift) & 15
        # codes minus zero points are exact in any float; the scale comes after the product, in float32
        w = (code - zero[None, :]).to(x.dtype)
        acc += tl.dot(x, w, input_precision="ieee") * s[None, :]
    tl.store(Y + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def matmul_w4(x, qweight, qzeros, scales):
    M, K = x.shape
    N = qweight.shape[1] * 8
    if qweight.shape[0] != K or K % GROUP or qzeros.shape != (K // GROUP, N // 8) or scales.shape != (K // GROUP, N):
        raise ValueError("qweight: (k, n / 8), qzeros: (k / 16, n / 8), scales: (k / 16, n)")
    if torch.is_grad_enabled() and (x.requires_grad or scales.requires_grad):
        raise RuntimeError("inference only")
    qweight, qzeros = qweight.contiguous(), qzeros.contiguous()
    if scales.stride(1) != 1:
        scales = scales.contiguous()
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if y.numel():
        _w4[(triton.cdiv(M, 16), triton.cdiv(N, 32))](x, qweight, qzeros, scales, y, M, N, K, x.stride(0), x.stride(1),
                                                     scales.stride(0), GROUP=GROUP, BM=16, BN=32)
    return y


def matmul_w4_reference(x, qweight, qzeros, scales):
    if qweight.shape[0] != x.shape[1] or qzeros.shape != (x.shape[1] // GROUP, qweight.shape[1]):
        raise ValueError("shapes")
    sh = torch.arange(0, 32, 4, dtype=torch.int32)
    code = ((qweight[..., None] >> sh) & 15).flatten(1)
    zero = ((qzeros[..., None] >> sh) & 15).flatten(1).repeat_interleave(GROUP, 0)
    w = (code - zero).float() * scales.float().repeat_interleave(GROUP, 0)
    return (x.float() @ w).to(x.dtype)
