r"""
# Normalising rows: what LayerNorm and RMSNorm share

How a module's attributes become arguments; how many programs and threads a row gets in the fast versions; and the small
kernel that adds up the partial sums that their programs store.
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton
from academy.runtime.launch import cdiv, launch

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.common.launching import power_of_2_up_to


# ## As a drop-in for a module
#
# A `normalized_shape` of several dimensions is one long row: `x` comes back with these dimensions merged into one. Some
# models call their epsilon `variance_epsilon`.
def module_arguments(module, x):
    """`(x, weight, bias, eps)` to normalise as `module(x)` does; `weight` and `bias` are None if it has none."""
    checks.tensors(x=x)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    name = "eps" if hasattr(module, "eps") else "variance_epsilon"
    if not hasattr(module, name):
        raise TypeError(f"module must have eps or variance_epsilon, and {type(module).__name__} has neither")
    shape = getattr(module, "normalized_shape", x.shape[-1:] if weight is None else weight.shape)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(f"x must end in the module's normalized_shape, {shape}, got shape {tuple(x.shape)}")
    vectors = (vector if vector is None else vector.flatten() for vector in (weight, bias))
    return x.flatten(-len(shape)), *vectors, getattr(module, name)


# ## Forward: few threads, many elements each
#
# What makes a memory-bound kernel fast is having enough bytes in flight at any moment. The registers of an SM decide
# how many rows it works on at once, and every thread costs some of them, whatever it does. So a thread gets many
# elements and a row few threads.
#
# A thread gets up to 48 elements, and more in rows longer than 12288, because 8 warps are the maximum. `N` counts here
# rather than `BLOCK_N`: the compiler knows which registers would only hold masked lanes, and drops them. Up to 20480
# elements at least two rows fit on an SM; longer rows are processed in chunks.
@functools.cache
def forward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or (triton.next_power_of_2(N) if N <= 20480 else 4096)
    BLOCK_M = BLOCK_M or (1 if BLOCK_N > 4096 else max(2, 2048 // BLOCK_N))
    warps = triton.next_power_of_2(cdiv(BLOCK_M * min(N, BLOCK_N), 48 * 32))
    return BLOCK_M, BLOCK_N, num_warps or min(warps, 8)


# An SM has 65536 registers: 128 for each of 256 threads, if two rows are to fit. Above 16384 elements the compiler may
# use more, and then only one row fits: for LayerNorm's 20480 bfloat16 numbers Triton 3.6 takes 182, 3.7 takes 128. With
# a limit of 128 it finds a way to use no more, and one row loads while the other waits for its sums. (`torch.compile`
# can't pass on this option.)
def register_limit(N):
    return dict(maxnreg=128) if 16384 < N <= 20480 and not torch.compiler.is_compiling() else {}


# ## Backward: as many programs as fit on the card
#
# How many programs share the rows, and how many tiles each has in flight. Small tiles leave room for two programs on an
# SM: while one waits for its sums, the other one loads. A tile that isn't full brings fewer bytes, so one more is
# requested ahead. All of them wait in shared memory, whose size is the limit: `tensors` is how many are loaded, each
# `element_size` bytes an element. (`device_index` is None on the CPU, where nothing runs at the same time.)
@functools.cache
def backward_schedule(device_index, element_size, N, BLOCK_M, BLOCK_N, num_warps, tensors=2):
    if device_index is None:
        return 4, 1
    card = torch.cuda.get_device_properties(device_index)
    programs_per_sm = 2 if num_warps <= 4 else 1
    tile_bytes = programs_per_sm * BLOCK_M * BLOCK_N * tensors * element_size
    num_stages = min(3 if N == BLOCK_N or BLOCK_N > 8192 else 4, 1 + card.shared_memory_per_block_optin // tile_bytes)
    return programs_per_sm * card.multi_processor_count, num_stages


# ## Adding up partial sums
#
# The lessons leave this to PyTorch. Here one program per block of columns reads the partial sums of all `P` programs,
# tile after tile, always in the same order. They are few and have just been written, so they come from the L2 cache.
# The result is rounded to the dtype of the parameter once. Its blocks are narrow, 32 columns: a row of 4096 makes 128
# programs, about one for each of an H200's SMs. RMSNorm has no bias: it passes `None` instead of the bias pointers.
@triton.jit
def partial_sums_kernel(
    partial_dweight_ptr,  # (P, N), or None
    partial_dbias_ptr,  # (P, N), or None
    dweight_ptr,  # (N,), or None
    dbias_ptr,  # (N,), or None
    P,
    N: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    dweight = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for start in tl.range(0, P, BLOCK_P):
        offs_p = start + tl.arange(0, BLOCK_P)
        mask_p = offs_p < P
        offsets = offs_p[:, None] * N + offs_n[None, :]
        mask = mask_p[:, None] & mask_n[None, :]
        if dweight_ptr is not None:
            dweight += tl.load(partial_dweight_ptr + offsets, mask=mask, other=0.0)
        if dbias_ptr is not None:
            dbias += tl.load(partial_dbias_ptr + offsets, mask=mask, other=0.0)
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + offs_n, dweight_sum, mask=mask_n)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + offs_n, dbias_sum, mask=mask_n)


def sums_launch(P, N, BLOCK_N=32):
    """Grid, numbers and blocks of `partial_sums_kernel` for P rows of N partial sums."""
    return (cdiv(N, BLOCK_N),), (P, N), dict(BLOCK_P=power_of_2_up_to(32, P), BLOCK_N=BLOCK_N)


def add_partial_sums(partial_dweight, partial_dbias, dweight, dbias, BLOCK_N=32):
    """Fills `dweight` and `dbias` with the column sums of their partial sums; what is None is left out."""
    given = partial_dbias if partial_dweight is None else partial_dweight
    if given is not None:
        grid, sizes, blocks = sums_launch(*given.shape, BLOCK_N)
        launch(partial_sums_kernel, grid, (partial_dweight, partial_dbias, dweight, dbias), sizes, **blocks)
