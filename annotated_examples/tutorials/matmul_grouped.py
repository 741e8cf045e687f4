r"""
# Matrix multiplication 2, in groups, with gradients

The same product as in the [first lesson](matmul_blocked.py), of `x` (M, K) and `y` (K, N),

[[eq: MM-Z]]

with two things added. The programs run in an order that reads less from memory. And there are gradients,

[[eq: MM-X]]

[[eq: MM-Y]]

where $\nabla_Z$ is the upstream gradient. All three products are computed by one kernel. A ReLU can be applied before
the result is stored, [[tag: MM-relu]]; then $\nabla_Z$ is [[tag: MM-relu-Z]].

**What it costs.** `2 · M · N · K` operations forward, twice as many backward. The inputs and the result have to move
once; how much of them moves again depends on the order in which the programs run.

**Contract.** `x` and `y` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are allowed,
and nothing is copied in either pass. Sums are formed in float32, and the result has the inputs' dtype. Neither input is
ever written to. A NaN in `x` reaches its own row of the result, one in `y` its own column, as in PyTorch.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.activations import relu
from annotated_examples.common.products import (
    Product,
    contract,
    input_precision,
    product_gradients,
    tile_of_product,
)
from annotated_examples.common.tile_order import grouped_order


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernel is measured against.
def matmul_reference(x, y, activation="none"):
    z = torch.matmul(x, y)
    return torch.relu(z) if activation == "relu" else z


# ## A better order
#
# A GPU runs a few hundred programs at a time, and they share the L2 cache. What one of them has loaded, the others find
# there. So programs that run at the same time should need the same tiles.
#
# [[figure: products/l2_order]]


# Nine programs that compute one *row* of tiles of a 9 x 9 result share their tiles of `x`, but each needs a different
# column of tiles of `y`. With nine tiles along K they load 9 tiles of `x` and 81 of `y`, 90 in all. Nine programs that
# compute a *square* of 3 x 3 tiles load 27 and 27: 54. That is the gain. ([The recorded run](#pid=8&launch=1&whole=9)
# counts it for a single tile along K: 6 tiles instead of 10.) All that the kernel has to do is to number its tiles
# differently: first down a group of rows, then to the right.
#
# In the example the result has 4 x 3 tiles and the groups have 3 rows, so the second group is left with one row:
#
# ```text
#     pid_n = 0   1   2
# pid_m = 0   0   3   6
# pid_m = 1   1   4   7   group 0: programs 0 to 8
# pid_m = 2   2   5   8
#
# pid_m = 3   9  10  11   group 1: one row only
# ```
#
# `grouped_order` does the arithmetic. The kernel below multiplies nothing: it stores the position of each program's
# tile, so that the picture of the order is drawn from the very function that the other kernels use.
@triton.jit
def store_blocks_kernel(tiles_ptr, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):  # tiles: (programs, 2)
    pid = tl.program_id(0)
    pid_m, pid_n = grouped_order(pid, num_pid_m, num_pid_n, GROUP_M)
    tl.store(tiles_ptr + 2 * pid, pid_m)
    tl.store(tiles_ptr + 2 * pid + 1, pid_n)


def program_order(num_pid_m, num_pid_n, GROUP_M):
    """`[(pid_m, pid_n), …]` for the programs 0, 1, 2 … of a result with `num_pid_m` x `num_pid_n` tiles."""
    tiles = torch.empty(num_pid_m * num_pid_n, 2, dtype=torch.int32, device=device.DEVICE)
    store_blocks_kernel[(len(tiles),)](tiles, num_pid_m, num_pid_n, GROUP_M=GROUP_M)
    return [tuple(tile) for tile in tiles.tolist()]


# ## The kernel: one for three products
#
# Forward and backward passes need `x @ y`, `dz @ y.T` and `x.T @ dz`. A transposed matrix is the same memory with its
# strides swapped, so a kernel that takes the strides of `a`, `b` and `c` as arguments can compute all three. A kernel
# that uses the row length as the stride reads a transposed matrix as if it weren't transposed. Nothing crashes, and
# every gradient is wrong.
@triton.jit
def matmul_kernel(
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    RELU: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # The grid has one dimension, so that the kernel itself can say which tile a program takes. The example multiplies a
    # 7 x 8 by an 8 x 5 matrix in tiles of 2 x 2: `num_pid_m = 4` by `num_pid_n = 3` of them. Program 10 takes the one
    # at `pid=10: pid_m = 3`, `pid=10: pid_n = 1`.
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = grouped_order(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)

    # Those are the rows `pid=10: offs_m = [6, 7]`, the second of which doesn't exist, and the columns
    # `pid=10: offs_n = [2, 3]`.
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    # [[tag: MM-Z]]. The loop along K is that of the first lesson, so it isn't told again: unfold it to read it. It only
    # needs to know which rows and columns, and both strides of each matrix.
    acc = tile_of_product(
        a_ptr, b_ptr, offs_m, offs_n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, INPUT_PRECISION, BLOCK_K
    )

    # What a product does with its sums between the loop and the store is called its *epilogue*. [[tag: MM-relu]] costs
    # next to nothing there, because the sums are still in registers: program 10 turns them into
    # `pid=10: c = [[3, 0], [0, 0]]`. A kernel of its own would have to load and store the whole matrix once more.
    c = relu(acc) if RELU else acc
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


# ## The launchers
#
# In tiles of 128 x 128, each of the 256 threads of 8 warps keeps 64 sums in registers. Along K a tile has 128 bytes,
# the length of a cache line: 64 numbers of 16 bits, 32 of float32.
def tile_sizes(x, *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=None, GROUP_M=8, num_warps=8):
    BLOCK_K = BLOCK_K or 128 // x.element_size()
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    checks.positive(GROUP_M=GROUP_M)
    return dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=num_warps)


def multiply_(c, a, b, *, relu=False, **tiles):
    """Write `a @ b` into `c`, which may have any strides."""
    tiles = tile_sizes(a, **tiles)
    (M, K), N = a.shape, b.shape[1]
    if c.numel():
        grid = (triton.cdiv(M, tiles["BLOCK_M"]) * triton.cdiv(N, tiles["BLOCK_N"]),)
        matmul_kernel[grid](
            a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
            RELU=relu, INPUT_PRECISION=input_precision(), **tiles,
        )  # fmt: skip


@replayed
def matmul_forward(x, y, activation="none", **tiles):
    z = torch.empty((x.shape[0], y.shape[1]), dtype=x.dtype, device=x.device)
    multiply_(z, x, y, relu=activation == "relu", **tiles)
    return z


# ## Backward: the same kernel twice
#
# [[tag: MM-X]] multiplies $\nabla_Z$ by `y.T`, [[tag: MM-Y]] multiplies `x.T` by it: views with their strides swapped,
# nothing is copied. With a ReLU a small kernel makes $\nabla_Z$ first, [[tag: MM-relu-Z]]: the upstream gradient where
# the result is positive, 0 elsewhere. `product_gradients` calls it, and then our launcher twice.
#
# Couldn't the products do that to each tile that they load? They could, and save a matrix. But then a tile makes a
# detour through registers, and every program that loads it changes it again. And would one launch for both gradients be
# better than two? Both were tried: the [ladder of the backward pass](../fast/matmul.py#matmul_backward-gate_apart)
# measures them.
def matmul_backward(dz, x, y, z=None, activation="none", *, needs=(True, True), **tiles):
    """`(dx, dy)` from the gradient `dz` of the result `z`, which is contiguous; None for one that isn't in `needs`."""
    tile_sizes(x, **tiles)  # wrong sizes raise before the first kernel runs
    activation = "relu" if activation == "relu" else None
    dx, dy = product_gradients(matmul_forward, dz, x, y, z, activation, needs=needs, **tiles)
    return dx, dy


