r"""
# What delta rules share

The gated delta rule has a decay for each head, [[tag: GD-S]], Kimi's for each row of a head's state, [[tag: KDA-S]]. To
autograd both are the same function of the same inputs. And a token at a time both take the same arguments.
"""

from academy.runtime import autograd, checks, device  # noqa: F401  (before anything imports triton)
from academy.runtime.launch import launch

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.chunks import (
    contract, length_of_parts, load_block, load_state, round_to_tf32, store_block, tensor,
)  # fmt: skip


# ## Joining autograd
#
# The inputs are saved, and nothing else: backward computes differences and states again.
class DeltaRule(torch.autograd.Function):
    """(o, final_state), computed by two launchers:

    - `launch_forward(q, k, v, g, beta, initial_state, cu_seqlens, scale=…)`, tensors with heads before tokens.
    - `launch_backward(do, dfinal, *the same, scale=…)` returns `(dq, dk, dv, dg, dbeta, dinitial)`.
    """

    @staticmethod
    def forward(ctx, q, k, v, g, beta, initial_state, cu_seqlens, scale, launch_forward, launch_backward):
        ctx.save_for_backward(q, k, v, g, beta, initial_state, cu_seqlens)
        ctx.scale, ctx.launch_backward = scale, launch_backward
        if not torch.compiler.is_compiling():  # Dynamo can't do this; it makes zeros for unused results
            ctx.set_materialize_grads(False)
        return launch_forward(q, k, v, g, beta, initial_state, cu_seqlens, scale=scale)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do, dfinal):
        *gradients, dg, dbeta, dinitial = ctx.launch_backward(do, dfinal, *ctx.saved_tensors, scale=ctx.scale)
        wanted = ctx.needs_input_grad
        return *gradients, dg if wanted[3] else None, dbeta, dinitial if wanted[5] else None, None, None, None, None


def attend(q, k, v, g, beta, initial_state, cu_seqlens, scale, launch_forward, launch_backward):
    """`(o, final_state)` of (B, H, T, …), through the autograd `Function` if something needs a gradient."""
    if not autograd.needs_frame(q, k, v, g, beta, initial_state):
        return launch_forward(q, k, v, g, beta, initial_state, cu_seqlens, scale=scale)
    return DeltaRule.apply(q, k, v, g, beta, initial_state, cu_seqlens, scale, launch_forward, launch_backward)


# ## One token
#
# When a model writes, a token comes at a time, and the states of many requests are in one tensor. First a row of a
# matrix as `head` gives it, of which only the distance from column to column matters.
@triton.jit
def load_vector(row, offs, length):
    ptr, _, stride = row
    return tl.load(ptr + offs.to(tl.int64) * stride, mask=offs < length, other=0.0).to(tl.float32)


# A token is a sequence of length 1, so the checks of the whole sequence serve here, too.
def step_contract(name, state, q, k, v, g, beta, scale, slots, per_channel=False):
    """Checks the arguments of the function `name`. Returns the scale, and q, k, v, g and beta with the heads before a
    single token, as (B, heads, 1, …). per_channel: whether g has a gate for each number of a key."""
    checks.tensors(state=state, q=q, k=k, v=v, beta=beta)
    checks.optional_tensors(g=g, slots=slots)
    for each, x in dict(q=q, k=k, v=v).items():
        checks.dimensions(each, x, 3, "B, heads, width")
    for each, x, wide in ("g", g, per_channel), ("beta", beta, False):
        if x is not None:
            checks.dimensions(each, x, 2 + wide, "B, heads of v, width of k" if wide else "B, heads of v")
    checks.no_gradient(name, state=state, q=q, k=k, v=v, g=g, beta=beta)
    tensors = [None if x is None else x.unsqueeze(1) for x in (q, k, v, g, beta)]
    scale = contract(*tensors[:4], scale, None, False, per_channel=per_channel, beta=tensors[4])
    state_contract(state, q, v, slots)
    return scale, [None if x is None else x.transpose(1, 2) for x in tensors]


