r"""
# Matrix multiplication, grouped and differentiable

The same product as in the [first lesson](matmul_blocked.py), of `x` (M, K) and `y` (K, N),

[[eq: MM-Z]]

with three things added. The programs run in an order that reads less from memory. A ReLU can be applied before the
result is stored, [[tag: MM-relu]]. And there are gradients,

[[eq: MM-X]]

[[eq: MM-Y]]

where $\nabla_Z$ is the upstream gradient, or with a ReLU [[tag: MM-relu-Z]]. All three products are computed by one
kernel.

**What it costs.** `2 · M · N · K` operations forward, twice as many backward. The inputs and the result have to move
once; how much of them moves again depends on the order in which the programs run.

**Contract.** `x` and `y` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are allowed,
and nothing is copied in either pass. Sums are formed in float32, and the result has the inputs' dtype. Neither input is
ever written to.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import autograd, checks, device, script

import torch
import triton
import triton.language as tl

from annotated_examples.common.activations import relu, relu_backward
from annotated_examples.common.products import Product, contract, input_precision, multiply_add
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
def store_blocks_kernel(tiles_ptr, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
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
#
# What about the ReLU? Its gradient is the upstream gradient where the result is positive, and 0 elsewhere. Computed
# beforehand, that would be one more matrix to write and read. Instead the result is loaded together with the upstream
# gradient, as a **gate**: where it isn't positive, the gradient becomes 0 before the multiplication. (Does that pay
# off? The measurement below says no.)
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    gate_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_gm,
    stride_gk,
    stride_cm,
    stride_cn,
    first_program,
    RELU: tl.constexpr,
    GATED: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # The grid has one dimension, so that the kernel itself can say which tile a program takes. The example multiplies a
    # 7 x 8 by an 8 x 5 matrix in tiles of 2 x 2: `num_pid_m = 4` by `num_pid_n = 3` of them. Program 10 takes the one
    # at `pid=10: pid_m = 3`, `pid=10: pid_n = 1`. (`first_program` is 0, except in an experiment at the end.)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = grouped_order(tl.program_id(0) - first_program, num_pid_m, num_pid_n, GROUP_M)

    # Offsets, masks and pointers, as in the first lesson. Row 7 of `a` doesn't exist: `pid=10: m_mask = [1, 0]`.
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_mask = offs_m < M
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    # The gate has the shape of `a`, and strides of its own.
    gate_ptrs = gate_ptr + offs_m[:, None] * stride_gm + offs_k[None, :] * stride_gk

    # [[tag: MM-Z]]. The loop is the one of the first lesson, too.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        # [[tag: MM-relu-Z]]: in the example's backward pass `a` holds ones, the upstream gradient. The gate is closed
        # where the result is 0: `launch=2, pid=0: gate[0] = [3, 0, 0, 3]` makes them
        # `launch=2, pid=0: opened[0] = [1, 0, 0, 1]`.
        if GATED:
            gate = tl.load(gate_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
            opened = relu_backward(a, gate).to(b.dtype)
        else:
            opened = a
        acc = multiply_add(opened, b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
        gate_ptrs += BLOCK_K * tl.cast(stride_gk, tl.int64)

    # What a product does with its sums between the loop and the store is called its *epilogue*. [[tag: MM-relu]] costs
    # next to nothing there, because the sums are still in registers: program 10 turns them into
    # `pid=10: c = [[3, 0], [0, 0]]`. A kernel of its own would have to load and store the whole matrix once more.
    c = relu(acc) if RELU else acc
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=m_mask[:, None] & n_mask[None, :])


# ## The launchers
#
# In tiles of 128 x 128, each of the 256 threads of 8 warps keeps 64 sums in registers. Along K a tile has 128 bytes,
# the length of a cache line: 64 numbers of 16 bits, 32 of float32.
def tile_sizes(x, *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=None, GROUP_M=8, num_warps=8):
    BLOCK_K = BLOCK_K or 128 // x.element_size()
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    checks.positive(GROUP_M=GROUP_M)
    return dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=num_warps)


def multiply_(c, a, b, gate=None, *, relu=False, **tiles):
    """Write `a @ b` into `c`; where `gate` (in the shape of `a`) isn't positive, `a` counts as 0."""
    tiles = tile_sizes(a, **tiles)
    (M, K), N = a.shape, b.shape[1]
    if c.numel():
        grid = (triton.cdiv(M, tiles["BLOCK_M"]) * triton.cdiv(N, tiles["BLOCK_N"]),)
        gate_strides = (0, 0) if gate is None else gate.stride()
        matmul_kernel[grid](
            a, b, a if gate is None else gate, c, M, N, K, *a.stride(), *b.stride(), *gate_strides, *c.stride(), 0,
            RELU=relu, GATED=gate is not None, INPUT_PRECISION=input_precision(), **tiles,
        )  # fmt: skip


def matmul_forward(x, y, activation="none", **tiles):
    z = torch.empty((x.shape[0], y.shape[1]), dtype=x.dtype, device=x.device)
    multiply_(z, x, y, relu=activation == "relu", **tiles)
    return z


