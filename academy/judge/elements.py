"""The first wrong element of a result, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from academy.judge import accuracy
from academy.traces import memory

#: A result with up to so many times the errors that are allowed may be bad luck. So may one of a few elements, where
#: what is left of a sum can be small: with errors of up to so many eps.
CHANCE = 8
FEW_CHANCE = 1 << 13


def floating(value: Any) -> bool:
    """Whether it is a tensor of floating-point numbers to compute with. Those of one byte are codes."""
    return torch.is_tensor(value) and value.is_floating_point() and value.dtype.itemsize > 1


def eight_bits(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point() and value.dtype.itemsize == 1


def in_float64(values: dict[Any, Any], codes: bool = False) -> dict[Any, Any]:
    """Floating tensors in float64, with `codes` those of one byte too. What is one tensor stays one."""
    wanted = [v for v in values.values() if floating(v) or codes and torch.is_tensor(v) and v.is_floating_point()]
    wide = {id(v): v.double() for v in wanted}
    return {name: wide.get(id(value), value) for name, value in values.items()}


def in_float64_or_as(found: dict[str, Any], wide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `wide()` gives: a reference's results of inputs in float64. One that looks at the bits of a number finds
    twice as many there, and gives other shapes, or none: then it is what it has found in its own dtype."""
    try:
        exact = wide()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        exact = dict[str, Any]()
    return {
        name: exact[name]
        if name in exact and (not torch.is_tensor(value) or getattr(exact[name], "shape", ()) == value.shape)
        else value.double()
        if floating(value)
        else value
        for name, value in found.items()
    }


def same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Which elements are equal, or both NaN."""
    return (one == other) | ((one != one) & (other != other))


def difference(
    name: str,
    result: torch.Tensor,
    pytorch: torch.Tensor,
    reference: torch.Tensor,
    exact: bool = False,
    eps: float = 0.0,
) -> str | None:
    """What is wrong with a result, naming the first wrong element; None if nothing is.

    Args:
        result, pytorch: the kernel's, and PyTorch's in the same dtype, from the same inputs.
        reference: PyTorch's in float64. The rule is that of `academy.judge.accuracy`.
        exact: the two must be equal.
        eps: of what the result is made of, if that is coarser than its dtype.
    """
    if result.shape != reference.shape:
        return f"{name} has shape {tuple(result.shape)}, should have {tuple(reference.shape)}"
    if result.dtype != pytorch.dtype:
        return f"{name} has dtype {result.dtype}, should have {pytorch.dtype}"
    if result.is_floating_point() and not floating(result) and not exact:
        return _difference_of_codes(name, result, pytorch, reference.to(result.dtype))
    if exact or not floating(result):
        place = first(~same(result, pytorch))
        return None if place is None else at(name, place, result, pytorch)
    problem = accuracy.problem(result, pytorch, reference, eps=eps)
    if problem is None:
        return None
    theirs, scale = _largest(pytorch.double() - reference), _largest(reference)
    allowed = max(2 * theirs, accuracy.MAX_FLOOR * max(eps, torch.finfo(result.dtype).eps) * scale)
    near = (result.double() - reference).abs() <= allowed
    place = first(~(near | same(result, pytorch)))
    if place is None and result.numel():  # each alone is near enough
        return f"{name}: {problem}; farthest off: {farthest(name, result, reference)}"
    return f"{name}: {problem}" if place is None else at(name, place, result, pytorch)


def _difference_of_codes(name: str, result: torch.Tensor, *wanted: torch.Tensor) -> str | None:
    """float8: each is PyTorch's, computed in the same dtype or in float64. Where the last bit of a number that is
    rounded to a code decides, it may be the next code: of one element in a thousand."""
    off = torch.stack([~same(result, one) for one in wanted]).all(0)
    steps = [(_in_order(result) - _in_order(one)).abs() for one in wanted]
    far = off & (torch.stack(steps).amin(0) > 1)
    few = max(1, result.numel() // 1000)
    place = first(far) or (first(off) if int(off.sum()) > few else None)
    return None if place is None else at(name, place, result, wanted[0])


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the numbers that the codes stand for: the first bit is the sign, if there is one."""
    bits = codes.contiguous().view(torch.uint8).int()
    if codes.dtype == torch.float8_e8m0fnu:
        return bits
    return torch.where(bits > 127, 127 - bits, bits)


def perhaps_by_chance(result: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether a result that breaks the rule may keep it for other random numbers: it has few elements, or its errors
    are not much larger than those that are allowed."""
    if result.dtype != pytorch.dtype or result.shape != reference.shape or not floating(result):
        return False
    finite = pytorch.isfinite()
    if not bool(same(result, pytorch)[~finite].all() and result[finite].isfinite().all()):
        return False
    ours, theirs = accuracy.errors(result, reference, finite), accuracy.errors(pytorch, reference, finite)
    eps = torch.finfo(result.dtype).eps
    rms, largest = max(2 * theirs.rms, accuracy.RMS_FLOOR * eps), max(2 * theirs.largest, accuracy.MAX_FLOOR * eps)
    chance = max(CHANCE, FEW_CHANCE * eps / rms) if result.numel() <= accuracy.FEW else CHANCE
    return ours.rms <= chance * rms and ours.largest <= chance * largest


def first(wrong: torch.Tensor) -> tuple[tuple[int, ...], int] | None:
    """Index of the first element that is true, and how many are."""
    places = wrong.nonzero()
    return (tuple(places[0].tolist()), len(places)) if len(places) else None


def at(name: str, place: tuple[tuple[int, ...], int], value: torch.Tensor, wanted: torch.Tensor) -> str:
    """`y[1, 3] is 0.5, should be 0.25; row 1 is the first that is wrong`."""
    index, count = place
    message = _of(name, index, value, wanted)
    if len(index) == 2:
        return f"{message}; row {index[0]} is the first that is wrong"
    return f"{message} ({count} of {value.numel()} elements are wrong)" if value.numel() > 1 else message


def farthest(name: str, value: torch.Tensor, wanted: torch.Tensor) -> str:
    """`y[1, 3] is 0.5, should be 0.25`: where the difference is largest."""
    off = (value.double() - wanted.double()).abs()
    index = np.unravel_index(int(torch.where(off.isfinite(), off, 0.0).argmax().item()), tuple(value.shape))
    return _of(name, tuple(map(int, index)), value, wanted)


def _of(name: str, index: tuple[int, ...], value: torch.Tensor, wanted: torch.Tensor) -> str:
    element = f"{name}[{', '.join(map(str, index))}]" if index else name
    never = value.is_floating_point() and value.numel() and memory.unwritten(value)[index]
    is_, should = value[index].item(), wanted[index].item()
    # those of float32, or more, where the numbers differ in their last bits
    digits = next((few for few in (6, 9) if shown(is_, few) != shown(should, few)), 17)
    got = "was never written" if never else f"is {shown(is_, digits)}"
    return f"{element} {got}, should be {shown(should, digits)}"


def shown(value: Any, digits: int = 6) -> str:
    """A number, a tensor, a tuple of them, as messages show it."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        text = ", ".join(shown(item, digits) for item in value)
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return getattr(value, "__name__", None) or repr(value)


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value, of those that are finite."""
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
