import torch
import triton
import triton.language as tl

INPUTS = {"a": "rows", "b": "cols"}
SIZES = {"rows": (0, 1, 16, 33, 70, 200), "cols": (0, 1, 20, 64)}


@triton.jit
def sums_of_pairs_kernel(a_ptr, b_ptr, out_ptr, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    a = tl.load(a_ptr + i, mask=i < rows, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + j, mask=j < cols, other=0.0).to(tl.float32)
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    tl.store(out_ptr + i[:, None] * cols + j[None, :], a[:, None] + b[None, :], mask=inside)


def sums_of_pairs(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    if out.numel():
        grid = (min(triton.cdiv(a.shape[0], 16), 8), triton.cdiv(b.shape[0], 32))
        sums_of_pairs_kernel[grid](a, b, out, a.shape[0], b.shape[0], BM=16, BN=32)
    return out


def sums_of_pairs_reference(a, b):
    return (a.double()[:, None] + b.double()[None, :]).to(a.dtype)
