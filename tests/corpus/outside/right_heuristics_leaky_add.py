"""leaky_relu(x + y) with triton.heuristics that drop the mask where the block divides the length."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "y": "rows cols", "slope": (0.01, 0.2)}


def _block(args):
    return max(16, min(1024, triton.next_power_of_2(args["n"])))


@triton.heuristics({"BLOCK": _block})
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _leaky_add_fwd(x_ptr, y_ptr, out_ptr, n, slope, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        s = tl.load(x_ptr + i).to(tl.float32) + tl.load(y_ptr + i).to(tl.float32)
        tl.store(out_ptr + i, tl.where(s >= 0, s, s * slope))
    else:
        s = tl.load(x_ptr + i, mask=i < n).to(tl.float32) + tl.load(y_ptr + i, mask=i < n).to(tl.float32)
        tl.store(out_ptr + i, tl.where(s >= 0, s, s * slope), mask=i < n)


@triton.heuristics({"BLOCK": _block})
@triton.jit
def _leaky_add_bwd(do_ptr, x_ptr, y_ptr, ds_ptr, n, slope, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(x_ptr + i, mask=i < n).to(tl.float32) + tl.load(y_ptr + i, mask=i < n).to(tl.float32)
    do = tl.load(do_ptr + i, mask=i < n).to(tl.float32)
    tl.store(ds_ptr + i, tl.where(s > 0, do, do * slope), mask=i < n)


class LeakyAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, slope):
        x, y = x.contiguous(), y.contiguous()
        ctx.save_for_backward(x, y)
        ctx.slope = slope
        out = torch.empty_like(x)
        if n := x.numel():
            _leaky_add_fwd[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, slope)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        x, y = ctx.saved_tensors
        ds = torch.empty_like(x)
        if n := x.numel():
            _leaky_add_bwd[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](do.contiguous(), x, y, ds, n, ctx.slope)
        return ds, ds.clone(), None


def leaky_add(x, y, slope=0.01):
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        raise ValueError("x and y must have one shape, dtype and device")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x and y must be float16, bfloat16 or float32")
    return LeakyAdd.apply(x, y, slope)


def leaky_add_reference(x, y, slope=0.01):
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.nn.functional.leaky_relu(x.to(wide) + y.to(wide), slope).to(x.dtype)
