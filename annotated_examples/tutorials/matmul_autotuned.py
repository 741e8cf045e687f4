r"""
# Matrix multiplication, autotuned

The third step of the road: the same product, now about as fast as the vendor's library, cuBLAS. At 4096 in each
direction and in bfloat16 it takes [[bench: matmul_autotuned/4096x4096x4096/forward/ms]], cuBLAS
[[bench: matmul_autotuned/4096x4096x4096/forward/cuBLAS.ms]]. At some sizes it stays behind, as the end says.

[[eq: MM-Z]]

An activation may be fused: [[tag: MM-relu]], [[tag: MM-leaky]], [[tag: MM-gelu]] or [[tag: MM-silu]]. The gradients
are [[tag: MM-X]] and [[tag: MM-Y]], fed with the activation's own [[tag: MM-relu-Z]], [[tag: MM-leaky-Z]],
[[tag: MM-gelu-Z]], [[tag: MM-silu-Z]].

How large should a block be, how many warps should work on it, how many loads should be under way? The answer depends
on the shape and on the GPU, and nobody can tell it from paper alone. `triton.autotune` tries a list of configurations
on the first call for a shape, and keeps the fastest.

**What it costs.** `2 · M · N · K` operations; the inputs and the result move once if all goes well. From about six
hundred in each direction on, 16-bit operations take longer than the bytes on an H200, and the tensor cores' rate is the
limit.

**What autotuning costs.** These are its hazards, and each has bitten somebody:

- *The first call is slow.* Every configuration is compiled, and then timed anew for each new shape: seconds, not
  milliseconds.
- *The key decides how often.* `key` lists the arguments whose change starts a new search: M, N, K and a few more. A
  server whose batch size changes with every request would search with every request. Round such a size up to a few
  values. But what the key leaves out shares a choice. So the kernel that takes float32 has the precision in it as well,
  because tensor cores and ordinary ones want other blocks, and the others have the order in which matrices are stored.
  (Triton adds the dtypes of the tensors by itself.)
- *The kernel runs many times.* One that overwrites its output does not care. One that adds to it, or changes an input,
  does so with every trial. Such arguments must be named in `reset_to_zero` or `restore_value`.
- *Timing is noisy.* Two searches may choose differently, and the last bits of a result may differ with them. Where
  results must not change, choose by a rule, as [classics/matmul](../classics/matmul.py) does. And where Python needs
  longer to launch a small product than the GPU to compute it, a clock may measure Python. `device.autotune` brings
  [one that doesn't](../../docs/guides/autotuning.md#the-clock-is-noisy).
- *The choice is forgotten* when the process ends. `cache_results` keeps it on disk, where it may outlive the driver, or
  the hot day, that it was made for.
- *A search needs the clock.* It can't happen while a CUDA graph is captured: call the function once before.

**Contract.** `a` and `b` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides are read
in place, and any K. Sums are formed in float32, and the result has the inputs' dtype. Neither input is ever written
to.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import functools
import math

import torch
import triton
import triton.language as tl
from academy.autograd import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "silu")


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernels are measured against.
def matmul_reference(a, b, activation=None):
    z = torch.matmul(a, b)
    if activation is None:
        return z
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(z, 0.01)
    return getattr(torch.nn.functional, activation)(z)


# ## Activations as functions
#
# Each activation is a jitted function of its own. A kernel is handed one of them as a `tl.constexpr` argument and
# calls it by the name of that argument. The compiler puts its body in the place of the call. So the kernel below
# doesn't know which activations exist, and a reader can add one without touching it.
#
# A NaN has to come out as NaN. Every comparison with it is false, so the comparisons are written such that false
# keeps the value.
@triton.jit
def identity(z):
    return z


@triton.jit
def relu(z):
    # [[tag: MM-relu]]
    return tl.where(z < 0, 0.0, z)


@triton.jit
def leaky_relu(z):
    # [[tag: MM-leaky]]
    return tl.where(z < 0, 0.01 * z, z)


@triton.jit
def gelu(z):
    # [[tag: MM-gelu]], with the constant $1/\sqrt{2}$
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def silu(z):
    # [[tag: MM-silu]]
    return z * tl.sigmoid(z)


# The gradients: upstream gradient times slope. The first two read the slope off the result, which is positive where
# $Z$ is. For the other two, `saved` is $Z$ itself.
@triton.jit
def relu_backward(dc, saved):
    # [[tag: MM-relu-Z]]
    return tl.where(saved <= 0, 0.0, dc)


@triton.jit
def leaky_relu_backward(dc, saved):
    # [[tag: MM-leaky-Z]]
    return tl.where(saved > 0, dc, 0.01 * dc)


@triton.jit
def gelu_backward(dc, saved):
    # [[tag: MM-gelu-Z]], with the constants $1/\sqrt{2}$ and $1/\sqrt{2\pi}$
    normal = 0.5 * (1.0 + tl.erf(saved * 0.7071067811865476))
    return dc * (normal + saved * 0.3989422804014327 * tl.exp(-0.5 * saved * saved))


@triton.jit
def silu_backward(dc, saved):
    # [[tag: MM-silu-Z]]
    sigmoid = tl.sigmoid(saved)
    return dc * sigmoid * (1.0 + saved * (1.0 - sigmoid))


FORWARD = {None: identity, "relu": relu, "leaky_relu": leaky_relu, "gelu": gelu, "silu": silu}
BACKWARD = {"relu": relu_backward, "leaky_relu": leaky_relu_backward, "gelu": gelu_backward, "silu": silu_backward}


# ## The order of the blocks
#
# In groups of `GROUP_M` rows, as in the [lesson before](matmul_grouped.py). `GROUP_M` is one more number to be tuned.
# With 1 there are no groups: at 4096 in each direction the kernel with descriptors (below) then took
# [[bench: matmul_autotuned/ladder/no groups/forward_ms]], with 8 it took
# [[bench: matmul_autotuned/ladder/groups of 8/forward_ms]] and with 16
# [[bench: matmul_autotuned/ladder/groups of 16/forward_ms]].
@triton.jit
def block_of_program(pid, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_pid_in_group * GROUP_M
    # The last group may have fewer rows. With `num_pid_m = 5` and `GROUP_M = 2`, program 8 finds
    # `pid=8: group_size_m = 1`.
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = pid % num_pid_in_group
    return first_pid_m + pid_in_group % group_size_m, pid_in_group // group_size_m


# ## Adding a block's product to the sum
#
# As in the [first lesson](matmul_blocked.py): for exact float32 products, each block of K is summed by itself.
@triton.jit
def multiply_add(a, b, acc, INPUT_PRECISION: tl.constexpr):
    if a.dtype == tl.float32 and INPUT_PRECISION == "ieee":
        total = tl.fma(tl.dot(a, b, input_precision=INPUT_PRECISION), 1.0, acc)
    else:
        total = tl.dot(a, b, acc, input_precision=INPUT_PRECISION)
    return total


# ## Any strides, any K: the kernel with pointers
#
# A thread can fetch 16 bytes at once, but only where the compiler can prove that they lie side by side, begin at a
# multiple of 16 bytes and share one mask. Of a size or a stride it knows a single thing: whether 16 divides it. A
# mask that compares with a K of 5000 falls into that gap, and even of well-aligned rows every number is then fetched
# alone. So the mask of K stays out of the loop. (The rows themselves are aligned only if 16 divides their stride.)
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
    # The example's result is 9 x 6, in `num_pid_m = 5` by `num_pid_n = 2` blocks of 2 x 4. Program 8 gets
    # `pid=8: pid_m = 4` and `pid=8: pid_n = 0`.
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = block_of_program(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)

    # Rows and columns have their masks, which don't change in the loop: `pid=8: m_mask = [1, 0]` and
    # `pid=8: n_mask = [1, 1, 1, 1]`.
    m_mask = offs_m < M
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    # [[tag: MM-Z]]. The loop stops before the last block of K if that isn't full. With `K = 10` and `BLOCK_K = 4` it
    # makes `full_blocks = 2` steps.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    full_blocks = K // BLOCK_K
    for _ in range(0, full_blocks):
        a = tl.load(a_ptrs, mask=m_mask[:, None], other=0.0)
        b = tl.load(b_ptrs, mask=n_mask[None, :], other=0.0)
        acc = multiply_add(a, b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    # Only the rest of K, once, needs its mask: `k_mask = [1, 1, 0, 0]`.
    if K % BLOCK_K != 0:
        k_mask = offs_k < K % BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        acc = multiply_add(a, b, acc, INPUT_PRECISION)

    # Activation and store. Whatever function `ACTIVATION` is, it works on the float32 sums in registers.
    c_mask = m_mask[:, None] & n_mask[None, :]
    c_offsets = offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptr + c_offsets, ACTIVATION(acc), mask=c_mask)
    if SAVE_Z:
        tl.store(z_ptr + c_offsets, acc, mask=c_mask)


# ## Aligned 16-bit matrices: the kernel with descriptors
#
# Since Hopper a unit of the GPU, the tensor memory accelerator (TMA), copies a block into shared memory by itself. A
# tensor descriptor tells it where the matrix lies; a load names the corner of a block. Threads compute no addresses and
# need no masks: what lies outside is filled with zeros. The registers that held pointers are free for more sums.
#
# A transposed matrix is described as it is stored, and its blocks are turned round after the load. The tensor cores
# read both orders, so that costs nothing.
@triton.jit
def load_columns(b_desc, start_k, start_n, B_TRANSPOSED: tl.constexpr):
    if B_TRANSPOSED:
        b = b_desc.load([start_n, start_k]).T
    else:
        b = b_desc.load([start_k, start_n])
    return b


# A block of sums leaves through shared memory too. Stored in two halves it needs half the room there, which is left
# to the loads.
@triton.jit
def store_in_halves(desc, block, start_m, start_n):
    rows: tl.constexpr = block.shape[0]
    half: tl.constexpr = block.shape[1] // 2
    left, right = tl.split(tl.permute(tl.reshape(block, (rows, 2, half)), (0, 2, 1)))
    desc.store([start_m, start_n], left.to(desc.dtype))
    desc.store([start_m, start_n + half], right.to(desc.dtype))


# The kernel is persistent: one program for each of the GPU's multiprocessors, which computes one block after the
# other. `flatten` joins the loop over blocks and the loop along K, so that the next block's loads are already under
# way while this one is stored.
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
    NUM_PROGRAMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SAVE_Z: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), num_pid_m * num_pid_n, NUM_PROGRAMS, flatten=True):
        pid_m, pid_n = block_of_program(tile, num_pid_m, num_pid_n, GROUP_M)
        start_m = pid_m * BLOCK_M
        start_n = pid_n * BLOCK_N
        # [[tag: MM-Z]]. A block of `a` may have to be turned round, too.
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            start_k = k * BLOCK_K
            if A_TRANSPOSED:
                a = a_desc.load([start_k, start_m]).T
            else:
                a = a_desc.load([start_m, start_k])
            b = load_columns(b_desc, start_k, start_n, B_TRANSPOSED)
            acc = tl.dot(a, b, acc)
        store_in_halves(c_desc, ACTIVATION(acc), start_m, start_n)
        if SAVE_Z:
            store_in_halves(z_desc, acc, start_m, start_n)


# ## Rows that begin inside a cache line: the kernel that interleaves
#
# Caches keep memory in lines of 128 bytes. At 1000 x 3000 x 5000 a row of `a` has 10000 bytes, which is 78 lines and 16
# bytes more. So each row begins 16 bytes further into a line than the one before it. A block is 64 numbers wide, as
# many bytes as a line, but seven of eight rows lie in two lines. The L2 cache has to look up nearly twice as many lines
# as it delivers, and at this shape the tensor cores wait for it.
#
# Every eighth row begins alike, though. This kernel takes a block's rows from one of these **phases**: row 3, 11, 19 …
# Then it starts its walk along K as far to the left of column 0 as these rows begin inside a line. From there on every
# copy is of whole lines. What lies to the left of the matrix is filled with zeros, as on the right.
#
# No number is moved for that. A descriptor with three dimensions shows the same memory as a matrix for each phase.
#
# The blocks are smaller, too. C has 8 x 12 blocks of 128 x 256, and an H200 has 132 multiprocessors: 36 of them would
# have nothing to do. Of blocks with 192 columns there are 8 x 16. As 192 is no power of two, a program keeps three sums
# side by side, each `BLOCK_N` columns wide.
@triton.jit
def store_three(desc, left, middle, right, phase, start_m, start_n):
    width: tl.constexpr = left.shape[1]
    shape: tl.constexpr = (1, left.shape[0], width)
    desc.store([phase, start_m, start_n], left.to(desc.dtype).reshape(shape))
    desc.store([phase, start_m, start_n + width], middle.to(desc.dtype).reshape(shape))
    desc.store([phase, start_m, start_n + 2 * width], right.to(desc.dtype).reshape(shape))


@triton.jit
def matmul_interleaved_kernel(
    a_desc,
    b_desc,
    c_desc,
    z_desc,
    M,
    N,
    K,
    stride_am,
    PHASES: tl.constexpr,
    LINE: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SAVE_Z: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # The phases take turns from one row of blocks to the next.
    num_pid_m = tl.cdiv(M // PHASES, BLOCK_M) * PHASES
    num_pid_n = tl.cdiv(N, 3 * BLOCK_N)
    pid_m, pid_n = block_of_program(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)
    phase = pid_m % PHASES
    start_m = pid_m // PHASES * BLOCK_M
    start_n = pid_n * 3 * BLOCK_N
    # The first row of a phase is row number `phase` of `a`. It begins `skew` numbers after the start of a line.
    skew = phase * (stride_am % LINE) % LINE

    # [[tag: MM-Z]]. One block of `a` serves all three sums. Its first dimension, of size 1, is dropped by the copy
    # itself: the block arrives as the tensor cores want it.
    left = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    middle = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K + skew, BLOCK_K)):
        start_k = k * BLOCK_K - skew
        a = a_desc.load([phase, start_m, start_k]).reshape((BLOCK_M, BLOCK_K))
        left = tl.dot(a, load_columns(b_desc, start_k, start_n, B_TRANSPOSED), left)
        middle = tl.dot(a, load_columns(b_desc, start_k, start_n + BLOCK_N, B_TRANSPOSED), middle)
        right = tl.dot(a, load_columns(b_desc, start_k, start_n + 2 * BLOCK_N, B_TRANSPOSED), right)
    store_three(c_desc, ACTIVATION(left), ACTIVATION(middle), ACTIVATION(right), phase, start_m, start_n)
    if SAVE_Z:
        store_three(z_desc, left, middle, right, phase, start_m, start_n)


# ## Configurations
#
# What is worth trying? A larger block reuses what it loads more often: 128 x 256 needs three quarters of the bytes of
# 128 x 128. But its sums fill the registers, and a small matrix has too few such blocks to occupy the whole GPU. More
# stages keep more loads under way and need more shared memory. The interpreter, where nothing can be timed, takes the
# first configuration of each list.
def configuration(block_m, block_n, block_k, group_m, num_warps, num_stages, pre_hook=None):
    blocks = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=group_m)
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages, pre_hook=pre_hook)


POINTER_CONFIGURATIONS = [
    configuration(64, 64, 32, 8, 4, 3),
    configuration(128, 128, 32, 8, 4, 4),
    configuration(128, 128, 64, 8, 8, 3),
    configuration(128, 256, 64, 8, 8, 3),
    configuration(64, 128, 32, 8, 4, 4),
    configuration(32, 64, 64, 8, 4, 4),
]


# A descriptor has to know the block's shape, which depends on the configuration. A `pre_hook` is called with all
# arguments of the launch, before each trial and before each real run.
def set_block_shapes(arguments):
    rows, columns, inner = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    arguments["a_desc"].block_shape = [inner, rows] if arguments["A_TRANSPOSED"] else [rows, inner]
    arguments["b_desc"].block_shape = [columns, inner] if arguments["B_TRANSPOSED"] else [inner, columns]
    for name in ("c_desc", "z_desc"):
        if arguments[name] is not None:
            arguments[name].block_shape = [rows, columns // 2]


DESCRIPTOR_CONFIGURATIONS = [
    configuration(128, 128, 64, 8, 8, 4, set_block_shapes),
    configuration(128, 256, 64, 8, 8, 3, set_block_shapes),
    configuration(128, 256, 64, 16, 8, 4, set_block_shapes),
    configuration(128, 256, 64, 4, 8, 4, set_block_shapes),
    configuration(256, 128, 64, 8, 8, 3, set_block_shapes),
    configuration(128, 128, 64, 8, 4, 3, set_block_shapes),
    configuration(64, 128, 64, 8, 4, 4, set_block_shapes),
    configuration(64, 64, 64, 8, 4, 4, set_block_shapes),
    configuration(64, 64, 128, 8, 4, 3, set_block_shapes),
]


# The kernel that interleaves has three sums of `BLOCK_N` columns each.
def set_interleaved_block_shapes(arguments):
    rows, columns, inner = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    arguments["a_desc"].block_shape = [1, rows, inner]
    arguments["b_desc"].block_shape = [columns, inner] if arguments["B_TRANSPOSED"] else [inner, columns]
    for name in ("c_desc", "z_desc"):
        if arguments[name] is not None:
            arguments[name].block_shape = [1, rows, columns]


INTERLEAVED_CONFIGURATIONS = [
    configuration(128, 64, 64, 4, 4, 4, set_interleaved_block_shapes),
    configuration(128, 64, 64, 1, 4, 4, set_interleaved_block_shapes),
    configuration(128, 64, 64, 2, 4, 4, set_interleaved_block_shapes),
]


# Exact float32 products are formed by the ordinary cores, from numbers in registers. Large blocks do not fit in there,
# and take the compiler many seconds. What cannot win need not be tried.
def without_large_float32(configurations, arguments, INPUT_PRECISION, **options):
    if arguments["a_ptr"].dtype != torch.float32 or INPUT_PRECISION == "tf32":
        return configurations
    return [c for c in configurations if c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] <= 64 * 128]


# The keys. A product of transposed matrices is searched for by itself: with square ones the three products of a
# training step have the same M, N and K, and blocks that are as good as others for the first need not be for the next.
# When the choice for the forward pass served all three, the backward pass at 2048 in each direction took
# [[bench: matmul_autotuned/ladder/one search for all layouts/backward_of_2048_ms]] one day and
# [[bench: matmul_autotuned/ladder/one search, another day/backward_of_2048_ms]] the other. With a search for each it
# takes [[bench: matmul_autotuned:backward/2048x2048x2048/backward/ms]], cuBLAS
# [[bench: matmul_autotuned:backward/2048x2048x2048/backward/cuBLAS.ms]]. The price is three searches for such a step
# instead of one. The kernel with pointers, for odd cases, does without.
PRUNE = dict(early_config_prune=without_large_float32)
SIZES = ["M", "N", "K"]
tuned_matmul_kernel = device.autotune(POINTER_CONFIGURATIONS, key=[*SIZES, "INPUT_PRECISION"], prune_configs_by=PRUNE)(
    matmul_kernel
)
tuned_descriptor_kernel = device.autotune(DESCRIPTOR_CONFIGURATIONS, key=[*SIZES, "A_TRANSPOSED", "B_TRANSPOSED"])(
    matmul_descriptor_kernel
)
tuned_interleaved_kernel = device.autotune(INTERLEAVED_CONFIGURATIONS, key=[*SIZES, "B_TRANSPOSED"])(
    matmul_interleaved_kernel
)


# ## The activation's backward pass
#
# Element by element, before the two products. The function arrives as a constexpr here, too.
@triton.jit
def activation_backward_kernel(
    dc_ptr,
    saved_ptr,
    dz_ptr,
    M,
    N,
    stride_dcm,
    stride_dcn,
    BACKWARD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # The upstream gradient may have any strides, also 0. The arithmetic is done in float32, the store rounds.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    dc_offsets = offs_m[:, None] * stride_dcm + offs_n[None, :] * stride_dcn
    offsets = offs_m[:, None] * N + offs_n[None, :]
    dc = tl.load(dc_ptr + dc_offsets, mask=mask, other=0.0).to(tl.float32)
    saved = tl.load(saved_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dz_ptr + offsets, BACKWARD(dc, saved), mask=mask)


# ## The launchers
#
# How a descriptor can describe a matrix, or None where only pointers will do: one stride must be 1, the other a
# multiple of 16 bytes, and so must the address. float32 is left to the kernel that can multiply it exactly.
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


# The block of [16, 16] only fills the place: `set_block_shapes` enters the one of the configuration.
def describe(x, order):
    (rows, columns), (stride_row, stride_column) = x.shape, x.stride()
    if order == "columns":
        return TensorDescriptor(x, [columns, rows], [stride_column, 1], [16, 16])
    return TensorDescriptor(x, [rows, columns], [stride_row, 1], [16, 16])


# A cache line holds 64 of the 16-bit numbers. If 64 divides the stride, all rows begin alike in their line; else there
# are up to eight ways.
LINE = 64


def row_phases(x):
    """In how many ways the rows of the 16-bit matrix `x` begin inside a cache line: 1, 2, 4 or 8."""
    return LINE // math.gcd(x.stride(0), LINE)


def describe_phases(x, phases):
    (rows, columns), stride = x.shape, x.stride(0)
    return TensorDescriptor(x, [phases, rows // phases, columns], [stride, phases * stride, 1], [1, 16, 16])


def can_interleave(a, a_order):
    return a_order == "rows" and a.data_ptr() % (2 * LINE) == 0 and a.shape[0] % row_phases(a) == 0


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


# Which kernel? That can be counted. The busiest multiprocessor decides when a product is done; it computes so many
# blocks of 128 rows, one after the other. Only if blocks with 192 columns leave it a good deal less to do than those
# with 256, and no more than those with 128, is it worth giving up the reuse that wider blocks have.
def interleaving_pays(M, N, phases, programs):
    def columns_of_the_busiest(width, rows):
        return cdiv(rows * cdiv(N, width), programs) * width

    whole, interleaved = cdiv(M, 128), phases * cdiv(M // phases, 128)
    columns = columns_of_the_busiest(192, interleaved)
    return columns <= 0.8 * columns_of_the_busiest(256, whole) and columns <= columns_of_the_busiest(128, whole)


# Tile sizes that are given bypass the search.
def matmul_forward(
    a, b, activation=None, *, save_z=False, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8, num_warps=4,
    num_stages=3, descriptors=None, interleaved=None,
):  # fmt: skip
    """`(c, z)`: the result and, if `save_z`, what it was before the activation (else None), both contiguous."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if save_z else None
    if M == 0 or N == 0:
        return c, z
    a_order, b_order, programs = storage_order(a), storage_order(b), multiprocessors(a.device.index)
    possible = bool(a_order and b_order and programs and N % 8 == 0 and K > 0)
    if (descriptors or interleaved) and not possible:
        raise ValueError("descriptors need 16-bit matrices with 16-byte aligned rows or columns, and a GPU with a TMA")
    if interleaved and not can_interleave(a, a_order):
        raise ValueError("interleaving needs rows of a that start at a cache line, as many of them in each phase")
    given = BLOCK_M is not None
    descriptors = possible if descriptors is None else descriptors
    if interleaved is None:
        interleaved = descriptors and not given and can_interleave(a, a_order)
        interleaved = interleaved and interleaving_pays(M, N, row_phases(a), programs)
    options = dict(ACTIVATION=FORWARD[activation], SAVE_Z=save_z)
    if given:
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        checks.positive(GROUP_M=GROUP_M)
        options |= dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
        options |= dict(num_warps=num_warps, num_stages=num_stages)
    if interleaved:
        launch_interleaved(a, b, c, z, b_order, given, options)
    elif descriptors:
        launch_descriptors(a, b, c, z, a_order, b_order, programs, given, options)
    else:
        launch_pointers(a, b, c, z, given, options)
    return c, z