def state_contract(state, q, v, slots):
    checks.dtypes((torch.float32,), state=state)
    rows = q.shape[0] if slots is None or state.dim() == 0 else state.shape[0]
    checks.shape("state", state, (rows, v.shape[1], q.shape[2], v.shape[2]), "slots, heads of v, D of q, D of v")
    if any(stride == 0 and size > 1 for stride, size in zip(state.stride(), state.shape)):
        raise ValueError("state must not be expanded, because it is written to; pass state.contiguous()")
    if slots is None:
        return
    checks.dtypes((torch.int32,), slots=slots)
    checks.shape("slots", slots, q.shape[:1], "one for each row of q")
    if checks.looks_at_values():
        named = [slot for slot in slots.tolist() if slot != -1]
        if any(not 0 <= slot < rows for slot in named) or len(set(named)) < len(named):
            raise ValueError(f"slots must be different numbers from 0 to {rows - 1}, or -1, got {slots.tolist()}")


# ## A long text of few heads
#
# One program for each head would leave most of the card idle. So a long sequence is cut into parts, which are walked
# along at the same time. Linear attention does that, too: there what came before a part fades, and what the part itself
# writes is added. Here the part's keys also take off some of it. All of that is linear in the state, so it is a product
# with a matrix, which is itself a product of one matrix for each token, [[tag: GD-S]], [[tag: KDA-S]]. The walk finds
# it: from an identity for a state, with no values, it ends with that matrix.
#
# This kernel goes from part to part. A program has `BLOCK_E` columns of the states of one head. In the end
# `states_tensor` has the state *before* each part.
#
# Gradients go the other way, from the last part to the first, and through the transposed matrix. The rest is the same.
@triton.jit
def join_kernel(
    passed_tensor, initial_tensor, states_tensor, final_tensor,  # (parts, H, D, D), (B, H, D, E), (parts, H, D, E)
    parts, D, E, H, REVERSE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    b, h = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H
    offs_d, offs_e = tl.arange(0, BLOCK_D), tl.program_id(0) % tiles * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for n in tl.range(0, parts):
        part = b * parts + (parts - 1 - n if REVERSE else n)
        passed = load_block(head(passed_tensor, part, h, 0), offs_d, D, offs_d, D)
        own = load_block(head(states_tensor, part, h, 0), offs_d, D, offs_e, E)
        store_block(head(states_tensor, part, h, 0), state, offs_d, D, offs_e, E)
        state = tl.dot(round_to_tf32(passed), round_to_tf32(state), own, input_precision="tf32")
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


def parts_of(q, v, cu_seqlens, chunks, tiles, LENGTH):
    """What the walks get: how many parts a sequence has, their length, and the widths of q and v."""
    programs = chunks.batch * v.shape[1] * triton.cdiv(v.shape[3], tiles["BLOCK_E"])
    LENGTH = LENGTH or length_of_parts(q.shape[2], programs, cu_seqlens)
    return triton.cdiv(q.shape[2], LENGTH), LENGTH, q.shape[3], v.shape[3]


# What each part begins with. `along` walks along all of them, from the states that it is handed to those that it fills.
def from_part_to_part(along, passed, given, result, reverse, tiles):
    """The states, as kernels take them; `given` is the first, and `result` is filled with the last."""
    (B, H, D, E), nothing, BLOCK_E = result.shape, tensor(None), tiles["BLOCK_E"]
    states = result.new_empty(passed.shape[0], H, D, E)
    along(nothing, tensor(states))
    launch(
        join_kernel, (B * H * triton.cdiv(E, BLOCK_E),),
        (tensor(passed), tensor(given), tensor(states), tensor(result), passed.shape[0] // B, D, E), (H,),
        REVERSE=reverse, BLOCK_D=tiles["BLOCK_D"], BLOCK_E=BLOCK_E, num_warps=2 if tiles["BLOCK_D"] <= 32 else 8,
    )  # fmt: skip
    return tensor(states)
