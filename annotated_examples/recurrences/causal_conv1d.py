r"""
# Four taps before every recurrence

Mamba, Gated DeltaNet and their like let every channel look at its last few tokens before the recurrence sees them: a
**causal convolution**, with one small filter for each channel. With four taps a token sees itself and three before it.

[[eq: CC]]

$X$ begins with the $W - 1$ columns of the **state**: the last inputs of whatever was there before, or zeros. With the
taps 1, 10, 100, a state of 8 and 9, and a first token 1, the first sum is 8 · 1 + 9 · 10 + 1 · 100. Tap $W$ belongs to
the token itself. (Text counts from 1, code from 0.) PyTorch's `conv1d` computes it with `groups=D`: a correlation, in
which the filter isn't turned round. Usually a SiLU follows, [[tag: CC-silu]].

[[figure: recurrences/taps]]

Each input is read by up to $W$ outputs, so its gradient collects from these, with the filter the other way round:
[[tag: CC-dx]]. The filter's gradient is a sum over all tokens, [[tag: CC-dw]].

**What it costs.** Forward moves 4 bytes an element in bfloat16, and the $W - 1$ other loads of an element come from the
cache. Backward reads `dy` and `x` and writes `dx`, 6 bytes. There are about $2W$ operations an element forward and
$2 W^2 + 6W$ backward, where a SiLU's sums are computed again. With $W = 4$ the floor is a copy, of whose speed this
lesson reaches [[bench: causal_conv1d/8x4096x4096/forward/lesson.share]] and
[[bench: causal_conv1d/8x4096x4096/backward/lesson.share]].

**Contract.** `x` is (B, T, D), float32, float16 or bfloat16, any strides; `weight` (D, W) with W from 2 to 8, `bias`
(D,) or None, both in the dtype of `x`. States are (B, D, W − 1) in the dtype of `x`, the oldest input first. They may
be of sequences shorter than W − 1. All arithmetic is float32, and a result is rounded once. A state's memory isn't
looked at where no state is given. No input is written to, except by `causal_conv1d_step_`, and the same call gives the
same bits. In packed form, (total, D), rows behind the last sequence are 0.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import sigmoid_of
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.sequences import new_rows, owners, sequences_contract, strided_rows

ACTIVATIONS = (None, "silu", "swish")


# ## Reference
#
# Shifted copies of the sequence, each times its tap.
def causal_conv1d_reference(x, weight, bias=None, *, activation=None, initial_state=None, return_final_state=False):
    W, T = weight.shape[1], x.shape[1]
    before = x.new_zeros(x.shape[0], W - 1, x.shape[2]) if initial_state is None else initial_state.transpose(1, 2)
    seen = torch.cat([before, x], 1)
    precise = torch.promote_types(x.dtype, torch.float32)
    z = sum(weight[:, j].to(precise) * seen[:, j : j + T].to(precise) for j in range(W))
    z = z if bias is None else z + bias.to(precise)
    y = (torch.nn.functional.silu(z) if activation else z).to(x.dtype)
    return (y, seen[:, T:].transpose(1, 2)) if return_final_state else y


def causal_conv1d_varlen_reference(
    x, weight, cu_seqlens, bias=None, *, activation=None, initial_state=None, return_final_state=False
):
    ends = cu_seqlens.tolist()
    parts, states = [x[:0]], [x.new_zeros(0, x.shape[1], weight.shape[1] - 1)]
    for b, (start, end) in enumerate(zip(ends, ends[1:])):
        state = None if initial_state is None else initial_state[b : b + 1]
        options = dict(activation=activation, initial_state=state, return_final_state=True)
        y, final = causal_conv1d_reference(x[None, start:end], weight, bias, **options)
        parts.append(y[0])
        states.append(final)
    y = torch.cat([*parts, torch.zeros_like(x[ends[-1] :])])
    return (y, torch.cat(states)) if return_final_state else y


# ## Whose row is it?
#
# A tile has `BLOCK_T` rows of all sequences together, so the last row of one sequence may have the first of the next
# beside it. Each row is asked for its sequence and its place in it. In a batch that is a division. In packed form a
# table says whose row it is. `place` returns four numbers for each row: its sequence, its place in it, the row as the
# strides count it (from the start of its sequence in a batch, of the tensor in packed form), and the sequence's length.
# A row behind the last sequence gets −1 and the length 0.
@triton.jit
def place(sequences, rows):
    owner_ptr, cu_ptr, T, total = sequences
    if owner_ptr is None:
        b, t, row = tl.where(rows < total, rows // T, -1), rows % T, rows % T
        length = tl.where(b >= 0, T, 0)
    else:
        b, row = tl.load(owner_ptr + rows, mask=rows < total, other=-1), rows
        t = rows - tl.load(cu_ptr + b, mask=b >= 0, other=0)
        length = t - rows + tl.load(cu_ptr + b + 1, mask=b >= 0, other=0)
    return b, t, row, length


# The same for one sequence, from its number: where it begins as the strides count, and how long it is.
@triton.jit
def beginning(sequences, b):
    _, cu_ptr, length, _ = sequences
    start = 0
    if cu_ptr is not None:
        start = tl.load(cu_ptr + b)
        length = tl.load(cu_ptr + b + 1) - start
    return start, length


# ## What an output sees
#
# Input number `t` of each row's sequence, for a block of channels: a row of `x`, or, where `t` is negative, a column of
# the state, whose last one is number −1. Without a state 0 stands there, and so it does behind the end.
@triton.jit
def inputs_at(x_tensor, state_ptr, b, t, row, length, offs_d, D, W: tl.constexpr):
    x_ptr, stride_b, stride_t, stride_d = x_tensor
    b, mask_d = b.to(tl.int64), (offs_d < D)[None, :]
    pointers = x_ptr + (b * stride_b + row.to(tl.int64) * stride_t)[:, None] + offs_d.to(tl.int64)[None, :] * stride_d
    x = tl.load(pointers, mask=((t >= 0) & (t < length))[:, None] & mask_d, other=0.0).to(tl.float32)
    if state_ptr is not None:
        columns = state_ptr + (b[:, None] * D + offs_d[None, :]) * (W - 1) + (t + W - 1)[:, None]
        before = ((t < 0) & (t > -W) & (b >= 0))[:, None] & mask_d
        x += tl.load(columns, mask=before, other=0.0).to(tl.float32)
    return x


# The sum of the taps, [[tag: CC]]. `tl.static_range` is a loop that is unrolled: a filter has few taps. The products
# are added in float32; in 16 bits a sum of terms that cancel would be lost.
@triton.jit
def taps(x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, W: tl.constexpr):
    mask_d = offs_d < D
    z = tl.zeros_like(t).to(tl.float32)[:, None] + tl.zeros_like(offs_d).to(tl.float32)[None, :]
    if bias_ptr is not None:
        z += tl.load(bias_ptr + offs_d, mask=mask_d, other=0.0).to(tl.float32)[None, :]
    for j in tl.static_range(W):
        w = tl.load(weight_ptr + offs_d * W + j, mask=mask_d, other=0.0).to(tl.float32)
        x = inputs_at(x_tensor, state_ptr, b, t - (W - 1 - j), row - (W - 1 - j), length, offs_d, D, W)
        z += w[None, :] * x
    return z


# ## Forward
#
# The numbers in the notes come from a recorded run: one sequence of 5 tokens and 2 channels, in tiles of 4 tokens. The
# filter of the first channel is 1, 10, 100 and its tokens are 1 to 5, so that a result shows what it has seen. The
# state holds 8 and 9.
@triton.jit
def causal_conv1d_forward_kernel(
    x_tensor,  # (pointer, three strides) of (B, T, D)
    state_ptr, weight_ptr, bias_ptr, y_ptr,  # (B, D, W - 1) or None, (D, W), (D,) or None, (B, T, D)
    sequences,  # (owner_ptr, cu_ptr, T, total): whose row is it? The first two are None in a batch
    D, SILU: tl.constexpr, W: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    rows = tl.program_id(0) // blocks * BLOCK_T + tl.arange(0, BLOCK_T)
    b, t, row, length = place(sequences, rows)
    # The first token sees 8 and 9 in the state, and itself: 8 · 1 + 9 · 10 + 1 · 100 is the first of `pid=0: z[:, 0] =
    # [198, 219, 321, 432]`. In the second tile only one row is a token, `pid=1: length = [5, 0, 0, 0]`.
    z = taps(x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, W)
    y = z * sigmoid_of(z) if SILU else z
    mask = (t < length)[:, None] & (offs_d < D)[None, :]
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * D + offs_d[None, :], y, mask=mask)


# The state after the last token: the last W − 1 inputs. In a short sequence some of them are the old state's.
@triton.jit
def final_state_kernel(
    x_tensor, state_ptr, final_ptr,  # (pointer, three strides), (B, D, W - 1) or None, (B, D, W - 1)
    sequences, D, W: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    column = tl.arange(0, 8)
    b = tl.zeros_like(column) + tl.program_id(0) // blocks
    start, length = beginning(sequences, tl.program_id(0) // blocks)
    t = length - (W - 1) + column
    last = inputs_at(x_tensor, state_ptr, b, t, start + t, length, offs_d, D, W)
    columns = final_ptr + (b.to(tl.int64)[:, None] * D + offs_d[None, :]) * (W - 1) + column[:, None]
    tl.store(columns, last, mask=(column < W - 1)[:, None] & (offs_d < D)[None, :])


# ## Backward
#
# The gradient of the sum of the taps, [[tag: CC-dz]]: without an activation that is `dy`. The slope of the SiLU needs
# the sum, not its result, so it is computed again. Behind the end there is no output, whatever the sum may be there.
@triton.jit
def dz_at(
    dy_tensor, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D,
    SILU: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    dz = inputs_at(dy_tensor, None, b, t, row, length, offs_d, D, W)
    if SILU:
        z = taps(x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, W)
        sigmoid = sigmoid_of(z)
        dz = tl.where(((t >= 0) & (t < length))[:, None], dz * sigmoid * (1 + z * (1 - sigmoid)), 0.0)
    return dz


# The gradient of an input, of `x` or of the state: [[tag: CC-dx]]. It was read by up to W outputs, its own with the
# last tap. If it is in the final state, that one's gradient is added. Behind the end there is no output, and a tap that
# is NaN mustn't be multiplied by a zero there. The loop over them stays a loop: written out, eight taps take the
# compiler a minute.
@triton.jit
def gradient_at(
    dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D,
    SILU: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    mask_d = offs_d < D
    dx = tl.zeros_like(t).to(tl.float32)[:, None] + tl.zeros_like(offs_d).to(tl.float32)[None, :]
    for k in range(W):
        w = tl.load(weight_ptr + offs_d * W + (W - 1 - k), mask=mask_d, other=0.0).to(tl.float32)
        dz = dz_at(dy_tensor, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t + k, row + k, length, offs_d, D, SILU, W)
        dx += tl.where(((t + k >= 0) & (t + k < length))[:, None], w[None, :] * dz, 0.0)
    if dfinal_ptr is not None:
        column = t + W - 1 - length
        columns = dfinal_ptr + (b.to(tl.int64)[:, None] * D + offs_d[None, :]) * (W - 1) + column[:, None]
        kept = ((column >= 0) & (column < W - 1) & (b >= 0))[:, None] & mask_d[None, :]
        dx += tl.load(columns, mask=kept, other=0.0).to(tl.float32)
    return dx


# A tile's part of the gradients of the filter and the bias is a sum down its rows. Each program stores its own, and
# PyTorch adds them up: no atomics, so the same call gives the same bits.
@triton.jit
def causal_conv1d_backward_kernel(
    dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, dx_ptr,  # as forward; dfinal as the state
    partial_dweight_ptr, partial_dbias_ptr,  # (tiles, D, W) and (tiles, D)
    sequences, D, SILU: tl.constexpr, W: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    part = (tl.program_id(0) // blocks).to(tl.int64) * D
    rows = tl.program_id(0) // blocks * BLOCK_T + tl.arange(0, BLOCK_T)
    b, t, row, length = place(sequences, rows)
    dx = gradient_at(
        dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, SILU, W
    )
    # In the first channel only the outputs of tokens 1 and 4 have a gradient, 1 each. Output 4 saw token 4 through the
    # last tap, and tokens 3 and 2 through the others: `pid=0: dx[:, 0] = [100, 1, 10, 100]`.
    mask = (t < length)[:, None] & mask_d[None, :]
    tl.store(dx_ptr + rows.to(tl.int64)[:, None] * D + offs_d[None, :], dx, mask=mask)
    # [[tag: CC-dw]]: what the output needed, times what tap j saw.
    dz = dz_at(dy_tensor, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, SILU, W)
    tl.store(partial_dbias_ptr + part + offs_d, tl.sum(dz, axis=0), mask=mask_d)
    # `pid=0: dz[:, 0] = [1, 0, 0, 1]`.
    for j in tl.static_range(W):
        seen = inputs_at(x_tensor, state_ptr, b, t - (W - 1 - j), row - (W - 1 - j), length, offs_d, D, W)
        tl.store(partial_dweight_ptr + (part + offs_d) * W + j, tl.sum(dz * seen, axis=0), mask=mask_d)


# The state's columns are the inputs before the first.
@triton.jit
def state_gradient_kernel(
    dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, dstate_ptr,  # as forward
    sequences, D, SILU: tl.constexpr, W: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    column = tl.arange(0, 8)
    b = tl.zeros_like(column) + tl.program_id(0) // blocks
    start, length = beginning(sequences, tl.program_id(0) // blocks)
    t = column - (W - 1)
    dstate = gradient_at(
        dy_tensor, dfinal_ptr, x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, start + t, length + 0 * t, offs_d, D,
        SILU, W,
    )  # fmt: skip
    columns = dstate_ptr + (b.to(tl.int64)[:, None] * D + offs_d[None, :]) * (W - 1) + column[:, None]
    tl.store(columns, dstate, mask=(column < W - 1)[:, None] & (offs_d < D)[None, :])


# ## One token
#
# While text is generated, tokens come one at a time. Each lane owns a channel: it multiplies the state's columns, moves
# them on by one place, and puts the new input at the end. A column is read before anything is stored to it.
@triton.jit
def step_kernel(
    state_tensor, x_tensor,  # (pointer, strides) of (B, D, W - 1) and (B, D)
    weight_ptr, bias_ptr, y_ptr,  # (D, W), (D,) or None, (B, D)
    D, SILU: tl.constexpr, W: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    state_ptr, stride_sb, stride_sd, stride_sw = state_tensor
    x_ptr, stride_xb, stride_xd = x_tensor
    blocks = tl.cdiv(D, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    offs_d = (tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)).to(tl.int64)
    mask = offs_d < D
    columns = state_ptr + b * stride_sb + offs_d * stride_sd
    new = tl.load(x_ptr + b * stride_xb + offs_d * stride_xd, mask=mask, other=0.0)
    z = tl.load(weight_ptr + offs_d * W + (W - 1), mask=mask, other=0.0).to(tl.float32) * new.to(tl.float32)
    if bias_ptr is not None:
        z += tl.load(bias_ptr + offs_d, mask=mask, other=0.0).to(tl.float32)
    for j in tl.static_range(W - 1):
        old = tl.load(columns + j * stride_sw, mask=mask, other=0.0)
        z += tl.load(weight_ptr + offs_d * W + j, mask=mask, other=0.0).to(tl.float32) * old.to(tl.float32)
        if j > 0:
            tl.store(columns + (j - 1) * stride_sw, old, mask=mask)
    tl.store(columns + (W - 2) * stride_sw, new, mask=mask)
    tl.store(y_ptr + b * D + offs_d, z * sigmoid_of(z) if SILU else z, mask=mask)


# ## Launchers
def _sequences(x, cu_seqlens):
    """What the kernels are told of the sequences, and how many there are."""
    if cu_seqlens is None:
        return (None, None, x.shape[1], x.shape[0] * x.shape[1]), x.shape[0]
    total = x.shape[0]
    cu_seqlens = cu_seqlens.clamp(0, total).cummax(0).values
    return (owners(cu_seqlens, total), cu_seqlens, total, total), cu_seqlens.numel() - 1


def empty_forward(x, weight, bias, initial_state, cu_seqlens, *, silu):
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return x.new_empty(x.shape), x.new_empty(batch, x.shape[-1], weight.shape[1] - 1)


def empty_backward(dy, dfinal, x, weight, bias, initial_state, cu_seqlens, *, silu):
    return tuple(x.new_empty(shape) for shape in (x.shape, weight.shape, weight.shape[:1], dfinal.shape))


@opaque(
    "(Tensor x, Tensor weight, Tensor? bias, Tensor? initial_state, Tensor? cu_seqlens, *, bool silu) "
    "-> (Tensor, Tensor)",
    empty_forward,
)
def causal_conv1d_forward(x, weight, bias, initial_state, cu_seqlens, *, silu, BLOCK_T=64, BLOCK_D=32):
    """`(y, final)`. BLOCK_T, BLOCK_D: tokens and channels of a tile."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D)
    sequences, batch = _sequences(x, cu_seqlens)
    (D, W), y, tensor = weight.shape, new_rows(x, cu_seqlens), strided_rows(x, cu_seqlens)
    final, blocks = x.new_empty(batch, D, W - 1), triton.cdiv(D, BLOCK_D)
    state, weight, bias = (each if each is None else each.contiguous() for each in (initial_state, weight, bias))
    if y.numel() > 0:
        causal_conv1d_forward_kernel[(triton.cdiv(sequences[3], BLOCK_T) * blocks,)](
            tensor, state, weight, bias, y, sequences, D, SILU=silu, W=W, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D
        )
    if final.numel() > 0:
        final_state_kernel[(batch * blocks,)](tensor, state, final, sequences, D, W=W, BLOCK_D=BLOCK_D)
    return y, final


