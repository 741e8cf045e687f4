r"""
# A state that forgets, fast: walk twice

The contract and the results of [the lesson](../recurrences/linear_recurrence.py), near the time that it takes to copy
the tensors. The formulas are the same: [[tag: LR]] forward, [[tag: LR-lambda]] and [[tag: LR-da]] backward. What
differs is who takes part in a scan: not every token, but every stretch of tokens.

**What it costs.** The floor is `bytes / bandwidth`: forward moves 3 numbers for each element, backward 5. At 8 x 4096 x
2048 in bfloat16 forward takes [[bench: linear_recurrence/8x4096x2048/forward/ms]], the lesson
[[bench: linear_recurrence/8x4096x2048/forward/lesson.ms]]; backward takes
[[bench: linear_recurrence/8x4096x2048/backward/ms]], the lesson
[[bench: linear_recurrence/8x4096x2048/backward/lesson.ms]].

**What is missing.** A sequence still has one program for 32 channels, or for 16. With few sequences of few channels
most of the card is idle. Then the sequence itself could be cut into parts, as [a long row](cumsum.py) is.

**Contract.** The lesson's, but for gates larger than 1: here the product of the gates of up to 512 tokens must fit into
float32. In what order a sequence is joined depends on how many channels there are in all, and on whether sequences have
16 tokens on average.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import sequence
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.sequences import few_tokens, new_rows, strided_rows
from annotated_examples.recurrences import linear_recurrence as lesson
from annotated_examples.recurrences.linear_recurrence import (
    call, contract, empty_backward, empty_forward, linear_recurrence_reference,
)  # fmt: skip


# ## 1. Two walks
#
# What was slow? In the lesson's scan every token takes part: its two numbers need six exchanges between the lanes of a
# warp, eleven multiplications or multiply-adds, and a detour through shared memory from one warp to the other. The card
# can't do all that in the time in which memory delivers the tile.
#
# Here a thread has a *stretch* of `ROWS` neighbouring tokens of a channel, all in its registers. It walks along them
# and finds what they do to any state together: the product of their gates, and what they add. That is three operations
# for a token, once, and no exchange. Then only the stretches are scanned, two pairs of numbers each. Now every thread
# knows the state before its stretch, and walks along it again: [[tag: LR]] itself, two operations for a token.
#
# [[figure: recurrences/two_walks]]
#
# The numbers in the notes come from a recorded run, the lesson's: one sequence of 6 tokens and 2 channels. A tile has
# two stretches of two tokens. In the first channel every gate is 0.5. In the second they are 1, but for the third
# token's, which is 0. The states begin at 16 and 10.
@triton.jit
def first_walk(gates, values, ROWS: tl.constexpr):
    decay, local = gates[0].to(tl.float32), values[0].to(tl.float32)
    for r in tl.static_range(1, ROWS):
        gate = gates[r].to(tl.float32)
        decay, local = decay * gate, gate * local + values[r].to(tl.float32)
    return decay, local


# What two groups of neighbours do together, as in the lesson. And what is needed here: what comes *before* a group's
# last stretch, that is, all of the group but its last. Of two groups that is the first one whole, and the second but
# its last.
@triton.jit
def join(a, x, before_a, before_x, b, y, before_b, before_y):
    return a * b, b * x + y, a * before_b, before_b * x + before_y


# The state before each stretch, from the one before all of them. A single stretch without its last one is nothing:
# it multiplies by 1 and adds 0.
@triton.jit
def states_before(decay, local, state):
    one, none = tl.full(decay.shape, 1.0, tl.float32), tl.zeros(decay.shape, tl.float32)
    _, _, decay, local = tl.associative_scan((decay, local, one, none), 0, join)
    return local + decay * state[None, :]


# Where each stretch begins, as pointers, and the distance from a token to the next.
@triton.jit
def stretches(tensor, b, rows, offs_d):
    ptr, stride_b, stride_t, stride_d = tensor
    at = rows.to(tl.int64)[:, None] * stride_t + offs_d.to(tl.int64)[None, :] * stride_d
    return ptr + b * stride_b + at, tl.cast(1, tl.int64) * stride_t


# The tokens of a tile, `ROWS` of each stretch, which begin at `rows`. `STEP` is 1 forward and −1 backward. Rows before
# `first` and from `end` on are `OTHER`.
@triton.jit
def load_tile(ptrs, step, rows, first, end, mask_d, OTHER: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    tile = ()
    for r in tl.static_range(ROWS):
        row = rows + STEP * r
        mask = ((row >= first) & (row < end))[:, None] & mask_d
        tile = tile + (tl.load(ptrs + STEP * r * step, mask=mask, other=OTHER),)
    return tile


@triton.jit
def load_state(ptr, b, offs_d, D):
    if ptr is None:
        state = tl.zeros(offs_d.shape, tl.float32)
    else:
        state = tl.load(ptr + b * D + offs_d, mask=offs_d < D, other=0.0)
    return state


# ## 2. Forward
#
# What was slow, still? A program that loads a tile, computes, stores and then loads the next one lets memory wait while
# it computes. So the next tile is requested first: `coming_a` and `coming_x` are on their way while this tile is walked
# along. They stand before the stores, because a store may write what a later load reads, for all the compiler knows.
@triton.jit
def linear_recurrence_forward_kernel(
    a_tensor, x_tensor, h_tensor,  # (pointer, three strides) of (B, T, D)
    initial_ptr, final_ptr,  # (B, D); the first may be None
    cu_ptr,  # (sequences + 1,), or None
    T, D, ROWS: tl.constexpr, STRETCHES: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = (offs_d < D)[None, :]
    start, length = sequence(cu_ptr, b, T)
    lanes = tl.arange(0, STRETCHES)
    TILE: tl.constexpr = STRETCHES * ROWS
    state = load_state(initial_ptr, b, offs_d, D)
    a_ptrs, step_a = stretches(a_tensor, b, start + lanes * ROWS, offs_d)
    x_ptrs, step_x = stretches(x_tensor, b, start + lanes * ROWS, offs_d)
    h_ptrs, step_h = stretches(h_tensor, b, start + lanes * ROWS, offs_d)
    coming_a = load_tile(a_ptrs, step_a, lanes * ROWS, 0, length, mask_d, 1.0, ROWS, 1)
    coming_x = load_tile(x_ptrs, step_x, lanes * ROWS, 0, length, mask_d, 0.0, ROWS, 1)
    for done in range(0, length, TILE):
        rows = done + lanes * ROWS
        a, x = coming_a, coming_x
        # Tokens past the end have the gate 1 and add 0: they hand the state on as it is.
        a_ptrs += TILE * step_a
        x_ptrs += TILE * step_x
        coming_a = load_tile(a_ptrs, step_a, rows + TILE, 0, length, mask_d, 1.0, ROWS, 1)
        coming_x = load_tile(x_ptrs, step_x, rows + TILE, 0, length, mask_d, 0.0, ROWS, 1)
        # In the first channel the 8 of the first token halves, and a quarter is left of what was before:
        # `pid=0, done=0: local[0] = [4, 3]` and `pid=0, done=0: decay[0] = [0.25, 1]`. The second stretch has the
        # reset, `pid=0, done=0: decay[1] = [0.25, 0]`.
        decay, local = first_walk(a, x, ROWS)
        # So the second stretch begins with 0.25 · 16 + 4 and 10 + 3.
        h = states_before(decay, local, state)
        # `pid=0, done=0, r=0: h = [[16, 11], [4, 3]]` are the states of the first and the third token, `pid=0, done=0,
        # r=1: h = [[8, 13], [2, 7]]` those of the others.
        for r in tl.static_range(ROWS):
            h = a[r].to(tl.float32) * h + x[r].to(tl.float32)
            tl.store(h_ptrs + r * step_h, h, mask=(rows + r < length)[:, None] & mask_d)
        h_ptrs += TILE * step_h
        # The last stretch's last state is what the next tile begins with.
        state = tl.sum(tl.where(lanes[:, None] == STRETCHES - 1, h, 0.0), axis=0)
    tl.store(final_ptr + b * D + offs_d, state, mask=offs_d < D)


# ## 3. Backward
#
# The same from the end: stretches go from right to left, a step leads to the token before, and the gates are those of
# the tokens one row later, [[tag: LR-lambda]]. The last token has none, so there the gate is 1. What each gate
# multiplied is loaded as well, the state one row earlier, [[tag: LR-da]]. Of the first token that is the initial state.
@triton.jit
def linear_recurrence_backward_kernel(
    dh_tensor, a_tensor, h_tensor, dx_tensor, da_tensor,  # (pointer, three strides) of (B, T, D)
    dfinal_ptr, initial_ptr, dinitial_ptr,  # (B, D); the second may be None
    cu_ptr,  # (sequences + 1,), or None
    T, D, ROWS: tl.constexpr, STRETCHES: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = (offs_d < D)[None, :]
    start, length = sequence(cu_ptr, b, T)
    lanes = tl.arange(0, STRETCHES)
    TILE: tl.constexpr = STRETCHES * ROWS
    carry, initial = load_state(dfinal_ptr, b, offs_d, D), load_state(initial_ptr, b, offs_d, D)[None, :]
    rows = length - 1 - lanes * ROWS
    dh_ptrs, step_dh = stretches(dh_tensor, b, start + rows, offs_d)
    a_ptrs, step_a = stretches(a_tensor, b, start + rows + 1, offs_d)
    h_ptrs, step_h = stretches(h_tensor, b, start + rows - 1, offs_d)
    dx_ptrs, step_dx = stretches(dx_tensor, b, start + rows, offs_d)
    da_ptrs, step_da = stretches(da_tensor, b, start + rows, offs_d)
    coming_dh = load_tile(dh_ptrs, step_dh, rows, 0, length, mask_d, 0.0, ROWS, -1)
    coming_a = load_tile(a_ptrs, step_a, rows, 0, length - 1, mask_d, 1.0, ROWS, -1)
    coming_h = load_tile(h_ptrs, step_h, rows, 1, length, mask_d, 0.0, ROWS, -1)
    for done in range(0, length, TILE):
        rows = length - 1 - done - lanes * ROWS
        dh, a, h = coming_dh, coming_a, coming_h
        dh_ptrs -= TILE * step_dh
        a_ptrs -= TILE * step_a
        h_ptrs -= TILE * step_h
        coming_dh = load_tile(dh_ptrs, step_dh, rows - TILE, 0, length, mask_d, 0.0, ROWS, -1)
        coming_a = load_tile(a_ptrs, step_a, rows - TILE, 0, length - 1, mask_d, 1.0, ROWS, -1)
        coming_h = load_tile(h_ptrs, step_h, rows - TILE, 1, length, mask_d, 0.0, ROWS, -1)
        # In the first channel the last token's gradient is 1, and half of it reaches the token before: `pid=0, done=0:
        # decay[0] = [0.5, 1]` and `pid=0, done=0: local[0] = [0.5, 0]`.
        decay, local = first_walk(a, dh, ROWS)
        lam = states_before(decay, local, carry)
        # In the second channel the gradient of the final state is 2, and the third token's is 1, at the end of the
        # second stretch: `pid=0, done=0, r=1: lam[:, 1] = [2, 3]`. The reset lets nothing pass, `pid=0, done=4, r=0:
        # lam[0, 1] = 0`.
        for r in tl.static_range(ROWS):
            lam = a[r].to(tl.float32) * lam + dh[r].to(tl.float32)
            mask = (rows - r >= 0)[:, None] & mask_d
            before = tl.where((rows == r)[:, None], initial, h[r].to(tl.float32))
            tl.store(dx_ptrs - r * step_dx, lam, mask=mask)
            tl.store(da_ptrs - r * step_da, lam * before, mask=mask)
        dx_ptrs -= TILE * step_dx
        da_ptrs -= TILE * step_da
        carry = tl.sum(tl.where(lanes[:, None] == STRETCHES - 1, lam, 0.0), axis=0)
    # [[tag: LR-dh0]]: the first gate, and 1 where there is no token.
    a_ptrs, _ = stretches(a_tensor, b, start + tl.arange(0, 1), offs_d)
    gate = tl.sum(tl.load(a_ptrs, mask=mask_d & (length > 0), other=1.0).to(tl.float32), axis=0)
    tl.store(dinitial_ptr + b * D + offs_d, carry * gate, mask=offs_d < D)


# ## Launchers
#
# Many channels keep the card busy in small tiles; backward has one warp for two of forward's, with twice the tokens
# in each thread. A few long sequences need more tokens on their way in each program, and twice as many programs.
# Which it is depends on the number of channels of all sequences, and not on the card. These tiles were the fastest of
# fourteen on an H200. Sequences of fewer than 16 tokens on average are left to the lesson.
MANY_CHANNELS = 8192
MANY = dict(ROWS=8, STRETCHES=8, BLOCK_D=32, num_warps=4)
MANY_BACKWARD = dict(ROWS=16, STRETCHES=4, BLOCK_D=32, num_warps=2)
FEW = dict(ROWS=16, STRETCHES=32, BLOCK_D=16, num_warps=8)


def tiles(x, cu_seqlens, many, few):
    """One of the two, or None if the sequences are left to the lesson."""
    if few_tokens(x, cu_seqlens):
        return None
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return many if batch * x.shape[-1] >= MANY_CHANNELS else few


@opaque("(Tensor a, Tensor x, Tensor? initial_state, Tensor? cu_seqlens) -> (Tensor, Tensor)", empty_forward)
def linear_recurrence_forward(a, x, initial_state=None, cu_seqlens=None, **sizes):
    """`(h, final)`. sizes: ROWS, tokens of a stretch; STRETCHES and BLOCK_D, stretches and channels of a tile;
    num_warps. None of them: what was fastest."""
    checks.power_of_two(**sizes)
    sizes = sizes or tiles(x, cu_seqlens, MANY, FEW)
    if sizes is None:
        return lesson.linear_recurrence_forward(a, x, initial_state, cu_seqlens)
    T, D = x.shape[-2:]
    h, final = new_rows(x, cu_seqlens), empty_forward(a, x, initial_state, cu_seqlens)[1]
    initial = None if initial_state is None else initial_state.contiguous()
    if final.numel() > 0:
        launch(
            linear_recurrence_forward_kernel, (final.shape[0] * cdiv(D, sizes["BLOCK_D"]),),
            (*(strided_rows(each, cu_seqlens) for each in (a, x, h)), initial, final, cu_seqlens), (T, D), **sizes,
        )  # fmt: skip
    return h, final


@opaque(
    "(Tensor dh, Tensor dfinal, Tensor a, Tensor h, Tensor? initial_state, Tensor? cu_seqlens) "
    "-> (Tensor, Tensor, Tensor)",
    empty_backward,
)
def linear_recurrence_backward(dh, dfinal, a, h, initial_state=None, cu_seqlens=None, **sizes):
    """`(dx, da, dinitial)`. dh, dfinal: upstream gradients. h: what forward returned. sizes: as there."""
    checks.power_of_two(**sizes)
    sizes = sizes or tiles(h, cu_seqlens, MANY_BACKWARD, FEW)
    if sizes is None:
        return lesson.linear_recurrence_backward(dh, dfinal, a, h, initial_state, cu_seqlens)
    T, D = h.shape[-2:]
    dx, da = new_rows(h, cu_seqlens), new_rows(a, cu_seqlens)
    dinitial = torch.empty(dfinal.shape, dtype=torch.float32, device=h.device)
    initial = None if initial_state is None else initial_state.contiguous()
    if dinitial.numel() > 0:
        rows = (strided_rows(each, cu_seqlens) for each in (dh, a, h, dx, da))
        launch(
            linear_recurrence_backward_kernel, (dinitial.shape[0] * cdiv(D, sizes["BLOCK_D"]),),
            (*rows, dfinal.contiguous(), initial, dinitial, cu_seqlens), (T, D), **sizes,
        )  # fmt: skip
    return dx, da, dinitial


LAUNCHERS = linear_recurrence_forward, linear_recurrence_backward


@replayed
def linear_recurrence(a, x, initial_state=None, *, return_final_state=False):
    """`h[t] = a[t] * h[t - 1] + x[t]` in every channel, differentiable in `a`, `x` and the initial state. The same as
    `annotated_examples.recurrences.linear_recurrence.linear_recurrence`, but faster.

    Args:
        a: (B, T, D), gates: of the dtype of `x`, or float32; any strides, 0 too.
        x: (B, T, D), float32, float16 or bfloat16, any strides.
        initial_state: (B, D), float32; None: zeros.
        return_final_state: return the last state as well.

    Returns:
        (B, T, D) in the dtype of `x`; with `return_final_state` a tuple of it and the final state, (B, D) in float32,
        which is differentiable, too. Of an empty sequence it is the initial state.

    Raises:
        TypeError: an argument isn't a tensor, or has a wrong dtype.
        ValueError: shapes that don't fit, or a tensor on the wrong device.

    Source: Martin and Cundy, "Parallelizing Linear Recurrent Neural Nets Over Sequence Length" (2018), for the scan of
    stretches.
    """
    contract(a, x, initial_state, return_final_state)
    return call(a, x, initial_state, return_final_state, None, LAUNCHERS)


@replayed
def linear_recurrence_varlen(a, x, cu_seqlens, initial_state=None, *, return_final_state=False):
    """`linear_recurrence` of packed sequences.

    Args:
        a, x: (total, D), all sequences one after the other; as in `linear_recurrence`.
        cu_seqlens: (sequences + 1,), int32: where each sequence begins, and where the last ends.
        initial_state: (sequences, D), float32; None: zeros.
        return_final_state: return the last state of each sequence as well.

    Returns:
        (total, D) in the dtype of `x`, 0 behind the last sequence; perhaps with the final states, (sequences, D).

    Raises:
        TypeError, ValueError: as `linear_recurrence`. Offsets that fall or pass the end raise on the CPU and with
            ACADEMY_DEBUG=1; otherwise they are moved to where they do no harm.

    Source: as `linear_recurrence`.
    """
    contract(a, x, initial_state, return_final_state, cu_seqlens, packed=True)
    return call(a, x, initial_state, return_final_state, cu_seqlens.contiguous(), LAUNCHERS)


# ## A run small enough to watch
#
# The lesson's run, in tiles of two stretches of two tokens.
def EXAMPLE():
    here = dict(device=device.DEVICE)
    a = torch.tensor([[0.5, 1], [0.5, 1], [0.5, 0], [0.5, 1], [0.5, 1], [0.5, 1]], **here)[None]
    x = torch.tensor([[8.0, 1], [0, 2], [0, 3], [0, 4], [4, 5], [0, 6]], **here)[None]
    dh = torch.tensor([[0.0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0]], **here)[None]
    state, size = torch.tensor([[16.0, 10]], **here), dict(ROWS=2, STRETCHES=2, BLOCK_D=2, num_warps=1)
    h, _ = linear_recurrence_forward(a, x, state, **size)
    linear_recurrence_backward(dh, torch.tensor([[0.0, 2]], **here), a, h, state, **size)


if __name__ == "__main__":
    script.main(linear_recurrence, linear_recurrence_reference)
