# kind: accumulator in bfloat16; fault: the running sum has the dtype of the input (line 14)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"a": "m k", "x": "k"}


@triton.jit
def _gemv(a_ptr, x_ptr, y_ptr, K, sam, sak, sx, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BK,), dtype=a_ptr.dtype.element_ty)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK).to(tl.int64)
        a = tl.load(a_ptr + m * sam + k * sak, mask=k < K, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + k * sx, mask=k < K, other=0.0).to(tl.float32)
        acc = (acc.to(tl.float32) + a * x).to(acc.dtype)
    tl.store(y_ptr + m, tl.sum(acc.to(tl.float32), axis=0))


def gemv(a, x):
    if a.dim() != 2 or x.shape != a.shape[1:]:
        raise ValueError("a must be (m, k) and x (k,)")
    if a.dtype not in (torch.float16, torch.bfloat16, torch.float32) or x.dtype != a.dtype:
        raise ValueError("a and x must both be float16, bfloat16 or float32")
    if a.requires_grad or x.requires_grad:
        raise ValueError("no backward pass")
    y = torch.empty(a.shape[0], dtype=a.dtype, device=a.device)
    if y.numel():
        _gemv[(a.shape[0],)](a, x, y, a.shape[1], a.stride(0), a.stride(1), x.stride(0), BK=16)
    return y


def gemv_reference(a, x):
    wide = torch.promote_types(a.dtype, torch.float32)
    return (a.to(wide) @ x.to(wide)).to(a.dtype)
