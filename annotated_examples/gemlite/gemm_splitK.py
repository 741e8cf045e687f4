r"""
# Split-K: enough programs for a thin matrix product

With one row of activations, an `N = 8192` product has 64 tiles of 128 columns. An H200 has 132 SMs, and each needs
several programs, to have something to do while it waits for memory. Where should more programs come from? From the sum:
split K into parts, and let several programs work on each tile, each on its own part.

[[eq: QM-split]]

What changes in [the kernel](gemm.py)? Two lines say which part of K is mine, and an atomic addition replaces the store.

**What it costs.** The words come from memory once, as before. In addition each part is added to C, `4 * M * N` bytes,
which has to be set to zero first. So it can pay off only while `M` is small. Alone it isn't enough: with 16 rows and
`N = K = 8192` the plain kernel takes [[bench: gemm/16x8192x8192/forward/ms]], this one
[[bench: gemm_splitK/16x8192x8192/forward/lesson.ms]]. [The fast version](../fast/low_bit/__init__.py), which also
brings a word into registers once for all of its numbers, takes [[bench: gemm_splitK/16x8192x8192/forward/ms]].

**Contract.** As [gemm](gemm.py). Atomic additions arrive in no fixed order, so the last bits of two equal calls may
differ.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque_product
from annotated_examples.common.packed import Hints, contract, used
from annotated_examples.gemlite.gemm import (
    add_block,
    gemm_forward,
    gemm_reference,
    kernel_arguments,
    pack,
    tile_offsets,
)


# ## The kernel
#
# [[figure: products/split_k]]


# The grid has a second dimension, the parts. Compare it with `gemm_kernel`: the tile is found in the same way, and each
# step along K is the same function, `add_block`.
@triton.jit
def gemm_splitK_kernel(
    a, words, scales, zeros,  # tuples of a pointer and two strides, as in `gemm_kernel`
    c_ptr,  # (M, N) in float32, contiguous, all zeros
    M, N, K, group_size, W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, HINTS: tl.constexpr,
    META_ROWS: tl.constexpr, ATOMIC: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    offs_m, offs_n = tile_offsets(tl.program_id(0), M, N, HINTS, BLOCK_M, BLOCK_N, GROUP_M)
    # **My part of the sum.** K is cut between blocks, as evenly as whole blocks allow. The number of parts doesn't have
    # to divide the number of blocks: with three blocks and two parts the first program takes one block,
    # `pid=(1, 0): first = 0`, `last = 1`, and the second two, `pid=(1, 1): first = 1`, `last = 3`. With more parts than
    # blocks some programs add nothing.
    pid_k = tl.program_id(1)
    blocks = tl.cdiv(K, BLOCK_K)
    first = pid_k * blocks // SPLIT_K
    last = (pid_k + 1) * blocks // SPLIT_K

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(first * BLOCK_K, last * BLOCK_K, BLOCK_K):
        acc = add_block(
            acc, k0, offs_m, offs_n, a, words, scales, zeros, M, N, K, group_size,
            W_NBITS, W_GROUP_MODE, HINTS, META_ROWS, BLOCK_K,
        )  # fmt: skip

    # **Add it.** All parts of a tile go to the same elements of C, so with a plain store only one of them would
    # survive. C is float32: in sixteen bits each addition would round, and lose bits with each part. `sem` is the
    # memory order: may other programs see this addition before they see what this program wrote earlier? It wrote
    # nothing, so "relaxed" is enough.
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N), sem=ATOMIC)


# ## Launcher
#
# How many parts, and how wide a tile? That depends on the weight's shape, so a few pairs are tried once for each shape.
# During the search a pair runs many times and adds to the same C each time, so `reset_to_zero` zeroes C before every
# run. The launcher allocates it as zeros, too: `torch.empty` would return whatever was in that memory, and the
# additions would keep it.
CONFIGS = [
    triton.Config(dict(BLOCK_N=64, SPLIT_K=8), num_warps=4, num_stages=3),
    triton.Config(dict(BLOCK_N=128, SPLIT_K=8), num_warps=4, num_stages=3),
    triton.Config(dict(BLOCK_N=64, SPLIT_K=4), num_warps=4, num_stages=3),
    triton.Config(dict(BLOCK_N=128, SPLIT_K=16), num_warps=4, num_stages=3),
]
gemm_splitK_tuned = device.autotune(CONFIGS, ["N", "K", "W_NBITS", "BLOCK_M"], reset_to_zero=["c_ptr"])(
    gemm_splitK_kernel
)


@opaque_product(", int? split_k, str atomic_mode")
def gemm_splitK_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
    split_k=None, atomic_mode="relaxed", BLOCK_M=None, BLOCK_N=None, BLOCK_K=64, GROUP_M=8,
):  # fmt: skip
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
    M, N = a.shape[0], words.shape[1]
    BLOCK_M = BLOCK_M or min(64, max(16, triton.next_power_of_2(M)))
    c = torch.zeros(M, N, dtype=torch.float32, device=a.device)
    if c.numel():
        hints = Hints(tile_order == "swizzled", A_load_order, meta_evict_policy, data_contiguous)
        arguments = kernel_arguments(
            a, words, scales, zeros, W_nbits, group_size, W_group_mode, hints, BLOCK_M, BLOCK_K, GROUP_M
        )
        arguments |= dict(c_ptr=c, ATOMIC=atomic_mode)
        tiles_m = triton.cdiv(M, BLOCK_M)
        if split_k is None and BLOCK_N is None:
            gemm_splitK_tuned[lambda meta: (tiles_m * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT_K"])](**arguments)
        else:
            split_k, BLOCK_N = split_k or 8, BLOCK_N or 64
            grid = (tiles_m * triton.cdiv(N, BLOCK_N), split_k)
            gemm_splitK_kernel[grid](**arguments, SPLIT_K=split_k, BLOCK_N=BLOCK_N, num_warps=4, num_stages=3)
    # Scales of whole columns and rows, [[tag: QM-channel]], once all parts are there. Then one rounding.
    if channel_scale_mode in (1, 3):
        c = c * scales
    if channel_scale_mode >= 2:
        c = c * scales_a[:, None]
    return c.to(out_dtype or a.dtype)


# ## Public functions
@replayed
def gemm_splitK(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
    split_k=None, atomic_mode="relaxed",
):  # fmt: skip
    """`a @ dequantize(words)` with the sum over K split over `split_k` programs that add into C. Forward only.

    Args: as `gemm`, and
        split_k: number of parts, at least 1; it need not divide anything. None: found by a search, once for each shape
            of the weight.
        atomic_mode: "relaxed" or "release", the memory order of the atomic additions.

    Returns:
        (M, N) in out_dtype. The parts are added in float32, in no fixed order, and rounded once.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: split-K with atomic additions as in the GPTQ kernels of foundation-model-stack.
    """
    modes = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    modes |= dict(channel_scale_mode=channel_scale_mode, scales_a=scales_a, out_dtype=out_dtype)
    options = dict(tile_order=tile_order, A_load_order=A_load_order, meta_evict_policy=meta_evict_policy)
    options |= dict(data_contiguous=data_contiguous)
    contract(a, words, scales, zeros, **modes, **options)
    checks.choice("atomic_mode", atomic_mode, ("relaxed", "release"))
    if split_k is not None:  # the grid has a program for each part on its second axis
        checks.whole_number("split_k", split_k, at_least=1, at_most=65_535)
    options |= dict(split_k=split_k, atomic_mode=atomic_mode)
    scales, zeros, modes["scales_a"] = used(scales, zeros, scales_a, W_group_mode, channel_scale_mode)
    return gemm_splitK_forward(a, words, scales, zeros, **modes, **options)


# Which of the two? Few rows make few tiles, and splitting K fills the card. With more than 64 rows there are more
# tiles, and each part adds more traffic.
@replayed
def low_bit_matmul(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
):  # fmt: skip
    """`a @ dequantize(words)`, by split-K up to 64 rows of `a`, by the plain kernel for more. Forward only.

    Args: as `gemm`.

    Returns:
        (M, N) in out_dtype.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: as `gemm` and `gemm_splitK`.
    """
    modes = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    modes |= dict(channel_scale_mode=channel_scale_mode, scales_a=scales_a, out_dtype=out_dtype)
    options = dict(tile_order=tile_order, A_load_order=A_load_order, meta_evict_policy=meta_evict_policy)
    options |= dict(data_contiguous=data_contiguous)
    contract(a, words, scales, zeros, **modes, **options)
    scales, zeros, modes["scales_a"] = used(scales, zeros, scales_a, W_group_mode, channel_scale_mode)
    if a.shape[0] <= 64:
        return gemm_splitK_forward(a, words, scales, zeros, **modes, **options, split_k=None, atomic_mode="relaxed")
    return gemm_forward(a, words, scales, zeros, **modes, **options)


# ## A run small enough to watch
#
# K is 40, in three blocks of 16, the last of them half empty. Two parts share the three blocks.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(120, device=where).view(3, 40) * 5 % 7 - 3).half()
    words = pack(torch.arange(280, device=where).view(40, 7) * 5 % 16, 4)
    scales, zeros = (torch.arange(70, device=where).view(2, 5, 7) % 5 + 1).half() / 4
    tiles = dict(BLOCK_M=2, BLOCK_N=4, BLOCK_K=16, GROUP_M=2)
    gemm_splitK_forward(a, words, scales, zeros, W_nbits=4, group_size=8, split_k=2, **tiles)


if __name__ == "__main__":
    script.main(low_bit_matmul, gemm_reference)
