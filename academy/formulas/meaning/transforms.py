"""`vmap` and `jacrev` of one tensor, from the primitives that PyTorch's own are made of.

`torch.func.vmap` spends as long looking for tensors in trees of arguments as a formula takes, and `torch.func.jacrev`
imports PyTorch's compiler, which takes two seconds. tests/formulas compares both with these.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C import _functorch

Function = Callable[[torch.Tensor], torch.Tensor]


def for_each(function: Callable[..., torch.Tensor], *batches: torch.Tensor) -> torch.Tensor:
    """`torch.func.vmap(function)(*batches)`."""
    size = len(batches[0])
    level = _functorch._vmap_increment_nesting(size, "error")
    try:
        value = function(*(_functorch._add_batch_dim(each, 0, level) for each in batches))
        return _functorch._remove_batch_dim(value, level, size, 0)
    finally:
        _functorch._vmap_decrement_nesting()


def batch_level(value: torch.Tensor) -> int:
    """The level of the innermost batch, or derivative, that a value is part of; -1: of none."""
    return _functorch.maybe_get_level(value)


def axis_as_batch(value: torch.Tensor, axis: int, level: int) -> torch.Tensor:
    """One element along an axis, another one for each position of the batch at a level. It must be one in which the
    value has no part yet, nor in one inside of it; and as long as the axis."""
    return _functorch._add_batch_dim(value, axis, level)


def jacobian(function: Function, point: torch.Tensor) -> torch.Tensor:
    """`torch.func.jacrev(function)(point)`: the axes of the result, then those of the point."""

    def slopes(value: torch.Tensor, pulled_back: Function) -> torch.Tensor:
        if not value.dim():
            return pulled_back(torch.ones_like(value))
        basis = torch.eye(value.numel(), dtype=value.dtype).unflatten(1, value.shape)
        return for_each(pulled_back, basis).unflatten(0, value.shape)

    return _differentiated(function, point, slopes)


def elementwise_slope(function: Function, point: torch.Tensor) -> torch.Tensor:
    """The derivative, at each element of the point, of a function that acts on each by itself."""
    return _differentiated(function, point, lambda value, pulled_back: pulled_back(torch.ones_like(value)))


def _differentiated(
    function: Function, point: torch.Tensor, slopes: Callable[[torch.Tensor, Function], torch.Tensor]
) -> torch.Tensor:
    """slopes: gets the function's value, and what makes of an upstream gradient the point's."""
    level = _functorch._grad_increment_nesting()
    allowed = _functorch.get_inplace_requires_grad_allowed()
    try:
        x = _functorch._wrap_for_grad(point, level)
        _functorch.set_inplace_requires_grad_allowed(True)
        x.requires_grad_()
        _functorch.set_inplace_requires_grad_allowed(allowed)
        value = function(x)

        def pulled_back(upstream: torch.Tensor) -> torch.Tensor:
            if not value.requires_grad:
                return torch.zeros_like(x)
            (slope,) = torch.autograd.grad(value, x, upstream, create_graph=True, allow_unused=True)
            return torch.zeros_like(x) if slope is None else slope

        return _functorch._unwrap_for_grad(slopes(value, pulled_back), level)
    finally:
        _functorch.set_inplace_requires_grad_allowed(allowed)
        _functorch._grad_decrement_nesting()
