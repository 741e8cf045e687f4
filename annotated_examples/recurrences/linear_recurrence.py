r"""
# A state that forgets: h ← a h + x

A running sum never forgets. Multiply what it holds by a gate $a_t$ before the next number is added, and it does:

[[eq: LR]]

With gates and inputs computed from the token, this is the core of minGRU, of the RG-LRU in Griffin, and of Mamba. It
takes the place of attention in a layer: what the state holds stands for all tokens so far, however many there were. In
each of `D` channels it is a recurrence of its own.

It is still a scan. What a stretch of tokens does to the state is $h \mapsto a h + x$, and two stretches together do
the same with other numbers: first $(a, x)$ and then $(b, y)$ make $(ab, bx + y)$. This is *associative*, so any two
neighbours may be joined first. It isn't commutative: their order must be kept.

Between tiles the state is handed on. A tile is scanned as if it began at 0, $\hat h$, and what its first state becomes
is added: [[tag: LR-chunk]].

[[figure: recurrences/impulse]]

The gradient of the state is a recurrence that runs from the end, [[tag: LR-lambda]]. It is the gradient of `x`
([[tag: LR-dx]]), and times the state before it that of `a` ([[tag: LR-da]]).

**What it costs.** Forward reads `a` and `x` and writes `h`: 6 bytes an element in bfloat16. Backward reads `dh`, `a`
and `h` and writes `dx` and `da`: 10 bytes. So the floor is the time of a copy. But a scan is work: for the 32 pairs of
numbers that a thread has of a tile, it takes 192 exchanges between the lanes of a warp, and a detour through shared
memory from one warp to the other. So this lesson reaches
[[bench: linear_recurrence/8x4096x2048/forward/lesson.share]] of a copy's speed forward and
[[bench: linear_recurrence/8x4096x2048/backward/lesson.share]] backward. One program walks along a sequence, for 32
channels: 64 programs for a single sequence of 2048 channels, which isn't enough to fill a large card.

**Contract.** `a` and `x` are (B, T, D) with any strides, `x` float32, float16 or bfloat16, `a` of its dtype or float32.
A gate may be any number, negative and 0 too; but the product of the gates of up to 64 tokens must fit into float32.
Where it doesn't, or a gate is infinite, the parts of a tile may be infinities that cancel: NaN instead of an infinity.
A gate of 0 resets a channel whose state is finite. States are float32, (B, D). All arithmetic is float32. The result is
rounded to the dtype of `x` and the state isn't: a sequence in one call gives what its pieces give when the state is
handed on, up to rounding. No input is written to, and the same call gives the same bits. In packed form, (total, D),
rows behind the last sequence are 0.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import sequence
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.sequences import new_rows, sequences_contract, strided_rows


# ## Reference
#
# The loop, in float32 or float64. Why not $h = A \cdot \text{cumsum}(x / A)$, with $A$ the product of the gates? That
# is the same in exact arithmetic, and needs no loop in PyTorch. But with gates of 0.5 and inputs of 1 it is infinite
# from the 127th token on, where the sum of the quotients leaves float32, and NaN from the 150th on, where the product
# becomes 0.
def linear_recurrence_reference(a, x, initial_state=None, *, return_final_state=False):
    precise = torch.promote_types(x.dtype, torch.float32)
    h = torch.zeros_like(x[:, 0], dtype=precise) if initial_state is None else initial_state.to(precise)
    states = []
    for gate, value in zip(a.unbind(1), x.unbind(1)):
        h = gate.to(precise) * h + value.to(precise)
        states.append(h)
    out = (torch.stack(states, 1) if states else a * x).to(x.dtype)
    return (out, h) if return_final_state else out


def linear_recurrence_varlen_reference(a, x, cu_seqlens, initial_state=None, *, return_final_state=False):
    ends = cu_seqlens.tolist()
    if initial_state is None:
        initial_state = torch.zeros(len(ends) - 1, x.shape[1], device=x.device)
    parts, states = [x[:0]], [initial_state[:0].to(torch.promote_types(x.dtype, torch.float32))]
    for number, (start, end) in enumerate(zip(ends, ends[1:])):
        piece = a[None, start:end], x[None, start:end], initial_state[number : number + 1]
        h, final = linear_recurrence_reference(*piece, return_final_state=True)
        parts.append(h[0])
        states.append(final)
    out = torch.cat([*parts, torch.zeros_like(x[ends[-1] :])])
    return (out, torch.cat(states)) if return_final_state else out


# ## Two stretches become one
#
# What the scan is told: how the left stretch, with gate `a` and sum `x`, and the right one are joined. Swap the two,
# and the wrong one decays.
#
# [[figure: recurrences/joined]]
@triton.jit
def join(a, x, b, y):
    return a * b, b * x + y


# Pointers to a tile of rows and channels. `tensor` is a pointer and three strides. Row numbers become 64 bits wide
# before they are multiplied.
@triton.jit
def tile(tensor, b, rows, offs_d):
    ptr, stride_b, stride_t, stride_d = tensor
    return ptr + b * stride_b + rows.to(tl.int64)[:, None] * stride_t + offs_d.to(tl.int64)[None, :] * stride_d


# ## Forward
#
# A program takes `BLOCK_D` channels of one sequence and walks along it, `BLOCK_T` tokens at a time. `sequence` says
# where a packed sequence begins and how long it is; without offsets all have `T` tokens. One dimension of the grid
# holds sequences and blocks of channels, because the second dimension ends at 65535.
#
# The numbers in the notes come from a recorded run: one sequence of 6 tokens and 2 channels, in tiles of 4. In the
# first channel every gate is 0.5. In the second they are 1, but for the third token's, which is 0. The states begin at
# 16 and 10.
@triton.jit
def linear_recurrence_forward_kernel(
    a_tensor, x_tensor, h_tensor,  # (pointer, three strides) of (B, T, D)
    initial_ptr, final_ptr,  # (B, D); the first may be None
    cu_ptr,  # (sequences + 1,), or None
    T, D, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    lanes = tl.arange(0, BLOCK_T)
    start, length = sequence(cu_ptr, b, T)
    # The state, one number a channel, in float32 throughout.
    h = tl.zeros((BLOCK_D,), tl.float32)
    if initial_ptr is not None:
        h = tl.load(initial_ptr + b * D + offs_d, mask=mask_d, other=0.0)

    # `num_stages` has the next tiles on their way while this one is scanned.
    for done in tl.range(0, length, BLOCK_T, num_stages=4):
        offs_t = done + lanes
        mask = (offs_t < length)[:, None] & mask_d[None, :]
        # Lanes past the end get the gate 1 and add 0, so they hand the state on as it is. With gates of 0 the final
        # state would be 0. In the second tile two tokens are left:
        # `pid=0, done=4: a = [[0.5, 1], [0.5, 1], [1, 1], [1, 1]]`.
        a = tl.load(tile(a_tensor, b, start + offs_t, offs_d), mask=mask, other=1.0).to(tl.float32)
        x = tl.load(tile(x_tensor, b, start + offs_t, offs_d), mask=mask, other=0.0).to(tl.float32)
        # **The scan** down the rows. `tl.associative_scan` takes pairs as well as numbers and gives both: the product
        # of the gates since the tile's beginning, and the recurrence from 0. In the first channel the 8 of the first
        # token halves: `pid=0, done=0: local[:, 0] = [8, 4, 2, 1]`.
        decay, local = tl.associative_scan((a, x), 0, join)
        # [[tag: LR-chunk]]: what is left of the 16 it began with is `pid=0, done=0: decay[:, 0] = [0.5, 0.25, 0.125,
        # 0.0625]` of it. Both make `pid=0, done=0: y[:, 0] = [16, 8, 4, 2]`. In the second channel nothing before the
        # reset is left, `pid=0, done=0: y[:, 1] = [11, 13, 3, 7]`.
        y = local + decay * h[None, :]
        tl.store(tile(h_tensor, b, start + offs_t, offs_d), y, mask=mask)
        # The last lane is the state that the next tile begins with, `pid=0, done=0: h = [2, 7]`. A sum in which all
        # other lanes are 0 picks it out.
        h = tl.sum(tl.where(lanes[:, None] == BLOCK_T - 1, y, 0.0), axis=0)
    tl.store(final_ptr + b * D + offs_d, h, mask=mask_d)


# ## Backward
#
# A change of the state at token t changes what leaves at t, and, times the next gate, everything after it:
# [[tag: LR-lambda]]. So the program walks from the end, with gates loaded **one row later**, and what it carries is
# $\lambda$. It begins with the gradient of the final state. Behind the last token there is no gate: its place is taken
# by a 1, which hands that gradient on.
#
# `tl.associative_scan` can run from the end, too. But then every number changes places with another thread's before
# the scan and once more after it: 832 exchanges in each thread instead of 192. (From Triton 3.9 on: 320.) Here the rows
# are loaded in the order in which they are needed, the last one first, and the scan is the one from above.
#
# In the example the upstream gradient is 1 at the last token of the first channel and at the third of the second. That
# of the final states is 0 and 2.
@triton.jit
def linear_recurrence_backward_kernel(
    dh_tensor, a_tensor, h_tensor, dx_tensor, da_tensor,  # (pointer, three strides) of (B, T, D)
    dfinal_ptr, initial_ptr, dinitial_ptr,  # (B, D); the second may be None
    cu_ptr,  # (sequences + 1,), or None
    T, D, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(D, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    offs_d = tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    lanes = tl.arange(0, BLOCK_T)
    start, length = sequence(cu_ptr, b, T)
    carry = tl.load(dfinal_ptr + b * D + offs_d, mask=mask_d, other=0.0)
    first = tl.zeros((BLOCK_D,), tl.float32)
    if initial_ptr is not None:
        first = tl.load(initial_ptr + b * D + offs_d, mask=mask_d, other=0.0)

    for done in tl.range(0, length, BLOCK_T, num_stages=4):
        # The last token comes first, `pid=0, done=0: offs_t = [5, 4, 3, 2]`. Before the first one lanes are masked off,
        # `pid=0, done=4: offs_t = [1, 0, -1, -2]`.
        offs_t = length - 1 - done - lanes
        mask = (offs_t >= 0)[:, None] & mask_d[None, :]
        # The gates of the rows below, `pid=0, done=0: a = [[1, 1], [0.5, 1], [0.5, 1], [0.5, 1]]`.
        below = mask & (offs_t + 1 < length)[:, None]
        a = tl.load(tile(a_tensor, b, start + offs_t + 1, offs_d), mask=below, other=1.0).to(tl.float32)
        dh = tl.load(tile(dh_tensor, b, start + offs_t, offs_d), mask=mask, other=0.0).to(tl.float32)
        # The same scan. In the second channel the gradient of the final state passes the tokens unchanged, and at the
        # third 1 is added, `pid=0, done=0: lam[:, 1] = [2, 2, 2, 3]`. The reset lets nothing pass:
        # `pid=0, done=4: lam[:2, 1] = [0, 0]`.
        decay, local = tl.associative_scan((a, dh), 0, join)
        lam = local + decay * carry[None, :]
        tl.store(tile(dx_tensor, b, start + offs_t, offs_d), lam, mask=mask)
        # A gate multiplied the state **before** its token, [[tag: LR-da]]. The first token's was the initial state.
        above = mask & (offs_t > 0)[:, None]
        before = tl.load(tile(h_tensor, b, start + offs_t - 1, offs_d), mask=above, other=0.0).to(tl.float32)
        before = tl.where(offs_t[:, None] == 0, first[None, :], before)
        tl.store(tile(da_tensor, b, start + offs_t, offs_d), lam * before, mask=mask)
        carry = tl.sum(tl.where(lanes[:, None] == BLOCK_T - 1, lam, 0.0), axis=0)
    # [[tag: LR-dh0]]. An empty sequence has no gate, and its final state is the initial one.
    gate = tl.load(tile(a_tensor, b, start + tl.arange(0, 1), offs_d), mask=mask_d[None, :] & (length > 0), other=1.0)
    dinitial = carry * tl.sum(gate.to(tl.float32), axis=0)
    tl.store(dinitial_ptr + b * D + offs_d, dinitial, mask=mask_d)


# ## Launchers
#
# 64 tokens of 32 channels are 32 numbers for each thread of two warps. The final state is always written, and handed
# out on request. `torch.compile` can't look into a launch whose arguments are tuples; `opaque` tells it what comes out.
def empty_forward(a, x, initial_state, cu_seqlens):
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), x.new_empty(
        sequences, x.shape[-1], dtype=torch.float32
    )


def empty_backward(dh, dfinal, a, h, initial_state, cu_seqlens):
    new = lambda like: torch.empty(like.shape, dtype=like.dtype, device=like.device)  # noqa: E731
    return new(h), new(a), new(dfinal)


@opaque("(Tensor a, Tensor x, Tensor? initial_state, Tensor? cu_seqlens) -> (Tensor, Tensor)", empty_forward)
def linear_recurrence_forward(a, x, initial_state=None, cu_seqlens=None, *, BLOCK_T=64, BLOCK_D=32, num_warps=2):
    """`(h, final)`: all states in the dtype of x, and the last of each sequence in float32.

    a, x: (B, T, D), or packed (total, D) with `cu_seqlens`. initial_state: (sequences, D) or None.
    BLOCK_T, BLOCK_D: tokens and channels of a tile.
    """
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, num_warps=num_warps)
    T, D = x.shape[-2:]
    h, final = new_rows(x, cu_seqlens), empty_forward(a, x, initial_state, cu_seqlens)[1]
    initial = None if initial_state is None else initial_state.contiguous()
    if final.numel() > 0:
        linear_recurrence_forward_kernel[(final.shape[0] * triton.cdiv(D, BLOCK_D),)](
            *(strided_rows(each, cu_seqlens) for each in (a, x, h)), initial, final, cu_seqlens, T, D,
            BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, num_warps=num_warps,
        )  # fmt: skip
    return h, final


@opaque(
    "(Tensor dh, Tensor dfinal, Tensor a, Tensor h, Tensor? initial_state, Tensor? cu_seqlens) "
    "-> (Tensor, Tensor, Tensor)",
    empty_backward,
)
def linear_recurrence_backward(
    dh, dfinal, a, h, initial_state=None, cu_seqlens=None, *, BLOCK_T=64, BLOCK_D=32, num_warps=2
):
    """`(dx, da, dinitial)`. dh, dfinal: upstream gradients. h: what forward returned. The others: as there."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, num_warps=num_warps)
    T, D = h.shape[-2:]
    dx, da = new_rows(h, cu_seqlens), new_rows(a, cu_seqlens)
    dinitial = torch.empty(dfinal.shape, dtype=torch.float32, device=h.device)
    initial = None if initial_state is None else initial_state.contiguous()
    if dinitial.numel() > 0:
        linear_recurrence_backward_kernel[(dinitial.shape[0] * triton.cdiv(D, BLOCK_D),)](
            *(strided_rows(each, cu_seqlens) for each in (dh, a, h, dx, da)), dfinal.contiguous(), initial, dinitial,
            cu_seqlens, T, D, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, num_warps=num_warps,
        )  # fmt: skip
    return dx, da, dinitial


