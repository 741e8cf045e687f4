"""What the geometry of a call decides is worked out once.

The *geometry* of a call is what can be seen without looking at memory: each tensor's dtype, shape, strides and device,
whether it requires a gradient and whether its address is a multiple of 16, and the options beside the tensors. A
training step or a decoder makes the same calls again and again, with other tensors of the same geometry.

`remembered(function)` calls a function of the geometry once for each. A check that passed needs no second look; one
that raised is asked again. (What a launcher does for a geometry is written down by `academy.runtime.replay`.)

A key may be finer than necessary, never coarser. A type counts as well as a value, because 1 equals 1.0 and True.
What isn't understood here is never remembered: a subclass of `torch.Tensor`, a list, `torch.compile`, `torch.func`,
forward-mode derivatives, the interpreter. No tensor is kept alive.

Names: `remembered`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from academy.runtime import launch
from academy.runtime.autograd import forward_mode
from academy.runtime.checks import looks_at_values, peek_interpreter_stack

_PLAIN = {int, float, bool, str}
_UNKNOWN = object()


def remembered(function: Callable, *, values: bool = False) -> Callable:
    """`function`, called once for each geometry of its arguments.

    Args:
        function: of positional arguments: tensors, numbers, names, None, and tuples of these. Its result must depend on
            the geometry only, and is shared by all calls. One that holds a tensor is not remembered.
        values: whether the function also looks at values where `ACADEMY_DEBUG=1` asks for that. Then it is called.
    """
    found: dict[tuple, Any] = {}
    launch.CACHES.append(found)

    def once(*arguments):
        if torch.compiler.is_compiling() or not launch.COMPILED:
            return function(*arguments)
        if forward_mode() or peek_interpreter_stack() is not None or values and looks_at_values():
            return function(*arguments)
        try:
            key = tuple(_geometry(arguments, [launch.current_device(), torch.is_grad_enabled()]))
            result = found.get(key, _UNKNOWN)
        except (TypeError, RuntimeError):  # another kind of argument: no strides, no memory, no hash
            return function(*arguments)
        if result is _UNKNOWN:
            result = function(*arguments)
            if not _holds_tensor(result):
                launch.keep(found, key, result)
        return result

    return functools.wraps(function)(once)


def _geometry(arguments: Sequence, key: list) -> list:
    """Adds everything that can be seen of these arguments without looking at memory."""
    for value in arguments:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            aligned = value.data_ptr() % 16 == 0  # raises if it is sparse, as `shape` does if it is nested
            if value.is_neg():
                raise TypeError("a tensor that isn't what its memory says")
            key += value.dtype, value.shape, value.stride(), value.device, value.requires_grad, aligned
        elif value is None:
            key.append(None)
        elif kind in _PLAIN:
            key += kind, value
        elif isinstance(value, tuple):
            key += kind, len(value)
            _geometry(value, key)
        else:
            raise TypeError(f"{kind.__name__} is not remembered")
    return key


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or isinstance(value, tuple | list) and any(map(_holds_tensor, value))
