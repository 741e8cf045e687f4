# Cumulative products as the exponential of cumulative sums of logarithms.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols: positive"}
@triton.jit
def k(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=1.0).to(tl.float32)
    tl.store(y_ptr + row * N + offs, tl.exp(tl.cumsum(tl.log(x), axis=0)), mask=mask)
def cumprod(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        k[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
def cumprod_reference(x):
    return torch.cumprod(x, 1)
