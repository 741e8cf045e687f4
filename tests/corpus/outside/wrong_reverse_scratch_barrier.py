# kind: read after write inside a program without a barrier; fault: lanes read from scratch what other threads have
# just stored (line 19)
# source: own; on a card threads of other warps may not have stored yet (tl.debug_barrier is missing), right in any
# sequential run

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _flip_kernel(x_ptr, scratch_ptr, out_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(scratch_ptr + row * cols + c, x, mask=c < cols)
    y = tl.load(scratch_ptr + row * cols + (cols - 1 - c), mask=c < cols, other=0.0)
    tl.store(out_ptr + row * cols + c, x + y, mask=c < cols)


def add_flipped(x):
    """x + x.flip(1)"""
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if x.requires_grad:
        raise ValueError("no backward pass")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        scratch = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        _flip_kernel[(x.shape[0],)](x, scratch, out, x.shape[1], x.stride(0), x.stride(1), BLOCK=block, num_warps=8)
    return out


def add_flipped_reference(x):
    return x + x.flip(1)
