import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def norm_kernel(x_ptr, out_ptr, n_cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < n_cols, other=0.0).to(tl.float16)
    total = tl.sqrt(tl.sum(x * x, axis=0).to(tl.float32))
    tl.store(out_ptr + row, total)


def frobenius(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if x.shape[0]:
        norm_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
    return out


def frobenius_reference(x):
    return x.float().square().sum(1).sqrt().to(x.dtype)
