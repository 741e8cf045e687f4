r"""
# A product with microscaled weights

A language model that answers a few users reads its weights again for every token, and does little with them. Stored in
four bits, with a byte of exponent for every 32 ([microscaling](microscaling.py)), they are a quarter of the bytes. The
activations stay in sixteen bits. The kernel turns weights back into numbers after the load, on the way to the tensor
cores:

[[eq: MX-product]]

Codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, bit 3 is the sign, and a byte has the first of its two codes in its low
half. So the bytes 0xA1 for codes and 129 for the scale, 4, are the weights 2 and −4. This is how gpt-oss runs its
experts. It differs from [packed integers](../gemlite/gemm.py) in what a code means: there is no zero point, scales are
powers of two, and the codes are denser near zero, where most weights are.

[[figure: mx/product]]

**What it costs.** With `N = K = 8192` the weights are 33.6 MB, their scales 2.1 MB; in bfloat16 they would be 134 MB. A
byte holds two weights, each for `2 · M` operations: `4 · M` for a byte. An H200 does about 200 operations in the time
in which it reads a byte, so up to about fifty rows memory is the limit. Decoding takes some thirteen instructions for
each weight and tile of rows. The ordinary cores have to do those, and with few rows they take most of the time:
[the fast version](../fast/mx_matmul.py) needs fewer.

**Contract.** `a` is (M, K), float16 or bfloat16, any strides. `b` are codes, a row for each output: (N, K) of eight
bits or (N, K/2) of four, any strides, and `scale_b` is (N, K/32). K is a multiple of 32. A decoded weight is rounded to
the dtype of `a`. In bfloat16 that changes nothing but at the ends of its range. That of float16 is smaller: weights
beyond 65504 are infinite in it. Sums are float32, rounded once. A NaN in a scale makes a column of the result NaN.
Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import format_contract
from annotated_examples.common.mx import from_fp4, power_of_byte, unpacked_pairs
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.mx.microscaling import (
    E8M0,
    FP4,
    as_bytes,
    dequantize_mx_reference,
    pack_reference,
)

FORMATS = {"e2m1": FP4, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
HALVES = (torch.float16, torch.bfloat16)


# ## Reference
#
# Decode, round to the dtype of `a`, and multiply as PyTorch does.
def mx_matmul_reference(a, b, scale_b, *, bias=None, out_dtype=None, format=None):
    b = b if format is None else b.view(FORMATS[format])
    weight = dequantize_mx_reference(b, scale_b, torch.float32).to(a.dtype)
    c = a @ weight.t() if bias is None else torch.addmm(bias.to(a.dtype), a, weight.t())
    return c.to(out_dtype or a.dtype)


# ## Decode, scale, multiply
#
# A tile of the result for each program, as in [matmul](../tutorials/matmul_grouped.py). What is new happens to the tile
# of weights.
#
# The recorded run multiplies 4 x 64 activations with 6 rows of weights, in tiles of 4 x 4 and 32 along the sum.
@triton.jit
def mx_matmul_kernel(
    a_ptr, b_ptr, scale_ptr,  # (M, K); (N, K), in four bits (N, K // 2); (N, K // 32), bytes
    bias_ptr, c_ptr,  # (N,), contiguous, or None; (M, N), contiguous
    M, N, K, stride_am, stride_ak, stride_bn, stride_bk, stride_sn, stride_sk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    PACKED: tl.constexpr = 2 if b_ptr.dtype.element_ty == tl.uint8 else 1
    GROUPS: tl.constexpr = BLOCK_K // 32
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_mask, n_mask = offs_m[:, None] < M, offs_n[:, None] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=m_mask & (offs_k < K)[None, :], other=0.0)

        # Two weights come in a byte. They are neighbours along the sum, so the tile is half as wide as that of `a`.
        # Unpacked, both are still in the thread that loaded the byte, side by side (`tl.interleave`). With all the high
        # halves behind the low ones instead, weight 1 would stand at `BLOCK_K // 2` and meet that column of `a`. (With
        # the columns of `a` in the same order, this would be right, too.)
        offs_q = start // PACKED + tl.arange(0, BLOCK_K // PACKED).to(tl.int64)
        b_ptrs = b_ptr + offs_n[:, None] * stride_bn + offs_q[None, :] * stride_bk
        q = tl.load(b_ptrs, mask=n_mask & (offs_q < K // PACKED)[None, :], other=0.0)
        numbers = from_fp4(unpacked_pairs(q)) if PACKED == 2 else q.to(tl.float32)

        # One exponent for 32 of them: 512 for 128 x 128. Behind the last group nothing is read: a byte there might be
        # 255, and NaN times the zeros of `a` is NaN. The first weight's code is 0.5 and its scale 4:
        # `pid=0, start=0: scale[0][0] = 4`, `pid=0, start=0: b[0][0] = 2`. `[:, :, None]` gives a scale to the threads
        # that have its weights. With more than 16 rows of `a` a thread on Hopper has loaded 16 bytes, the 32 weights of
        # one group, and gets their scale from whichever thread has loaded that. Then the tile goes through shared
        # memory, since tensor cores want another layout, in which four threads share a row. [The fast
        # version](../fast/mx_matmul.py) has the weights in that order from the start.
        offs_g = start // 32 + tl.arange(0, GROUPS).to(tl.int64)
        scale_ptrs = scale_ptr + offs_n[:, None] * stride_sn + offs_g[None, :] * stride_sk
        scale = power_of_byte(tl.load(scale_ptrs, mask=n_mask & (offs_g < K // 32)[None, :], other=0))
        b = tl.reshape(tl.reshape(numbers, (BLOCK_N, GROUPS, 32)) * scale[:, :, None], (BLOCK_N, BLOCK_K))

        # [[tag: MX-product]]: the weights lie along the sum, so the tile is transposed for the product. (Blackwell's
        # tensor cores take codes and exponents as they are: that is Triton's `dot_scaled`. On other cards it decodes as
        # is done here, and up to Triton 3.7 it takes a scale's byte 0 for zero. Up to 3.7 the interpreter doesn't know
        # it.)
        acc = tl.dot(a, tl.trans(b.to(a.dtype)), acc)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=m_mask & (offs_n < N)[None, :])


# ## Launcher
#
# Few rows of `a` are the usual case here. Sixteen are the fewest that an instruction of the tensor cores takes on the
# left.
@replayed
def mx_matmul_forward(a, b, scale_b, bias, out_dtype, *, BLOCK_M=None, BLOCK_N=64, BLOCK_K=128, GROUP_M=8):
    """`b` and `scale_b` as kernels see them: four bits and exponents in bytes."""
    (M, K), N = a.shape, len(b)
    BLOCK_M = BLOCK_M or (16 if M <= 16 else 64)
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    if BLOCK_K < 32:
        raise ValueError(f"BLOCK_K must be at least a group, 32, got {BLOCK_K}")
    c = torch.empty((M, N), dtype=out_dtype, device=a.device)
    if c.numel() > 0:
        bias = None if bias is None else bias.contiguous()
        mx_matmul_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            a, b, scale_b, bias, c, M, N, K, *a.stride(), *b.stride(), *scale_b.stride(),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
        )  # fmt: skip
    return c


# ## The public function
def contract(a, b, scale_b, bias, out_dtype, format):
    """Raises on bad arguments. Returns `b` in the dtype of its codes."""
    checks.tensors(a=a, b=b, scale_b=scale_b)
    checks.optional_tensors(bias=bias)
    checks.dtypes(HALVES, a=a)
    checks.dimensions("a", a, 2, "M, K")
    checks.dimensions("b", b, 2, "N, K, or half as wide in four bits")
    checks.dtypes((*FORMATS.values(), torch.uint8), b=b)
    checks.dtypes((E8M0, torch.uint8), scale_b=scale_b)
    checks.choice("format", format, (None, *FORMATS))
    if (format is None) == (b.dtype is torch.uint8):
        raise ValueError(f"format must say what b holds if that is uint8, and only then; got {format!r} for {b.dtype}")
    codes = FORMATS[format] if format else b.dtype
    K = b.shape[1] * (2 if codes == FP4 else 1)
    if a.shape[1] != K or K % 32:
        wanted = f"as many columns as b stands for, {K}, and a multiple of 32"
        raise ValueError(f"a must have {wanted}; got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    checks.shape("scale_b", scale_b, (len(b), K // 32), "N, K / 32")
    checks.shape("bias", bias, (len(b),), "N")
    checks.dtypes((torch.float32, a.dtype), bias=bias)
    checks.choice("out_dtype", out_dtype, (None, *checks.FLOATS))
    if codes != FP4:
        format_contract(codes, "mx_matmul", a.device)
    checks.no_gradient("mx_matmul", a=a, bias=bias)
    return as_bytes(b) if codes == FP4 else b.view(codes)


@replayed
def mx_matmul(a, b, scale_b, *, bias=None, out_dtype=None, format=None):
    """`a @ decode(b).T + bias`, where `b` has codes of four or eight bits and a power of two for every 32.

    Args:
        a: tensor of shape (M, K), float16 or bfloat16, any strides; K a multiple of 32.
        b: codes as `quantize_mx` returns them: float4_e2m1fn_x2 of shape (N, K/2), or float8_e4m3fn or float8_e5m2 of
            shape (N, K), or the same memory as uint8; any strides.
        scale_b: float8_e8m0fnu, or the same memory as uint8, of shape (N, K/32), any strides.
        bias: None, or a tensor of shape (N,), float32 or the dtype of `a`, any strides.
        out_dtype: of the result, float32, float16 or bfloat16; None: that of `a`.
        format: what uint8 stands for in `b`: "e2m1", "e4m3" or "e5m2". None for other dtypes.

    Returns:
        A new contiguous tensor of shape (M, N). Forward only.

    Raises:
        TypeError: an argument isn't a tensor or has another dtype.
        ValueError: shapes that don't fit, another `format` or `out_dtype`, a tensor on the wrong device or one that
            requires a gradient.
        RuntimeError: `b` is e4m3, and the card is older than compute capability 8.9.

    Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (2025); Open Compute Project, "OCP Microscaling Formats (MX)
    Specification" (2023).
    """
    codes = contract(a, b, scale_b, bias, out_dtype, format)
    return mx_matmul_forward(a, codes, as_bytes(scale_b), bias, out_dtype or a.dtype)


# ## A run small enough to watch
#
# 6 rows of 64 weights: codes 1, 2, …, 15, 0, again and again, and scales of 4 and 1/2. Whole numbers times these.
def EXAMPLE():
    a = (torch.arange(4 * 64, device=device.DEVICE) % 5 - 2).view(4, 64).to(torch.bfloat16)
    codes = (torch.arange(6 * 64, device=device.DEVICE) + 1).view(6, 64) % 16
    scale = torch.tensor([[129, 126]] * 6, dtype=torch.uint8, device=device.DEVICE)
    mx_matmul_forward(a, pack_reference(codes.int()), scale, None, torch.float32, BLOCK_M=4, BLOCK_N=4, BLOCK_K=32)


if __name__ == "__main__":
    script.main(mx_matmul, mx_matmul_reference)
