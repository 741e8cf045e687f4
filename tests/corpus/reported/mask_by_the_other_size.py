import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def sum_kernel(x_ptr, out_ptr, n_cols, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        if EVEN:
            acc += tl.load(x_ptr + row * n_cols + start + offs).to(tl.float32)
        else:
            acc += tl.load(x_ptr + row * n_cols + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(acc, axis=0))


def row_sums(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    if x.numel():
        sum_kernel[(x.shape[0],)](x, out, x.shape[1], EVEN=x.shape[0] % 16 == 0, BLOCK=32)
    return out


def row_sums_reference(x):
    return x.sum(1)
