"""Arguments that nobody should pass: each must work, or raise an error that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch

NUMBERS = [
    *(2**70, -(2**70), 2**63, 2**31, -1, 0, True, 1.5, 1e-45, -1e-45, 1e39, 1e300, float("nan"), float("inf")),
    *("1", [1], (1,), {}, object(), 1j, Fraction(1, 3), torch.float32, torch.tensor(2), torch.tensor([2, 3])),
    torch.tensor(2.0, device="meta"),
]


def meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def common(tensor: torch.Tensor) -> torch.Tensor:
    """Of a dtype that can be anything: numbers of eight bits can't."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def nested(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([common(tensor)] * 2, layout=torch.jagged)


def strided_nested(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([common(tensor)] * 2)


def sparse(tensor: torch.Tensor) -> torch.Tensor:
    return common(tensor).to_sparse()


TENSORS: dict[str, Callable[[torch.Tensor], object]] = {
    "list": torch.Tensor.tolist,
    "array": lambda x: (x.float() if x.dtype == torch.bfloat16 else common(x)).cpu().numpy(),
    "meta": meta,
    "nested": nested,
    "strided nested": strided_nested,
    "sparse": sparse,
    "complex": lambda x: x.to(torch.complex64),
    "double": torch.Tensor.double,
    "bool": torch.Tensor.bool,
    "one dimension more": lambda x: x[None],
    "flat": torch.Tensor.flatten,
    "one number": lambda x: x.flatten()[0],
    "one row less": lambda x: x[1:],
    "negated view": lambda x: torch.complex(x.float(), x.float()).conj().imag,
    "None": lambda x: None,
    "a string": lambda x: "x",
    "a number": lambda x: 3.0,
}
#: They need a dimension, which a number hasn't.
OF_DIMENSIONS = {"nested", "one row less"}


def attempts(function: Callable, inputs: dict, options: dict) -> Iterator[tuple[str, str, dict]]:
    """(argument, what is passed, all keyword arguments) for every argument that `function` takes."""
    for name in inspect.signature(function).parameters:
        given = {**inputs, **options}
        if isinstance(given.get(name), torch.nn.Module):
            continue
        if isinstance(given.get(name), torch.Tensor):
            for what, change in TENSORS.items():
                if given[name].dim() or what not in OF_DIMENSIONS:
                    yield name, what, {**given, name: change(given[name])}
            continue
        for value in NUMBERS:
            yield name, repr(value), {**given, name: value}
        if name not in given or given[name] is None:  # an optional tensor, perhaps
            for what in ("meta", "nested", "sparse", "one dimension more"):
                yield name, f"{what} tensor", {**given, name: TENSORS[what](torch.ones(4, device=_device(inputs)))}


def _device(inputs: dict) -> torch.device:
    return next(value.device for value in inputs.values() if isinstance(value, torch.Tensor))


def complaint(function: Callable, name: str, arguments: dict) -> str | None:
    """What is wrong with how `function` takes these arguments, or None. The error may name another argument that the
    hostile one doesn't fit."""
    try:
        function(**arguments)
    except (TypeError, ValueError, IndexError) as error:  # a dimension out of range is an IndexError, as in PyTorch
        if not any(other in str(error) for other in arguments):
            return f"{type(error).__name__} names no argument: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
