import torch
import triton
import triton.language as tl

INPUTS = {"a": "m inner", "b": "inner n"}
SIZES = {"m": (1, 16, 20), "n": (1, 16, 24), "inner": (0, 1, 64, 100, 200)}


@triton.jit
def split_inner_product_kernel(
    a_ptr, b_ptr, out_ptr, m_size, n_size, inner, sa_m, sa_k, sb_k, sb_n,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, inner, SPLIT * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + m[:, None] * sa_m + k[None, :] * sa_k, mask=(m[:, None] < m_size) & (k[None, :] < inner), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * sb_k + n[None, :] * sb_n, mask=(k[:, None] < inner) & (n[None, :] < n_size), other=0.0
        )
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    inside = (m[:, None] < m_size) & (n[None, :] < n_size)
    tl.atomic_add(out_ptr + m[:, None] * n_size + n[None, :], acc, mask=inside)


def split_inner_product(a, b):
    """a @ b for a long inner dim, which several programs share."""
    m_size, inner = a.shape
    n_size = b.shape[1]
    total = a.new_empty(m_size, n_size, dtype=torch.float32)
    if total.numel():
        grid = (triton.cdiv(m_size, 16), triton.cdiv(n_size, 16), 3)
        split_inner_product_kernel[grid](
            a, b, total, m_size, n_size, inner, *a.stride(), *b.stride(), SPLIT=3, BM=16, BN=16, BK=16
        )
    return total.to(a.dtype)


def split_inner_product_reference(a, b):
    return (a.float() @ b.float()).to(a.dtype)
