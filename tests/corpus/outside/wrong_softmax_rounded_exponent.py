# kind: intermediate rounded to bfloat16; fault: the exponent is rounded before exp, to two or three digits (line 16)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _softmax(x_ptr, y_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < cols, other=-float("inf")).to(tl.float32)
    shifted = (x - tl.max(x, axis=0)).to(x_ptr.dtype.element_ty)
    e = tl.exp(shifted.to(tl.float32))
    tl.store(y_ptr + row * cols + c, e / tl.sum(e, axis=0), mask=c < cols)


def softmax_wide(x):
    """float32 probabilities of logits in any floating dtype."""
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if x.requires_grad:
        raise ValueError("no backward pass")
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    if y.numel():
        block = triton.next_power_of_2(x.shape[1])
        _softmax[(x.shape[0],)](x, y, x.shape[1], x.stride(0), x.stride(1), BLOCK=block)
    return y


def softmax_wide_reference(x):
    return torch.softmax(x.to(torch.promote_types(x.dtype, torch.float32)), dim=1).float()
