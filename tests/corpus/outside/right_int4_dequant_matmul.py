"""x @ dequant(packed).T: eight unsigned 4-bit weights in one int32 along k, a scale and a zero point for each group."""

import torch
import triton
import triton.language as tl


@triton.jit
def w4a16_kernel(
    x_ptr, qw_ptr, scale_ptr, zero_ptr, y_ptr, M, N, K, x_sm, x_sk, GROUPS,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    words = K // 8
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        inside = k < K
        x = tl.load(
            x_ptr + m[:, None] * x_sm + k[None, :].to(tl.int64) * x_sk,
            mask=(m[:, None] < M) & inside[None, :],
            other=0.0,
        )
        live = (n[None, :] < N) & inside[:, None]
        packed = tl.load(qw_ptr + n[None, :] * words + (k[:, None] // 8), mask=live, other=0)
        code = (packed >> ((k[:, None] % 8) * 4)) & 0xF
        group = n[None, :] * GROUPS + k[:, None] // GROUP
        scale = tl.load(scale_ptr + group, mask=live, other=0.0).to(tl.float32)
        zero = tl.load(zero_ptr + group, mask=live, other=0).to(tl.int32)
        w = (code - zero).to(tl.float32) * scale
        acc += tl.dot(x.to(tl.float32), w, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def int4_dequant_matmul(x: torch.Tensor, qweight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor):
    """x (m, k); qweight int32 (n, k / 8); scales (n, k / 32) as x; zeros uint8 (n, k / 32). Returns (m, n)."""
    if x.ndim != 2 or qweight.ndim != 2 or qweight.dtype != torch.int32:
        raise ValueError("x must be a matrix and qweight a matrix of int32")
    M, K = x.shape
    N = qweight.shape[0]
    if K % 32 or qweight.shape[1] * 8 != K:
        raise ValueError("k must be a multiple of 32, and qweight (n, k / 8)")
    if scales.shape != (N, K // 32) or zeros.shape != scales.shape or zeros.dtype != torch.uint8:
        raise ValueError("scales and zeros must be (n, k / 32), zeros of uint8")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or scales.dtype != x.dtype:
        raise ValueError("x and scales must both be float16, bfloat16 or float32")
    if x.requires_grad or scales.requires_grad:
        raise ValueError("no backward pass")
    if N > 65535 * 16:
        raise ValueError("n is too large")
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    qweight, scales, zeros = qweight.contiguous(), scales.contiguous(), zeros.contiguous()
    w4a16_kernel[grid](
        x, qweight, scales, zeros, y, M, N, K, x.stride(0), x.stride(1), K // 32, GROUP=32, BM=16, BN=16, BK=32
    )
    return y


def int4_dequant_matmul_inputs(m, n, groups):
    return {
        "x": torch.randn(m, 32 * groups),
        "qweight": torch.randint(-(2**31), 2**31, (n, 4 * groups), dtype=torch.int64).to(torch.int32),
        "scales": torch.rand(n, groups) * 0.1 + 0.01,
        "zeros": torch.randint(0, 16, (n, groups), dtype=torch.uint8),
    }


def int4_dequant_matmul_reference(x, qweight, scales, zeros):
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    codes = ((qweight[:, :, None] >> shifts) & 0xF).flatten(1)
    wide = torch.promote_types(x.dtype, torch.float32)
    w = (codes - zeros.to(torch.int32).repeat_interleave(32, 1)).to(wide) * scales.to(wide).repeat_interleave(32, 1)
    return (x.to(wide) @ w.t()).to(x.dtype)