@opaque(
    "(Tensor dy, Tensor dfinal, Tensor x, Tensor weight, Tensor? bias, Tensor? initial_state, Tensor? cu_seqlens, *, "
    "bool silu) -> (Tensor, Tensor, Tensor, Tensor)",
    empty_backward,
)
def causal_conv1d_backward(dy, dfinal, x, weight, bias, initial_state, cu_seqlens, *, silu, BLOCK_T=64, BLOCK_D=32):
    """`(dx, dweight, dbias, dstate)`; the last is not filled without an initial state."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D)
    sequences, batch = _sequences(x, cu_seqlens)
    (D, W), dtype = weight.shape, x.dtype
    dx, dstate = new_rows(x, cu_seqlens), torch.empty(dfinal.shape, dtype=dtype, device=x.device)
    tensors = strided_rows(dy, cu_seqlens), dfinal.contiguous(), strided_rows(x, cu_seqlens)
    given = (each if each is None else each.contiguous() for each in (initial_state, weight, bias))
    tensors, blocks, tiles = (*tensors, *given), triton.cdiv(D, BLOCK_D), triton.cdiv(sequences[3], BLOCK_T)
    dweight, dbias = (torch.empty((tiles, *shape), device=x.device) for shape in ((D, W), (D,)))
    if dx.numel() > 0:
        causal_conv1d_backward_kernel[(tiles * blocks,)](
            *tensors, dx, dweight, dbias, sequences, D, SILU=silu, W=W, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D
        )
    if initial_state is not None and dstate.numel() > 0:
        state_gradient_kernel[(batch * blocks,)](*tensors, dstate, sequences, D, SILU=silu, W=W, BLOCK_D=BLOCK_D)
    return dx, dweight.sum(0).to(dtype), dbias.sum(0).to(dtype), dstate


# ## Checking the arguments
def filter_contract(x, weight, bias, activation):
    checks.tensors(x=x, weight=weight)
    checks.optional_tensors(bias=bias)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, weight=weight, bias=bias)
    checks.dimensions("weight", weight, 2, "D, W")
    if not 2 <= weight.shape[1] <= 8:
        raise ValueError(f"weight must have from 2 to 8 taps, got shape {tuple(weight.shape)}")
    checks.shape("weight", weight, (x.shape[-1], weight.shape[1]), "channels of x, taps")
    checks.shape("bias", bias, (x.shape[-1],), "channels of x")
    checks.choice("activation", activation, ACTIVATIONS)


def contract(x, weight, bias, activation, initial_state, return_final_state, cu_seqlens=None, packed=False):
    checks.tensors(x=x)
    checks.dimensions("x", x, 2 if packed else 3, "total, D" if packed else "B, T, D")
    filter_contract(x, weight, bias, activation)
    checks.optional_tensors(initial_state=initial_state)
    checks.choice("return_final_state", return_final_state, (True, False))
    sequences = sequences_contract(x.shape[0], cu_seqlens) if packed else x.shape[0]
    if initial_state is not None:
        checks.same_dtype(x=x, initial_state=initial_state)
        shape = (sequences, x.shape[-1], weight.shape[1] - 1)
        checks.shape("initial_state", initial_state, shape, "sequences, channels, taps - 1")


# ## Joining autograd
class CausalConv1d(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, initial_state, cu_seqlens, silu, launch_forward, launch_backward):
        ctx.save_for_backward(x, weight, bias, initial_state, cu_seqlens)
        ctx.silu, ctx.launch_backward = silu, launch_backward
        return launch_forward(x, weight, bias, initial_state, cu_seqlens, silu=silu)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy, dfinal):
        _, _, bias, state, *_ = ctx.needs_input_grad
        dx, dweight, dbias, dstate = ctx.launch_backward(dy, dfinal, *ctx.saved_tensors, silu=ctx.silu)
        return dx, dweight, dbias if bias else None, dstate if state else None, *[None] * 4


def call(x, weight, bias, initial_state, cu_seqlens, activation, return_final_state, launchers=None):
    launchers = launchers or (causal_conv1d_forward, causal_conv1d_backward)
    given, silu = (x, weight, bias, initial_state, cu_seqlens), activation is not None
    if autograd.needs_frame(x, weight, bias, initial_state):
        y, final = CausalConv1d.apply(*given, silu, *launchers)
    else:
        y, final = launchers[0](*given, silu=silu)
    return (y, final) if return_final_state else y


@replayed
def causal_conv1d(x, weight, bias=None, *, activation=None, initial_state=None, return_final_state=False):
    """A causal convolution of each channel with a filter of its own, differentiable.

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
    return call(x, weight, bias, initial_state, None, activation, return_final_state)


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
    return call(x, weight, bias, initial_state, cu_seqlens, activation, return_final_state)


