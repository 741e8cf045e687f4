r"""
# Matrix multiplication

Multiply a matrix `a` of shape (M, K) by a matrix `b` of shape (K, N), and apply an activation to the product:

[[eq: MM-Z]]

Here `a` is the derivation's $X$ and `b` its $Y$. The result is $Z$ itself, or $C$: $Z$ after [[tag: MM-relu]],
[[tag: MM-leaky]], [[tag: MM-gelu]] or [[tag: MM-silu]]. The backward pass needs two products more,

[[eq: MM-X]]

[[eq: MM-Y]]

fed with the activation's own gradient. The same kernel computes them: it is handed a transposed matrix, which is the
same memory with its strides exchanged.

**What it costs.** `2 · M · N · K` operations, for `M · K + K · N` numbers read and `M · N` written. At M = N = K =
4096 in bfloat16 each byte serves 1365 operations. By its data sheet an H200 does 206 in the time it takes to move one.
So the arithmetic decides, and not the memory: the floor is the operations divided by the rate of the tensor cores.
Everything below serves one end: to keep them fed.

**Contract.** `a` and `b` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are read
in place, also those of a transposed or expanded view. Sums are formed in float32, and the result has the inputs'
dtype. float32 inputs are multiplied in full precision, unless `torch.backends.cuda.matmul.allow_tf32` permits tf32.
Neither input is ever written to, and the same call gives the same bits.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import functools

import torch
import triton
import triton.language as tl
from academy.autograd import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "silu")


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernel is measured against.
def matmul_reference(a, b, activation=None):
    z = torch.matmul(a, b)
    if activation is None:
        return z
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(z, 0.01)
    return getattr(torch.nn.functional, activation)(z)


# ## Which program computes which block
#
# C is cut into blocks of `BLOCK_M` x `BLOCK_N`, and each is the work of one program. The simplest order is row by
# row. It wastes the L2 cache: programs that run at the same time share one row of blocks of `a`, but each needs
# another column of blocks of `b`.
#
# So the order is **swizzled**. `GROUP_M` rows of blocks form a group, and inside a group the programs walk down the
# columns. The example has 8 x 4 blocks of C and groups of 3 rows. These are the program ids, each at its block:
#
# ```text
#     pid_n = 0   1   2   3
# pid_m = 0   0   3   6   9
# pid_m = 1   1   4   7  10   group 0: programs 0 to 11
# pid_m = 2   2   5   8  11
#
# pid_m = 3  12  15  18  21
# pid_m = 4  13  16  19  22   group 1: programs 12 to 23
# pid_m = 5  14  17  20  23
#
# pid_m = 6  24  26  28  30   group 2: programs 24 to 31,
# pid_m = 7  25  27  29  31            two rows only
# ```
#
# Programs 0 to 8 now need three rows of blocks of `a` and three columns of blocks of `b`, six strips in all. In the
# plain order the first nine need three rows and all four columns; in a C of nine columns, one row and nine columns. The
# [grouped tutorial](../tutorials/matmul_grouped.py) counts the loads and draws them. How much time the order saves
# depends on how much of both matrices the L2 cache holds anyway. At M = N = K = 4096 it is little: the second kernel
# below took [[bench: matmul/ladder/descriptors/forward_ms]] without groups and
# [[bench: matmul/ladder/descriptors, grouped/forward_ms]] with them.


# From a program's number to its block. It is only integer arithmetic, and the last group is where it goes wrong.
@triton.jit
def block_of_program(pid, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
    # A full group is `num_pid_in_group = 12` programs, so program 14 is in the group `pid=14: group_id = 1`, which
    # starts at block row `pid=14: first_pid_m = 3`.
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M

    # The last group is smaller where `GROUP_M` doesn't divide the rows: 8 rows leave `pid=29: group_size_m = 2` for
    # it, and `pid=14: group_size_m = 3` for the others. Dividing by `GROUP_M` there would give blocks that don't
    # exist.
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)

    # Inside its group, program 29 is number `pid=29: pid_in_group = 5`. Down the columns of two rows, that is row
    # `pid=29: pid_m = 7` and column `pid=29: pid_n = 2`. Program 14 is number `pid=14: pid_in_group = 2`, with the
    # block `pid=14: pid_m = 5`, `pid=14: pid_n = 0`.
    pid_in_group = pid % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m
    return pid_m, pid_n


# ## The activations
#
# They work on the float32 sums, element by element. `ACTIVATION` is a `tl.constexpr`: the branch is taken when the
# kernel is compiled, and the compiled code contains the one activation that was asked for. A NaN must come out as
# NaN, so each comparison is written such that a NaN, for which every comparison is false, ends up on the side that
# keeps it.
@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    # [[tag: MM-relu]], [[tag: MM-leaky]]
    if ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)
    elif ACTIVATION == "leaky_relu":
        z = tl.where(z < 0, 0.01 * z, z)
    # [[tag: MM-gelu]] with the constant $1/\sqrt{2}$, and [[tag: MM-silu]]
    elif ACTIVATION == "gelu":
        z = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    elif ACTIVATION == "silu":
        z = z * tl.sigmoid(z)
    return z


# Upstream gradient times slope. For the first two activations `saved` is the result, whose sign is the sign of $Z$.
# For the others it is $Z$ itself.
@triton.jit
def activate_backward(dc, saved, ACTIVATION: tl.constexpr):
    # [[tag: MM-relu-Z]], [[tag: MM-leaky-Z]]. At zero both take the slope of the left side, as PyTorch does.
    if ACTIVATION == "relu":
        dz = tl.where(saved <= 0, 0.0, dc)
    elif ACTIVATION == "leaky_relu":
        dz = tl.where(saved > 0, dc, 0.01 * dc)
    # [[tag: MM-gelu-Z]]; the second constant is $1/\sqrt{2\pi}$.
    elif ACTIVATION == "gelu":
        normal = 0.5 * (1.0 + tl.erf(saved * 0.7071067811865476))
        dz = dc * (normal + saved * 0.3989422804014327 * tl.exp(-0.5 * saved * saved))
    # [[tag: MM-silu-Z]]
    else:
        sigmoid = tl.sigmoid(saved)
        dz = dc * sigmoid * (1.0 + saved * (1.0 - sigmoid))
    return dz


# ## Adding a block's product to the sum
#
# A float32 sum rounds with each term, and its error grows with the number of terms that were added one after the other.
# 16-bit results round so much at the end that nobody notices. For float32 inputs each block of K is summed by itself
# before it joins the rest: of 8192 terms in blocks of 32, no rounding then has more than 32 + 256 successors. PyTorch
# cuts its sums too, and from about a thousand terms on a single chain has more than the twice its error that we allow.
# Why `tl.fma`? The compiler takes `acc + tl.dot(a, b)` for a `tl.dot` that starts from `acc`, which is the single chain
# again.
@triton.jit
def multiply_add(a, b, acc, INPUT_PRECISION: tl.constexpr):
    if a.dtype == tl.float32 and INPUT_PRECISION == "ieee":
        total = tl.fma(tl.dot(a, b, input_precision=INPUT_PRECISION), 1.0, acc)
    else:
        total = tl.dot(a, b, acc, input_precision=INPUT_PRECISION)
    return total


# ## The kernel, step by step
#
# The example multiplies a 16 x 16 by a 16 x 8 matrix in blocks of 2 x 2, with `2` elements of K at a time: 32
# programs of eight loop steps. (On a GPU `tl.dot` wants at least 16 elements of K. The interpreter, where the example
# runs, does not care.)
#
# Strides are counted in elements, not in bytes: `stride_am` is how many elements lie between one row of `a` and the
# next. Triton multiplies by the size of an element, because `a_ptr` knows its dtype.
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    z_ptr,
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
    # **Step 1: which block of C is mine?** There are `num_pid_m = 8` rows and `num_pid_n = 4` columns of blocks.
    # Program 29 gets row `pid=29: pid_m = 7` and column `pid=29: pid_n = 2`.
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = block_of_program(pid, num_pid_m, num_pid_n, GROUP_M)

    # **Step 2: where do my blocks start?** That program computes the rows `pid=29: offs_m = [14, 15]` and columns
    # `pid=29: offs_n = [4, 5]` of C. Row offsets are int64: times a stride they pass 2³¹ in a large matrix.
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    # A column of row offsets plus a row of column offsets is a block of pointers: `a_ptrs.shape = (2, 2)`. In `a`,
    # where a row is 16 elements long, they are elements `pid=29: a_ptrs = [[224, 225], [240, 241]]`.
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    # **Step 3: walk along K and add up.** Each step multiplies a block of `a` by a block of `b` [[tag: MM-Z]]. The
    # sum stays in float32 whatever the inputs are: in float16 the neighbours of 2048 are 2 apart, and a sum that got
    # there would ignore every further 1.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        # Three edges, three masks. What lies outside is read as 0, which adds nothing to a sum. In the first launch
        # everything is inside, `pid=29, k=7: k_mask = [1, 1]`. The example's last launch has
        # `launch=3, pid=0: K = 10`, in blocks of `launch=3: BLOCK_K = 4`: its third step starts at column 8 of `a`,
        # where two are left, `launch=3, pid=0, k=2: k_mask = [1, 1, 0, 0]`. Both sides must be masked: a 0 on one
        # side times a NaN on the other is a NaN. Without `other` the contents of masked lanes would be undefined.
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & (offs_n[None, :] < N), other=0.0)
        # Back to the first launch: the first step of program 29 gives `pid=29, k=0: acc = [[1, 3], [-1, -2]]`, the last
        # `pid=29, k=7: acc = [[0, 4], [8, -6]]`.
        acc = multiply_add(a, b, acc, INPUT_PRECISION)
        # On to the next `BLOCK_K` columns of `a` and rows of `b`, in int64 like the offsets. (A stride of 1 reaches the
        # kernel as a constant, which has no `.to`; `tl.cast` takes both.)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    # **Step 4: the epilogue.** The activation is applied while the sums are still in registers. As a kernel of its
    # own it would have to read and write all of C again. ReLU turns the sums of program 29 into
    # `pid=29: c = [[0, 4], [8, 0]]`.
    c = activate(acc, ACTIVATION)

    # **Step 5: store,** with the masks of the two edges of C. The store rounds to C's dtype. $Z$ is kept only if the
    # backward pass will ask for it.
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    c_offsets = offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptr + c_offsets, c, mask=c_mask)
    if SAVE_Z:
        tl.store(z_ptr + c_offsets, acc, mask=c_mask)


# ## The same with tensor descriptors
#
# The kernel above computes an address for every element, and the threads of the program fetch them. Since Hopper
# there is a unit that copies a whole block by itself, the tensor memory accelerator (TMA). It is told once where a
# matrix lies, how large it is and what its strides are: that is a **tensor descriptor**. A load then names only the
# corner of a block. No thread spends registers or time on addresses and masks: what lies outside is filled with zeros
# by the unit. With the persistent loop below, that took the product at 4096 in each direction from
# [[bench: matmul/ladder/grouped/forward_ms]] to [[bench: matmul/ladder/descriptors, grouped/forward_ms]].
#
# It has conditions: one dimension must be contiguous, and the address and the other stride multiples of 16 bytes. The
# contiguous one is always the last of a descriptor, so a transposed matrix is described as it is stored, and its blocks
# are transposed after the load. That costs nothing: 16-bit numbers can be read by the tensor cores in both orders.


# On its way out a block of C passes through shared memory, because the TMA stores from nowhere else. In two halves it
# needs half the room, and the rest stays with the loads. `tl.split` divides a last dimension of two; reshape and
# permute make it out of the left and the right half of the columns.
@triton.jit
def store_in_halves(desc, block, start_m, start_n):
    rows: tl.constexpr = block.shape[0]
    half: tl.constexpr = block.shape[1] // 2
    left, right = tl.split(tl.permute(tl.reshape(block, (rows, 2, half)), (0, 2, 1)))
    desc.store([start_m, start_n], left.to(desc.dtype))
    desc.store([start_m, start_n + half], right.to(desc.dtype))


# There are no more programs than the GPU has multiprocessors, and each computes one block of C after the other: the
# kernel is **persistent**. With `flatten` the two loops, over blocks and along K, become one. So the loads for the
# next block start while the last sums of this one are formed and stored, and the tensor cores don't wait for a first
# load at the start of each block.
@triton.jit
def matmul_descriptor_kernel(
    a_desc,
    b_desc,
    c_desc,
    z_desc,
    M,
    N,
    K,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SAVE_Z: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
):
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), num_pid_m * num_pid_n, NUM_PROGRAMS, flatten=True):
        # Step 1 as before, with the number of the block in the place of the program's. Step 2 shrinks to the corner
        # of the block.
        pid_m, pid_n = block_of_program(tile, num_pid_m, num_pid_n, GROUP_M)
        start_m = pid_m * BLOCK_M
        start_n = pid_n * BLOCK_N

        # Step 3, [[tag: MM-Z]] again. Triton keeps several of these copies under way (`num_stages`) while the tensor
        # cores work. The inputs are 16-bit here, so the sum needs no `multiply_add`.
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            start_k = k * BLOCK_K
            if A_TRANSPOSED:
                a = a_desc.load([start_k, start_m]).T
            else:
                a = a_desc.load([start_m, start_k])
            if B_TRANSPOSED:
                b = b_desc.load([start_n, start_k]).T
            else:
                b = b_desc.load([start_k, start_n])
            acc = tl.dot(a, b, acc)

        # Steps 4 and 5. A store through a descriptor stops at the edges of C by itself.
        store_in_halves(c_desc, activate(acc, ACTIVATION), start_m, start_n)
        if SAVE_Z:
            store_in_halves(z_desc, acc, start_m, start_n)


# ## The activation's backward pass
#
# The gradient of $Z$ is the upstream gradient times the slope, element by element [[tag: MM-relu-Z]],
# [[tag: MM-leaky-Z]], [[tag: MM-gelu-Z]], [[tag: MM-silu-Z]]. Both gradient products need all of it, so it is
# computed once and kept. Fusing it into their loads would compute it once for every block that reads it, and a block
# that has to be changed on its way can't go straight from the TMA to the tensor cores. The [grouped
# tutorial](../tutorials/matmul_grouped.py) does fuse it, and measures.
@triton.jit
def activation_backward_kernel(
    dc_ptr,
    saved_ptr,
    dz_ptr,
    M,
    N,
    stride_dcm,
    stride_dcn,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # A block of the matrix for each program, wide rather than square, because neighbours along a row are fetched
    # together. The upstream gradient may have any strides, also 0: `.sum().backward()` hands us one number, expanded.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    dc_offsets = offs_m[:, None] * stride_dcm + offs_n[None, :] * stride_dcn
    offsets = offs_m[:, None] * N + offs_n[None, :]

    # The arithmetic is done in float32, the store rounds.
    dc = tl.load(dc_ptr + dc_offsets, mask=mask, other=0.0).to(tl.float32)
    saved = tl.load(saved_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dz = activate_backward(dc, saved, ACTIVATION)
    tl.store(dz_ptr + offsets, dz, mask=mask)


# ## The launchers
#
# `storage_order` says how a descriptor can describe a matrix, or None where only pointers will do. An expanded view
# has a stride of 0, a slice may start at an odd address, float32 is left to the kernel that can multiply in full
# precision. Eight 16-bit numbers are 16 bytes, hence the `% 8`.
def storage_order(x):
    rows, columns = x.shape
    stride_row, stride_column = x.stride()
    if x.dtype == torch.float32 or rows == 0 or columns == 0 or x.data_ptr() % 16:
        return None
    if stride_column == 1 and stride_row >= columns and stride_row % 8 == 0:
        return "rows"
    if stride_row == 1 and stride_column >= rows and stride_column % 8 == 0:
        return "columns"
    return None


def describe(x, order, block_rows, block_columns):
    if order == "columns":
        return TensorDescriptor(x, [x.shape[1], x.shape[0]], [x.stride(1), 1], [block_columns, block_rows])
    return TensorDescriptor(x, [x.shape[0], x.shape[1]], [x.stride(0), 1], [block_rows, block_columns])


# Rounded up, like `triton.cdiv`, but without the microseconds that its check for constexpr arguments takes. The time
# that Python needs before the GPU has anything to do is part of what a small product costs.
def cdiv(size, block):
    return -(-size // block)


@functools.cache
def multiprocessors(device_index):
    """How many the GPU has, or 0 if it has no TMA. The interpreter is taken for a GPU with two."""
    if device.INTERPRET:
        return 2
    properties = torch.cuda.get_device_properties(device_index)
    return properties.multi_processor_count if properties.major >= 9 else 0


# **Tile sizes.** A large block reads less: each number of `a` that is loaded serves `BLOCK_N` columns of C, each of `b`
# serves `BLOCK_M` rows. The product at 4096 in each direction, with pointers:
#
# - in blocks of 32 x 32: [[bench: matmul/ladder/32 x 32 blocks/forward_ms]]
# - in blocks of 64 x 64: [[bench: matmul/ladder/64 x 64 blocks/forward_ms]]
# - in blocks of 128 x 256: [[bench: matmul/ladder/128 x 256 blocks/forward_ms]]
#
# There it ends: 128 x 256 sums take 128 of the 255 registers of each thread of 8 warps, and twice as many would leave
# none for anything else. A row of 64 16-bit numbers along K is 128 bytes, a cache line. Each stage holds the blocks of
# one step along K in shared memory: the largest need 48 KB, of the 227 KB that a program may have.


# Where C has fewer than 64 large blocks, more than half of an H200's 132 multiprocessors would go without, and smaller
# blocks keep more of them busy. float32 in full precision runs without tensor cores. There both factors pass through
# registers too, so its blocks stay small.
def tile_sizes(M, N, dtype, descriptors):
    if dtype == torch.float32:
        return dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_warps=4, num_stages=3)
    rows = cdiv(M, 128)
    if rows * cdiv(N, 256) >= 64:
        return dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=3)
    if descriptors and rows * cdiv(N, 128) >= 64:
        return dict(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=4)
    return dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, num_warps=4, num_stages=4)


# The launcher takes views as they are: only their strides are passed on. Tile sizes that are given (all four) go to
# the kernel with pointers, unless `descriptors` says otherwise.
def matmul_forward(
    a, b, activation=None, *, save_z=False, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=None, descriptors=None
):
    """`(c, z)`: the result and, if `save_z`, what it was before the activation (else None), both contiguous."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if save_z else None
    if M == 0 or N == 0:
        return c, z
    a_order, b_order = storage_order(a), storage_order(b)
    programs = multiprocessors(a.device.index)
    possible = programs and a_order and b_order and N % 8 == 0 and K > 0
    if descriptors is None:
        descriptors = bool(possible) and BLOCK_M is None
    elif descriptors and not possible:
        raise ValueError("descriptors need 16-bit matrices with 16-byte aligned rows or columns, and a GPU with a TMA")
    if BLOCK_M is None:
        tiles = tile_sizes(M, N, a.dtype, descriptors)
    else:
        tiles = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        checks.positive(GROUP_M=GROUP_M)
    blocks = cdiv(M, tiles["BLOCK_M"]) * cdiv(N, tiles["BLOCK_N"])
    options = dict(ACTIVATION=activation, SAVE_Z=save_z, **tiles)
    if descriptors:
        a_desc = describe(a, a_order, tiles["BLOCK_M"], tiles["BLOCK_K"])
        b_desc = describe(b, b_order, tiles["BLOCK_K"], tiles["BLOCK_N"])
        c_desc = describe(c, "rows", tiles["BLOCK_M"], tiles["BLOCK_N"] // 2)
        z_desc = describe(z, "rows", tiles["BLOCK_M"], tiles["BLOCK_N"] // 2) if save_z else None
        orders = dict(A_TRANSPOSED=a_order == "columns", B_TRANSPOSED=b_order == "columns", NUM_PROGRAMS=programs)
        matmul_descriptor_kernel[(min(blocks, programs),)](a_desc, b_desc, c_desc, z_desc, M, N, K, **orders, **options)
    else:
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        strides = (*a.stride(), *b.stride(), *c.stride())
        z_ptr = z if save_z else c
        matmul_kernel[(blocks,)](a, b, c, z_ptr, M, N, K, *strides, INPUT_PRECISION=precision, **options)
    return c, z


def activation_backward(dc, saved, activation):
    """The gradient of Z from that of C, contiguous; `saved` is C for relu and leaky_relu, Z for gelu and silu."""
    M, N = dc.shape
    dz = torch.empty((M, N), dtype=dc.dtype, device=dc.device)
    if dz.numel():
        grid = (cdiv(M, 8), cdiv(N, 256))
        activation_backward_kernel[grid](
            dc, saved, dz, M, N, *dc.stride(), ACTIVATION=activation, BLOCK_M=8, BLOCK_N=256
        )
    return dz


# Two more products, and the transposed matrices are views: `b.T` has the strides of `b` exchanged.
def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient of C; `needs` says which are wanted, the other is None."""
    dz = dc if activation is None else activation_backward(dc, saved, activation)
    # [[tag: MM-X]] and [[tag: MM-Y]]
    da = matmul_forward(dz, b.T, **tiles)[0] if needs[0] else None
    db = matmul_forward(a.T, dz, **tiles)[0] if needs[1] else None
    return da, db


# Inside `torch.compile` the two launchers are called through custom operators. The compiler then need not look into
# them: it asks the `fake` functions for shapes, and calls the launchers when the compiled model runs. Outside, they
# are called directly, which is faster by some microseconds a call.
@torch.library.custom_op(f"{__name__.replace('.', '_')}::forward", mutates_args=())
def forward_operator(
    a: torch.Tensor, b: torch.Tensor, activation: str | None, save_z: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    c, z = matmul_forward(a, b, activation, save_z=save_z)
    return c, c.new_empty(0) if z is None else z


@forward_operator.register_fake
def forward_fake(a, b, activation, save_z):
    c = a.new_empty(a.shape[0], b.shape[1])
    return c, torch.empty_like(c) if save_z else c.new_empty(0)


@torch.library.custom_op(f"{__name__.replace('.', '_')}::activation_backward", mutates_args=())
def activation_backward_operator(dc: torch.Tensor, saved: torch.Tensor, activation: str) -> torch.Tensor:
    return activation_backward(dc, saved, activation)


@activation_backward_operator.register_fake
def activation_backward_fake(dc, saved, activation):
    return dc.new_empty(dc.shape)


def compiled_backward(dc, a, b, saved, activation, needs):
    dz = dc if activation is None else activation_backward_operator(dc, saved, activation)
    da = forward_operator(dz, b.T, None, False)[0] if needs[0] else None
    db = forward_operator(a.T, dz, None, False)[0] if needs[1] else None
    return da, db


# ## Joining autograd
#
# What has to be kept for the backward pass? Always `a` and `b`. For ReLU and leaky ReLU also the result, which the
# next layer keeps alive anyway. For GELU and SiLU it must be $Z$, because the result doesn't tell the slope. Saving
# it costs one more matrix of C's size; computing it again would make three products of the backward pass's two. Without
# an activation nothing more is kept, and where no gradient is wanted $Z$ isn't even stored.
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, activation):
        save_z = activation in ("gelu", "silu") and any(ctx.needs_input_grad[:2])
        if torch.compiler.is_compiling():
            c, z = forward_operator(a, b, activation, save_z)
        else:
            c, z = matmul_forward(a, b, activation, save_z=save_z)
        ctx.activation = activation
        ctx.save_for_backward(a, b, c if activation in ("relu", "leaky_relu") else z if save_z else None)
        return c

    @staticmethod
    @once_differentiable
    def backward(ctx, dc):
        a, b, saved = ctx.saved_tensors
        backward = compiled_backward if torch.compiler.is_compiling() else matmul_backward
        da, db = backward(dc, a, b, saved, ctx.activation, needs=ctx.needs_input_grad[:2])
        return da, db, None


def matmul(a, b, activation=None):
    """`activation(a @ b)`, differentiable.

    Args:
        a: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        b: tensor of shape (K, N), same dtype, any strides.
        activation: None, "relu", "leaky_relu" (slope 0.01 below zero), "gelu" (exact, with erf) or "silu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype. Sums are formed in float32; K = 0 gives zeros.

    Raises:
        TypeError: an argument is no tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: blocks and the grouped order of programs as in Triton's tutorial "Matrix Multiplication", tensor descriptors
    as in its tutorial "Persistent Matmul".
    """
    checks.tensors(a=a, b=b)
    checks.dtypes(a=a)
    checks.same_dtype(a=a, b=b)
    checks.dimensions("a", a, 2, "M, K")
    checks.dimensions("b", b, 2, "K, N")
    checks.choice("activation", activation, ACTIVATIONS)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"b must have as many rows as a has columns, {a.shape[1]}, got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return MatMul.apply(a, b, activation)


# ## A run small enough to watch
#
# Small whole numbers, so that every sum can be checked by hand. The notes quote the first launch, where they don't name
# another.
def EXAMPLE():
    a = (torch.arange(16 * 16, device=device.DEVICE) % 5 - 1).reshape(16, 16).float()
    b = (torch.arange(16 * 8, device=device.DEVICE) % 7 - 3).reshape(16, 8).float()
    c, _ = matmul_forward(a, b, "relu", BLOCK_M=2, BLOCK_N=2, BLOCK_K=2, GROUP_M=3)
    matmul_backward(torch.ones_like(c), a, b, c, "relu", BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=3)
    # Every edge cut by a mask: C is 3 x 3, and K = 10 in blocks of 4.
    matmul_forward(a[:3, :10], b[:10, :3], BLOCK_M=2, BLOCK_N=2, BLOCK_K=4, GROUP_M=2)
    return dict(shape=(16, 8, 16), dtype=torch.float32, activation="relu")


# ## Cost and benchmark
#
# `shape` is (M, N, K). The backward pass reads the upstream gradient, both inputs and what was saved, and writes two
# gradients.
#
# **Where it stays behind.** In the last shape of the benchmark PyTorch is ahead:
# [[bench: matmul/1000x3000x5000/forward/eager.ms]] against [[bench: matmul/1000x3000x5000/forward/ms]]. C has 96 blocks
# there, too few for 132 multiprocessors, and rows of `a` begin in the middle of cache lines. The backward pass has two
# products of such shapes. The [autotuned tutorial](../tutorials/matmul_autotuned.py) closes the gap of the forward
# pass, with a kernel made for such rows.
def cost(shape, dtype, activation=None):
    M, N, K = shape
    inputs, output, size = M * K + K * N, M * N, dtype.itemsize
    saved_apart = activation in ("gelu", "silu")
    saved = output if activation else 0
    return {
        "forward": dict(
            bytes_read=inputs * size, bytes_written=(1 + saved_apart) * output * size, operations=2 * M * N * K
        ),
        "backward": dict(
            bytes_read=(inputs + output + saved) * size, bytes_written=inputs * size, operations=4 * M * N * K
        ),
    }


def bench_inputs(shape, dtype, device):
    M, N, K = shape
    return dict(a=torch.randn(M, K, dtype=dtype, device=device), b=torch.randn(K, N, dtype=dtype, device=device))


BENCH = dict(
    shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (1000, 3000, 5000)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=matmul,
    eager=matmul_reference,
    peers={},
    passes=["forward", "backward"],
    differentiable=["a", "b"],
    variants={
        "": {},  # the product alone
        "relu": dict(
            shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)],
            ours=lambda a, b: matmul(a, b, "relu"),
            eager=lambda a, b: matmul_reference(a, b, "relu"),
            cost=lambda shape, dtype: cost(shape, dtype, "relu"),
        ),
    },
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for (M, N, K), activation in zip(
        [(1, 1, 1), (70, 50, 40), (64, 128, 96), (33, 130, 100), (130, 72, 8)], ACTIVATIONS
    ):
        for dtype in checks.FLOATS:
            a = torch.randn(M, K, dtype=dtype, device=device.DEVICE, requires_grad=True)
            b = torch.randn(K, N, dtype=dtype, device=device.DEVICE, requires_grad=True)
            dc = torch.randn(M, N, dtype=dtype, device=device.DEVICE)
            results = []
            for function, cast in ((matmul, dtype), (matmul_reference, dtype), (matmul_reference, torch.float64)):
                x, y = (v.detach().to(cast).requires_grad_() for v in (a, b))
                c = function(x, y, activation)
                results.append((c.detach(), *torch.autograd.grad(c, (x, y), dc.to(cast))))
            for name, ours, pytorch, exact in zip(("c", "da", "db"), *results):
                report.compare(name, f"{M} x {N} x {K}, {activation}", ours, pytorch, exact)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


if __name__ == "__main__":
    sys.exit(main())