# ## Backward: the same kernel twice
#
# [[tag: MM-X]] multiplies the gated `dz` by `y.T`. In [[tag: MM-Y]] the right factor would have to be gated, but the
# kernel gates the left one. So it computes the transposed gradient, $(X^\top \nabla_Z)^\top = \nabla_Z^\top X$, and
# writes it into `dy.T`: the output has strides, too.
def matmul_backward(dz, x, y, z=None, activation="none", *, needs=(True, True), launches=2, **tiles):
    """`(dx, dy)` from the gradient `dz` of the result `z`, in 1 or 2 `launches`; None for a gradient that `needs`
    doesn't ask for."""
    gate, gate_t = (z, z.T) if activation == "relu" else (None, None)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if needs[0] else None
    dy = torch.empty(y.shape, dtype=y.dtype, device=y.device) if needs[1] else None
    if launches == 1 and all(needs):
        both_gradients_(dx, dy, dz, x, y, gate, **tiles)
        return dx, dy
    if needs[0]:
        multiply_(dx, dz, y.T, gate, **tiles)
    if needs[1]:
        multiply_(dy.T, dz.T, x, gate_t, **tiles)
    return dx, dy


# ## What one launch would gain
#
# Would one launch for both gradients be better? It saves the pause between two kernels, and the last programs of one
# product don't leave half the GPU idle. But the code contains both loops, and each program gets as many registers as
# the more demanding one needs. It is easy to try: the first programs compute dX, the others dY. At 4096 in each
# direction and in bfloat16, two launches took [[bench: matmul_grouped/ladder/two launches/backward_ms]], one took
# [[bench: matmul_grouped/ladder/one launch/backward_ms]]: no difference to speak of, so there are two.
@triton.jit
def both_gradients_kernel(
    dz_ptr,
    x_ptr,
    y_ptr,
    gate_ptr,
    dx_ptr,
    dy_ptr,
    M,
    N,
    K,
    stride_dzm,
    stride_dzn,
    stride_xm,
    stride_xk,
    stride_yk,
    stride_yn,
    stride_gm,
    stride_gn,
    GATED: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    programs_dx = tl.cdiv(M, BLOCK_M) * tl.cdiv(K, BLOCK_N)
    if tl.program_id(0) < programs_dx:
        # [[tag: MM-X]]: rows of M, columns of K, and the sum runs over N. The last three numbers are the strides of dX,
        # which is stored row by row, and `first_program`.
        matmul_kernel(
            dz_ptr, y_ptr, gate_ptr, dx_ptr, M, K, N,
            stride_dzm, stride_dzn, stride_yn, stride_yk, stride_gm, stride_gn, K, 1, 0,
            False, GATED, INPUT_PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
        )  # fmt: skip
    else:
        # [[tag: MM-Y]], transposed: rows of N, columns of K, and the sum runs over M. dY is stored row by row too, so
        # its transpose has the strides 1 and N, and its programs come after those of dX.
        matmul_kernel(
            dz_ptr, x_ptr, gate_ptr, dy_ptr, N, K, M,
            stride_dzn, stride_dzm, stride_xm, stride_xk, stride_gn, stride_gm, 1, N, programs_dx,
            False, GATED, INPUT_PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
        )  # fmt: skip


def both_gradients_(dx, dy, dz, x, y, gate=None, **tiles):
    """Write both gradients in one launch."""
    tiles = tile_sizes(x, **tiles)
    (M, K), N = x.shape, y.shape[1]
    programs = (triton.cdiv(M, tiles["BLOCK_M"]) + triton.cdiv(N, tiles["BLOCK_M"])) * triton.cdiv(K, tiles["BLOCK_N"])
    if programs:
        gate_strides = (0, 0) if gate is None else gate.stride()
        both_gradients_kernel[(programs,)](
            dz, x, y, dz if gate is None else gate, dx, dy, M, N, K,
            *dz.stride(), *x.stride(), *y.stride(), *gate_strides,
            GATED=gate is not None, INPUT_PRECISION=input_precision(), **tiles,
        )  # fmt: skip


# ## What the gate costs
#
# The gate in the loads is another matter. With it, the backward pass took
# [[bench: matmul_grouped/ladder/gated, two launches/backward_ms]] in two launches and
# [[bench: matmul_grouped/ladder/gated, one launch/backward_ms]] in one. Usually the loads put a tile straight into
# shared memory, and the tensor cores fetch it from there. A tile that has to be changed makes a detour through
# registers, and every program that loads it changes it again. [classics/matmul](../classics/matmul.py) gates the
# gradient once, by a small kernel before both products. With the kernels of [fast/matmul](../fast/matmul.py) the
# backward pass then takes [[bench: matmul_grouped/ladder/descriptors, no activation/backward_ms]] without a ReLU and
# [[bench: matmul_grouped/ladder/gate as a kernel of its own/backward_ms]] with one. Fusion pays off where it saves
# memory traffic that the kernel waits for. This kernel doesn't wait for it.


# ## The public function
#
# `Product` joins the launchers to autograd. For the backward pass it saves both inputs without copying them, and with a
# ReLU also the result, which is positive exactly where $Z$ is. A call without a gradient goes straight to the launcher.
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
# At 1024 in each direction the result has 8 x 8 tiles of 128 x 128, too few for 132 multiprocessors:
# [[bench: matmul_grouped/1024x1024x1024/forward/ms]] against [[bench: matmul_grouped/1024x1024x1024/forward/eager.ms]].
# At 4096 there are enough, and it takes [[bench: matmul_grouped/4096x4096x4096/forward/ms]] against
# [[bench: matmul_grouped/4096x4096x4096/forward/eager.ms]]. The [autotuned lesson](matmul_autotuned.py) chooses the
# tiles by shape, and [fast/matmul](../fast/matmul.py) describes them to the hardware instead of computing pointers.
if __name__ == "__main__":
    script.main(matmul, matmul_reference, dict(x=(64, 64), y=(64, 64)),
                dict(x=(129, 100), y=(100, 65), activation="relu"))  # fmt: skip
