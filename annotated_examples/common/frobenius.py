r"""
# A matrix without a singular value above 1

The sum of a matrix's squared numbers is that of its squared singular values. So its root, the *Frobenius norm*, is at
least as large as the largest of them, and divided by it,

[[eq: MU-norm]]

a matrix has none above 1.

The norm is float64, for three reasons. The square of 10³⁰ is no float32, nor is that of 10⁻³⁰. A norm that is rounded
to bfloat16, as in many versions of Muon, may be too small by nearly 1/256, and where one singular value is nearly all
of it, that one is then above 1. And a sum of millions of squares keeps its digits.
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.launching import power_of_2_up_to


# A program has a few rows of one matrix, and leaves the sum of their squares.
@triton.jit
def squares_kernel(
    x_ptr, sums_ptr,  # (batch, m, n); (batch, strips)
    m, n, strips, stride_xb, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    matrix = (tl.program_id(0) // strips).to(tl.int64)
    offs_m = (tl.program_id(0) % strips).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    x_ptrs = x_ptr + matrix * stride_xb + offs_m[:, None] * stride_xm
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64)
    for first in range(0, n, BLOCK_N):
        offs_n = first + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (offs_m < m)[:, None] & (offs_n < n)[None, :]
        x = tl.load(x_ptrs + offs_n[None, :] * stride_xn, mask=mask, other=0.0).to(tl.float64)
        total += x * x
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0))


# Every program of the next kernel adds up the sums of its matrix, all in the same order. The quotient is rounded to
# float32, then to bfloat16, which may lift a singular value by up to 1/256. A matrix whose norm is below `eps` is
# divided by `eps`: one of zeros stays zero, and the step for a tiny gradient is smaller than others.
@triton.jit
def normalize_kernel(
    x_ptr, sums_ptr, y_ptr,  # (batch, m, n); (batch, strips); (batch, m, n), contiguous
    m, n, strips, stride_xb, stride_xm, stride_xn, safety, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STRIPS: tl.constexpr,
):  # fmt: skip
    matrix = (tl.program_id(0) // strips).to(tl.int64)
    offs = tl.arange(0, STRIPS)
    sums = tl.load(sums_ptr + matrix * strips + offs, mask=offs < strips, other=0.0)
    norm = tl.sqrt(tl.sum(sums, axis=0)) * safety
    # `tl.maximum` would lose a NaN; a comparison with one is false, so it stays.
    norm = tl.where(norm < eps, eps, norm)
    offs_m = (tl.program_id(0) % strips).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    for first in range(0, n, BLOCK_N):
        offs_n = first + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (offs_m < m)[:, None] & (offs_n < n)[None, :]
        offsets = matrix * stride_xb + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float64) / norm
        tl.store(y_ptr + (matrix * m + offs_m[:, None]) * n + offs_n[None, :], x.to(tl.float32), mask=mask)


@opaque(
    "(Tensor x, float safety, float eps) -> Tensor",
    lambda x, safety, eps: x.new_empty(x.shape, dtype=torch.bfloat16),
)
def normalized(x, safety, eps, *, BLOCK_M=16, BLOCK_N=256):
    """x: (batch, m, n), any strides. Contiguous bfloat16; before it is rounded no singular value exceeds 1 / safety."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    batch, m, n = x.shape
    y, strips = torch.empty(batch, m, n, dtype=torch.bfloat16, device=x.device), triton.cdiv(m, BLOCK_M)
    if y.numel():
        sums = torch.empty(batch, strips, dtype=torch.float64, device=x.device)
        shape, tile = (m, n, strips, *x.stride()), dict(BLOCK_M=BLOCK_M, BLOCK_N=min(BLOCK_N, power_of_2_up_to(256, n)))
        squares_kernel[(batch * strips,)](x, sums, *shape, **tile, num_warps=8)
        normalize_kernel[(batch * strips,)](
            x, sums, y, *shape, float(safety), float(eps), STRIPS=triton.next_power_of_2(strips), **tile, num_warps=8
        )
    return y