@opaque(
    "(Tensor(a!) state, Tensor x, Tensor weight, Tensor? bias, *, bool silu) -> Tensor",
    lambda state, x, weight, bias, *, silu: x.new_empty(x.shape),
)
def step_forward(state, x, weight, bias, *, silu):
    """(B, D): one token; `state` moves on by it."""
    (D, W), y = weight.shape, x.new_empty(x.shape)
    if y.numel() > 0:
        step_kernel[(x.shape[0] * triton.cdiv(D, 128),)](
            (state, *state.stride()), (x, *x.stride()), weight.contiguous(), bias, y, D, SILU=silu, W=W, BLOCK_D=128
        )
    return y


@replayed
def causal_conv1d_step_(state, x, weight, bias=None, *, activation=None):
    """One token of each sequence. `state` is updated in place. Forward only.

    Args:
        state: (B, D, W - 1) in the dtype of `x`, any strides: the last inputs, oldest first.
        x: (B, D). weight, bias, activation: as in `causal_conv1d`.

    Returns:
        (B, D) in the dtype of `x`.

    Raises:
        TypeError, ValueError: as `causal_conv1d`, or an argument requires a gradient.

    Source: as `causal_conv1d`.
    """
    checks.tensors(state=state, x=x)
    checks.dimensions("x", x, 2, "B, D")
    filter_contract(x, weight, bias, activation)
    checks.same_dtype(x=x, state=state)
    checks.shape("state", state, (*x.shape, weight.shape[1] - 1), "sequences, channels, taps - 1")
    if any(stride == 0 and size > 1 for stride, size in zip(state.stride(), state.shape)):
        raise ValueError("state must not be expanded, because it is written to; pass state.contiguous()")
    checks.no_gradient("causal_conv1d_step_", state=state, x=x, weight=weight, bias=bias)
    return step_forward(state, x, weight, bias if bias is None else bias.contiguous(), silu=activation is not None)


# ## A run small enough to watch
def EXAMPLE():
    here = dict(device=device.DEVICE)
    x = torch.tensor([[1.0, 1], [2, 0], [3, 0], [4, 0], [5, 0]], **here)[None]
    weight = torch.tensor([[1.0, 10, 100], [0.5, -1, 2]], **here)
    state = torch.tensor([[8.0, 9], [0, 1]], **here)[None]
    dy = torch.tensor([[1.0, 0], [0, 0], [0, 0], [1, 1], [0, 0]], **here)[None]
    bias, size = torch.zeros(2, **here), dict(silu=False, BLOCK_T=4, BLOCK_D=2)
    causal_conv1d_forward(x, weight, bias, state, None, **size)
    causal_conv1d_backward(dy, torch.zeros_like(state), x, weight, bias, state, None, **size)
    causal_conv1d_step_(state, x[:, 0], weight, bias)


if __name__ == "__main__":
    script.main(causal_conv1d, causal_conv1d_reference)
