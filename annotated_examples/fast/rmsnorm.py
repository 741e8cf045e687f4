r"""
# RMSNorm, fast: every byte once

The same functions as [the lesson](../classics/rmsnorm.py), with its reference, its contract and its autograd function.
The lesson goes over a row twice, and in the backward pass once more down the columns. The climb is that of
[LayerNorm](layernorm.py), whose ladder you can run; RMSNorm has less to carry: no mean, no `dbias`. With 32768 rows of
4096 in bfloat16 on an H200, the lesson takes [[bench: rmsnorm/32768x4096/forward/lesson.ms]] forward and
[[bench: rmsnorm/32768x4096/backward/lesson.ms]] backward.

1. **The row stays in registers.** One pass is enough. And a row gets few threads with many elements each, so more rows
   are in progress at a time: [[bench: rmsnorm/32768x4096/forward/ms]].
2. **Both gradients in one pass.** There are as many programs as fit on the card. Each loops over rows, keeps its share
   of `dweight` in registers, and loads the next rows meanwhile: [[bench: rmsnorm/32768x4096/backward/ms]].
3. **The residual on the way.** While the row is in registers for the norm, the sum is computed and stored. Backward
   adds the sum's gradient before it stores `dx`. Neither costs a pass.

**What it costs.** [The lesson](../classics/rmsnorm.py) counts the bytes that have to move. This file moves few others,
and reaches [[bench: rmsnorm/32768x4096/forward/share]] of the speed of a copy forward and
[[bench: rmsnorm/32768x4096/backward/share]] backward. Rows that registers can't hold are left to the lesson's kernels:
above 20480 elements forward, above 16384 backward.

**Contract.** The lesson's.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools
import operator

import torch
import triton
import triton.language as tl

from annotated_examples.classics import rmsnorm as lesson
from annotated_examples.classics.rmsnorm import RMSNorm, add_rmsnorm_reference, contract
from annotated_examples.common.norms import (
    add_partial_sums,
    backward_schedule,
    forward_tiles,
    module_arguments,
    register_limit,
)
from annotated_examples.common.rows import as_rows, row_stride


# ## Rung 1: the row stays in registers
#
# One program takes `BLOCK_M` whole rows and loads them once. Short rows are taken several at a time, so that there is
# enough to load at once and `weight` is fetched once for all of them. [LayerNorm's climb](layernorm.py) found how many
# rows and how many threads are best: `forward_tiles`. The row length `N` and the strides are constants of the kernel,
# so the compiler knows which masks are always true and how many neighbours one instruction may load.
@triton.jit
def rmsnorm_forward_kernel(
    x_ptr,  # (M, N)
    residual_ptr,  # (M, N), or None
    weight_ptr,  # (N,), or None
    y_ptr,  # (M, N), contiguous
    s_ptr,  # (M, N), contiguous, or None
    rstd_ptr,  # (M,) in float32
    M,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    stride_rm: tl.constexpr,
    eps: tl.constexpr,
    offset: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Seven rows of six in the example, in blocks of two and eight: `pid=3: mask_m = [1, 0]` and
    # `mask_n = [1, 1, 1, 1, 1, 1, 0, 0]`.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]

    # The only pass: `pid=0: x[0] = [1, 5, -1, 5, 1, -1, 0, 0]`.
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        # Rung 3. The sum is rounded to the dtype in which it is returned, [[tag: RMS-sum]], stored, and never read
        # back: `launch=1: s[0, :6] = [2, 6, 0, 6, 2, 0]`.
        residual = tl.load(residual_ptr + offs_m[:, None] * stride_rm + offs_n[None, :], mask=mask, other=0.0)
        s = (x + residual.to(tl.float32)).to(s_ptr.dtype.element_ty)
        s_ptrs = s_ptr + offs_m[:, None] * N + offs_n[None, :]
        tl.store(s_ptrs, s, mask=mask)
        x = s.to(tl.float32)

    # One over the root of [[tag: RMS-root]]: `rstd[0] = 0.3333`. Masked lanes hold zeros and don't count.
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / N + eps)
    if rstd_ptr is not None:
        tl.store(rstd_ptr + offs_m, rstd, mask=mask_m)

    # [[tag: RMS-Y]]. The largest power of two in row length and strides says how many neighbours one instruction may
    # load. The weight is loaded in the same way as the rows, so that each thread gets the same columns of both.
    vector: tl.constexpr = (N | stride_xm | stride_rm) & -(N | stride_xm | stride_rm)
    vector_n = tl.max_contiguous(offs_n, vector)
    y = x * rstd[:, None]
    if weight_ptr is not None:
        y *= (offset + tl.load(weight_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32))[None, :]
    # The second column has a weight of 2: `y[0, :6] = [0.333, 3.333, -0.333, 1.667, 0.333, -0.333]`.
    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(y_ptrs, y, mask=mask)


# ## Rung 2: both gradients in one pass
#
# [[figure: rows/directions]]
#
# The lesson reads `dy` and `x` once along the rows and once more down the columns. One pass will do if a program takes
# many rows and keeps its column sums. So there are only as many programs as fit on the card, and each walks over the
# rows. Its share of `dweight` stays in registers until the end; then it goes into a row of **partial sums**, which a
# small kernel adds up in a fixed order. The loop is software-pipelined: while one tile is worked on, the next
# `NUM_STAGES` − 1 are in flight.
@triton.jit
def rmsnorm_backward_kernel(
    dy_ptr,  # (M, N)
    ds_ptr,  # (M, N), or None
    x_ptr,  # (M, N)
    weight_ptr,  # (N,), or None
    rstd_ptr,  # (M,)
    dx_ptr,  # (M, N), contiguous
    partial_dweight_ptr,  # (programs, N) in float32, or None
    M,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    stride_dsm: tl.constexpr,
    stride_xm: tl.constexpr,
    eps: tl.constexpr,
    offset: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N

    # The scale is the same for all rows: it is fetched once and stays in registers, in the threads that hold the same
    # columns of the rows.
    strides: tl.constexpr = N | stride_dym | stride_dsm | stride_xm
    vector_n = tl.max_contiguous(offs_n, strides & -strides)
    if weight_ptr is not None:
        scale = offset + tl.load(weight_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32)
    # One accumulator for each row of the tile: adding its rows up at every step would need an exchange between threads.
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

    # A grid-stride loop, tile by tile: three programs share four tiles here, and `pid=0, tile=3: offs_m = [6, 7]`.
    for tile in tl.range(pid, tl.cdiv(M, BLOCK_M), tl.num_programs(0), num_stages=NUM_STAGES):
        offs_m = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask_m = offs_m < M
        mask = mask_m[:, None] & mask_n[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + offs_m, mask=mask_m, other=0.0)

        # [[tag: RMS-gamma]], the share of these rows: `pid=0, tile=0: dweight[0, :6] = [0, 5.000, 0, 0, 0, 0]`.
        x_hat = x * rstd[:, None]
        dweight += dy * x_hat

        if dx_ptr is not None:
            g = dy
            if weight_ptr is not None:
                g = dy * scale[None, :]
            if N == 1:
                # As in the lesson: [[tag: RMS-eps]].
                dx = g * (eps * rstd * rstd * rstd)[:, None]
            else:
                # [[tag: RMS-X]]. In the first row only the second column has an upstream gradient:
                # `pid=0, tile=0: mean_gx[0] = 1.667`.
                mean_gx = tl.sum(g * x_hat, axis=1) / N
                dx = rstd[:, None] * (g - x_hat * mean_gx[:, None])
            if ds_ptr is not None:
                # Rung 3 again, [[tag: RMS-add-X]].
                ds = tl.load(ds_ptr + offs_m[:, None] * stride_dsm + offs_n[None, :], mask=mask, other=0.0)
                dx += ds.to(tl.float32)
            dx_ptrs = dx_ptr + offs_m[:, None] * N + offs_n[None, :]
            tl.store(dx_ptrs, dx, mask=mask)

    # Now the rows of the tile are added up, once, and this program's share goes into row `pid` of the partial sums.
    if partial_dweight_ptr is not None:
        dweight_sum = tl.sum(dweight, axis=0)
        tl.store(partial_dweight_ptr + pid * N + offs_n, dweight_sum, mask=mask_n)


# Rows of 2049 to 4096 elements are taken several at a time: fewer, larger programs were faster here. A program takes
# four rows if they fill their block of 4096, two if they don't, with four warps per row.
def measured_forward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    if BLOCK_M is None and BLOCK_N is None and num_warps is None and 2048 < N <= 4096:
        return (4, 4096, 16) if N == 4096 else (2, 4096, 8)
    return forward_tiles(N, BLOCK_M, BLOCK_N, num_warps)


# The registers have to hold a tile of each tensor that is loaded, and one accumulator. A thread has room for 32
# elements of each: the 8 warps of a program for 8192, and 16 warps for a row of 16384.
LONGEST_BACKWARD = 16384


@functools.cache
def backward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or triton.next_power_of_2(N)
    BLOCK_M = BLOCK_M or max(1, (8192 if BLOCK_N >= 1024 else 4096) // BLOCK_N)
    return BLOCK_M, BLOCK_N, num_warps or min(max(BLOCK_M * BLOCK_N // (32 * 32), 1), 16)


# ## Launchers
#
# Inside `torch.compile`, after a second width, a size of `x` may be a symbol that stands for any number. The number of
# warps, which is computed from it here, can't be a symbol: `operator.index` turns the size into a number, and a new
# width triggers a compilation.
@replayed
def rmsnorm_forward(
    x, weight=None, eps=1e-6, offset=0.0, residual=None, *, save=True, BLOCK_M=None, BLOCK_N=None, num_warps=None
):  # fmt: skip
    """Returns `y`, the tensor that was normalised (`x`, or the new sum), and `rstd` in float32, one number per row.

    save: if False, `rstd`, which only the backward pass needs, is None.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    N = operator.index(x.shape[-1])
    if N > (BLOCK_N or 20480):
        return lesson.rmsnorm_forward(x, weight, eps, offset, residual, BLOCK_N=BLOCK_N or 1024)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    s = x if residual is None else torch.empty_like(y)
    M = x.numel() // max(N, 1)
    rstd = torch.empty(M, dtype=torch.float32, device=x.device) if save else None
    if x.numel() == 0:
        return y, s, rstd
    rows, weight = as_rows(x), weight if weight is None else weight.contiguous()
    added = None if residual is None else as_rows(residual)
    BLOCK_M, BLOCK_N, num_warps = measured_forward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    launch(
        rmsnorm_forward_kernel, (cdiv(M, BLOCK_M),),
        (rows, added, weight, y, None if residual is None else s, rstd),
        (M, N, row_stride(rows, N), N if added is None else row_stride(added, N), eps, offset),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps, **register_limit(N),
    )  # fmt: skip
    return y, s, rstd


