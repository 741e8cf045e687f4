# kind: result depends on a later call; fault: one output buffer for each shape, which the next call writes over
# (line 24)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}
_buffers: dict = {}


@triton.jit
def _square_plus(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(y_ptr + i, x * x + x, mask=i < n)


def _output(x):
    key = (tuple(x.shape), x.dtype, x.device)
    if key not in _buffers:
        _buffers[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return _buffers[key]


def square_plus(x):
    """x * x + x"""
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    y = _output(x)
    if n := x.numel():
        _square_plus[(triton.cdiv(n, 1024),)](x.contiguous(), y, n, BLOCK=1024)
    return y


def square_plus_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) * x.to(wide) + x.to(wide)).to(x.dtype)
