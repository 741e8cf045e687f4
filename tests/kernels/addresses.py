"""Which addresses a kernel touches, seen by the interpreter: a read behind a tensor's end is silent everywhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError


@contextlib.contextmanager
def loads_inside(*tensors: torch.Tensor) -> Iterator[None]:
    """Fail if an unmasked lane of a load reads outside of the memory of `tensors` (interpreter only)."""
    builder = interpreter.InterpreterBuilder
    original = builder.create_masked_load
    spans = [(t.data_ptr(), t.data_ptr() + _reach(t)) for t in tensors]

    def watched(self, pointers, mask, *rest, **named):
        addresses = np.broadcast_to(pointers.data, np.shape(mask.data))[np.asarray(mask.data, dtype=bool)]
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, end in spans:
            inside |= (addresses >= start) & (addresses < end)
        assert inside.all(), f"{(~inside).sum()} of {inside.size} addresses of a load lie outside of every tensor"
        return original(self, pointers, mask, *rest, **named)

    builder.create_masked_load = watched
    try:
        yield
    except InterpreterError as error:  # as which the interpreter shows the assertion above
        raise AssertionError(str(error)) from error
    finally:
        builder.create_masked_load = original


def _reach(tensor: torch.Tensor) -> int:
    """Bytes from the first to behind the last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size() if tensor.numel() else 0
