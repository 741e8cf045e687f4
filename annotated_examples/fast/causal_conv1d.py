r"""
# Four taps, fast: each token is loaded once

The contract and the results of [the lesson](../recurrences/causal_conv1d.py), forward in little more time than a copy
of the tensor takes. The formulas are the same: [[tag: CC]] and [[tag: CC-silu]] forward, [[tag: CC-dz]], [[tag: CC-dx]]
and [[tag: CC-dw]] backward. What differs is where the last few tokens are kept: in registers.

**What it costs.** The floor is the time in which 2 numbers are moved for each element forward, and 3 backward. At 8 x
4096 x 4096 in bfloat16:

| pass | time |
|---|---:|
| forward | [[bench: causal_conv1d/8x4096x4096/forward/ms]] |
| forward, the lesson | [[bench: causal_conv1d/8x4096x4096/forward/lesson.ms]] |
| backward | [[bench: causal_conv1d/8x4096x4096/backward/ms]] |
| backward, the lesson | [[bench: causal_conv1d/8x4096x4096/backward/lesson.ms]] |

**What is missing.** Backward needs about 29 instructions for each element: twelve are the products of the filter, and
the SiLU's slope takes eight. Rows are requested early only where a thread's channels lie side by side, in a multiple of
four bytes. On an H200 backward with 4095 channels took 1.4 times as long as with 4096, and with an upstream gradient
that is transposed 2.9 times. Sequences of fewer than 16 tokens on average are left to the lesson, whose tiles hold rows
of several sequences.

**Contract.** The lesson's. One token at a time is the lesson's `causal_conv1d_step_`.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from annotated_examples.common.chunks import chunk_at, cut
from annotated_examples.common.constants import LOG2E
from annotated_examples.common.exponential import sigmoid_of
from annotated_examples.common.norms import add_partial_sums
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.sequences import few_tokens, new_rows, strided_rows
from annotated_examples.recurrences import causal_conv1d as lesson
from annotated_examples.recurrences.causal_conv1d import (
    call, causal_conv1d_reference, contract, empty_backward, empty_forward, final_state_kernel, state_gradient_kernel,
)  # fmt: skip


# ## 1. A thread keeps what it has seen
#
# What was slow? The lesson loads each token $W$ times, once for every output that sees it, and its backward pass
# computes the gradient of a sum $W$ times. The loads come from the cache, but each is an instruction, with an address
# and a mask.
#
# Here a program takes a block of channels and walks along the tokens, one row at a time. The last $W - 1$ rows stay in
# registers. `seen` is a tuple of them: the same channels are in the same thread each time, so nothing has to be moved
# between threads.
#
# [[figure: recurrences/taps]]
#
# A sequence is cut into chunks of `LENGTH` tokens, as linear attention cuts it, so that there are enough programs. What
# the first token of a chunk sees are tokens of the chunk before, loaded once more, or columns of the state.
#
# The numbers in the notes come from a recorded run, which is the lesson's: 5 tokens and 2 channels, in chunks of 4 and
# two rows at a time. The filter of the first channel is 1, 10, 100, its tokens are 1 to 5, and the state holds 8 and 9.
@triton.jit
def inputs_before(x_tensor, state_ptr, b, start, begin, length, offs_d, D, W: tl.constexpr):
    x_ptr, stride_b, stride_t, stride_d = x_tensor
    b, mask_d = b.to(tl.int64), offs_d < D
    seen = ()
    for j in tl.static_range(W - 1):
        t = begin - (W - 1) + j
        place = b * stride_b + (start + t).to(tl.int64) * stride_t
        x = tl.load(x_ptr + place + offs_d.to(tl.int64) * stride_d, mask=mask_d & (t >= 0) & (t < length), other=0.0)
        if state_ptr is not None:
            column = state_ptr + (b * D + offs_d) * (W - 1) + (t + W - 1)
            x = tl.where(t < 0, tl.load(column, mask=mask_d & (t < 0), other=0.0), x)
        seen = seen + (x.to(tl.float32),)
    return seen


# The filter and the bias of these channels, in float32. They are loaded once for a whole chunk.
@triton.jit
def load_filter(weight_ptr, bias_ptr, offs_d, D, W: tl.constexpr):
    weights = ()
    for j in tl.static_range(W):
        weights = weights + (tl.load(weight_ptr + offs_d * W + j, mask=offs_d < D, other=0.0).to(tl.float32),)
    bias = tl.zeros(offs_d.shape, tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + offs_d, mask=offs_d < D, other=0.0).to(tl.float32)
    return weights, bias


# Tokens are made float32 when they arrive, once, and not anew for every output that sees them.
@triton.jit
def widened(rows, ROWS: tl.constexpr):
    wide = ()
    for u in tl.static_range(ROWS):
        wide = wide + (rows[u].to(tl.float32),)
    return wide


# [[tag: CC]]: row `u` of the window and the $W - 1$ after it, the oldest first.
@triton.jit
def taps(window, u: tl.constexpr, weights, bias, W: tl.constexpr):
    z = bias
    for j in tl.static_range(W):
        z += weights[j] * window[u + j]
    return z


# The sigmoid, $1 / (1 + e^{-z})$. The card has no instruction for a quotient: a division for numbers of every size
# takes eight or so. It has one for a reciprocal, which may be wrong in the last bit: `libdevice.fast_dividef` makes a
# quotient from that. And where `tl.exp` takes care of results that are too small for an ordinary float32, `tl.exp2`
# makes them 0. In 16 bits that is too little to be seen, except that below −87 a bfloat16 of 10⁻³⁶ or less becomes 0.
# In float32 far below zero [it can be seen](../common/exponential.py).
@triton.jit
def sigmoid(z, dtype: tl.constexpr):
    if dtype == tl.float32:
        share = sigmoid_of(z)
    else:
        share = libdevice.fast_dividef(1.0, 1 + tl.exp2(z * -LOG2E))
    return share


# Pointers to one row of a block of channels; and the next rows from there, `left` of which exist.
@triton.jit
def row_pointers(tensor, b, row, offs_d):
    ptr, stride_b, stride_t, stride_d = tensor
    ptr += b.to(tl.int64) * stride_b + row.to(tl.int64) * stride_t
    return ptr + offs_d.to(tl.int64) * stride_d, tl.cast(1, tl.int64) * stride_t


@triton.jit
def load_rows(pointers, step, left, mask_d, ROWS: tl.constexpr):
    rows = ()
    for u in tl.static_range(ROWS):
        rows = rows + (tl.load(pointers + u * step, mask=mask_d & (u < left), other=0.0),)
    return rows


# ## 2. The next rows arrive while these are computed
#
# Rows are loaded in groups of `ROWS`. The loop over the rows of a group is written out, so what each row of `window`
# holds is known when the kernel is compiled.
#
# Memory takes about as long to answer as a group takes to compute. So each group is requested before the one two places
# ahead of it is computed: `tl.range` does that with three stages. Rows on their way take no registers. They are copied
# to shared memory, and wait there until it is their turn.
@triton.jit
def causal_conv1d_forward_kernel(
    x_tensor,  # (pointer, three strides) of (B, T, D)
    state_ptr, weight_ptr, bias_ptr, y_tensor,  # (B, D, W - 1) or None, (D, W), (D,) or None, like x
    sequences,  # whose chunk is it?
    D, SILU: tl.constexpr, W: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    b, start, length, begin = chunk_at(sequences, tl.program_id(0) // blocks, LENGTH)
    # The second program has a single token, from `pid=1: begin = 4` to `pid=1: end = 5`.
    end = tl.minimum(begin + LENGTH, length)
    weights, bias = load_filter(weight_ptr, bias_ptr, offs_d, D, W)
    seen = inputs_before(x_tensor, state_ptr, b, start, begin, length, offs_d, D, W)
    x_ptrs, step_x = row_pointers(x_tensor, b, start + begin, offs_d)
    y_ptrs, step_y = row_pointers(y_tensor, b, start + begin, offs_d)
    for t in tl.range(begin, end, ROWS, num_stages=3):
        window = seen + widened(load_rows(x_ptrs, step_x, end - t, mask_d, ROWS), ROWS)
        x_ptrs += ROWS * step_x
        # Two rows after what was seen before: 8 · 1 + 9 · 10 + 1 · 100 is the first of `pid=0, t=0, u=0: z = [198, 1]`.
        # The next row has moved on by one, `pid=0, t=0, u=1: z[0] = 219`. The second group begins with
        # `pid=0, t=2, u=0: z[0] = 321`.
        for u in tl.static_range(ROWS):
            z = taps(window, u, weights, bias, W)
            y = z * sigmoid(z, y_ptrs.dtype.element_ty) if SILU else z
            tl.store(y_ptrs + u * step_y, y, mask=mask_d & (t + u < end))
        y_ptrs += ROWS * step_y
        seen = window[ROWS:]


# ## 3. Backward: each slope is computed once
#
# What was slow? An input was read by up to $W$ outputs, so its gradient needs the gradients of $W$ sums, and each of
# those needs a sum of $W$ taps and an exponential. The lesson computes all of them for every input. With four taps and
# a SiLU that is five sums for each element: four for the input's gradient, and one for the filter's. Here it is one,
# and three more for each chunk.
#
# A program that walks has the last ones in registers, too. The gradient of token $t$ is complete when it has reached
# token $t + W - 1$: so results are stored $W - 1$ rows late, and the walk goes $W - 1$ tokens past the chunk. In its
# first $W - 1$ steps a program stores nothing: those gradients belong to tokens of the chunk before, whose program goes
# on past its end to complete them.
#
# [[tag: CC-dz]], for one row. The SiLU's slope is written with two multiply-adds, which take an instruction each.
@triton.jit
def slope(window, u: tl.constexpr, dy, weights, bias, SILU: tl.constexpr, W: tl.constexpr):
    dz = dy.to(tl.float32)
    if SILU:
        z = taps(window, u, weights, bias, W)
        share = sigmoid(z, dy.dtype)
        dz *= share + z * (share - share * share)
    return dz


# [[tag: CC-dx]], without the gradient of the final state: the oldest of the slopes is that of the token itself. `there`
# of them exist. A tap that is NaN mustn't be multiplied by the zeros of the others.
@triton.jit
def gradient(dzs, weights, there, W: tl.constexpr):
    dx = weights[W - 1] * dzs[0]
    for k in tl.static_range(1, W):
        dx += tl.where(k < there, weights[W - 1 - k] * dzs[k], 0.0)
    return dx


# The filter's gradient, [[tag: CC-dw]], is a sum for each thread's own channels: it stays in registers for the whole
# chunk, and no sum passes between threads. Each chunk stores its part, and the parts are added up afterwards: no
# atomics.
@triton.jit
def more(dweights, dz, window, u: tl.constexpr, counted, W: tl.constexpr):
    sums = ()
    for j in tl.static_range(W):
        sums = sums + (dweights[j] + tl.where(counted, dz * window[u + j], 0.0),)
    return sums


# There are two loops. Whole groups of `ROWS` rows in the chunk need no question whether a row exists. The rest of the
# chunk, and the $W - 1$ tokens past it, come $W - 1$ at a time. Mostly there is no rest, and one step takes them all.
@triton.jit
def causal_conv1d_backward_kernel(
    dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, dx_tensor,  # as forward; dfinal as the state
    partial_dweight_ptr, partial_dbias_ptr,  # (chunks, D, W) and (chunks, D)
    sequences, D, SILU: tl.constexpr, W: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    chunk = tl.program_id(0) // blocks
    b, start, length, begin = chunk_at(sequences, chunk, LENGTH)
    end = tl.minimum(begin + LENGTH, length)
    # The first program has two groups of two rows, up to `pid=0: whole = 4`. The second has none, `pid=1: whole = 4`.
    whole = begin + tl.maximum(end - begin, 0) // ROWS * ROWS
    weights, bias = load_filter(weight_ptr, bias_ptr, offs_d, D, W)
    seen = inputs_before(x_tensor, state_ptr, b, start, begin, length, offs_d, D, W)
    x_ptrs, step_x = row_pointers(x_tensor, b, start + begin, offs_d)
    dy_ptrs, step_dy = row_pointers(dy_tensor, b, start + begin, offs_d)
    dx_ptrs, step_dx = row_pointers(dx_tensor, b, start + begin - (W - 1), offs_d)
    zero = tl.zeros((BLOCK_D,), tl.float32)
    dweights, dbias, dzs = (zero,), zero, ()
    for _ in tl.static_range(W - 1):
        dweights, dzs = dweights + (zero,), dzs + (zero,)
    for t in tl.range(begin, whole, ROWS, num_stages=3):
        window = seen + widened(load_rows(x_ptrs, step_x, ROWS, mask_d, ROWS), ROWS)
        dys = load_rows(dy_ptrs, step_dy, ROWS, mask_d, ROWS)
        x_ptrs += ROWS * step_x
        dy_ptrs += ROWS * step_dy
        # In the first channel only the outputs of tokens 1 and 4 have a gradient, `pid=0, t=0, u=0: dz = [1, 0]` and
        # `pid=0, t=2, u=1: dz = [1, 1]`. Together `pid=0, t=2, u=1: dbias = [2, 1]`.
        for u in tl.static_range(ROWS):
            dz = slope(window, u, dys[u], weights, bias, SILU, W)
            dbias += dz
            dweights = more(dweights, dz, window, u, True, W)
            dzs = dzs + (dz,)
            tl.store(dx_ptrs + u * step_dx, gradient(dzs, weights, W, W), mask=mask_d & (t + u - begin >= W - 1))
            dzs = dzs[1:]
        dx_ptrs += ROWS * step_dx
        seen = window[ROWS:]
    # Past the end of the sequence there are no outputs, whatever the sum may be there. Past the chunk there are, but
    # they are the next program's when it comes to the filter. An infinity times 0 would be NaN: `tl.where`.
    for t in range(whole, end + W - 1, W - 1):
        window = seen + widened(load_rows(x_ptrs, step_x, length - t, mask_d, W - 1), W - 1)
        dys = load_rows(dy_ptrs, step_dy, length - t, mask_d, W - 1)
        for u in tl.static_range(W - 1):
            row = t + u
            dz = tl.where(row < length, slope(window, u, dys[u], weights, bias, SILU, W), 0.0)
            dbias += tl.where(row < end, dz, 0.0)
            dweights = more(dweights, dz, window, u, row < end, W)
            dzs = dzs + (dz,)
            # Output 4 saw token 4 through the last tap, and tokens 3 and 2 through the others:
            # `pid=0, t=4, u=0: dx[0] = 10` is the gradient of token 3, `pid=0, t=4, u=1: dx[0] = 100` that of token 4.
            past = row - length
            dx = gradient(dzs, weights, W - 1 - past, W)
            # The last inputs are in the final state, too.
            if dfinal_ptr is not None:
                column = dfinal_ptr + (b.to(tl.int64) * D + offs_d) * (W - 1) + past
                dx += tl.load(column, mask=mask_d & (past >= 0) & (past < W - 1), other=0.0).to(tl.float32)
            tl.store(dx_ptrs + u * step_dx, dx, mask=mask_d & (row - begin >= W - 1) & (row < end + W - 1))
            dzs = dzs[1:]
        x_ptrs += (W - 1) * step_x
        dy_ptrs += (W - 1) * step_dy
        dx_ptrs += (W - 1) * step_dx
        seen = window[W - 1 :]
    part = (chunk.to(tl.int64) * D + offs_d) * W
    for j in tl.static_range(W):
        tl.store(partial_dweight_ptr + part + j, dweights[j], mask=mask_d)
    tl.store(partial_dbias_ptr + chunk.to(tl.int64) * D + offs_d, dbias, mask=mask_d)


# ## Launchers
#
# Chunks of 64 tokens forward. Backward each chunk stores a part of the filter's gradient, and computes $W - 1$ slopes
# that the next one computes as well: there a chunk has up to 1024 tokens, if that leaves 1024 programs. One warp has
# 128 channels, four in each thread. The final state and the gradient of the first one are small, and the lesson's
# kernels make them.
#
# More programs aren't better. Backward takes 168 registers a thread, so twelve warps fit on an SM, and 1584 on the 132
# of an H200: 1024 programs all run at once. Of 2048 some begin when others are done, and then most of the card is idle.
# At 8 x 4096 x 4096 that took a sixth longer.
def length_of(x, BLOCK_D):
    """Tokens of a chunk in backward, a power of two from 64 to 1024."""
    tokens = x.shape[:-1].numel() * cdiv(x.shape[-1], BLOCK_D) // 1024
    return 2 ** (min(max(tokens, 64), 1024).bit_length() - 1)


def chunks_of(x, cu_seqlens, LENGTH):
    """The chunks, and what the lesson's kernels are told of the sequences."""
    chunks = cut(x[:, None] if cu_seqlens is None else x[None, None], cu_seqlens, LENGTH)
    return chunks, (None, chunks.sequences[0], chunks.sequences[3], x.shape[:-1].numel())


