r"""# Both gradients in one launch

The first programs compute `da`, the others `db`. That saves the pause between two kernels, and the last programs of one
product don't leave half of the GPU idle. But the code has both loops in it, and each program gets as many registers as
the more demanding one needs. Compare it with the gate as a kernel of its own.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.activations import activation_backward
from annotated_examples.common.products import input_precision, tile_of_product
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.tutorials.matmul_grouped import tile_sizes


@triton.jit
def product_of_program(
    pid, a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = grouped_order(pid, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tile_of_product(
        a_ptr, b_ptr, offs_m, offs_n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, INPUT_PRECISION, BLOCK_K
    )
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


@triton.jit
def both_gradients_kernel(
    dz_ptr, a_ptr, b_ptr, da_ptr, db_ptr,  # (M, N), (M, K), (K, N); (M, K) and (K, N), contiguous
    M, N, K, stride_dzm, stride_am, stride_ak, stride_bk, stride_bn, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    programs_da = tl.cdiv(M, BLOCK_M) * tl.cdiv(K, BLOCK_N)
    if tl.program_id(0) < programs_da:
        # [[tag: MM-X]]: rows of M, columns of K, and the sum runs over N.
        product_of_program(
            tl.program_id(0), dz_ptr, b_ptr, da_ptr, M, K, N, stride_dzm, 1, stride_bn, stride_bk,
            INPUT_PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
        )  # fmt: skip
    else:
        # [[tag: MM-Y]]: rows of K, columns of N, and the sum runs over M.
        product_of_program(
            tl.program_id(0) - programs_da, a_ptr, dz_ptr, db_ptr, K, N, M, stride_ak, stride_am, stride_dzm, 1,
            INPUT_PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
        )  # fmt: skip


def matmul_backward(dc, a, b, saved, activation):
    """`(da, db)` of `relu(a @ b)` from the gradient of the result, `saved`, which is contiguous."""
    dz = activation_backward(dc, saved, activation)
    tiles = tile_sizes(a)
    (M, K), N = a.shape, b.shape[1]
    da, db = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (a, b))
    rows, columns = tiles["BLOCK_M"], tiles["BLOCK_N"]
    programs = triton.cdiv(M, rows) * triton.cdiv(K, columns) + triton.cdiv(K, rows) * triton.cdiv(N, columns)
    both_gradients_kernel[(programs,)](
        dz, a, b, da, db, M, N, K, dz.stride(0), *a.stride(), *b.stride(), INPUT_PRECISION=input_precision(), **tiles
    )
    return da, db
