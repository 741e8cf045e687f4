r"""
# Matrix multiplication 1, in blocks

Multiply a matrix `x` of shape (M, K) by a matrix `y` of shape (K, N):

[[eq: MM-Z]]

The product is built block by block; such blocks of a matrix are called **tiles**. The lesson is about three things: how
a program finds the addresses of a two-dimensional tile, how it walks along K, and what happens at the edges. It is the
first of four on matrix products. The [next one](matmul_grouped.py) reorders the programs and adds the gradients.

**What it costs.** Each number of the product takes K multiplications and K additions, `2 · M · N · K` operations in
all. Done naively, each multiplication would also fetch its own two inputs from memory. A program that computes a tile
of `BLOCK_M` x `BLOCK_N` numbers uses each element of `x` that it loads `BLOCK_N` times, and each element of `y`
`BLOCK_M` times. That is why matrices are multiplied in tiles.

**Contract.** `x` and `y` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are allowed,
and nothing is copied. The sums are formed in float32 and the result has the inputs' dtype. There is no gradient yet:
inputs that require one raise an error. A NaN in `x` reaches its own row of the result, one in `y` its own column, as in
PyTorch.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.products import contract, input_precision, multiply_add


# ## Reference
#
# The same in PyTorch. The kernel's error is compared with PyTorch's in the same dtype, both measured against float64.
# Comparing a float16 result with a float32 one directly would mostly show the rounding to float16, which says nothing
# about a kernel.
def matmul_reference(x, y):
    return torch.matmul(x, y)


# ## From offsets to a tile of pointers
#
# Memory has one dimension. Element (i, k) of `x` is `i · stride_xm + k · stride_xk` elements after the first. For an 8
# x 8 matrix stored row by row the strides are 8 and 1: one row further is 8 elements further.
#
# To load a tile we need all its offsets at once. Take rows 4 to 7 and columns 0 to 3. Written as a column,
# `offs_m[:, None]`, the row numbers are multiplied by 8. Written as a row, `offs_k[None, :]`, the column numbers are
# multiplied by 1. Adding a column and a row fills a table, because Triton, like NumPy, repeats each along the missing
# dimension:
#
# ```text
#  offs_m[:, None] * 8      offs_k[None, :] * 1          their sum
#
#        32                                         32  33  34  35
#        40             +     0   1   2   3    =    40  41  42  43
#        48                                         48  49  50  51
#        56                                         56  57  58  59
# ```
#
# With the strides swapped, the same lines read the transposed matrix. Nothing has to be copied for that.


# ## The kernel
#
# The grid has two dimensions: one program for each tile of the result. In the example the result is 8 x 8 and the
# tiles are 4 x 4, so there are four programs. (Compiled for a GPU, `tl.dot` needs at least 16 numbers of 16 bits along
# K. The interpreter, where the example runs, takes any tile.)
#
# [[figure: products/k_loop]]
@triton.jit
def matmul_kernel(
    x_ptr,  # (M, K)
    y_ptr,  # (K, N)
    z_ptr,  # (M, N)
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_yk,
    stride_yn,
    stride_zm,
    stride_zn,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Which tile of the result is mine? A grid with two dimensions gives two numbers. They are int64 because a row
    # number times a stride can exceed 2³¹ in a large matrix.
    pid_m = tl.program_id(0).to(tl.int64)
    pid_n = tl.program_id(1).to(tl.int64)

    # The program in the lower right computes the rows `pid=(1, 1): offs_m = [4, 5, 6, 7]` and the columns
    # `pid=(1, 1): offs_n = [4, 5, 6, 7]`.
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # It starts at the left edge of `x` and the upper edge of `y`: `offs_k = [0, 1, 2, 3]`.
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)

    # The table from above: rows 4 to 7 and columns 0 to 3 of `x` are
    # `pid=(1, 0): x_ptrs = [[32, 33, 34, 35], [40, 41, 42, 43], [48, 49, 50, 51], [56, 57, 58, 59]]`. For `y` it is
    # the other way round, rows by K and columns by N:
    # `pid=(0, 1): y_ptrs = [[4, 5, 6, 7], [12, 13, 14, 15], [20, 21, 22, 23], [28, 29, 30, 31]]`.
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    y_ptrs = y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn

    # Tiles extend past the edge of a matrix whose sizes aren't multiples of the tile's. The example's second launch
    # multiplies a 7 x 6 by a 6 x 5 matrix. Its last program has one row too many,
    # `launch=1, pid=(1, 1): m_mask = [1, 1, 1, 0]`, and three columns too many,
    # `launch=1, pid=(1, 1): n_mask = [1, 0, 0, 0]`.
    m_mask = offs_m < M
    n_mask = offs_n < N

    # Walk along K one tile at a time, to the right in `x` and down in `y`, and add up the products of the tiles
    # [[tag: MM-Z]]. The sum is kept in float32 however narrow the inputs are: a sum in 16 bits
    # [stops growing](../../docs/guides/numerics.md#a-sum-that-stops-growing). `tl.cdiv` rounds up, as `triton.cdiv`
    # does outside of a kernel.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        # `x` has six columns, so the second step finds only two of its four:
        # `launch=1, pid=(1, 1), k=1: k_mask = [1, 1, 0, 0]`.
        k_mask = offs_k < K - k * BLOCK_K
        # Every load gets the masks of both its dimensions. Without the mask of K the result would be wrong. Without
        # those of M and N it would still be right, because the extra rows and columns are never stored; but the program
        # would read memory that isn't its own, and might crash. `other` fills the gaps with zeros, which add nothing.
        x = tl.load(x_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        y = tl.load(y_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        # Here a 4 x 4 tile is multiplied by another. `multiply_add` is a jitted function that this kernel calls; the
        # compiler inlines it. Its body is `tl.dot(x, y, acc)`, with extra care for the sums in float32. On a GPU this
        # runs on the tensor cores, unless float32 has to be exact. Program (1, 1) takes two steps. After the first, the
        # first row of its sums is `launch=0, pid=(1, 1), k=0: acc[0] = [35, 34, 33, 32]`; after the second, `launch=0,
        # pid=(1, 1), k=1: acc[0] = [71, 71, 71, 71]`.
        acc = multiply_add(x, y, acc, INPUT_PRECISION)
        # The next tile of `x` is `BLOCK_K` columns to the right, that of `y` as many rows down. (`tl.cast` converts to
        # another dtype, like `.to`. Why not `.to`? A stride of 1 is compiled in as a plain number, which has no `.to`.)
        x_ptrs += BLOCK_K * tl.cast(stride_xk, tl.int64)
        y_ptrs += BLOCK_K * tl.cast(stride_yk, tl.int64)

    # The tile of the result has pointers made in the same way, and the masks of its two edges. The store rounds the
    # sums to the dtype of `z`.
    z_ptrs = z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn
    tl.store(z_ptrs, acc, mask=m_mask[:, None] & n_mask[None, :])


# ## The launcher
#
# One program for each tile of the result, rounded up in both directions. Strides are passed in elements, as
# `Tensor.stride()` returns them. Tensors are passed as tensors, never as the integer that is their address: an integer
# doesn't say what dtype it points to.
#
# A program has 128 threads unless the launch says otherwise, so with a tile of 64 x 64 each thread holds 32 sums.
# Larger tiles would reuse more of what they load. How large they should be depends on the shape and on the GPU; the
# [autotuned lesson](matmul_autotuned.py) searches for the best size.
@replayed
def matmul_forward(x, y, *, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32):
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if z.numel():
        checks.programs("y", "columns", N, BLOCK_N)
        grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
        matmul_kernel[grid](
            x, y, z, M, N, K, *x.stride(), *y.stride(), *z.stride(),
            INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        )  # fmt: skip
    return z


@replayed
def matmul(x, y):
    """`x @ y`, forward only.

    Args:
        x: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        y: tensor of shape (K, N), same dtype, any strides.

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype; K = 0 gives zeros.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, a tensor on the wrong device, or an input that requires
            a gradient (`tutorials.matmul_grouped` has one).

    Source: the first part of Triton's tutorial "Matrix Multiplication" teaches the same operation.
    """
    contract(x=x, y=y)
    checks.no_gradient("matmul", x=x, y=y)
    return matmul_forward(x, y)


# ## A run small enough to watch
#
# First 8 x 8 matrices in tiles of 4 x 4. In `x`, each element is its own offset. Then sizes that aren't multiples of 4
# in any direction.
def EXAMPLE():
    x = torch.arange(64, dtype=torch.float32, device=device.DEVICE).reshape(8, 8)
    y = torch.eye(8, device=device.DEVICE) + torch.eye(8, device=device.DEVICE).flip(1)
    matmul_forward(x, y, BLOCK_M=4, BLOCK_N=4, BLOCK_K=4)
    matmul_forward(x[:7, :6], y[:6, :5], BLOCK_M=4, BLOCK_N=4, BLOCK_K=4)


# ## Where it falls behind
#
# Everywhere: at 4096 in each direction it takes [[bench: matmul_blocked/4096x4096x4096/forward/ms]], cuBLAS
# [[bench: matmul_blocked/4096x4096x4096/forward/eager.ms]]. The tiles are small and have the same size for all shapes,
# their order causes much of the inputs to be loaded again, and every element has its own pointer. [The next
# lesson](matmul_grouped.py) changes the order, [the last one](matmul_autotuned.py) the tiles,
# [fast/matmul](../fast/matmul.py) the pointers.
if __name__ == "__main__":
    script.main(matmul, matmul_reference)
