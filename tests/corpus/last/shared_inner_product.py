import torch
import triton
import triton.language as tl

INPUTS = {"a": "m inner", "b": "n inner", "parts": (1, 4)}
SIZES = {"m": (0, 1, 16, 20), "n": (1, 16, 24), "inner": (0, 1, 50, 130)}


@triton.jit
def shared_inner_product_kernel(
    a_ptr, b_ptr, out_ptr, m_size, n_size, inner, sa_m, sa_k, sb_n, sb_k, each, BLOCK: tl.constexpr
):
    m = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) % m_size
    n = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)) % n_size
    first = tl.program_id(2) * each
    last = tl.minimum(first + each, inner)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(first, last, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + m[:, None] * sa_m + k[None, :] * sa_k, mask=k[None, :] < last, other=0.0)
        b = tl.load(b_ptr + n[None, :] * sb_n + k[:, None] * sb_k, mask=k[:, None] < last, other=0.0)
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows[:, None] < m_size) & (cols[None, :] < n_size)
    if first < last:
        tl.atomic_add(out_ptr + rows[:, None] * n_size + cols[None, :], acc, mask=inside)


def shared_inner_product(a, b, parts=1):
    """a @ b.T, with the inner dim shared by some programs, whose sums come in any order."""
    m_size, inner = a.shape
    n_size = b.shape[0]
    out = torch.zeros(m_size, n_size, dtype=torch.float32, device=a.device)
    if out.numel() and inner:
        each = triton.cdiv(inner, parts)
        grid = (triton.cdiv(m_size, 16), triton.cdiv(n_size, 16), parts)
        shared_inner_product_kernel[grid](a, b, out, m_size, n_size, inner, *a.stride(), *b.stride(), each, BLOCK=16)
    return out.to(a.dtype)


def shared_inner_product_reference(a, b, parts=1):
    return (a.float() @ b.float().T).to(a.dtype)