@replayed
def rmsnorm_backward(
    dy, x, weight, rstd, eps=1e-6, offset=0.0, ds=None, *, needs=(True, True),
    BLOCK_M=None, BLOCK_N=None, COLUMNS=None, num_warps=None, num_programs=None, num_stages=None,
):  # fmt: skip
    """Returns `(dx, dweight)`, None for what isn't in `needs` or has no parameter.

    Args: as the lesson's. num_programs: how many programs share the rows, at most. num_stages: how many tiles each of
    them has in flight. COLUMNS matters only for rows that are left to the lesson.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, COLUMNS=COLUMNS, num_warps=num_warps)
    N, M = operator.index(x.shape[-1]), rstd.numel()
    if N > (BLOCK_N or LONGEST_BACKWARD):
        given = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, COLUMNS=COLUMNS, num_programs=num_programs)
        given = {name: value for name, value in given.items() if value is not None}
        return lesson.rmsnorm_backward(dy, x, weight, rstd, eps, offset, ds, needs=needs, **given)
    of_weight = needs[1] and weight is not None
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    dweight = torch.empty(N, dtype=weight.dtype, device=x.device) if of_weight else None
    if x.numel() == 0:
        return dx, dweight if dweight is None else dweight.zero_()
    dy, x, ds = as_rows(dy), as_rows(x), ds if ds is None else as_rows(ds)
    weight = weight if weight is None else weight.contiguous()
    BLOCK_M, BLOCK_N, num_warps = backward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    programs, stages = backward_schedule(
        x.device.index, x.element_size(), N, BLOCK_M, BLOCK_N, num_warps, 2 if ds is None else 3
    )
    P = min(num_programs or programs, cdiv(M, BLOCK_M))
    partial_dweight = torch.empty((P, N), dtype=torch.float32, device=x.device) if of_weight else None
    if dx is not None or of_weight:
        launch(
            rmsnorm_backward_kernel, (P,), (dy, ds, x, weight, rstd, dx, partial_dweight),
            (M, N, row_stride(dy, N), N if ds is None else row_stride(ds, N), row_stride(x, N), eps, offset),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, NUM_STAGES=num_stages or stages, num_warps=num_warps,
        )  # fmt: skip
    add_partial_sums(partial_dweight, None, dweight, None, BLOCK_N=min(BLOCK_N, 32))
    return dx, dweight


# ## Public functions
@replayed
def rmsnorm(x, weight=None, eps=1e-6, *, offset=0.0):
    """The same as `annotated_examples.classics.rmsnorm.rmsnorm`, but faster.

    The width is a constant of the kernel: inside `torch.compile`, too, each new width triggers a compilation.

    Args: as `annotated_examples.classics.rmsnorm.rmsnorm`.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    eps, offset = contract(x, None, weight, eps, offset)
    if not autograd.needs_frame(x, weight):
        return rmsnorm_forward(x, weight, eps, offset, save=False)[0]
    return RMSNorm.apply(x, None, weight, eps, offset, rmsnorm_forward, rmsnorm_backward)


