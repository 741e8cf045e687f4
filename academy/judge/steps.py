"""A reference step by step: its fused operations replaced by the sums and products that PyTorch says they are."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from academy.judge import elements
from academy.runtime.modes import DispatchMode, FunctionMode


@contextlib.contextmanager
def in_float64_throughout() -> Iterator[None]:
    """What asks for float32 within, by name or by saying nothing, gets float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


class _Wide(FunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = lambda value: torch.float64 if value is torch.float32 else value  # noqa: E731
        function = torch.Tensor.double if function is torch.Tensor.float else function
        return function(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


@functools.cache
def _table() -> Any:
    """Operation -> its steps. Making it takes a quarter of a second."""
    table = torch._decomp.core_aten_decompositions()
    # Every version knows the steps of RMSNorm's fused code, which CUDA has. Not every one counts them among these.
    fused = {op: steps for op, steps in torch._decomp.decomposition_table.items() if "_fused_rms_norm" in str(op)}
    for operation in fused.keys() - table.keys():
        table[operation] = fused[operation]
    return table


class Steps(DispatchMode):
    """What is called within, and its backward pass. PyTorch's fused code for a CPU sometimes gives a NaN where the
    steps give an infinity or a number.

    eps: by up to so much, relatively, each step's result is changed, as rounding it would. In float64 that shows which
    digits of the last result hang on the digits of those before.
    """

    def __init__(self, eps: float = 0.0, seed: int = 0):
        super().__init__()
        self.eps, self.table = eps, _table()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self.table.get(operation, operation)(*args, **(kwargs or {}))
        new = all(each.alias_info is None for each in operation._schema.returns)
        return self.rounded(result) if self.eps and new else result

    def rounded(self, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(self.rounded(each) for each in result)
        if not torch.is_tensor(result) or not result.is_floating_point() or elements.eight_bits(result):
            return result  # codes have no product
        part = 2 * torch.rand(result.shape, generator=self.generator, dtype=torch.float64) - 1
        return result * (1 + self.eps * part).to(result)
