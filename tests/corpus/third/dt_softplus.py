"""dt = softplus(dt + bias) by log(1 + exp(.)), which overflows where the linear branch is missing (after state-spaces/mamba#574)."""
import torch
import triton
import triton.language as tl

INPUTS = {"dt": "rows cols", "bias": "cols"}


@triton.jit
def _dt(X, B, Y, n, sx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * sx + c, mask=c < n, other=0.0).to(tl.float32) + tl.load(B + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(Y + r * n + c, tl.log(1.0 + tl.exp(x)), mask=c < n)


def dt_softplus(dt, bias):
    if dt.dim() != 2 or bias.shape != dt.shape[1:] or bias.dtype != dt.dtype:
        raise ValueError("dt: (rows, cols), bias: (cols,)")
    if torch.is_grad_enabled() and (dt.requires_grad or bias.requires_grad):
        raise RuntimeError("inference")
    dt = dt if dt.stride(1) == 1 else dt.contiguous()
    y = torch.empty(dt.shape, dtype=dt.dtype, device=dt.device)
    if y.numel():
        _dt[(dt.shape[0],)](dt, bias.contiguous(), y, dt.shape[1], dt.stride(0), BLOCK=triton.next_power_of_2(dt.shape[1]))
    return y


def dt_softplus_reference(dt, bias):
    return torch.nn.functional.softplus(dt.float() + bias.float()).to(dt.dtype)