@opaque(
    "(Tensor x, Tensor weight, Tensor? bias, Tensor? initial_state, Tensor? cu_seqlens, *, bool silu) "
    "-> (Tensor, Tensor)",
    empty_forward,
)
def causal_conv1d_forward(
    x, weight, bias, initial_state, cu_seqlens, *, silu, LENGTH=None, ROWS=8, BLOCK_D=128, num_warps=1
):  # fmt: skip
    """`(y, final)`. LENGTH: tokens of a chunk; None: 64, and short sequences are the lesson's.

    ROWS, BLOCK_D: tokens and channels that are loaded at once.
    """
    checks.power_of_two(LENGTH=LENGTH, ROWS=ROWS, BLOCK_D=BLOCK_D, num_warps=num_warps)
    if LENGTH is None and few_tokens(x, cu_seqlens):
        return lesson.causal_conv1d_forward(x, weight, bias, initial_state, cu_seqlens, silu=silu)
    (D, W), (chunks, sequences), y = weight.shape, chunks_of(x, cu_seqlens, LENGTH or 64), new_rows(x, cu_seqlens)
    tensor, final = strided_rows(x, cu_seqlens), x.new_empty(chunks.batch, D, W - 1)
    state, weight, bias = (each if each is None else each.contiguous() for each in (initial_state, weight, bias))
    if final.numel() > 0:
        launch(
            causal_conv1d_forward_kernel, (chunks.count * cdiv(D, BLOCK_D),),
            (tensor, state, weight, bias, strided_rows(y, cu_seqlens), chunks.sequences),
            (D,), SILU=silu, W=W, LENGTH=LENGTH or 64, ROWS=ROWS, BLOCK_D=BLOCK_D, num_warps=num_warps,
        )  # fmt: skip
        grid = (chunks.batch * cdiv(D, 32),)
        launch(final_state_kernel, grid, (tensor, state, final, sequences), (D,), W=W, BLOCK_D=32)
    return y, final


