r"""
# What delta rules share

The gated delta rule has a decay for each head, [[tag: GD-S]], Kimi's for each row of a head's state, [[tag: KDA-S]]. To
autograd both are the same function of the same inputs. And a token at a time both take the same arguments.
"""

from academy.runtime import autograd, checks, device  # noqa: F401  (before anything imports triton)

import torch
import triton
import triton.language as tl

from annotated_examples.common.chunks import contract


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
