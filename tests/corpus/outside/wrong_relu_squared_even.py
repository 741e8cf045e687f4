# kind: mask missing where a specialization says the length is even; fault: EVEN is taken for multiples of 16, not of
# BLOCK (line 12)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def _relu_squared(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + row * n + i).to(tl.float32)
        y = tl.where(x < 0, 0.0, x)
        tl.store(y_ptr + row * n + i, y * y)
    else:
        x = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        y = tl.where(x < 0, 0.0, x)
        tl.store(y_ptr + row * n + i, y * y, mask=i < n)


def relu_squared(x):
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if x.requires_grad:
        raise ValueError("no backward pass")
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        _relu_squared[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def relu_squared_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.relu(x.to(wide)).square().to(x.dtype)