def launch_pointers(a, b, c, z, given, options):
    (M, K), N = a.shape, b.shape[1]
    kernel = matmul_kernel if given else tuned_matmul_kernel
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    strides = (*a.stride(), *b.stride(), *c.stride())
    grid = lambda tiles: (cdiv(M, tiles["BLOCK_M"]) * cdiv(N, tiles["BLOCK_N"]),)  # noqa: E731
    kernel[grid](a, b, c, c if z is None else z, M, N, K, *strides, INPUT_PRECISION=precision, **options)


def launch_descriptors(a, b, c, z, a_order, b_order, programs, given, options):
    (M, K), N = a.shape, b.shape[1]
    kernel = matmul_descriptor_kernel if given else tuned_descriptor_kernel
    arguments = dict(
        a_desc=describe(a, a_order), b_desc=describe(b, b_order), c_desc=describe(c, "rows"),
        z_desc=None if z is None else describe(z, "rows"), M=M, N=N, K=K,
        A_TRANSPOSED=a_order == "columns", B_TRANSPOSED=b_order == "columns", NUM_PROGRAMS=programs, **options,
    )  # fmt: skip
    if given:
        set_block_shapes(arguments)
    grid = lambda tiles: (min(programs, cdiv(M, tiles["BLOCK_M"]) * cdiv(N, tiles["BLOCK_N"])),)  # noqa: E731
    kernel[grid](**arguments)