@opaque(
    "(Tensor dy, Tensor dfinal, Tensor x, Tensor weight, Tensor? bias, Tensor? initial_state, Tensor? cu_seqlens, *, "
    "bool silu) -> (Tensor, Tensor, Tensor, Tensor)",
    empty_backward,
)
def causal_conv1d_backward(
    dy, dfinal, x, weight, bias, initial_state, cu_seqlens, *, silu, LENGTH=None, ROWS=8, BLOCK_D=128, num_warps=1
):  # fmt: skip
    """`(dx, dweight, dbias, dstate)`; the last is not filled without an initial state.

    Sizes: as in forward, but a LENGTH of None depends on the shape.
    """
    checks.power_of_two(LENGTH=LENGTH, ROWS=ROWS, BLOCK_D=BLOCK_D, num_warps=num_warps)
    if LENGTH is None and few_tokens(x, cu_seqlens):
        return lesson.causal_conv1d_backward(dy, dfinal, x, weight, bias, initial_state, cu_seqlens, silu=silu)
    LENGTH = LENGTH or length_of(x, BLOCK_D)
    (D, W), (chunks, sequences), dtype = weight.shape, chunks_of(x, cu_seqlens, LENGTH), x.dtype
    dx, dstate = new_rows(x, cu_seqlens), torch.empty(dfinal.shape, dtype=dtype, device=x.device)
    state, weight, bias = (each if each is None else each.contiguous() for each in (initial_state, weight, bias))
    tensors = strided_rows(dy, cu_seqlens), dfinal.contiguous(), strided_rows(x, cu_seqlens), state, weight, bias
    dweight, dbias = (torch.empty((chunks.count, *shape), device=x.device) for shape in ((D, W), (D,)))
    if dstate.numel() > 0:
        launch(
            causal_conv1d_backward_kernel, (chunks.count * cdiv(D, BLOCK_D),),
            (*tensors, strided_rows(dx, cu_seqlens), dweight, dbias, chunks.sequences),
            (D,), SILU=silu, W=W, LENGTH=LENGTH, ROWS=ROWS, BLOCK_D=BLOCK_D, num_warps=num_warps,
        )  # fmt: skip
        if state is not None:
            grid = (chunks.batch * cdiv(D, 32),)
            launch(state_gradient_kernel, grid, (*tensors, dstate, sequences), (D,), SILU=silu, W=W, BLOCK_D=32)
    sums = torch.empty(weight.shape, dtype=dtype, device=x.device), torch.empty(D, dtype=dtype, device=x.device)
    add_partial_sums(dweight.flatten(1), None, sums[0], None)
    add_partial_sums(dbias, None, sums[1], None)
    return dx, *sums, dstate


