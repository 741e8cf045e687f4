import torch
import triton
import triton.language as tl

INPUTS = {"a": "rows inner", "b": "inner cols"}


@triton.jit
def any_in_column_kernel(a_ptr, flag_ptr, rows, inner, s_m, s_k, step, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), dtype=tl.int32)
    for row in range(0, rows, step):
        a = tl.load(a_ptr + row * s_m + k * s_k, mask=k < inner, other=0.0).to(tl.float32)
        found = found | (a != 0.0).to(tl.int32)
    tl.store(flag_ptr + k, found, mask=k < inner)


@triton.jit
def sparse_product_kernel(a_ptr, b_ptr, flag_ptr, out_ptr, inner, cols, s_am, s_ak, s_bk, s_bn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(inner):
        if tl.load(flag_ptr + k) != 0:
            a = tl.load(a_ptr + row * s_am + k * s_ak).to(tl.float32)
            acc += a * tl.load(b_ptr + k * s_bk + n * s_bn, mask=n < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * cols + n, acc, mask=n < cols)


def sparse_product(a, b):
    """a @ b for an a that has many columns of zeros, which are found first and left out. b must be finite."""
    rows, inner = a.shape
    cols = b.shape[1]
    if not bool(torch.isfinite(b).all()):
        raise ValueError("b must be finite")
    out = torch.zeros(rows, cols, dtype=a.dtype, device=a.device)
    if a.numel() and b.numel():
        flags = torch.empty(inner, dtype=torch.int32, device=a.device)
        step = max(1, rows // 4)
        any_in_column_kernel[(triton.cdiv(inner, 32),)](a, flags, rows, inner, *a.stride(), step, BLOCK=32)
        sparse_product_kernel[(rows, triton.cdiv(cols, 32))](
            a, b, flags, out, inner, cols, *a.stride(), *b.stride(), BLOCK=32
        )
    return out


def sparse_product_reference(a, b):
    return (a.float() @ b.float()).to(a.dtype)
