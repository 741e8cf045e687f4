# kind: race between lanes of one program; fault: two lanes with one index both load, add and store (line 18)
# source: report, triton-lang/triton#558 (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"src": "n", "index": "n: int64 below bins", "base": "bins: float32"}


@triton.jit
def _scatter(src_ptr, index_ptr, out_ptr, n, stride_s, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        at = tl.load(index_ptr + i, mask=i < n, other=0)
        v = tl.load(src_ptr + i * stride_s, mask=i < n, other=0.0).to(tl.float32)
        old = tl.load(out_ptr + at, mask=i < n, other=0.0)
        tl.store(out_ptr + at, old + v, mask=i < n)
        tl.debug_barrier()


def scatter_add(src, index, base):
    """base (float32) plus the values of src at the places of index."""
    if src.dim() != 1 or index.shape != src.shape or base.dim() != 1:
        raise ValueError("src and index must be vectors of one length, base a vector")
    if index.dtype != torch.int64 or base.dtype != torch.float32:
        raise ValueError("index must be int64 and base float32")
    if src.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("src must be float16, bfloat16 or float32")
    if src.requires_grad or base.requires_grad:
        raise ValueError("no backward pass")
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= base.numel()):
        raise ValueError("an index is outside of base")
    out = base.clone(memory_format=torch.contiguous_format)
    if src.numel():
        _scatter[(1,)](src, index.contiguous(), out, src.numel(), src.stride(0), BLOCK=64)
    return out


def scatter_add_reference(src, index, base):
    return base.index_add(0, index, src.to(base.dtype))
