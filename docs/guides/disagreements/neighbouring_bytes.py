import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows: uint8 below 256"}


@triton.jit
def copy_kernel(x_ptr, out_ptr):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.load(x_ptr + row))  # one byte, and no other program has it


def copied(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        copy_kernel[(x.numel(),)](x.contiguous(), out)
    return out


def copied_reference(x):
    return x.clone()
