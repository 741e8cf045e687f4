r"""
# Matrix multiplication 4, autotuned

How large should a tile be, how many warps should share it, how many loads should be in flight? The answer depends on
the shape, the dtype and the card, and no formula gives it. So `triton.autotune` measures: on the first call for a shape
it times a list of configurations, and it keeps the fastest.

[[eq: MM-Z]]

An activation may be fused: [[tag: MM-relu]], [[tag: MM-leaky]], [[tag: MM-gelu]] or [[tag: MM-silu]]. The gradients are
[[tag: MM-X]] and [[tag: MM-Y]], applied to the activation's own gradient: [[tag: MM-relu-Z]], [[tag: MM-leaky-Z]],
[[tag: MM-gelu-Z]] or [[tag: MM-silu-Z]].

How much is there to gain? A kernel of this kind, with pointers and masks, at 4096 in each direction in bfloat16:

- tiles of 32 x 32: [[bench: matmul/ladder/32 x 32 blocks/forward_ms]]
- tiles of 64 x 64: [[bench: matmul/ladder/64 x 64 blocks/forward_ms]]
- tiles of 128 x 256: [[bench: matmul/ladder/128 x 256 blocks/forward_ms]]
- cuBLAS in the same run: [[bench: matmul/ladder/cuBLAS/forward_ms]]

And 128 x 256 is the wrong choice for a small product: one of 512 x 512 has eight such tiles, and an H200 has 132
SMs.

**What it costs.** `2 · M · N · K` operations; the inputs and the result move once if all goes well. In 16 bits on an
H200, from about six hundred in each direction on, the arithmetic takes longer than the memory traffic, and the limit is
the rate of the tensor cores.

**Contract.** `a` and `b` have two dimensions and the same dtype: float32, float16 or bfloat16. Any strides and any K
are allowed, and nothing is copied. Sums are formed in float32, and the result has the inputs' dtype. Neither input is
ever written to. Two processes may choose different configurations, so the last bits may differ between them.
A NaN in `a` reaches its own row of the result, one in `b` its own column, as in PyTorch.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv
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
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernel is measured against.
def matmul_reference(a, b, activation=None):
    return activation_reference(torch.matmul(a, b), activation)


# ## The kernel
#
# It is the kernel of the earlier lessons with two changes. `ACTIVATION` is a function: a kernel can take a jitted
# function as a `tl.constexpr` argument, and the compiler inlines the call. So the kernel doesn't know any activation by
# name, and you can pass your own.
#
# And the mask of K has been moved out of the loop. A thread can fetch 16 bytes at once, but only where the compiler can
# prove that they lie side by side, begin at a multiple of 16 bytes and share one mask. All it knows about a size or a
# stride is whether it is 1 and whether 16 divides it. If 16 doesn't divide K, a mask that compares with K makes each
# thread load every number separately, in every step. Only the last step needs that mask.
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
    # The example's result is 9 x 6, in `num_pid_m = 5` by `num_pid_n = 2` tiles of 2 x 4. Program 8 gets
    # `pid=8: pid_m = 4` and `pid=8: pid_n = 0`.
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = grouped_order(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)

    # Rows and columns keep their masks, which don't change in the loop: `pid=8: m_mask = [1, 0]` and
    # `pid=8: n_mask = [1, 1, 1, 1]`.
    m_mask = offs_m < M
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    # [[tag: MM-Z]], for the full tiles of K. With `K = 10` and `BLOCK_K = 4` that is `full_steps = 2` steps.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    full_steps = K // BLOCK_K
    for _ in range(0, full_steps):
        a = tl.load(a_ptrs, mask=m_mask[:, None], other=0.0)
        b = tl.load(b_ptrs, mask=n_mask[None, :], other=0.0)
        acc = multiply_add(a, b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)

    # The rest of K, with its mask: `k_mask = [1, 1, 0, 0]`. Both sides need it: a 0 on one side times a NaN on the
    # other is a NaN.
    if K % BLOCK_K != 0:
        k_mask = offs_k < K % BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        acc = multiply_add(a, b, acc, INPUT_PRECISION)

    # The epilogue. Whatever function `ACTIVATION` is, it works on the float32 sums in registers. $Z$ is stored only if
    # the backward pass will ask for it.
    c_mask = m_mask[:, None] & n_mask[None, :]
    c_offsets = offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptr + c_offsets, ACTIVATION(acc), mask=c_mask)
    if SAVE_Z:
        tl.store(z_ptr + c_offsets, acc, mask=c_mask)


# ## What to try
#
# A larger tile reuses what it loads more often: 128 x 256 needs three quarters of the bytes of 128 x 128. But its sums
# take half of the registers of 8 warps, and a small product has too few such tiles to occupy the card. A deeper
# pipeline (`num_stages`) keeps more loads in flight and needs more shared memory. So the list has a few configurations
# that differ a lot, not many that differ a little. The interpreter, where nothing can be timed, uses the first.
#
# [[figure: hardware/tiles]]
#
# `GROUP_M`, the order of the tiles, could be tuned as well. At 4096 in each direction it makes little difference,
# because the L2 cache holds enough either way: a kernel with pointers took
# [[bench: matmul/ladder/128 x 256 blocks/forward_ms]] in tiles of 128 x 256 without groups and
# [[bench: matmul/ladder/grouped/forward_ms]] in groups of 8 rows.
def configuration(block_m, block_n, block_k, group_m, num_warps, num_stages, pre_hook=None):
    tiles = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=group_m)
    return triton.Config(tiles, num_warps=num_warps, num_stages=num_stages, pre_hook=pre_hook)


CONFIGURATIONS = [
    configuration(64, 64, 32, 8, 4, 3),
    configuration(128, 128, 32, 8, 4, 4),
    configuration(128, 128, 64, 8, 8, 3),
    configuration(128, 256, 64, 8, 8, 3),
    configuration(64, 128, 32, 8, 4, 4),
    configuration(32, 64, 64, 8, 4, 4),
]


# There is no need to try what can't win. Exact float32 products are computed without tensor cores, from numbers in
# registers. Large tiles don't fit there, and take many seconds to compile.
def without_large_float32(configurations, arguments, INPUT_PRECISION, **options):
    if arguments["a_ptr"].dtype != torch.float32 or INPUT_PRECISION == "tf32":
        return configurations
    return [c for c in configurations if c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] <= 64 * 128]


# ## What counts as the same problem
#
# The arguments in `key` (and the dtypes, which Triton adds by itself) decide whether an earlier choice is reused or a
# new search begins. What belongs in it?
#
# - M, N and K, of course.
# - How the inputs are stored. The stride of `a` along K is 1 if `a` is stored row by row and larger if it is
#   transposed; the same goes for the stride of `b` along N. With square matrices the three products of a training step
#   have the same M, N and K, but the best tiles for the first may not be the best for the others. When one search
#   served all three, the backward pass of the [fast kernel](../fast/matmul.py) at 2048 in each direction took
#   [[bench: matmul_autotuned/ladder/one search for all layouts/backward_of_2048_ms]] on one day and
#   [[bench: matmul_autotuned/ladder/one search, another day/backward_of_2048_ms]] on another.
# - The precision of float32. With tf32 the tensor cores multiply; without it the ordinary cores do, and they need
#   different tiles.
KEY = ["M", "N", "K", "stride_ak", "stride_bn", "INPUT_PRECISION"]
tuned_matmul_kernel = device.autotune(
    CONFIGURATIONS, key=KEY, prune_configs_by=dict(early_config_prune=without_large_float32)
)(matmul_kernel)


# ## What can go wrong
#
# - *The first call is slow.* Every configuration is compiled, and then timed again for each new key: seconds, not
#   milliseconds. A server whose batch size changes with every request would search with every request. Round such a
#   size up to a few values.
# - *The kernel runs many times.* That does no harm if it overwrites its output, as this one does. But a kernel that
#   adds to its output, or changes an input, does so in every trial. Such arguments must be named in `reset_to_zero` or
#   `restore_value`.
# - *Timing is noisy.* Two searches may choose differently, and then sums round differently. Where results must not
#   change, give the tile sizes yourself. And where Python takes longer to launch a small product than the card takes to
#   compute it, the clock may measure Python instead. `device.autotune` comes with
#   [a clock that doesn't](../../docs/guides/autotuning.md#the-clock-is-noisy).
# - *The choice is forgotten* when the process ends. `cache_results` keeps it on disk, where it may outlive the driver
#   for which it was made, or the hot day on which it was measured.
# - *A search has to run and time kernels,* which is impossible while a CUDA graph is being captured: call the function
#   once before that.


# ## The launchers
#
# Passing tile sizes bypasses the search: exactly these are used. Otherwise the grid depends on tiles that the launcher
# doesn't know. So the grid is a function, which Triton calls with the configuration.


@opaque
def matmul_forward(
    a, b, activation=None, *, save_z=False, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8, num_warps=4,
    num_stages=3,
):  # fmt: skip
    """The result `c`; with `save_z` the pair `(c, z)`, where `z` is `c` before the activation. Both are contiguous."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if save_z else None
    kernel, tiles = tuned_matmul_kernel, {}
    if BLOCK_M is not None:
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        checks.positive(GROUP_M=GROUP_M)
        kernel, tiles = matmul_kernel, dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
        tiles |= dict(num_warps=num_warps, num_stages=num_stages)
    if c.numel():
        strides = (*a.stride(), *b.stride(), *c.stride())
        options = dict(ACTIVATION=ACTIVATIONS[activation], SAVE_Z=save_z, INPUT_PRECISION=input_precision(), **tiles)
        grid = lambda chosen: (cdiv(M, chosen["BLOCK_M"]) * cdiv(N, chosen["BLOCK_N"]),)  # noqa: E731
        kernel[grid](a, b, c, z if save_z else c, M, N, K, *strides, **options)
    return (c, z) if save_z else c


