"""Depthwise causal convolution with a bias and SiLU, as in Mamba: x (batch, time, dim), weight (dim, width)."""

import torch
import triton
import triton.language as tl
from helpers_activations import silu

INPUTS = {"x": "batch time dim", "weight": "dim 4", "bias": "dim"}


@triton.jit
def _conv(
    x_ptr, w_ptr, b_ptr, y_ptr, T, D, sxb, sxt, sxd, swd, sww, sb,
    WIDTH: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    d = tl.program_id(1).to(tl.int64) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    bias = tl.load(b_ptr + d * sb, mask=d < D, other=0.0).to(tl.float32)
    acc = tl.zeros((BT, BD), tl.float32) + bias[None, :]
    for k in tl.static_range(WIDTH):
        s = t - (WIDTH - 1) + k
        mask = (s[:, None] >= 0) & (s[:, None] < T) & (d[None, :] < D)
        x = tl.load(x_ptr + b * sxb + s[:, None] * sxt + d[None, :] * sxd, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + d * swd + k * sww, mask=d < D, other=0.0).to(tl.float32)
        acc += x * w[None, :]
    mask = (t[:, None] < T) & (d[None, :] < D)
    tl.store(y_ptr + (b * T + t[:, None]) * D + d[None, :], silu(acc), mask=mask)


def causal_conv1d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    if x.ndim != 3 or weight.shape != (x.shape[2], 4) or bias.shape != x.shape[2:]:
        raise ValueError("x must be (batch, time, dim), weight (dim, 4) and bias (dim,)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {weight.dtype, bias.dtype} != {x.dtype}:
        raise ValueError("x, weight and bias must have one dtype: float16, bfloat16 or float32")
    if x.requires_grad or weight.requires_grad or bias.requires_grad:
        raise ValueError("causal_conv1d is for inference")
    B, T, D = x.shape
    if B > 65535 or D > 65535 * 32:
        raise ValueError("batch or dim is too large for the grid")
    y = torch.empty((B, T, D), dtype=x.dtype, device=x.device)
    if y.numel():
        _conv[(triton.cdiv(T, 32), triton.cdiv(D, 32), B)](
            x, weight, bias, y, T, D, *x.stride(), *weight.stride(), bias.stride(0), WIDTH=4, BT=32, BD=32
        )
    return y


def causal_conv1d_reference(x, weight, bias):
    wide = torch.promote_types(x.dtype, torch.float32)
    T = x.shape[1]
    padded = torch.nn.functional.pad(x.to(wide), (0, 0, 3, 0))
    y = bias.to(wide) + sum(padded[:, k : k + T] * weight.to(wide)[:, k] for k in range(4))
    return (y / (1 + torch.exp(-y))).to(x.dtype)
