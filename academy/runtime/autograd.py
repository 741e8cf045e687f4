"""Integration with autograd: when a call needs its `Function`, and backward passes that raise if differentiated.

Names: `needs_frame`, `forward_mode`, `once_differentiable`, `dependence`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.autograd import forward_ad


def needs_frame(*inputs: torch.Tensor | None) -> bool:
    """Whether a call with these inputs has to go through its `autograd.Function`, or can go straight to the launcher.

    It has to if a gradient is being recorded for one of them. It also has to if one carries a forward-mode tangent
    (`torch.autograd.forward_ad`, `torch.func.jvp`): the function then raises, whereas the launcher would silently drop
    the tangent. Going through a function takes several microseconds, which a call without gradients saves.

    Source: PyTorch's documentation, "Extending PyTorch" and "Forward-mode automatic differentiation".
    """
    if torch.is_grad_enabled():
        for value in inputs:
            if value is not None and value.requires_grad:
                return True
    # No tangent exists outside of `dual_level`, which is nearly always. (Dynamo traces no forward-mode levels.)
    if torch.compiler.is_compiling() or not forward_mode():
        return False
    return any(value is not None and forward_ad.unpack_dual(value).tangent is not None for value in inputs)


def forward_mode() -> bool:
    """Whether tensors may carry tangents at the moment."""
    return forward_ad._current_level >= 0


def once_differentiable(backward: Callable) -> Callable:
    """For `Function.backward`: gradients of its results raise, however they are asked for.

    PyTorch's decorator of this name has two gaps. It raises only if the upstream gradient itself requires a gradient,
    and that of `f(x).sum()` is a constant. And its error is on a branch of the graph that
    `torch.autograd.grad(…, inputs=x)` never visits. In both cases a gradient penalty has no effect, and there is no
    error. Here the results depend on the upstream gradients and on all saved tensors, so every path from a penalty back
    to the inputs leads to the error. A function that saves nothing that depends on an input sets
    `ctx.dependence = dependence(input)`. Without `create_graph` nothing changes.

    Raises:
        RuntimeError: in the backward pass of anything that was computed from the gradients.

    Source: PyTorch's documentation, "Double Backward with Custom Functions".
    """

    @functools.wraps(backward)
    def guarded(ctx, *upstream):
        if not torch.is_grad_enabled():  # without `create_graph`
            return backward(ctx, *upstream)
        with torch.no_grad():
            gradients = backward(ctx, *upstream)
        if torch.compiler.is_compiling():
            return gradients
        results = gradients if isinstance(gradients, tuple) else (gradients,)
        sources = [*upstream, *ctx.saved_tensors, *getattr(ctx, "dependence", ())]
        marked = _Raises.apply(len(results), *results, *sources)
        return marked if isinstance(gradients, tuple) else marked[0]

    return guarded


class _Raises(torch.autograd.Function):
    """Hands on the first `count` values, which from then on depend on all others, and raises on the way back."""

    @staticmethod
    def forward(ctx, count, *values):
        return tuple(value.view_as(value) if torch.is_tensor(value) else value for value in values[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("this kernel's gradients can't be differentiated again: its backward is once_differentiable")


def dependence(*inputs: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Empty tensors that depend on `inputs` as far as autograd can tell, and keep none of their memory. None of them in
    Dynamo.

    Args: tensors of at least one dimension.
    """
    if torch.compiler.is_compiling():  # Dynamo raises for a second derivative by itself
        return ()
    with torch.enable_grad():  # one operation, and no view
        return tuple(x.index_select(0, _no_rows(x.device)) for x in inputs if x is not None)


@functools.cache
def _no_rows(device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):  # autograd saves it
        return torch.empty(0, dtype=torch.int64, device=device)
