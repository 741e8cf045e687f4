# kind: fault in one configuration only; fault: with SPLIT = 2 the last of an odd number of blocks is dropped (line 24)
# source: report, triton-lang/triton#9230 for how an autotuner hides this (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64, "SPLIT": 1}, num_warps=1),
        triton.Config({"BLOCK": 32, "SPLIT": 2}, num_warps=2),
    ],
    key=["cols"],
)
@triton.jit
def _rowsum(x_ptr, out_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    steps = tl.cdiv(cols, BLOCK)
    for s in tl.static_range(SPLIT):
        for j in range(0, steps // SPLIT):
            c = (j * SPLIT + s) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
            acc += tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(acc, axis=0))


def row_sum(x):
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    out = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    if x.numel():
        _rowsum[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1))
    return out


def row_sum_reference(x):
    return x.sum(1)
