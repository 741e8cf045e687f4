r"""
# Matrix multiplication, grouped and differentiable

The second step of the road: the same product, in an order that spares the memory, and with gradients. It multiplies
`x` (M, K) by `y` (K, N), as the [first step](matmul_blocked.py) does,

[[eq: MM-Z]]

but the programs run in another order. A ReLU can be applied before the result is stored [[tag: MM-relu]]. The
gradients are

[[eq: MM-X]]

[[eq: MM-Y]]

where $\nabla_Z$ is the upstream gradient, or with a ReLU [[tag: MM-relu-Z]].

**What it costs.** `2 · M · N · K` operations forward, twice as many backward. The inputs and the result move at least
once. In which order the programs run decides how often they move more than once, and the order is what this lesson
changes.

**Contract.** `x` and `y` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are read
in place, in both passes. Sums are formed in float32, and the result has the inputs' dtype. Neither input is ever
written to.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import torch
import triton
import triton.language as tl
from academy.autograd import once_differentiable

ACTIVATIONS = ("none", "relu")


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernels are measured against.
def matmul_reference(x, y, activation="none"):
    z = torch.matmul(x, y)
    return torch.relu(z) if activation == "relu" else z


# ## A better order
#
# A GPU runs some hundred programs at a time, and they share the L2 cache. What one of them has loaded, the others
# find there. So programs that run at the same time should want the same blocks.
#
# Nine programs that compute one *row* of blocks of a 9 x 9 result share their blocks of `x`, but each wants a column
# of `y` of its own. With nine blocks along K they load 9 blocks of `x` and 81 of `y`, 90 in all. Nine programs that
# compute a *square* of 3 x 3 blocks load 27 and 27: 54. That is the gain ([watch it,
# counted](#pid=8&launch=1&whole=9)), and the kernel only has to number its blocks differently: first down a group of
# rows, then to the right.
#
# In the example the result has 4 x 3 blocks and the groups have 3 rows, so the second group is left with one row:
#
# ```text
#     pid_n = 0   1   2
# pid_m = 0   0   3   6
# pid_m = 1   1   4   7   group 0: programs 0 to 8
# pid_m = 2   2   5   8
#
# pid_m = 3   9  10  11   group 1: one row only
# ```


# This function turns the number of a program into its block.
@triton.jit
def block_of_program(pid, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
    # A full group has `num_pid_in_group = 9` programs. Program 10 is in group `pid=10: group_id = 1`, whose first row
    # of blocks is `pid=10: first_pid_m = 3`.
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M

    # How many rows has this group? The last one may have fewer: `pid=10: group_size_m = 1`, while program 4 sees
    # `pid=4: group_size_m = 3`. Dividing by `GROUP_M` all the same is a classic mistake. Programs of the last group
    # would then compute blocks that don't exist, and blocks that do exist would be missing.
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)

    # Inside the group the numbers run down the rows first. Program 10 is `pid=10: pid_in_group = 1`, at
    # `pid=10: pid_m = 3`, `pid=10: pid_n = 1`.
    pid_in_group = pid % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m
    return pid_m, pid_n


# This kernel computes nothing. It stores where each program is, so that the picture of the order is drawn from the
# very function that the other kernels use.
@triton.jit
def store_blocks_kernel(blocks_ptr, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    pid_m, pid_n = block_of_program(pid, num_pid_m, num_pid_n, GROUP_M)
    tl.store(blocks_ptr + 2 * pid, pid_m)
    tl.store(blocks_ptr + 2 * pid + 1, pid_n)


def program_order(num_pid_m, num_pid_n, GROUP_M):
    """`[(pid_m, pid_n), …]` for the programs 0, 1, 2 … of a result with `num_pid_m` x `num_pid_n` blocks."""
    blocks = torch.empty(num_pid_m * num_pid_n, 2, dtype=torch.int32, device=device.DEVICE)
    store_blocks_kernel[(len(blocks),)](blocks, num_pid_m, num_pid_n, GROUP_M=GROUP_M)
    return [tuple(block) for block in blocks.tolist()]


# ## Adding a block's product to the sum
#
# As in the first lesson: for exact float32 products, each block of the inner dimension is summed by itself.
@triton.jit
def multiply_add(left, right, acc, INPUT_PRECISION: tl.constexpr):
    if left.dtype == tl.float32 and INPUT_PRECISION == "ieee":
        total = tl.fma(tl.dot(left, right, input_precision=INPUT_PRECISION), 1.0, acc)
    else:
        total = tl.dot(left, right, acc, input_precision=INPUT_PRECISION)
    return total


# ## One block of a product
#
# Forward and backward passes need three products: `x @ y`, `dz @ yᵀ` and `xᵀ @ dz`. They differ in where the matrices
# lie and in what is done to them on the way. So the loop over the inner dimension is written once, for a product of
# `left` (R, I) and `right` (I, C), and each kernel hands it pointers and strides.
#
# One thing on the way is the **gate**. With a ReLU, the gradient of $Z$ is the upstream gradient where the result is
# positive, and 0 elsewhere. Computed beforehand it would be one more matrix to write and read. Instead the result is
# loaded along with the upstream gradient, and the block is gated before it is multiplied. `GATE` says which of the
# factors that is, if any. (Does that pay? It is measured below, and the answer is no.)
@triton.jit
def multiply_block(
    left_ptr,
    right_ptr,
    gate_ptr,
    R,
    C,
    INNER,
    row,
    column,
    stride_lr,
    stride_li,
    stride_ri,
    stride_rc,
    stride_g0,
    stride_g1,
    GATE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    # `row` and `column` number the block. Each of the three dimensions has offsets of its own, and a mask for its
    # edge.
    offs_r = row.to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    offs_c = column.to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    r_mask = offs_r < R
    c_mask = offs_c < C
    offs_i = tl.arange(0, BLOCK_I).to(tl.int64)
    # Strides must come from the caller. A kernel that takes the row length for the stride reads a transposed matrix
    # as if it weren't, and here every gradient has a transposed matrix in it.
    left_ptrs = left_ptr + offs_r[:, None] * stride_lr + offs_i[None, :] * stride_li
    right_ptrs = right_ptr + offs_i[:, None] * stride_ri + offs_c[None, :] * stride_rc
    # The gate lies like the factor that it gates.
    if GATE == "left":
        gate_ptrs = gate_ptr + offs_r[:, None] * stride_g0 + offs_i[None, :] * stride_g1
    elif GATE == "right":
        gate_ptrs = gate_ptr + offs_i[:, None] * stride_g0 + offs_c[None, :] * stride_g1

    # The loop of the first lesson, with a sum in float32 whatever the inputs are.
    acc = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for i in range(0, tl.cdiv(INNER, BLOCK_I)):
        i_mask = offs_i < INNER - i * BLOCK_I
        left = tl.load(left_ptrs, mask=r_mask[:, None] & i_mask[None, :], other=0.0)
        right = tl.load(right_ptrs, mask=i_mask[:, None] & c_mask[None, :], other=0.0)
        # [[tag: MM-relu-Z]]: where the result is not positive, the gradient is 0. The comparison is written so that a
        # NaN, which is neither, lets the gradient through, as PyTorch does.
        if GATE == "left":
            gate = tl.load(gate_ptrs, mask=r_mask[:, None] & i_mask[None, :], other=0.0)
            left = tl.where(gate <= 0, 0.0, left).to(right.dtype)
            gate_ptrs += BLOCK_I * tl.cast(stride_g1, tl.int64)
        elif GATE == "right":
            gate = tl.load(gate_ptrs, mask=i_mask[:, None] & c_mask[None, :], other=0.0)
            right = tl.where(gate <= 0, 0.0, right).to(left.dtype)
            gate_ptrs += BLOCK_I * tl.cast(stride_g0, tl.int64)
        acc = multiply_add(left, right, acc, INPUT_PRECISION)
        left_ptrs += BLOCK_I * tl.cast(stride_li, tl.int64)
        right_ptrs += BLOCK_I * tl.cast(stride_ri, tl.int64)
    return acc


# The finished block goes out with the masks of its two edges.
@triton.jit
def store_block(out_ptr, block, R, C, row, column, stride_r, stride_c, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    offs_r = row.to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    offs_c = column.to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (offs_r < R)[:, None] & (offs_c < C)[None, :]
    tl.store(out_ptr + offs_r[:, None] * stride_r + offs_c[None, :] * stride_c, block, mask=mask)


# ## Forward
#
# The grid has one dimension, so that the kernel itself can say which block a program takes.
@triton.jit
def matmul_forward_kernel(
    x_ptr,
    y_ptr,
    z_ptr,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_yk,
    stride_yn,
    stride_zm,
    stride_zn,
    ACTIVATION: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # The example multiplies a 7 x 8 by an 8 x 5 matrix in blocks of 2 x 2: `num_pid_m = 4` by `num_pid_n = 3` blocks.
    # Program 10 takes the one at `pid=10: pid_m = 3`, `pid=10: pid_n = 1`.
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = block_of_program(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)

    # [[tag: MM-Z]]. Its block of the product is `pid=10: z = [[3, -2], [0, 0]]`. The second row lies behind the edge:
    # it was loaded as zeros, and will not be stored.
    z = multiply_block(
        x_ptr, y_ptr, x_ptr, M, N, K, pid_m, pid_n, stride_xm, stride_xk, stride_yk, stride_yn, 0, 0,
        "none", INPUT_PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip

    # [[tag: MM-relu]] costs next to nothing here, while the block is in registers:
    # `pid=10: activated = [[3, 0], [0, 0]]`. A kernel of its own would have to load and store the whole matrix once
    # more.
    activated = tl.where(z < 0, 0.0, z) if ACTIVATION == "relu" else z
    store_block(z_ptr, activated, M, N, pid_m, pid_n, stride_zm, stride_zn, BLOCK_M, BLOCK_N)


# ## Backward
#
# One kernel computes either gradient, or both in one launch: then the first programs do dX, the others dY. Is one
# launch better than two? It saves the pause between two kernels, and the last programs of one product don't leave
# half the GPU idle. But the code holds both loops, and each program gets the registers of the hungrier one. At 4096
# in each direction and in bfloat16, two launches took [[bench: matmul_grouped/ladder/two launches/backward_ms]], one
# took [[bench: matmul_grouped/ladder/one launch/backward_ms]]: no difference to speak of, so there are two.
#
# The gate is another matter. Fused into the loads, the backward pass with a ReLU took
# [[bench: matmul_grouped/ladder/gated, two launches/backward_ms]], and in one launch
# [[bench: matmul_grouped/ladder/gated, one launch/backward_ms]]. A block that has to be changed must pass through
# registers on its way to the tensor cores, and it is changed again by every program that loads it.
# [classics/matmul](../classics/matmul.py) gates the gradient once, by a small kernel before both products. There the
# backward pass takes [[bench: matmul_grouped/ladder/descriptors, no activation/backward_ms]] without a ReLU and
# [[bench: matmul_grouped/ladder/gate as a kernel of its own/backward_ms]] with one. Fusion pays where it saves memory
# traffic that somebody was waiting for. Here nobody was.


@triton.jit
def matmul_backward_kernel(
    dz_ptr,
    x_ptr,
    y_ptr,
    z_ptr,
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
    stride_zm,
    stride_zn,
    WANT_DX: tl.constexpr,
    WANT_DY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_I: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # In the example dX has 7 x 8 elements, `programs_dx = 4` blocks of 4 x 4, and dY has 8 x 5, again four. Program 3
    # does the last block of dX, program 4 the first of dY.
    pid = tl.program_id(0)
    programs_dx = tl.cdiv(M, BLOCK_R) * tl.cdiv(K, BLOCK_C) if WANT_DX else 0

    #
    if pid < programs_dx:
        # [[tag: MM-X]]: rows of M, columns of K, and the sum runs over N. $Y^\top$ is `y` with its strides exchanged:
        # the inner dimension moves by `stride_yn`.
        row, column = block_of_program(pid, tl.cdiv(M, BLOCK_R), tl.cdiv(K, BLOCK_C), GROUP_M)
        dx = multiply_block(
            dz_ptr, y_ptr, z_ptr, M, K, N, row, column,
            stride_dzm, stride_dzn, stride_yn, stride_yk, stride_zm, stride_zn,
            "left" if ACTIVATION == "relu" else "none", INPUT_PRECISION, BLOCK_R, BLOCK_C, BLOCK_I,
        )  # fmt: skip
        store_block(dx_ptr, dx, M, K, row, column, K, 1, BLOCK_R, BLOCK_C)
    elif WANT_DY:
        # [[tag: MM-Y]]: rows of K, columns of N, and the sum runs over M, down the columns of both.
        row, column = block_of_program(pid - programs_dx, tl.cdiv(K, BLOCK_R), tl.cdiv(N, BLOCK_C), GROUP_M)
        dy = multiply_block(
            x_ptr, dz_ptr, z_ptr, K, N, M, row, column,
            stride_xk, stride_xm, stride_dzm, stride_dzn, stride_zm, stride_zn,
            "right" if ACTIVATION == "relu" else "none", INPUT_PRECISION, BLOCK_R, BLOCK_C, BLOCK_I,
        )  # fmt: skip
        store_block(dy_ptr, dy, K, N, row, column, N, 1, BLOCK_R, BLOCK_C)


# ## The launchers
#
# For 16-bit inputs a block has 128 x 256 sums. Each thread of 8 warps keeps 128 of them, half of the registers that it
# can have. Exact float32 products run on the ordinary cores, which take their factors from registers as well, and want
# smaller blocks.
def tile_sizes(dtype, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M):
    if BLOCK_M is not None:
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        checks.positive(GROUP_M=GROUP_M)
        return (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M), dict(num_warps=4)
    if dtype == torch.float32:
        return (64, 64, 32, 8), dict(num_warps=4, num_stages=3)
    return (128, 256, 64, 8), dict(num_warps=8, num_stages=3)


def input_precision():
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def matmul_forward(x, y, activation="none", *, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if z.numel():
        tiles, options = tile_sizes(x.dtype, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
        grid = (triton.cdiv(M, tiles[0]) * triton.cdiv(N, tiles[1]),)
        matmul_forward_kernel[grid](
            x, y, z, M, N, K, *x.stride(), *y.stride(), *z.stride(), activation, input_precision(), *tiles, **options
        )
    return z


def matmul_backward(
    dz, x, y, z, activation="none", *, needs=(True, True), launches=2,
    BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8,
):  # fmt: skip
    """`(dx, dy)` from the gradient `dz` of the result `z`, in 1 or 2 `launches`; None for what `needs` says no to."""
    (M, K), N = x.shape, y.shape[1]
    dx = torch.empty((M, K), dtype=x.dtype, device=x.device) if needs[0] else None
    dy = torch.empty((K, N), dtype=x.dtype, device=x.device) if needs[1] else None
    (BLOCK_R, BLOCK_C, BLOCK_I, GROUP_M), options = tile_sizes(x.dtype, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    blocks_dx = triton.cdiv(M, BLOCK_R) * triton.cdiv(K, BLOCK_C)
    blocks_dy = triton.cdiv(K, BLOCK_R) * triton.cdiv(N, BLOCK_C)
    wanted = [needs] if launches == 1 else [(needs[0], False), (False, needs[1])]
    for want_dx, want_dy in wanted:
        programs = blocks_dx * want_dx + blocks_dy * want_dy
        if programs:
            matmul_backward_kernel[(programs,)](
                dz, x, y, z, dx if want_dx else dy, dy if want_dy else dx, M, N, K,
                *dz.stride(), *x.stride(), *y.stride(), *z.stride(),
                want_dx, want_dy, activation, input_precision(), BLOCK_R, BLOCK_C, BLOCK_I, GROUP_M, **options,
            )  # fmt: skip
    return dx, dy


# ## Joining autograd
#
# Kept for the backward pass: both inputs, and with a ReLU the result, which is positive where $Z$ is. Transposed or
# expanded inputs are kept as the views they are.
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, activation):
        z = matmul_forward(x, y, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, y, z if activation == "relu" else None)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, dz):
        x, y, z = ctx.saved_tensors
        dx, dy = matmul_backward(dz, x, y, dz if z is None else z, ctx.activation, needs=ctx.needs_input_grad[:2])
        return dx, dy, None


def matmul(x, y, activation="none"):
    """`x @ y`, followed by a ReLU if asked for; differentiable.

    Args:
        x: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        y: tensor of shape (K, N), same dtype, any strides.
        activation: "none" or "relu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype; K = 0 gives zeros.

    Raises:
        TypeError: an argument is no tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: the grouped order is that of Triton's tutorial "Matrix Multiplication".
    """
    checks.tensors(x=x, y=y)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, y=y)
    checks.dimensions("x", x, 2, "M, K")
    checks.dimensions("y", y, 2, "K, N")
    checks.choice("activation", activation, ACTIVATIONS)
    if x.shape[1] != y.shape[0]:
        raise ValueError(
            f"y must have as many rows as x has columns, {x.shape[1]}, got shapes {tuple(x.shape)} and {tuple(y.shape)}"
        )
    return MatMul.apply(x, y, activation)


# ## A run small enough to watch
#
# Small whole numbers. The backward pass runs in one launch here, so that both of its branches show.
def EXAMPLE():
    x = (torch.arange(7 * 8, device=device.DEVICE) % 5 - 2).reshape(7, 8).float()
    y = (torch.arange(8 * 5, device=device.DEVICE) % 3 - 1).reshape(8, 5).float()
    z = matmul_forward(x, y, "relu", BLOCK_M=2, BLOCK_N=2, BLOCK_K=4, GROUP_M=3)
    # The 9 x 9 blocks of the text above, a number each: "Whole launch" shows their order and counts what they load.
    square = torch.ones(9, 9, device=device.DEVICE)
    matmul_forward(square, square, BLOCK_M=1, BLOCK_N=1, BLOCK_K=1, GROUP_M=3)
    dz = torch.ones_like(z)
    matmul_backward(dz, x, y, z, "relu", launches=1, BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)
    return dict(shape=(7, 5, 8), dtype=torch.float32, activation="relu")


# ## Cost and benchmark
#
# `shape` is (M, N, K).
#
# **Where it stays behind.** At 1024 in each direction C has 8 x 4 blocks of 128 x 256, and 132 multiprocessors wait for
# them: [[bench: matmul_grouped/1024x1024x1024/forward/ms]] against
# [[bench: matmul_grouped/1024x1024x1024/forward/eager.ms]]. At 4096 there are enough, and it takes
# [[bench: matmul_grouped/4096x4096x4096/forward/ms]] against
# [[bench: matmul_grouped/4096x4096x4096/forward/eager.ms]]: what is left are the pointers. The
# [autotuned lesson](matmul_autotuned.py) chooses the blocks by shape, and describes them to the hardware instead.
def cost(shape, dtype, activation="none"):
    M, N, K = shape
    inputs, output, size = M * K + K * N, M * N, dtype.itemsize
    gate = output if activation == "relu" else 0
    return {
        "forward": dict(bytes_read=inputs * size, bytes_written=output * size, operations=2 * M * N * K),
        "backward": dict(
            bytes_read=(inputs + output + gate) * size, bytes_written=inputs * size, operations=4 * M * N * K
        ),
    }


def bench_inputs(shape, dtype, device):
    M, N, K = shape
    return dict(x=torch.randn(M, K, dtype=dtype, device=device), y=torch.randn(K, N, dtype=dtype, device=device))


BENCH = dict(
    shapes=[(1024, 1024, 1024), (4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=matmul,
    eager=matmul_reference,
    peers={},
    passes=["forward", "backward"],
    differentiable=["x", "y"],
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for (M, N, K), activation in zip([(1, 1, 1), (64, 64, 64), (70, 50, 40), (129, 65, 100)], 2 * ACTIVATIONS):
        for dtype in checks.FLOATS:
            x = torch.randn(K, M, dtype=dtype, device=device.DEVICE).T
            y = torch.randn(K, N, dtype=dtype, device=device.DEVICE)
            dz = torch.randn(M, N, dtype=dtype, device=device.DEVICE)
            results = []
            for function, cast in ((matmul, dtype), (matmul_reference, dtype), (matmul_reference, torch.float64)):
                inputs = [v.detach().to(cast).requires_grad_() for v in (x, y)]
                z = function(*inputs, activation)
                results.append((z.detach(), *torch.autograd.grad(z, inputs, dz.to(cast))))
            for name, ours, pytorch, exact in zip(("z", "dx", "dy"), *results):
                report.compare(name, f"{M} x {N} x {K}, {activation}", ours, pytorch, exact)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


if __name__ == "__main__":
    sys.exit(main())