@replayed
def add_rmsnorm(x, residual, weight=None, eps=1e-6, *, offset=0.0):
    """The same as `annotated_examples.classics.rmsnorm.add_rmsnorm`, but faster.

    Args: as `annotated_examples.classics.rmsnorm.add_rmsnorm`.

    Returns:
        `(y, s)`, new tensors of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    checks.tensors(x=x, residual=residual)
    eps, offset = contract(x, residual, weight, eps, offset)
    if not autograd.needs_frame(x, residual, weight):
        return rmsnorm_forward(x, weight, eps, offset, residual, save=False)[:2]
    return RMSNorm.apply(x, residual, weight, eps, offset, rmsnorm_forward, rmsnorm_backward)


def apply_rmsnorm(module, x):
    """The same as `annotated_examples.classics.rmsnorm.apply_rmsnorm`, but faster.

    Args: as `annotated_examples.classics.rmsnorm.apply_rmsnorm`.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: PyTorch's documentation, `torch.nn.RMSNorm`.
    """
    rows, weight, _, eps = module_arguments(module, x)
    return rmsnorm(rows, weight, eps).view(x.shape)


# ## Where it falls behind
#
# Forward by some 3 percent at 8192 x 8192 and at 16384 x 12288, near the speed of a copy. Backward by more where rows
# have an odd length. Of rows of 4097 elements of 2 bytes only every eighth begins at a multiple of 16 bytes, so all
# elements are loaded one by one, and a block of 8192 is half empty: [[bench: rmsnorm/16384x4097/backward/ms]], against
# [[bench: rmsnorm/16384x4097/backward/torch.compile.ms]] for `torch.compile`.


# ## A run small enough to watch
#
# Seven rows of six, in blocks of two rows and eight columns: first alone, then with a residual and an offset of 1.
def EXAMPLE():
    make = lambda *numbers: torch.tensor(numbers, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    row, upstream = make(1, 5, -1, 5, 1, -1), make(0, 3, 0, 0, 0, 0)
    x = torch.stack([row.roll(i) + i for i in range(7)])
    dy = torch.stack([upstream.roll(i) * (i + 1) for i in range(7)])
    weight, residual = make(1, 2, 1, 1, 1, 1), torch.stack([make(1, 1, 1, 1, 1, 1)] * 7)
    tile = dict(BLOCK_M=2, BLOCK_N=8)
    y, s, rstd = rmsnorm_forward(x, weight, **tile)
    rmsnorm_backward(dy, s, weight, rstd, num_programs=3, **tile)
    y, s, rstd = rmsnorm_forward(x, weight, 1e-6, 1.0, residual, **tile)
    rmsnorm_backward(dy, s, weight, rstd, 1e-6, 1.0, residual, num_programs=3, **tile)


if __name__ == "__main__":
    script.main(add_rmsnorm, add_rmsnorm_reference)