def launch_interleaved(a, b, c, z, b_order, given, options):
    (M, K), N, phases = a.shape, b.shape[1], row_phases(a)
    kernel = matmul_interleaved_kernel if given else tuned_interleaved_kernel
    arguments = dict(
        a_desc=describe_phases(a, phases), b_desc=describe(b, b_order),
        c_desc=describe_phases(c, phases), z_desc=None if z is None else describe_phases(z, phases), M=M, N=N, K=K,
        stride_am=a.stride(0), PHASES=phases, LINE=LINE, B_TRANSPOSED=b_order == "columns", **options,
    )  # fmt: skip
    if given:
        set_interleaved_block_shapes(arguments)

    grid = lambda tiles: (phases * cdiv(M // phases, tiles["BLOCK_M"]) * cdiv(N, 3 * tiles["BLOCK_N"]),)  # noqa: E731
    kernel[grid](**arguments)


def activation_backward(dc, saved, activation):
    """The gradient of Z from that of C, contiguous; `saved` is C for relu and leaky_relu, Z for gelu and silu."""
    M, N = dc.shape
    dz = torch.empty((M, N), dtype=dc.dtype, device=dc.device)
    if dz.numel():
        grid = (cdiv(M, 8), cdiv(N, 256))
        activation_backward_kernel[grid](
            dc, saved, dz, M, N, *dc.stride(), BACKWARD=BACKWARD[activation], BLOCK_M=8, BLOCK_N=256
        )
    return dz


# [[tag: MM-X]] and [[tag: MM-Y]]: two more products, of transposed views.
def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient of C; `needs` says which are wanted, the other is None."""
    dz = dc if activation is None else activation_backward(dc, saved, activation)
    da = matmul_forward(dz, b.T, **tiles)[0] if needs[0] else None
    db = matmul_forward(a.T, dz, **tiles)[0] if needs[1] else None
    return da, db


# Inside `torch.compile` the launchers are called through custom operators: the search for a configuration happens
# when the compiled model runs, and the compiler asks the `fake` functions for shapes.
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
# Kept for the backward pass: the inputs, and what the activation's slope is read from.
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
    """`activation(a @ b)`, differentiable. The first call for a shape searches for the fastest configuration.

    Args:
        a: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        b: tensor of shape (K, N), same dtype, any strides.
        activation: None, "relu", "leaky_relu" (slope 0.01 below zero), "gelu" (exact, with erf) or "silu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype. Sums are formed in float32; K = 0 gives zeros.

    Raises:
        TypeError: an argument is no tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: autotuned blocks and the grouped order as in Triton's tutorial "Matrix Multiplication", persistent programs
    with tensor descriptors as in its tutorial "Persistent Matmul".
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
# Small whole numbers, sizes that are no multiples of a block in any direction, and a last group that is not full.
def EXAMPLE():
    a = (torch.arange(9 * 10, device=device.DEVICE) % 5 - 2).reshape(9, 10).float()
    b = (torch.arange(10 * 6, device=device.DEVICE) % 3 - 1).reshape(10, 6).float()
    c, _ = matmul_forward(a, b, "leaky_relu", BLOCK_M=2, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)
    matmul_backward(torch.ones_like(c), a, b, c, "leaky_relu", BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)
    return dict(shape=(9, 6, 10), dtype=torch.float32, activation="leaky_relu")


# ## Cost and benchmark
#
# `shape` is (M, N, K).
def cost(shape, dtype, activation=None):
    M, N, K = shape
    inputs, output, size = M * K + K * N, M * N, dtype.itemsize
    saved = output if activation else 0
    written = 2 * output if activation in ("gelu", "silu") else output
    return {
        "forward": dict(bytes_read=inputs * size, bytes_written=written * size, operations=2 * M * N * K),
        "backward": dict(
            bytes_read=(inputs + output + saved) * size, bytes_written=inputs * size, operations=4 * M * N * K
        ),
    }


def bench_inputs(shape, dtype, device):
    M, N, K = shape
    return dict(a=torch.randn(M, K, dtype=dtype, device=device), b=torch.randn(K, N, dtype=dtype, device=device))


# Four lines over square sizes: cuBLAS alone and ours alone, then each with the activation named here. cuBLAS runs it
# as a second kernel.
BENCH_ACTIVATION = "leaky_relu"
BENCH = dict(
    shapes=[(n, n, n) for n in range(128, 4097, 128)] + [(8192, 8192, 8192), (1000, 3000, 5000)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=matmul,
    eager=matmul_reference,
    eager_name="cuBLAS",
    compile=False,
    passes=["forward"],
    differentiable=["a", "b"],
    variants={
        "": {},  # the product alone
        BENCH_ACTIVATION: dict(
            ours=lambda a, b: matmul(a, b, BENCH_ACTIVATION),
            eager=lambda a, b: matmul_reference(a, b, BENCH_ACTIVATION),
            eager_name=f"cuBLAS + {BENCH_ACTIVATION}",
        ),
        "backward": dict(shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)], passes=["backward"]),
    },
)


# ## The odd shape
#
# At 1000 x 3000 x 5000 our time is [[bench: matmul_autotuned/1000x3000x5000/forward/ms]] and that of cuBLAS
# [[bench: matmul_autotuned/1000x3000x5000/forward/cuBLAS.ms]]. It took both ideas of the kernel that interleaves.
# Narrower blocks alone gained nothing: they read more, and the cache was the limit. Interleaving alone gained half of
# what both gained together, because a quarter of the multiprocessors still had nothing to do. Other roads led nowhere.
# Copying `a` into padded rows first cost more than it gained. Dividing K among the programs, so that all are busy, lost
# to the cost of adding up the parts.


# ## Where it stays behind
#
# At 2176 in each direction our time is [[bench: matmul_autotuned/2176x2176x2176/forward/ms]] and that of cuBLAS
# [[bench: matmul_autotuned/2176x2176x2176/forward/cuBLAS.ms]]. C has 17 x 9 blocks of 128 x 256, or 153. 132 of them
# occupy the whole GPU, and then 21 more keep it waiting. Blocks of 128 x 128 fare little better: 289 are two rounds and
# 25 blocks more. So it goes wherever a size lies just above full rounds. With `leaky_relu`, for which the library needs
# a second kernel, less of that is left: [[bench: matmul_autotuned:leaky_relu/2176x2176x2176/forward/ms]] against
# [[bench: matmul_autotuned:leaky_relu/2176x2176x2176/forward/cuBLAS + leaky_relu.ms]].
#
# Below that there are few blocks. At 1536 C has 144 of 128 x 128, a round and twelve more, and takes
# [[bench: matmul_autotuned/1536x1536x1536/forward/ms]] against
# [[bench: matmul_autotuned/1536x1536x1536/forward/cuBLAS.ms]]. At 1024 it has 64, so half of the GPU is idle:
# [[bench: matmul_autotuned/1024x1024x1024/forward/ms]] against
# [[bench: matmul_autotuned/1024x1024x1024/forward/cuBLAS.ms]]. Smaller blocks read more of the inputs again. Dividing K
# among several programs, as [split-K](../gemlite/gemm_splitK.py) does, would give the others something to do.


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    # On a GPU every new shape starts a search, so there are but two.
    for (M, N, K), activation in zip([(70, 50, 40), (130, 72, 96)] * 3, ACTIVATIONS):
        for dtype in checks.FLOATS:
            a = torch.randn(M, K, dtype=dtype, device=device.DEVICE)
            b = torch.randn(K, N, dtype=dtype, device=device.DEVICE)
            dc = torch.randn(M, N, dtype=dtype, device=device.DEVICE)
            results = []
            for function, cast in ((matmul, dtype), (matmul_reference, dtype), (matmul_reference, torch.float64)):
                inputs = [v.detach().to(cast).requires_grad_() for v in (a, b)]
                c = function(*inputs, activation)
                results.append((c.detach(), *torch.autograd.grad(c, inputs, dc.to(cast))))
            for name, ours, pytorch, exact in zip(("c", "da", "db"), *results):
                report.compare(name, f"{M} x {N} x {K}, {activation}", ours, pytorch, exact)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        # Every shape is searched anew, so a script that should end within a minute measures a few.
        few = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)]
        bench.print_speed(BENCH | dict(shapes=few, variants={}), cost)
    return status


if __name__ == "__main__":
    sys.exit(main())
