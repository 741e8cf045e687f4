"""int8 product with a scale for each 32 along k; at the end of k the scale is loaded without a mask
(after vllm-project/vllm#47303)."""
import torch
import triton
import triton.language as tl

def scaled_dot_inputs(m, n, k):
    g = torch.Generator().manual_seed(m + n + k)
    k = max(k, 1)
    return {"a": torch.randint(-100, 100, (m, k), generator=g, dtype=torch.int8), "b": torch.randint(-100, 100, (n, k), generator=g, dtype=torch.int8),
            "scale": torch.rand(m, -(-k // 32), generator=g) + 0.1}


@triton.jit
def _mm(A, B, S, C, M, N, K, sam, sbn, ssm, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    rn = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    # two blocks of 32 a turn
    for k in range(0, K, 64):
        for half in tl.static_range(2):
            rk = k + half * 32 + tl.arange(0, 32)
            a = tl.load(A + rm[:, None] * sam + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0)
            b = tl.load(B + rn[:, None] * sbn + rk[None, :], mask=(rn[:, None] < N) & (rk[None, :] < K), other=0)
            s = tl.load(S + rm * ssm + k // 32 + half, mask=rm < M, other=0.0)
            acc += tl.dot(a, tl.trans(b), out_dtype=tl.int32).to(tl.float32) * s[:, None]
    tl.store(C + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def scaled_dot(a, b, scale):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1] or scale.shape != (a.shape[0], triton.cdiv(a.shape[1], 32)):
        raise ValueError("a: (m, k), b: (n, k), scale: (m, k / 32)")
    if a.dtype != torch.int8 or b.dtype != torch.int8 or scale.requires_grad:
        raise TypeError("int8")
    a, b, scale = a.contiguous(), b.contiguous(), scale.contiguous()
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    if c.numel():
        _mm[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, scale, c, M, N, K, a.stride(0), b.stride(0), scale.stride(0), BM=16, BN=16)
    return c


def scaled_dot_reference(a, b, scale):
    if scale.shape != (a.shape[0], -(-a.shape[1] // 32)):
        raise ValueError("scale")
    s = scale.float().repeat_interleave(32, 1)[:, : a.shape[1]]
    return (a.float() * s) @ b.float().T
