r"""
# LayerNorm backward, below Triton

The three gradients of [fast LayerNorm](../fast/layernorm.py), for rows of 8193 to 16384 16-bit numbers, in one trip:

[[eq: LN-X]]

[[eq: LN-gamma]]

[[eq: LN-beta]]

What is the trouble with such rows? A row's `dx` needs two averages over the whole row, so the row is needed twice. In
Triton what was loaded stays in registers meanwhile. Of a row of 16384 each of 256 threads has 64 numbers of `x`, 64 of
`dy`, and the sums of 64 columns for `dweight` and for `dbias`. In float32 these are all of its 255 registers, and
nothing is left to compute with. So the fast version has two kernels, and both read `x` and `dy`.

Here the row stays in *shared memory*. The TMA unit brings it there, into one of two buffers: while a row is worked on,
the next one is on its way. It is read twice from there, once for the averages and once for `dx`. Registers hold the
sums of columns and the weight, and otherwise only what is being computed.

[[figure: below/ring]]

**What it costs.** Each byte of `x`, `dy` and `dx` moves once. Each of 132 programs stores its sums of columns, which at
4096 rows of 16384 is 4 % of that, and a second kernel adds them up.

| backward on an H200, 4096 rows of 16384 | time |
|---|---:|
| this page | [[bench: layernorm/ladder/one trip/wide_ms]] |
| two kernels, in Triton | [[bench: layernorm/ladder/two kernels/wide_ms]] |
| PyTorch | [[bench: layernorm/ladder/PyTorch/wide_ms]] |
| a copy of as many bytes | [[bench: layernorm/ladder/copy/wide_ms]] |

At 16384 rows of 12288 it takes [[bench: layernorm/ladder/one trip/long_ms]], two kernels
[[bench: layernorm/ladder/two kernels/long_ms]] and the copy [[bench: layernorm/ladder/copy/long_ms]].

**What was tried,** at 4096 x 16384. Three buffers instead of two: [[bench: layernorm/ladder/three buffers/wide_ms]].
Twice as many threads with half as many numbers each: [[bench: layernorm/ladder/sixteen warps/wide_ms]]. The weight in
shared memory, read as often there as `x` and `dy`: [[bench: layernorm/ladder/weight in shared memory/wide_ms]]. Rows of
8192 fit in registers, and in Triton 8192 of them take [[bench: layernorm/ladder/two kernels/short_ms]]. Here they take
[[bench: layernorm/ladder/one trip/short_ms]], so they stay in Triton.

**Contract.** Part of [the fast version](../fast/layernorm.py), which sees to it: 16-bit numbers, at least one row, and
a width that is a multiple of 64, up to 16384. Rows that don't begin at multiples of 16 bytes are copied first. The same
call gives the same bits. Hopper only, or the simulator.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from annotated_examples.classics.layernorm import LayerNorm, layernorm_forward, layernorm_reference
from annotated_examples.common.hopper import DTYPES, aligned, programs, tma_load
from annotated_examples.common.norms import add_partial_sums

LINE = gl.constexpr(64)


# ## A row as a tile
#
# The unit copies at most 256 numbers along a dimension. So a row of 16384 is described as 256 lines of 64 numbers,
# which lie one behind the other. A line has 128 bytes, as far as the widest swizzle reaches. Lines that the row doesn't
# have are filled with zeros.
def lines(x):
    M, N = x.shape
    tile = [1, triton.next_power_of_2(triton.cdiv(N, LINE.value)), LINE.value]
    layout = gl.NVMMASharedLayout.get_default_for(tile, DTYPES[x.dtype])
    return TensorDescriptor(x, [M, N // LINE.value, LINE.value], [x.stride(0), LINE.value, 1], tile, layout)


# Both tensors' row, on one barrier. Where there is no such row, nothing is announced and nothing is copied.
@gluon.jit
def fetch(dy_desc, x_desc, dy_s, x_s, full, stage, row, pred):
    bar = full.index(stage)
    mbarrier.expect(bar, dy_desc.block_type.nbytes + x_desc.block_type.nbytes, pred=pred)
    tma_load(dy_desc, [row, 0, 0], bar, dy_s.index(stage), pred=pred)
    tma_load(x_desc, [row, 0, 0], bar, x_s.index(stage), pred=pred)


# What both trips need of it: `dy`, what reaches the normalised row, and the normalised row.
@gluon.jit
def load_row(dy_s, x_s, weight, stage, mean, rstd, layout: gl.constexpr):
    LINES: gl.constexpr = x_s.type.shape[2]
    dy = dy_s.index(stage).reshape([LINES, LINE]).load(layout).to(gl.float32)
    x_hat = (x_s.index(stage).reshape([LINES, LINE]).load(layout).to(gl.float32) - mean) * rstd
    g = dy
    if weight is not None:
        g = dy * weight.to(gl.float32)
    return dy, g, x_hat


# **The row is read again** for the second trip. The compiler mustn't see the same load twice: it would keep what the
# first one brought in registers, where there is no room, and of each thread 100 numbers would go to local memory and
# back. So between the trips the row's barrier is waited for once more. That returns at once, because the phase is
# complete. But for all the compiler knows shared memory has changed.
@gluon.jit
def forget_row(bar, phase):
    mbarrier.wait(bar, phase)


# ## The kernel
#
# There are as many programs as SMs, and each walks over the rows in steps of that many. All its threads do the same;
# the ring is that of [the copy](tile_copy.py).
@gluon.jit
def layernorm_backward_kernel(
    dy_desc, x_desc,  # of (M, N / 64, 64)
    weight_ptr, mean_ptr, rstd_ptr, dx_ptr,  # (N,) or None; (M,); (M,); (M, N), contiguous, or None
    partial_dweight_ptr, partial_dbias_ptr,  # (programs, N) in float32, or None
    M, N: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    LINES: gl.constexpr = x_desc.block_type.shape[1]
    dy_s = gl.allocate_shared_memory(dy_desc.dtype, [STAGES] + dy_desc.block_type.shape, dy_desc.layout)
    x_s = gl.allocate_shared_memory(x_desc.dtype, [STAGES] + x_desc.block_type.shape, x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    first, step = gl.program_id(0), gl.num_programs(0)
    count = gl.cdiv(M - first, step)
    for s in gl.static_range(STAGES):
        fetch(dy_desc, x_desc, dy_s, x_s, full, s, first + s * step, s < count)

    offs = gl.arange(0, LINES, gl.SliceLayout(1, layout))[:, None] * LINE
    offs += gl.arange(0, LINE, gl.SliceLayout(0, layout))[None, :]
    inside = offs < N
    weight = None
    if weight_ptr is not None:
        weight = gl.load(weight_ptr + offs, mask=inside, other=0.0)
    dweight = gl.zeros([LINES, LINE], gl.float32, layout)
    dbias = gl.zeros([LINES, LINE], gl.float32, layout)
    # The next row's `mean` and `rstd` are asked for a row ahead, too.
    mean, rstd = gl.load(mean_ptr + first), gl.load(rstd_ptr + first)
    for i in range(count):
        row, stage = first + i * step, i % STAGES
        following = gl.minimum(row + step, M - 1)
        next_mean, next_rstd = gl.load(mean_ptr + following), gl.load(rstd_ptr + following)
        phase = (i // STAGES) & 1
        mbarrier.wait(full.index(stage), phase)
        _, g, x_hat = load_row(dy_s, x_s, weight, stage, mean, rstd, layout)
        # The two averages of [[tag: LN-X]]. Lines outside of the row have a `dy` of 0.
        mean_g = gl.sum(gl.sum(g, 1), 0) / N
        mean_gx = gl.sum(gl.sum(g * x_hat, 1), 0) / N
        forget_row(full.index(stage), phase)
        dy, g, x_hat = load_row(dy_s, x_s, weight, stage, mean, rstd, layout)
        # [[tag: LN-gamma]], [[tag: LN-beta]] and [[tag: LN-X]]
        dweight += dy * x_hat
        dbias += dy
        if dx_ptr is not None:
            dx = rstd * (g - mean_g - x_hat * mean_gx)
            gl.store(dx_ptr + row.to(gl.int64) * N + offs, dx.to(x_desc.dtype), mask=inside)
        # The threads have read the buffer, and the TMA unit overwrites it through the *async proxy*: a fence keeps the
        # order.
        fence_async_shared()
        fetch(dy_desc, x_desc, dy_s, x_s, full, stage, row + STAGES * step, i + STAGES < count)
        mean, rstd = next_mean, next_rstd
    if partial_dweight_ptr is not None:
        gl.store(partial_dweight_ptr + first.to(gl.int64) * N + offs, dweight, mask=inside)
    if partial_dbias_ptr is not None:
        gl.store(partial_dbias_ptr + first.to(gl.int64) * N + offs, dbias, mask=inside)


# ## The launcher
#
# Eight warps: a thread has 64 numbers of each sum, 128 of its 255 registers.
@replayed
def layernorm_backward(dy, x, weight, bias, mean, rstd, *, needs=(True, True, True), STAGES=2, num_warps=8):
    """`(dx, dweight, dbias)` of (M, N) tensors, as the fast version's. STAGES: rows in shared memory."""
    device.require("gluon", "layernorm", x.device.index)
    dy, x, weight = aligned(dy), aligned(x), weight if weight is None else weight.contiguous()
    M, N = x.shape
    grid = programs(M, x.device.index)
    dx = torch.empty((M, N), dtype=x.dtype, device=x.device) if needs[0] else None
    partial = torch.empty((2, grid, N), dtype=torch.float32, device=x.device)
    wanted = [p is not None and needed for p, needed in zip((weight, bias), needs[1:])]
    dweight, dbias = (torch.empty_like(p) if each else None for p, each in zip((weight, bias), wanted))
    sums = [part if each else None for part, each in zip(partial, wanted)]
    layernorm_backward_kernel[(grid,)](
        lines(dy), lines(x), weight, mean, rstd, dx, *sums, M, N=N, STAGES=STAGES, WARPS=num_warps,
        num_warps=num_warps,
    )  # fmt: skip
    add_partial_sums(*sums, dweight, dbias)
    return dx, dweight, dbias


# ## A run small enough to watch
#
# Six rows of 128 numbers, two lines each, for four programs: two of them have a second row.
def EXAMPLE():
    at = torch.arange(6 * 128, device=device.DEVICE)
    dy, x = ((at * step % 7 - 3).half().view(6, 128) for step in (2, 5))
    weight, mean, rstd = (at[:128] % 3 - 1).half(), x.float().mean(1), 1 / x.float().std(1)
    layernorm_backward(dy, x, weight, weight, mean, rstd, STAGES=2, num_warps=1)


if __name__ == "__main__":

    def layernorm(x, weight, bias):
        return LayerNorm.apply(x, weight, bias, 1e-5, layernorm_forward, layernorm_backward)

    shapes = dict(x=(70, 1024), weight=(1024,), bias=(1024,))
    script.main(layernorm, layernorm_reference, shapes, dtypes=(torch.float16, torch.bfloat16))
