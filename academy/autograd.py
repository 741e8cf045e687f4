"""Joining autograd: a backward pass that is a kernel can't be differentiated again, and says so.

Names: `once_differentiable`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable as differentiable_upstream_raises


def once_differentiable(backward: Callable) -> Callable:
    """PyTorch's decorator for `Function.backward`, which also raises where the upstream gradient is a constant.

    PyTorch's own raises only if the upstream gradient itself requires a gradient. That of `f(x).sum()` is a constant,
    so a gradient penalty on it would get no error, and no effect either. Here the constant is marked first. Without
    `create_graph` nothing changes.

    Raises:
        RuntimeError: in the backward pass of whatever was computed from the gradients.

    Source: PyTorch's documentation, "Double Backward with Custom Functions".
    """
    raises = differentiable_upstream_raises(backward)

    @functools.wraps(backward)
    def guarded(ctx, *upstream):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            upstream = [v if v is None or v.requires_grad else v.detach().requires_grad_() for v in upstream]
        return raises(ctx, *upstream)

    return guarded
