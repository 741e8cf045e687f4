"""What a call leaves in the memory of its arguments: each gets a copy, and what it changed is a result."""

from __future__ import annotations

from typing import Any

import torch

from academy.judge import elements
from academy.judge.findings import Wrong

#: What a changed argument is called among the results.
AFTERWARDS = " afterwards"
#: Bytes of memory that is copied for a call. There is more only where rows lie far apart on purpose.
_LARGEST = 1 << 28


def copies(inputs: dict[str, Any]) -> dict[str, Any]:
    """The arguments in memory of their own: the values, the strides, what lies between and around, and who shares it
    with whom."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}
    for value in inputs.values():
        if type(value) in (torch.Tensor, torch.nn.Parameter) and id(value) not in made:  # others have no memory
            storage, copy = value.untyped_storage(), value.detach()
            if storage.nbytes() <= _LARGEST:
                if storage.data_ptr() not in storages:
                    storages[storage.data_ptr()] = storage.clone()
                # a new tensor: `set_` would count as a change of the value, which autograd may have saved
                copy = torch.empty(0, dtype=value.dtype, device=value.device)
                copy.set_(storages[storage.data_ptr()], value.storage_offset(), value.size(), value.stride())
            made[id(value)] = copy
    return {name: made.get(id(value), value) for name, value in inputs.items()}


def changed(given: dict[str, Any], inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Arguments that a call has changed, by name. given: what it got, `copies` of the inputs.

    Raises Wrong if it changed memory that is no element of any of them.
    """
    found: dict[str, torch.Tensor] = {}
    beside: dict[int, torch.Tensor] = {}
    for name, value in given.items():
        if not torch.is_tensor(value) or value is inputs[name]:
            continue
        mine, before = value.untyped_storage(), inputs[name].untyped_storage()
        if mine.data_ptr() == before.data_ptr():
            continue
        differ = beside.setdefault(mine.data_ptr(), _bytes(mine) != _bytes(before))
        if not bool(differ.any()):
            continue
        if not bool(elements.same(value.detach(), inputs[name]).all()):
            found[name] = value.detach()
        places = torch.arange(differ.numel() // value.itemsize, device=value.device)
        places = places.as_strided(value.size(), value.stride(), value.storage_offset()).reshape(-1)
        differ.view(-1, value.itemsize)[places] = False
    if any(bool(differ.any()) for differ in beside.values()):
        names = [name for name, value in given.items() if torch.is_tensor(value)]
        raise Wrong(f"the call writes to memory between or around the elements of its arguments {', '.join(names)}")
    return found


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.tensor((), dtype=torch.uint8, device=storage.device).set_(storage)


def is_argument(value: Any, argument: torch.Tensor) -> bool:
    """Whether a result is the argument itself, handed back."""
    return torch.is_tensor(value) and (
        (value.data_ptr(), value.size(), value.stride()) == (argument.data_ptr(), argument.size(), argument.stride())
    )


def shared(value: Any, argument: torch.Tensor) -> bool:
    """Whether an element of a result lies in the memory of the argument."""
    if not torch.is_tensor(value) or not value.numel():
        return False
    return value.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()


def compare(found: dict[str, Any], pytorch: dict[str, Any], exact: dict[str, Any], inputs: dict[str, Any]) -> None:
    """What both have written, made ready to be compared: elements that neither has written become 0, so that they
    neither count as right nor dilute an error.

    Raises Wrong where one of them has written, and the other hasn't.
    """
    for key in [key for key in {**pytorch, **found} if key.endswith(AFTERWARDS)]:
        name = key.removesuffix(AFTERWARDS)
        before = inputs[name].detach()
        ours, theirs = found.get(key, before), pytorch.get(key, before)
        written, wanted = ~elements.same(ours, before), ~elements.same(theirs, before)
        if stray := elements.first(written & ~wanted):
            raise Wrong(f"the call writes to its argument: {elements.at(name, stray, ours, before)}")
        if not bool(written.any()) and (left := elements.first(wanted)):
            message = elements.at(name, left, before, theirs)
            raise Wrong(f"the reference writes to this argument, and the call leaves it as it was: {message}")
        for results, value in ((found, ours), (pytorch, theirs), (exact, exact.get(key, before.double()))):
            results[key] = torch.where(wanted, value, torch.zeros_like(value))
