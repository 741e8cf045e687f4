"""log_softmax of rows of any length in two passes; block sizes beyond the row are pruned before tuning."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols"}


def _prune(configs, named_args, **kwargs):
    cols = named_args["cols"]
    kept = [c for c in configs if c.kwargs["BLOCK"] < 2 * max(cols, 64)]
    return kept or configs[:1]


CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 1), (256, 4), (1024, 8))]


@triton.autotune(configs=CONFIGS, key=["cols"], prune_configs_by={"early_config_prune": _prune})
@triton.jit
def _forward(x_ptr, y_ptr, cols, sx_r, sx_c, sy_r, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx_r
    y_ptr += row * sy_r
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + c * sx_c, mask=c < cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
    m = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + c * sx_c, mask=c < cols, other=-float("inf")).to(tl.float32)
        total += tl.where(c < cols, tl.exp(x - m), 0.0)
    lse = tl.log(tl.sum(total, axis=0))
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + c * sx_c, mask=c < cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + c, (x - m) - lse, mask=c < cols)


@triton.autotune(configs=CONFIGS, key=["cols"], prune_configs_by={"early_config_prune": _prune})
@triton.jit
def _backward(dy_ptr, y_ptr, dx_ptr, cols, sd_r, sd_c, sy_r, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * sd_r
    y_ptr += row * sy_r
    dx_ptr += row * sy_r
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        total += tl.load(dy_ptr + c * sd_c, mask=c < cols, other=0.0).to(tl.float32)
    s = tl.sum(total, axis=0)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        dy = tl.load(dy_ptr + c * sd_c, mask=c < cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + c, dy - tl.exp(y) * s, mask=c < cols)


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, cols = x.shape
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        if y.numel():
            _forward[(rows,)](x, y, cols, x.stride(0), x.stride(1), y.stride(0))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        rows, cols = y.shape
        dx = torch.empty_like(y)
        if y.numel():
            _backward[(rows,)](dy, y, dx, cols, dy.stride(0), dy.stride(1), y.stride(0))
        return dx


def log_softmax(x):
    if x.dim() != 2:
        raise ValueError("x must be a matrix")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    return LogSoftmax.apply(x)


def log_softmax_reference(x):
    return torch.log_softmax(x, dim=-1)
