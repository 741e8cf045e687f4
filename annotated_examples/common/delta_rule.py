r"""
# What delta rules share

The gated delta rule has a decay for each head, [[tag: GD-S]], Kimi's for each row of a head's state, [[tag: KDA-S]]. To
autograd both are the same function of the same inputs.
"""

from academy.runtime import autograd, device  # noqa: F401  (before anything imports triton)

import torch


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
