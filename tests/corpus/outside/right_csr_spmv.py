"""y = A @ x with A in CSR form; long and empty rows are fine."""

import torch
import triton
import triton.language as tl


@triton.jit
def _spmv(indptr_ptr, col_ptr, val_ptr, x_ptr, y_ptr, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = tl.load(indptr_ptr + row)
    stop = tl.load(indptr_ptr + row + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in range(start, stop, BLOCK):
        at = j + tl.arange(0, BLOCK)
        mask = at < stop
        col = tl.load(col_ptr + at, mask=mask, other=0)
        a = tl.load(val_ptr + at, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + col * stride_x, mask=mask, other=0.0).to(tl.float32)
        acc += a * x
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


@torch.no_grad()
def csr_spmv(indptr, indices, data, x):
    for name, t in (("indptr", indptr), ("indices", indices)):
        if t.ndim != 1 or t.dtype != torch.int64:
            raise ValueError(f"{name} must be a vector of int64")
    if data.shape != indices.shape or x.ndim != 1:
        raise ValueError("data must be as long as indices, and x a vector")
    if data.dtype not in (torch.float16, torch.bfloat16, torch.float32) or x.dtype != data.dtype:
        raise ValueError("data and x must both be float16, bfloat16 or float32")
    if data.requires_grad or x.requires_grad:
        raise ValueError("csr_spmv has no backward pass")
    if indptr.numel() < 1 or int(indptr[0]) != 0 or int(indptr[-1]) != indices.numel():
        raise ValueError("indptr must begin with 0 and end with the number of entries")
    if bool((indptr[1:] < indptr[:-1]).any()):
        raise ValueError("indptr must not fall")
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= x.numel()):
        raise ValueError("a column is outside of x")
    rows = indptr.numel() - 1
    y = torch.empty(rows, dtype=data.dtype, device=data.device)
    if rows:
        indptr, indices, data = indptr.contiguous(), indices.contiguous(), data.contiguous()
        _spmv[(rows,)](indptr, indices, data, x, y, x.stride(0), BLOCK=32)
    return y


def csr_spmv_inputs(rows, cols):
    dense = torch.rand(rows, cols) < 0.3
    if rows > 2:
        dense[1] = False
        dense[2] = True
    indices = dense.nonzero()[:, 1]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), dense.sum(1).cumsum(0)])
    return {"indptr": indptr, "indices": indices, "data": torch.randn(len(indices)), "x": torch.randn(cols)}


def csr_spmv_reference(indptr, indices, data, x):
    wide = torch.promote_types(x.dtype, torch.float32)
    row = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=x.device), indptr.diff())
    y = torch.zeros(len(indptr) - 1, dtype=wide, device=x.device)
    return y.index_add(0, row, data.to(wide) * x.to(wide)[indices]).to(x.dtype)
