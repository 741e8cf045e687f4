"""y = x @ w.T + b with one program per multiprocessor, in the style of the persistent matmul tutorial."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "m k", "weight": "n k", "bias": "n"}


@triton.jit
def _pid_to_tile(tile_id, num_pid_in_group, num_pid_m, GROUP_M: tl.constexpr):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (tile_id % group_size_m)
    pid_n = (tile_id % num_pid_in_group) // group_size_m
    return pid_m, pid_n


@triton.jit
def _linear_persistent(
    x_ptr, w_ptr, b_ptr, y_ptr,
    M, N, K,
    stride_xm, stride_xk, stride_wn, stride_wk, stride_b, stride_ym, stride_yn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    for tile in tl.range(start, num_pid_m * num_pid_n, NUM_SMS):
        pid_m, pid_n = _pid_to_tile(tile, GROUP_M * num_pid_n, num_pid_m, GROUP_M)
        offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(k_tiles):
            k = ki * BLOCK_K + offs_k
            x = tl.load(
                x_ptr + offs_m[:, None] * stride_xm + k[None, :] * stride_xk,
                mask=(offs_m[:, None] < M) & (k[None, :] < K),
                other=0.0,
            )
            w = tl.load(
                w_ptr + offs_n[None, :] * stride_wn + k[:, None] * stride_wk,
                mask=(offs_n[None, :] < N) & (k[:, None] < K),
                other=0.0,
            )
            acc = tl.dot(x, w, acc, input_precision="ieee")
        b = tl.load(b_ptr + offs_n * stride_b, mask=offs_n < N, other=0.0).to(tl.float32)
        acc += b[None, :]
        tl.store(
            y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn,
            acc.to(y_ptr.dtype.element_ty),
            mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
        )


def persistent_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    if x.ndim != 2 or weight.ndim != 2 or bias.ndim != 1:
        raise ValueError("x and weight must have two dims and bias one")
    if x.shape[1] != weight.shape[1] or bias.shape[0] != weight.shape[0]:
        raise ValueError(f"shapes don't fit: {tuple(x.shape)}, {tuple(weight.shape)}, {tuple(bias.shape)}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {weight.dtype, bias.dtype} != {x.dtype}:
        raise ValueError("x, weight and bias must have one dtype: float16, bfloat16 or float32")
    if weight.device != x.device or bias.device != x.device:
        raise ValueError("x, weight and bias must be on one device")
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad):
        raise ValueError("persistent_linear is for inference: no gradients")
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    if y.numel() == 0:
        return y
    num_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    BLOCK_M, BLOCK_N = 32, 32
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    _linear_persistent[(min(num_sms, tiles),)](
        x, weight, bias, y, M, N, K,
        x.stride(0), x.stride(1), weight.stride(0), weight.stride(1), bias.stride(0), y.stride(0), y.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=32, GROUP_M=4, NUM_SMS=min(num_sms, tiles),
    )  # fmt: skip
    return y


def persistent_linear_reference(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)