# ## Checking the arguments
def contract(a, x, initial_state, return_final_state, cu_seqlens=None, packed=False):
    checks.tensors(a=a, x=x)
    checks.optional_tensors(initial_state=initial_state)
    checks.dtypes(x=x)
    checks.dtypes((torch.float32, x.dtype), a=a)
    checks.dimensions("x", x, 2 if packed else 3, "total, D" if packed else "B, T, D")
    checks.same_shape(x=x, a=a)
    checks.choice("return_final_state", return_final_state, (True, False))
    sequences = sequences_contract(x.shape[0], cu_seqlens) if packed else x.shape[0]
    if initial_state is not None:
        checks.dtypes((torch.float32,), initial_state=initial_state)
        checks.shape("initial_state", initial_state, (sequences, x.shape[-1]), "one for each sequence, D")


# ## Joining autograd
#
# Saved are the gates and the states as they were rounded; `x` isn't needed.
class LinearRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, x, initial_state, cu_seqlens, launch_forward, launch_backward):
        h, final = launch_forward(a, x, initial_state, cu_seqlens)
        ctx.save_for_backward(a, h, initial_state, cu_seqlens)
        ctx.launch_backward = launch_backward
        return h, final

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dh, dfinal):
        dx, da, dinitial = ctx.launch_backward(dh, dfinal, *ctx.saved_tensors)
        return da, dx, dinitial if ctx.needs_input_grad[2] else None, None, None, None


