"""What a recorded launch proves, and what it moves.

The interpreter runs one program after the other, so a race between two programs never shows in its results. The
recording knows every element that every program touched, and finds races, unwritten outputs, and reads of memory that
nobody has written. Bytes are counted twice: requested (every lane) and distinct (every element once a launch).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from academy.traces.memory import Argument, unwritten
from academy.traces.recorder import Access, Launch, Step
from academy.traces.recording import places, program_name, row_major


@dataclass(frozen=True)
class Finding:
    """Something the recording shows to be wrong, at a line of a file."""

    file: str
    line: int
    message: str


@dataclass
class _Touch:
    """One access of one program, flattened to the lanes that are not masked off."""

    program: int
    argument: Argument
    operation: str
    addresses: np.ndarray
    file: str
    line: int
    acquired: bool  # the program has performed an atomic on another tensor before (took a lock, counted itself in)
    released: bool  # ... and performs one later


def findings(launch: Launch) -> list[Finding]:
    """Races and reads of unwritten memory in one launch."""
    found = list(_races(launch))
    for pid, steps in launch.programs.items():
        for step, access in _accesses(steps):
            argument = launch.arguments[access.argument]
            if access.unwritten is not None:
                element = element_name(argument, access.unwritten)
                message = f"{launch.kernel} reads {element}, which nobody has written"
                found.append(Finding(step.file, step.line, message))
            element = _contested(access)
            if element is not None:
                message = f"program {program_name(pid)} of {launch.kernel} stores two different values in "
                message += f"{element_name(argument, element)} at once; on a GPU it is open which one stays"
                found.append(Finding(step.file, step.line, message))
    return list(dict.fromkeys(found))


def suspicious_stores(launch: Launch) -> list[Finding]:
    """Stores that stay inside their tensor, with lanes as far apart as the strides of *another* layout say.

    Through such strides each element is often written once, so that nothing is unwritten and nobody races; only the
    values are in the wrong places. A step from lane to lane is as it should be if it leads to the next element along an
    axis of the tensor, or if the program itself stores what lies between. Another step may be meant as well (a program
    that takes every second column), so it counts only if it is a stride of another tensor, or one that this tensor
    would have if it were contiguous. Nothing is said of tensors with one axis, where any step may be meant; where a
    tensor of the same layout is read, element by element in the order of memory; and where the wrong stride equals a
    right one, as in a square matrix: give EXAMPLE sizes that differ.
    """
    found = dict[tuple[str, int], Finding]()
    for pid, steps in launch.programs.items():
        for step, access in _accesses(steps):
            if access.operation != "store" or (step.file, step.line) in found:
                continue
            reason = _wrong_step(launch, steps, access)
            if reason:
                argument = launch.arguments[access.argument]
                shape, name = tuple(argument.tensor.shape), argument.name
                message = (
                    f"program {program_name(pid)} of {launch.kernel} stores in {name}{places(access.elements, shape)}"
                )
                message += f": {reason}, but {name} has shape {shape} and strides {argument.tensor.stride()}"
                found[step.file, step.line] = Finding(step.file, step.line, message)
    return list(found.values())


def _wrong_step(launch: Launch, steps: list[Step], access: Access) -> str | None:
    """Which layout the lanes of a store follow instead of their tensor's; None if there is nothing to say."""
    argument = launch.arguments[access.argument]
    shape = tuple(size for size in argument.tensor.shape if size > 1)
    if len(shape) < 2:
        return None
    expected = row_major(shape)
    others = [(access, launch.arguments[access.argument]) for _, access in _accesses(steps)]
    for axis in range(access.elements.ndim):
        elements, offsets = (np.moveaxis(a, axis, -1) for a in (access.elements, access.addresses // argument.itemsize))
        both = (elements[..., 1:] >= 0) & (elements[..., :-1] >= 0)
        apart, numbers = (np.unique(np.diff(a)[both]) for a in (offsets, elements))
        if apart.size != 1 or apart[0] == 0 or numbers.size == 1 and abs(numbers[0]) in expected:
            continue  # one lane; a scatter; a broadcast; the next element along an axis
        stored = [a.addresses for a, other in others if other.identity == argument.identity and a.operation == "store"]
        between = offsets[..., :-1][both][:, None] + np.arange(1, abs(apart[0])) * np.sign(apart[0])
        if between.size and np.isin(between * argument.itemsize, np.concatenate([a.reshape(-1) for a in stored])).all():
            continue
        if any(_same_layout(argument, other) for a, other in others if a.operation == "load"):
            continue
        reason = _explanation(int(abs(apart[0])), argument, launch.arguments)
        if reason:
            return reason
    return None


def _explanation(step: int, argument: Argument, arguments: list[Argument]) -> str | None:
    """The layout with this stride, in words."""
    tensor = argument.tensor
    elements = f"its lanes are {step} element{'s' if step > 1 else ''} apart"
    for other in arguments:
        flat = other.tensor.is_contiguous() and tensor.is_contiguous() and other.tensor.numel() == tensor.numel()
        if other.identity != argument.identity and not flat and step > 1:  # else it is a view of the same rows
            if step in {stride for size, stride in zip(other.tensor.shape, other.tensor.stride()) if size > 1}:
                return f"{elements}, a stride of {other.name}"
    if step in row_major(tensor.shape) and not tensor.is_contiguous():
        return f"{elements}, as if it were contiguous"
    return None


def _same_layout(one: Argument, other: Argument) -> bool:
    return (one.tensor.shape, one.tensor.stride()) == (other.tensor.shape, other.tensor.stride())


def _contested(access: Access) -> int | None:
    """An element in which two lanes of one store put different values."""
    if access.operation != "store" or access.values is None:
        return None
    elements, values = access.elements.reshape(-1), access.values.reshape(-1)
    order = np.lexsort((values, elements))
    elements, values = elements[order], values[order]
    differ = (values[1:] != values[:-1]) & ~((values[1:] != values[1:]) & (values[:-1] != values[:-1]))
    wrong = np.flatnonzero((elements[1:] == elements[:-1]) & (elements[1:] >= 0) & differ)
    return int(elements[wrong[0]]) if wrong.size else None


def unwritten_outputs(launches: list[Launch]) -> list[Finding]:
    """Elements of allocated, partly written outputs that hold no value after all the launches."""
    last: dict[tuple, tuple[Launch, Argument]] = {}
    stores = [(launch, touch) for launch in launches for touch in _touches(launch) if touch.operation != "load"]
    for launch, touch in stores:
        tensor = touch.argument.tensor
        if touch.argument.fresh:
            last[touch.argument.identity, tensor.storage_offset(), tuple(tensor.shape)] = launch, touch.argument
    # A later launch may fill what an earlier one left: what counts is the storage's last recorded state.
    final = {identity: launch for (identity, *_), (launch, _) in last.items()}
    found = []
    for (identity, *_), (launch, argument) in last.items():
        if launch is not final[identity]:
            continue
        # An element that is stored counts as written, also if the value is what fresh memory holds.
        offsets = np.concatenate([touch.addresses for _, touch in stores if touch.argument.identity == identity])
        stored = argument.elements(_address_of(argument, offsets))
        holes = np.setdiff1d(np.flatnonzero(unwritten(argument.after).reshape(-1)), stored)
        if holes.size:
            message = f"no program of {launch.kernel} writes {element_name(argument, int(holes[0]))}"
            if holes.size > 1:
                message += f" ({holes.size} of {argument.after.numel()} elements are left out)"
            found.append(Finding(launch.file, launch.line, message))
    return found


def pass_traffic(launches: list[Launch]) -> dict[str, dict[str, int]]:
    """Direction -> bytes that the operation moves: what `cost` must say.

    Counted are the launches of EXAMPLE's first call in that direction, together: an element that two of them read is
    one element. Scratch, that is memory which one of these launches writes and a later one reads, is left out.
    """
    result = {}
    for direction in dict.fromkeys(launch.direction for launch in launches):
        call = next(launch.call for launch in launches if launch.direction == direction)
        group = [launch for launch in launches if (launch.direction, launch.call) == (direction, call)]
        written: set[int] = set()
        scratch: set[int] = set()
        for launch in group:
            touches = list(_touches(launch))
            scratch |= {t.argument.identity for t in touches if t.operation == "load"} & written
            written |= {t.argument.identity for t in touches if t.operation != "load"}
        result[direction] = traffic(group, scratch)
    return result


def traffic(launches: list[Launch], scratch: Collection[int] = ()) -> dict[str, int]:
    """Bytes that launches read and write, requested and distinct; an atomic counts as a write."""
    totals = {}
    touches = [t for launch in launches for t in _touches(launch) if t.argument.identity not in scratch]
    for kind in ("read", "written"):
        requested, distinct = 0, dict[tuple, list]()
        for touch in touches:
            if (touch.operation == "load") == (kind == "read"):
                requested += touch.addresses.size * touch.argument.itemsize
                distinct.setdefault((touch.argument.identity, touch.argument.itemsize), []).append(touch.addresses)
        totals[f"requested_{kind}"] = requested
        totals[f"bytes_{kind}"] = sum(np.unique(np.concatenate(a)).size * size for (_, size), a in distinct.items())
    return totals


def element_name(argument: Argument, element: int) -> str:
    """`y_ptr[1, 3]` for the seventh element of a tensor with rows of four."""
    index = np.unravel_index(element, tuple(argument.tensor.shape)) if argument.tensor.dim() else ()
    return f"{argument.name}[{', '.join(str(int(i)) for i in index)}]"


def _accesses(steps: list[Step]) -> list[tuple[Step, Access]]:
    return [(step, access) for step in steps for access in step.accesses]


def _touches(launch: Launch) -> Iterator[_Touch]:
    for program, steps in enumerate(launch.programs.values()):
        accesses = _accesses(steps)
        atomics = [i for i, (_, access) in enumerate(accesses) if access.operation.startswith("atomic")]
        for i, (step, access) in enumerate(accesses):
            addresses = access.addresses[access.elements >= 0]
            if addresses.size:
                others = [j for j in atomics if accesses[j][1].argument != access.argument]
                acquired, released = any(j < i for j in others), any(j > i for j in others)
                what = launch.arguments[access.argument], access.operation, addresses
                yield _Touch(program, *what, step.file, step.line, acquired, released)


def _races(launch: Launch) -> Iterator[Finding]:
    """Pairs of programs that meet at one element, one of them storing, with no atomic to put them in order."""
    names, touches = list(launch.programs), list(_touches(launch))
    for identity in dict.fromkeys(touch.argument.identity for touch in touches if touch.operation == "store"):
        here = [touch for touch in touches if touch.argument.identity == identity]
        address = np.concatenate([touch.addresses for touch in here])
        owner = np.repeat(np.arange(len(here)), [touch.addresses.size for touch in here])
        order = np.argsort(address, kind="stable")
        address, owner = address[order], owner[order]
        for group in np.split(np.arange(address.size), np.flatnonzero(np.diff(address)) + 1):
            pair = _conflict([here[i] for i in dict.fromkeys(owner[group])])
            if pair:
                first, second = pair
                element = int(first.argument.elements(_address_of(first.argument, address[group[:1]]))[0])
                verbs = {"load": "reads", "store": "stores"}
                one, other = (
                    f"program {program_name(names[touch.program])} {verbs.get(touch.operation, 'updates')}"
                    for touch in pair
                )
                where = f"{element_name(first.argument, element)} (line {first.line})"
                message = f"race in {launch.kernel}: {one} {where} and {other} it too; on a GPU their order is open"
                yield Finding(second.file, second.line, message)
                break


def _address_of(argument: Argument, storage_offset: np.ndarray) -> np.ndarray:
    return storage_offset + argument.start - argument.tensor.storage_offset() * argument.itemsize


def _conflict(touches: list[_Touch]) -> tuple[_Touch, _Touch] | None:
    if len({touch.program for touch in touches}) < 2:
        return None
    for second in touches:
        for first in touches:
            if first.program < second.program and "store" in (first.operation, second.operation):
                if not ((first.released and second.acquired) or (second.released and first.acquired)):
                    return first, second
    return None
