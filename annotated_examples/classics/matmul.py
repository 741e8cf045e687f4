r"""
# Matrix multiplication 3, with an activation

Multiply a matrix `a` of shape (M, K) by a matrix `b` of shape (K, N), and apply an activation to the product:

[[eq: MM-Z]]

Here `a` is the derivation's $X$ and `b` its $Y$. The result is $Z$ itself, or $C$: $Z$ after [[tag: MM-relu]],
[[tag: MM-leaky]], [[tag: MM-gelu]] or [[tag: MM-silu]]. The backward pass is that of the activation,
[[tag: MM-relu-Z]], [[tag: MM-leaky-Z]], [[tag: MM-gelu-Z]] or [[tag: MM-silu-Z]], followed by two more products,
[[tag: MM-X]] and [[tag: MM-Y]], which the same kernel computes.

New on this page: the activation as an argument and `SAVE_Z`, in steps 4 and 5 of the kernel; the activation's backward
pass as a kernel of its own; and `@opaque`, which lets the launcher run inside `torch.compile`. Steps 1 to 3 are those
of the [grouped lesson](../tutorials/matmul_grouped.py).

**What it costs.** `2 · M · N · K` operations, for `M · K + K · N` numbers read and `M · N` written. At M = N = K = 4096
in bfloat16 there are 1365 operations for each byte. According to its data sheet an H200 does 206 in the time it takes
to move one, so arithmetic sets the limit. [fast/matmul](../fast/matmul.py) keeps the tensor cores busier.

**Contract.** `a` and `b` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are allowed,
including those of a transposed or expanded view, and nothing is copied. Sums are formed in float32, and the result has
the inputs' dtype. float32 inputs are multiplied in full precision, unless PyTorch's settings permit tf32
(`torch.backends.cuda.matmul.fp32_precision`). Neither input is ever written to, and the same call gives the same bits.
A NaN in `a` reaches its own row of the result, one in `b` its own column, as in PyTorch.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.activations import ACTIVATIONS, activation_reference
from annotated_examples.common.products import (
    Product,
    contract,
    input_precision,
    multiply_add,
    opaque,
    product_gradients,
)
from annotated_examples.common.tile_order import grouped_order


# ## Reference
#
# The same in PyTorch.
def matmul_reference(a, b, activation=None):
    return activation_reference(torch.matmul(a, b), activation)


# ## Which program computes which tile
#
# Tiles are taken in groups of `GROUP_M` rows, and within a group column by column, as [the grouped
# lesson](../tutorials/matmul_grouped.py#a-better-order) explains. The example has 8 x 4 tiles of C and groups of 3
# rows, of which the last has two.
#
# [[figure: products/last_group]]


# ## The kernel, step by step
#
# The example multiplies a 16 x 16 by a 16 x 8 matrix in tiles of 2 x 2, with `2` elements of K at a time: 32
# programs of eight loop steps.
@triton.jit
def matmul_kernel(
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    z_ptr,  # (M, N), with the strides of c
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    ACTIVATION: tl.constexpr,
    SAVE_Z: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # **Step 1: which tile of C is mine?** C has `num_pid_m = 8` rows and `num_pid_n = 4` columns of tiles. The last
    # group has `pid=29: num_pid_m - 2 * GROUP_M = 2` rows. Program 29 is number `pid=29: pid % (GROUP_M * num_pid_n) =
    # 5` of it: row `pid=29: pid_m = 7`, column `pid=29: pid_n = 2`. Counted down `GROUP_M` rows it would be row
    # `pid=29: 2 * GROUP_M + 5 % GROUP_M = 8`, which doesn't exist.
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = grouped_order(pid, num_pid_m, num_pid_n, GROUP_M)

    # **Step 2: where do my tiles start?** That program computes the rows `pid=29: offs_m = [14, 15]` and columns
    # `pid=29: offs_n = [4, 5]` of C.
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_mask = offs_m < M
    n_mask = offs_n < N
    # In `a`, where a row is 16 elements long, its first tile is `pid=29: a_ptrs = [[224, 225], [240, 241]]`.
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    # **Step 3: walk along K and add up,** [[tag: MM-Z]], in float32.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        # In the first launch everything is inside, `pid=29, k=7: k_mask = [1, 1]`. In the last one, of
        # `launch=3, pid=0: K = 10` in tiles of `launch=3: BLOCK_K = 4`, two columns are left for the third step:
        # `launch=3, pid=0, k=2: k_mask = [1, 1, 0, 0]`. Both sides must be masked: a 0 on one side times a NaN on the
        # other is a NaN.
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        # Back to the first launch: the first step of program 29 gives `pid=29, k=0: acc = [[1, 3], [-1, -2]]`, the last
        # `pid=29, k=7: acc = [[0, 4], [8, -6]]`.
        acc = multiply_add(a, b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    # **Step 4: the epilogue.** The activation is applied while the sums are still in registers. `ACTIVATION` is a
    # function; here it is ReLU, which turns the sums of program 29 into `pid=29: c = [[0, 4], [8, 0]]`.
    c = ACTIVATION(acc)

    # **Step 5: store,** with the masks of the two edges of C. The store rounds to C's dtype. $Z$ is kept only if the
    # backward pass will ask for it.
    c_mask = m_mask[:, None] & n_mask[None, :]
    c_offsets = offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptr + c_offsets, c, mask=c_mask)
    if SAVE_Z:
        tl.store(z_ptr + c_offsets, acc, mask=c_mask)


# ## The launchers
#
# **Tile sizes.** A large tile reads less. The product at 4096 in each direction, with pointers and bfloat16:
#
# - in tiles of 32 x 32: [[bench: matmul/ladder/32 x 32 blocks/forward_ms]]
# - in tiles of 64 x 64: [[bench: matmul/ladder/64 x 64 blocks/forward_ms]]
# - in tiles of 128 x 256: [[bench: matmul/ladder/128 x 256 blocks/forward_ms]]
#
# That is as far as it goes: 128 x 256 sums take 128 of the 255 registers of each thread of 8 warps. The default is half
# of that, 128 x 128. It leaves room for float32 in full precision, whose factors go through registers too.
@opaque
def matmul_forward(
    a, b, activation=None, *, save_z=False, BLOCK_M=128, BLOCK_N=128, BLOCK_K=None, GROUP_M=8, num_warps=8
):
    """The result `c`; with `save_z` the pair `(c, z)`, `z` being what `c` was before the activation."""
    BLOCK_K = BLOCK_K or 128 // a.element_size()
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    checks.positive(GROUP_M=GROUP_M)
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if save_z else c
    if c.numel():
        grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
        matmul_kernel[grid](
            a, b, c, z, M, N, K, *a.stride(), *b.stride(), *c.stride(),
            ACTIVATION=ACTIVATIONS[activation], SAVE_Z=save_z, INPUT_PRECISION=input_precision(),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=num_warps,
        )  # fmt: skip
    return (c, z) if save_z else c


# The activation's backward pass, then two products of transposed views: `b.T` has the strides of `b`, swapped.
def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient of C; `saved` is C for relu and leaky_relu, Z for gelu and silu."""
    return product_gradients(matmul_forward, dc, a, b, saved, activation, needs=needs, **tiles)


