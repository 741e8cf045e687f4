import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def sum_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=offs < N, other=0.0)
        acc = (acc + x).to(acc.dtype)
    tl.store(out_ptr + row, tl.sum(acc.to(tl.float32), axis=0))


def row_sums(x):
    if x.requires_grad:
        raise ValueError("x must not require a gradient")
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    if len(x):
        sum_kernel[(len(x),)](x, out, x.shape[1], *x.stride(), BLOCK=64)
    return out


def row_sums_reference(x):
    return x.sum(1)