# ## The public function
#
# `Product` joins the launchers to autograd. For the backward pass it saves both inputs without copying them, and with a
# ReLU also the result, which is positive where $Z$ is, unless it was rounded to 0. A call without a gradient goes
# straight to the launcher.
@replayed
def matmul(x, y, activation="none"):
    """`x @ y`, followed by a ReLU if asked for; differentiable.

    Args:
        x: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        y: tensor of shape (K, N), same dtype, any strides.
        activation: "none" or "relu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype; K = 0 gives zeros.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: the grouped order is that of Triton's tutorial "Matrix Multiplication".
    """
    contract(x=x, y=y, activation=activation, allowed=("none", "relu"))
    if not autograd.needs_frame(x, y):
        return matmul_forward(x, y, activation)
    return Product.apply(x, y, activation, matmul_forward, matmul_backward)


# ## A run small enough to watch
#
# Small whole numbers, forward and backward.
def EXAMPLE():
    x = (torch.arange(7 * 8, device=device.DEVICE) % 5 - 2).reshape(7, 8).float()
    y = (torch.arange(8 * 5, device=device.DEVICE) % 3 - 1).reshape(8, 5).float()
    z = matmul_forward(x, y, "relu", BLOCK_M=2, BLOCK_N=2, BLOCK_K=4, GROUP_M=3)
    # The 9 x 9 tiles from the text above, each of a single number: "Whole launch" shows their order and counts loads.
    column = torch.ones(9, 1, device=device.DEVICE)
    matmul_forward(column, column.T, BLOCK_M=1, BLOCK_N=1, BLOCK_K=1, GROUP_M=3)
    matmul_backward(torch.ones_like(z), x, y, z, "relu", BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)


# ## Where it falls behind
#
# At 1024 in each direction the result has 8 x 8 tiles of 128 x 128, too few for 132 SMs:
# [[bench: matmul_grouped/1024x1024x1024/forward/ms]] against [[bench: matmul_grouped/1024x1024x1024/forward/eager.ms]].
# At 4096 there are enough, and it takes [[bench: matmul_grouped/4096x4096x4096/forward/ms]] against
# [[bench: matmul_grouped/4096x4096x4096/forward/eager.ms]]. The [autotuned lesson](matmul_autotuned.py) chooses the
# tiles by shape, and [fast/matmul](../fast/matmul.py) describes them to the hardware instead of computing pointers.
if __name__ == "__main__":
    script.main(matmul, matmul_reference)
