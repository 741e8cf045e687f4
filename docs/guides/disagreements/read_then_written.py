import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows: int32 below 100"}


@triton.jit
def sum_kernel(x_ptr, total_ptr):
    so_far = tl.load(total_ptr)
    tl.store(total_ptr, so_far + tl.load(x_ptr + tl.program_id(0)))


def total(x):
    out = torch.zeros((), dtype=torch.int32, device=x.device)
    if x.numel():
        sum_kernel[(x.numel(),)](x.contiguous(), out)
    return out


def total_reference(x):
    return x.sum().to(torch.int32)