def call(a, x, initial_state, return_final_state, cu_seqlens=None, launchers=None):
    launchers = launchers or (linear_recurrence_forward, linear_recurrence_backward)
    if autograd.needs_frame(a, x, initial_state):
        h, final = LinearRecurrence.apply(a, x, initial_state, cu_seqlens, *launchers)
    else:
        h, final = launchers[0](a, x, initial_state, cu_seqlens)
    return (h, final) if return_final_state else h


@replayed
def linear_recurrence(a, x, initial_state=None, *, return_final_state=False):
    """`h[t] = a[t] * h[t - 1] + x[t]` in every channel, differentiable in `a`, `x` and the initial state.

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

    Source: Martin and Cundy, "Parallelizing Linear Recurrent Neural Nets Over Sequence Length" (2018).
    """
    contract(a, x, initial_state, return_final_state)
    return call(a, x, initial_state, return_final_state)


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
    return call(a, x, initial_state, return_final_state, cu_seqlens.contiguous())


# ## A run small enough to watch
#
# One sequence of six tokens and two channels, in tiles of four, and its gradients.
def EXAMPLE():
    here = dict(device=device.DEVICE)
    a = torch.tensor([[0.5, 1], [0.5, 1], [0.5, 0], [0.5, 1], [0.5, 1], [0.5, 1]], **here)[None]
    x = torch.tensor([[8.0, 1], [0, 2], [0, 3], [0, 4], [4, 5], [0, 6]], **here)[None]
    dh = torch.tensor([[0.0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0]], **here)[None]
    state = torch.tensor([[16.0, 10]], **here)
    h, _ = linear_recurrence_forward(a, x, state, BLOCK_T=4, BLOCK_D=2)
    linear_recurrence_backward(dh, torch.tensor([[0.0, 2]], **here), a, h, state, BLOCK_T=4, BLOCK_D=2)


if __name__ == "__main__":
    script.main(linear_recurrence, linear_recurrence_reference)