# ## The public function
#
# `Product` joins the launchers to autograd and decides what is kept for the backward pass.
@replayed
def matmul(a, b, activation=None):
    """`activation(a @ b)`, differentiable.

    Args:
        a: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        b: tensor of shape (K, N), same dtype, any strides.
        activation: None, "relu", "leaky_relu" (slope 0.01 below zero), "gelu" (exact, with erf) or "silu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype. Sums are formed in float32; K = 0 gives zeros.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: tiles and the grouped order of programs as in Triton's tutorial "Matrix Multiplication".
    """
    contract(a=a, b=b, activation=activation, allowed=ACTIVATIONS)
    if not autograd.needs_frame(a, b):
        return matmul_forward(a, b, activation)
    return Product.apply(a, b, activation, matmul_forward, matmul_backward)


# ## A run small enough to watch
#
# Small whole numbers, so that every sum can be checked by hand. The notes quote the first launch, where they don't name
# another.
def EXAMPLE():
    a = (torch.arange(16 * 16, device=device.DEVICE) % 5 - 1).reshape(16, 16).float()
    b = (torch.arange(16 * 8, device=device.DEVICE) % 7 - 3).reshape(16, 8).float()
    c = matmul_forward(a, b, "relu", BLOCK_M=2, BLOCK_N=2, BLOCK_K=2, GROUP_M=3)
    matmul_backward(torch.ones_like(c), a, b, c, "relu", BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=3)
    # Every edge cut by a mask: C is 3 x 3, and K = 10 in tiles of 4.
    matmul_forward(a[:3, :10], b[:10, :3], BLOCK_M=2, BLOCK_N=2, BLOCK_K=4, GROUP_M=2)


# ## Where it falls behind
#
# At 4096 in each direction it takes [[bench: matmul/4096x4096x4096/forward/ms]], cuBLAS
# [[bench: matmul/4096x4096x4096/forward/eager.ms]]. All sizes and strides are multiples of 16 there, so the threads
# fetch 16 bytes at once. At 1000 x 3000 x 5000 it takes [[bench: matmul/1000x3000x5000/forward/ms]] against
# [[bench: matmul/1000x3000x5000/forward/eager.ms]]. 16 divides neither K nor the strides, so the compiler can prove
# neither that a row begins at a multiple of 16 bytes nor that neighbours along K share their mask, and the threads
# fetch one number at a time. [fast/matmul](../fast/matmul.py) leaves the fetching to the TMA, which needs no masks and
# is told where the rows begin.
if __name__ == "__main__":
    script.main(matmul, matmul_reference)