LAUNCHERS = causal_conv1d_forward, causal_conv1d_backward


@replayed
def causal_conv1d(x, weight, bias=None, *, activation=None, initial_state=None, return_final_state=False):
    """A causal convolution of each channel with a filter of its own, differentiable. The same as
    `annotated_examples.recurrences.causal_conv1d.causal_conv1d`, but faster.

    Args:
        x: (B, T, D), float32, float16 or bfloat16, any strides.
        weight: (D, W) in the dtype of `x`, W from 2 to 8; tap W - 1 is that of the token itself.
        bias: (D,) in the dtype of `x`, or None.
        activation: None, "silu" or "swish", which is the same.
        initial_state: (B, D, W - 1) in the dtype of `x`, the inputs before the first, oldest first; None: zeros.
        return_final_state: return the last W - 1 inputs as well.

    Returns:
        (B, T, D) in the dtype of `x`; with `return_final_state` a tuple of it and the final state, (B, D, W - 1).

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or the activation isn't known.

    Source: the layout of states is that of Dao-AILab's causal-conv1d.
    """
    contract(x, weight, bias, activation, initial_state, return_final_state)
    return call(x, weight, bias, initial_state, None, activation, return_final_state, LAUNCHERS)


@replayed
def causal_conv1d_varlen(
    x, weight, cu_seqlens, bias=None, *, activation=None, initial_state=None, return_final_state=False
):
    """`causal_conv1d` of packed sequences, none of which sees another one.

    Args:
        x: (total, D), all sequences one after the other. weight, bias, activation: as in `causal_conv1d`.
        cu_seqlens: (sequences + 1,), int32: where each sequence begins, and where the last ends.
        initial_state: (sequences, D, W - 1); None: zeros.
        return_final_state: return the last W - 1 inputs of each sequence as well.

    Returns:
        (total, D), 0 behind the last sequence; perhaps with the final states, (sequences, D, W - 1).

    Raises:
        TypeError, ValueError: as `causal_conv1d`. Offsets that fall or pass the end raise on the CPU and with
            ACADEMY_DEBUG=1; otherwise they are moved to where they do no harm.

    Source: as `causal_conv1d`.
    """
    contract(x, weight, bias, activation, initial_state, return_final_state, cu_seqlens, packed=True)
    return call(x, weight, bias, initial_state, cu_seqlens, activation, return_final_state, LAUNCHERS)


# ## A run small enough to watch
#
# The lesson's run. With a LENGTH these kernels are used however short the sequence is.
def EXAMPLE():
    here = dict(device=device.DEVICE)
    x = torch.tensor([[1.0, 1], [2, 0], [3, 0], [4, 0], [5, 0]], **here)[None]
    weight = torch.tensor([[1.0, 10, 100], [0.5, -1, 2]], **here)
    state = torch.tensor([[8.0, 9], [0, 1]], **here)[None]
    dy = torch.tensor([[1.0, 0], [0, 0], [0, 0], [1, 1], [0, 0]], **here)[None]
    bias, size = torch.zeros(2, **here), dict(silu=False, LENGTH=4, ROWS=2, BLOCK_D=2)
    causal_conv1d_forward(x, weight, bias, state, None, **size)
    causal_conv1d_backward(dy, torch.zeros_like(state), x, weight, bias, state, None, **size)


if __name__ == "__main__":
    script.main(causal_conv1d, causal_conv1d_reference)
