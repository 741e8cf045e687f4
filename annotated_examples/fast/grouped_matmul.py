r"""
# Grouped products, fast: every expert ends where the TMA unit stops

The products of [the lesson](../moe/grouped_matmul.py):

[[eq: GM-C]]

Rows of experts with a matrix each, [[tag: GM-C]], and sums over each expert's rows, [[tag: GM-D]]. What is slow about
the lesson? Its tiles of 64 x 64 fetch the factors two to four times as often as larger ones, and its threads compute
addresses and masks. Both have a reason: an expert's last tile must not touch the rows of the next. On a Hopper GPU none
of that is necessary. Each step was measured at 49152 rows of 64 experts, 2048 x 1408, in bfloat16 on an H200:

1. Large tiles, copied **by descriptors that stop at the expert's last row**, and persistent programs that read their
   tiles from a table: [[bench: grouped_matmul/ladder/persistent/rows_ms]]. The gradient of the rows takes
   [[bench: grouped_matmul/ladder/persistent/back_ms]].
2. **One loop** over all steps of all tiles, so that a tile's loads begin before the last one is stored:
   [[bench: grouped_matmul/ladder/one loop/rows_ms]] and [[bench: grouped_matmul/ladder/one loop/back_ms]].
3. **Tiles that are turned**, where 256 columns would reach beyond the edge:
   [[bench: grouped_matmul/ladder/turned/rows_ms]].
4. Sums over rows with **two programs for each SM**:
   [[bench: grouped_matmul/ladder/two programs/sums_ms]] instead of
   [[bench: grouped_matmul/ladder/one loop/sums_ms]].

PyTorch's own grouped product took [[bench: grouped_matmul/ladder/torch/rows_ms]],
[[bench: grouped_matmul/ladder/torch/back_ms]] and [[bench: grouped_matmul/ladder/torch/sums_ms]] in that run.

**What it costs.** As in the lesson, and a small kernel that writes the table.

**Contract.** That of the lesson. float32, and matrices that no descriptor can describe, are left to its kernels.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.experts import end_of_expert
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.ragged import (
    as_rows,
    fits_matrices,
    in_halves,
    load_matrix,
    load_rows,
    ragged,
    stacked,
    store_matrix_in_halves,
    store_rows,
    tile_of,
    tiles_of_experts,
)
from annotated_examples.fast.matmul import multiprocessors
from annotated_examples.moe.grouped_matmul import GroupedMatmul, contract, grouped_matmul_reference
from annotated_examples.moe.grouped_matmul import grouped_rows_forward as rows_by_pointers
from annotated_examples.moe.grouped_matmul import grouped_sums_forward as sums_by_pointers


# ## Rows times the matrix of their expert
#
# The kernel is persistent, as [the fast product](../fast/matmul.py) is: one program for each SM, or two if experts have
# few rows, each with one tile after the other. How many tiles there are, and whose rows each has, a small kernel
# writes [into a table](../common/ragged.py). `load_rows` and `store_rows` stop where the expert's rows end, so there is
# no mask, and no address but the corner of a tile.
#
# `flatten` joins the two loops. It asks for an inner loop that runs at least once, and `tl.assume` promises that. For
# rows of nobody one step is made to keep it. None of these rows is read, since reading stops at `first`, and their
# matrix would be number `E`, which doesn't exist. Both factors arrive as zeros.
#
# **Why turned?** The tensor cores' largest instruction takes 64 rows and 256 columns, and fetches the fewest bytes from
# shared memory for each product. But 1408 columns are five and a half tiles of 256, and half of the last one is wasted.
# Of tiles of 128 they are eleven. So where it pays, a tile has 256 *rows* and 128 columns, and the transposed product
# is computed, the matrix times the rows: then the rows are the instruction's columns. The tile is turned back when it
# is stored.
#
# [[figure: experts/turned_tiles]]
#
# The example has experts of 17, 0 and 5 rows, and two of nobody behind them. Its tiles are 16 x 16, and there are two
# programs.
@triton.jit
def grouped_rows_kernel(
    a_desc, b_desc, c_desc,  # of (R, K); of (E, K, N), or of its transpose (E, N, K); of (R, N)
    bias_ptr, count_ptr, tiles_ptr,  # (E, N), or None; (1,); (most tiles, 3)
    K, N, E, stride_bias_e, stride_bias_n,
    B_TRANSPOSED: tl.constexpr, TURNED: tl.constexpr, NUM_PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Four tiles of rows, two for expert 0, one for expert 2 and one for nobody; and two of columns: `pid=0: total = 8`.
    # The order is that of memory: tiles of one expert run at about the same time, and find its matrix and its rows in
    # L2.
    tiles_n = tl.cdiv(N, BLOCK_N)
    total = tl.load(count_ptr) * tiles_n
    for tile in tl.range(tl.program_id(0), total, NUM_PROGRAMS, flatten=True):
        # A program's second tile: `pid=0, tile=2: first = 16`, the first expert's last one, with a single row of it,
        # `pid=0, tile=2: end = 17`. The last tiles are nobody's: `pid=0, tile=6: expert = 3`. None of their rows is
        # read, `pid=0, tile=6: read_to = 22`, though they go on to `pid=0, tile=6: end = 24`.
        expert, first, end = tile_of(tiles_ptr, tile // tiles_n)
        start_n = tile % tiles_n * BLOCK_N
        somebody = expert < E
        read_to = tl.where(somebody, end, first)
        steps = tl.where(somebody, tl.cdiv(K, BLOCK_K), 1)
        tl.assume(steps > 0)

        # [[tag: GM-C]]
        if TURNED:
            acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        else:
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, steps):
            a = load_rows(a_desc, first, read_to, k * BLOCK_K)
            if B_TRANSPOSED:
                b = load_matrix(b_desc, expert, start_n, k * BLOCK_K).T
            else:
                b = load_matrix(b_desc, expert, k * BLOCK_K, start_n)
            if TURNED:
                acc = tl.dot(b.T, a.T, acc)
            else:
                acc = tl.dot(a, b, acc)

        if bias_ptr is not None:
            offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)
            bias_ptrs = bias_ptr + expert.to(tl.int64) * stride_bias_e + offs_n * stride_bias_n
            bias = tl.load(bias_ptrs, mask=somebody & (offs_n < N), other=0.0).to(tl.float32)
            acc += bias[:, None] if TURNED else bias[None, :]
        # The halves of a turned tile are rows.
        left, right = in_halves(acc)
        if TURNED:
            store_rows(c_desc, left.to(c_desc.dtype).T, first, end, start_n)
            store_rows(c_desc, right.to(c_desc.dtype).T, first + BLOCK_M // 2, end, start_n)
        else:
            store_rows(c_desc, left, first, end, start_n)
            store_rows(c_desc, right, first, end, start_n + BLOCK_N // 2)


# ## A matrix for each expert
#
# [[tag: GM-D]]. Here the number of tiles is known, and only the length of a sum isn't. Its last step reaches beyond the
# expert's rows: what belongs to others arrives as zeros, in **both** factors. So a NaN of the next expert doesn't get
# in, and nothing has to be masked. An expert without rows has one step of zeros.
#
# Sums are short: 768 rows are twelve steps. So a large share of the time goes into the end of a tile, where nothing is
# multiplied. Two programs on each SM, with tiles half as large, cover that: while one stores, the other
# multiplies.
@triton.jit
def grouped_sums_kernel(
    a_desc, b_desc, c_desc, offsets_ptr,  # of (R, M); of (R, N); of (E, M, N); (E,)
    R, M, N, E, NUM_PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), E * tiles, NUM_PROGRAMS, flatten=True):
        expert = tile // tiles
        start_m = tile % tiles // tiles_n * BLOCK_M
        start_n = tile % tiles_n * BLOCK_N
        before = tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0).to(tl.int64)
        start = tl.minimum(tl.maximum(before, 0), R).to(tl.int32)
        end = end_of_expert(offsets_ptr, expert, start, R, E).to(tl.int32)
        steps = tl.maximum(tl.cdiv(end - start, BLOCK_R), 1)
        tl.assume(steps > 0)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(0, steps):
            row = start + step * BLOCK_R
            acc = tl.dot(load_rows(a_desc, row, end, start_m).T, load_rows(b_desc, row, end, start_n), acc)
        store_matrix_in_halves(c_desc, acc, expert, start_m, start_n)


# ## Which tiles?
#
# There is no search: how many rows each expert has changes from step to step. The average is known. With few rows an
# expert memory sets the pace, all matrices have to be read, and a tile of 64 rows wastes the fewest. Beyond that, a
# tile has as many sums as 8 warps have registers for.
#
# Turned tiles pay where they save columns. Where the matrix is transposed in memory, as the weights of a linear layer
# are, they were ahead at every size. But experts with fewer than 256 rows would waste too much of them.
def tiles_for_rows(R, E, N, transposed):
    """The tile for R rows of E experts, its options, and how many programs an SM gets."""
    if R <= 96 * E:
        return dict(BLOCK_M=64, BLOCK_N=128, BLOCK_K=128, TURNED=False), dict(num_warps=4, num_stages=2), 2
    if R >= 256 * E and (transposed or 0 < N % 256 <= 128):
        return dict(BLOCK_M=256, BLOCK_N=128, BLOCK_K=64, TURNED=True), dict(num_warps=8, num_stages=3), 1
    return dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, TURNED=False), dict(num_warps=8, num_stages=3), 1


TILES_FOR_SUMS = dict(BLOCK_M=128, BLOCK_N=128, BLOCK_R=64)
CANT = (
    "the sizes of a tile can be chosen only for 16-bit matrices whose rows begin at multiples of 16 bytes, on a card "
    "with a TMA (compute capability 9.0 or newer)"
)


# ## Launchers
#
# Passing the sizes of a tile bypasses the choice; they have to be powers of two.
def empty_rows(a, b, offsets, bias=None, out_dtype=None):
    return a.new_empty((len(a), b.shape[2]), dtype=out_dtype or a.dtype)


@opaque("(Tensor a, Tensor b, Tensor offsets, Tensor? bias, ScalarType? out_dtype) -> Tensor", empty_rows)
def grouped_rows_forward(
    a, b, offsets, bias=None, out_dtype=None, *, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, TURNED=False, num_warps=4,
    num_stages=3, NUM_PROGRAMS=None,
):  # fmt: skip
    """(R, K) and (E, K, N) -> (R, N)."""
    (R, K), (E, _, N) = a.shape, b.shape
    c = torch.empty((R, N), dtype=out_dtype or a.dtype, device=a.device)
    processors, rows, transposed = multiprocessors(a.device.index), as_rows(a), not fits_matrices(b)
    matrices = b.transpose(1, 2) if transposed else b
    if not processors or rows is None or not fits_matrices(matrices) or N * c.element_size() % 16:
        if BLOCK_M:
            raise ValueError(CANT)
        return rows_by_pointers(a, b, offsets, bias, out_dtype)
    sizes, tuning, each = tiles_for_rows(R, E, N, transposed)
    if BLOCK_M:
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        sizes = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, TURNED=TURNED)
        tuning = dict(num_warps=num_warps, num_stages=num_stages)
    BLOCK_M, BLOCK_N, BLOCK_K, TURNED = sizes.values()
    programs = NUM_PROGRAMS or each * processors
    launch(
        grouped_rows_kernel, (programs,),
        (
            ragged(rows, (BLOCK_M, BLOCK_K)),
            stacked(matrices, (BLOCK_N, BLOCK_K) if transposed else (BLOCK_K, BLOCK_N)),
            ragged(c, (BLOCK_M // 2, BLOCK_N) if TURNED else (BLOCK_M, BLOCK_N // 2)),
            bias, *tiles_of_experts(offsets, R, BLOCK_M),
        ),
        (K, N, E, *((0, 0) if bias is None else bias.stride())),
        B_TRANSPOSED=transposed, NUM_PROGRAMS=programs, **sizes, **tuning,
    )  # fmt: skip
    return c


def empty_sums(a, b, offsets, out_dtype=None):
    return a.new_empty((len(offsets), len(a), b.shape[1]), dtype=out_dtype or a.dtype)


@opaque("(Tensor a, Tensor b, Tensor offsets, ScalarType? out_dtype) -> Tensor", empty_sums)
def grouped_sums_forward(
    a, b, offsets, out_dtype=None, *, BLOCK_M=None, BLOCK_N=None, BLOCK_R=None, num_warps=4, num_stages=3,
    NUM_PROGRAMS=None,
):  # fmt: skip
    """(M, R) and (R, N) -> (E, M, N)."""
    (M, R), N, E = a.shape, b.shape[1], len(offsets)
    c = torch.empty((E, M, N), dtype=out_dtype or a.dtype, device=a.device)
    processors, left, right = multiprocessors(a.device.index), as_rows(a.t()), as_rows(b)
    if not processors or left is None or right is None or N * c.element_size() % 16:
        if BLOCK_M:
            raise ValueError(CANT)
        return sums_by_pointers(a, b, offsets, out_dtype)
    sizes = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_R=BLOCK_R) if BLOCK_M else TILES_FOR_SUMS
    checks.power_of_two(**sizes)
    BLOCK_M, BLOCK_N, BLOCK_R = sizes.values()
    programs = NUM_PROGRAMS or min(2 * processors, E * cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N))
    launch(
        grouped_sums_kernel, (programs,),
        (
            ragged(left, (BLOCK_R, BLOCK_M)), ragged(right, (BLOCK_R, BLOCK_N)), stacked(c, (BLOCK_M, BLOCK_N // 2)),
            offsets.contiguous(),
        ),
        (R, M, N, E), NUM_PROGRAMS=programs, **sizes, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return c


# ## The public function
#
# The gradients are the lesson's: two more products, with these launchers.
@replayed
def grouped_matmul(a, b, offsets, *, bias=None, out_dtype=None):
    """Products of rows with the matrix of their expert, or sums over each expert's rows; differentiable.

    Args: as `grouped_matmul` of the lesson.

    Returns:
        A new tensor of shape (R, N) or (E, M, N), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson; the descriptors are those of `triton.tools.ragged_tma`.
    """
    contract(a, b, offsets, bias, out_dtype)
    if autograd.needs_frame(a, b, bias):
        launchers = grouped_rows_forward, grouped_sums_forward
        return GroupedMatmul.apply(a, b, offsets, bias, out_dtype, *launchers)
    if b.dim() == 3:
        return grouped_rows_forward(a, b, offsets, bias, out_dtype)
    return grouped_sums_forward(a, b, offsets, out_dtype)


# ## Where it falls behind
#
# A tile's sums are stored while nothing is multiplied. A loop that is written [below Triton](../gluon/matmul.py), where
# one group of warps stores while the other multiplies, could cover that. With skewed counts more tiles are ragged: the
# same number of rows takes [[bench: grouped_matmul/ladder/turned/skewed_rows_ms]] with turned tiles.
#
# Three things were tried and left out. Steps of 128 along K leave room for two stages only:
# [[bench: grouped_matmul/ladder/deep steps/rows_ms]]. Two programs for each SM, which help the sums, take
# [[bench: grouped_matmul/ladder/two programs/rows_ms]] for rows: each has half a tile's columns, and fetches the rows
# twice as often. And an expert's last tile may be nearly empty. Computed in a second launch that begins early, in tiles
# of half as many rows, these ends took less time with nearly balanced counts, but more with skewed ones, and for the
# gradient.


# ## A run small enough to watch
#
# Small whole numbers in float16, and NaN in the rows of nobody: the product as it is and turned, then the sums.
def EXAMPLE():
    a = (torch.arange(24 * 16, device=device.DEVICE) % 7 - 3).view(24, 16).half()
    a[22:] = float("nan")
    b = (torch.arange(3 * 16 * 24, device=device.DEVICE) % 5 - 2).view(3, 16, 24).half()
    offsets = torch.tensor([17, 17, 22], device=device.DEVICE, dtype=torch.int32)
    tiles = dict(BLOCK_M=16, BLOCK_N=16, NUM_PROGRAMS=2)
    c = grouped_rows_forward(a, b, offsets, BLOCK_K=16, **tiles)
    grouped_rows_forward(c, b.transpose(1, 2), offsets, BLOCK_K=16, TURNED=True, **tiles)
    grouped_sums_forward(a.t(), c, offsets, BLOCK_R=16, **tiles)


if __name__ == "__main__":
    script.main(grouped_matmul, grouped_matmul_reference)