# Two more products, of transposed views, each with a search of its own.
def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient of C; `needs` says which are wanted, the other is None."""
    return product_gradients(matmul_forward, dc, a, b, saved, activation, needs=needs, **tiles)


@replayed
def matmul(a, b, activation=None):
    """`activation(a @ b)`, differentiable. The first call for a shape searches for the fastest configuration.

    Args:
        a: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        b: tensor of shape (K, N), same dtype, any strides.
        activation: None, "relu", "leaky_relu" (slope 0.01 below zero), "gelu" (exact, with erf) or "silu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype. Sums are formed in float32; K = 0 gives zeros.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: autotuned tiles and the grouped order as in Triton's tutorial "Matrix Multiplication".
    """
    contract(a=a, b=b, activation=activation, allowed=ACTIVATIONS)
    if not autograd.needs_frame(a, b):
        return matmul_forward(a, b, activation)
    return Product.apply(a, b, activation, matmul_forward, matmul_backward)


# ## A run small enough to watch
#
# Small integers, sizes that aren't multiples of the tile's in any direction, and a last group that isn't full.
def EXAMPLE():
    a = (torch.arange(9 * 10, device=device.DEVICE) % 5 - 2).reshape(9, 10).float()
    b = (torch.arange(10 * 6, device=device.DEVICE) % 3 - 1).reshape(10, 6).float()
    c = matmul_forward(a, b, "leaky_relu", BLOCK_M=2, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)
    matmul_backward(torch.ones_like(c), a, b, c, "leaky_relu", BLOCK_M=4, BLOCK_N=4, BLOCK_K=4, GROUP_M=2)


if __name__ == "__main__":
    script.main(matmul, matmul_reference)
