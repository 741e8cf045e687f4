"""What a recorded launch proves, and what it moves.

The interpreter runs one program after the other, so a race between two programs never shows in its results. The
recording knows every element that every program touched, and finds races, unwritten outputs, reads of memory that
nobody has written, and stores through the strides of another tensor. Bytes are counted twice: requested (every lane)
and distinct (every element once a launch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from academy.traces.memory import Argument, unwritten
from academy.traces.observer import Launch, Touch
from academy.traces.recording import Program, places, program_name, row_major


@dataclass(frozen=True)
class Finding:
    """Something the recording shows to be wrong, at a line of a file. harmless: a race of stores of the same number."""

    file: str
    line: int
    message: str
    harmless: bool = False


def findings(launch: Launch) -> list[Finding]:
    """Races, reads of unwritten memory, and stores of two values in one element, in one launch."""
    found = [*_races(launch), *_unordered(launch)]
    contested = dict[tuple[str, int], Finding]()
    for touch in launch.touches:
        if touch.unwritten is not None:
            element = touch.argument.element_name(touch.unwritten)
            does = "reads" if touch.operation == "load" else "updates"
            message = f"{launch.kernel} {does} {element}, which nobody has written"
            found.append(Finding(touch.file, touch.line, message))
        twice = _stored_twice(touch)
        if twice is not None:
            message = f"program {program_name(touch.program)} of {launch.kernel} stores two different values in "
            message += f"{touch.argument.element_name(twice)} at once; on a GPU it is undefined which one remains"
            contested.setdefault((touch.file, touch.line), Finding(touch.file, touch.line, message))
    return list(dict.fromkeys([*found, *contested.values()]))


def _stored_twice(touch: Touch) -> int | None:
    """An element in which two lanes of one store put different values."""
    if touch.operation != "store" or touch.values is None:
        return None
    elements, values = touch.elements.reshape(-1), touch.values.reshape(-1)
    order = np.lexsort((values, elements))
    elements, values = elements[order], values[order]
    same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    twice = elements[1:][(elements[1:] == elements[:-1]) & (elements[1:] >= 0) & ~same]
    return int(twice[0]) if twice.size else None


# ---- stores through the strides of another layout -------------------------------------------------------------------


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
    return strange_steps([launch], "store", "stores in", _wrong_step)


def strange_steps(
    launches: Iterable[Launch], operation: str, verb: str, wrong_step: Callable[[Launch, Touch], str | None]
) -> list[Finding]:
    """One finding for each line whose accesses of this kind go through a tensor as `wrong_step` says, in words."""
    found = dict[tuple[str, int], Finding]()
    for launch, touch in [(each, touch) for each in launches for touch in each.touches]:
        place = touch.file, touch.line
        if touch.operation == operation and place not in found and (reason := wrong_step(launch, touch)):
            tensor, name = touch.argument.tensor, touch.argument.name
            where = f"{name}{places(touch.elements, tensor.shape)}"
            message = f"program {program_name(touch.program)} of {launch.kernel} {verb} {where}: {reason}, but {name} "
            message += f"has shape {tuple(tensor.shape)} and strides {tensor.stride()}"
            found[place] = Finding(*place, message)
    return list(found.values())


def steps(touch: Touch) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Along each axis of a block: numbers and addresses of its elements, that axis last; which neighbours are both in
    use; and the distances between those, in bytes and in elements."""
    for axis in range(touch.elements.ndim):
        elements, addresses = (np.moveaxis(lanes, axis, -1) for lanes in (touch.elements, touch.addresses))
        both = (elements[..., 1:] >= 0) & (elements[..., :-1] >= 0)
        apart, numbers = (np.unique(np.diff(lanes)[both]) for lanes in (addresses, elements))
        yield elements, addresses, both, apart, numbers


def _wrong_step(launch: Launch, touch: Touch) -> str | None:
    """Which layout the lanes of a store follow instead of their tensor's; None if there is nothing to say."""
    argument = touch.argument
    expected = row_major([size for size in argument.tensor.shape if size > 1])
    for _, bytes_, both, apart, numbers in steps(touch) if len(expected) > 1 else ():
        if apart.size != 1 or apart[0] == 0 or numbers.size == 1 and abs(numbers[0]) in expected:
            continue  # one lane, or a scatter; a broadcast; the next element along an axis
        step = int(apart[0]) // argument.itemsize
        own = [other for other in launch.touches if other.program == touch.program]
        stored = [
            o.addresses.reshape(-1) for o in own if (o.operation, o.argument.identity) == ("store", argument.identity)
        ]
        between = bytes_[..., :-1][both][:, None] + np.arange(1, abs(step)) * np.sign(step) * argument.itemsize
        if between.size and np.isin(between, np.concatenate(stored)).all():
            continue
        if any(other.operation == "load" and _layout(other.argument) == _layout(argument) for other in own):
            continue
        reason = explanation(abs(step), argument, launch.arguments)
        if reason:
            return reason
    return None


def _layout(argument: Argument) -> tuple:
    return argument.tensor.shape, argument.tensor.stride()


def explanation(step: int, argument: Argument, arguments: list[Argument]) -> str | None:
    """The layout that has this stride, in words."""
    tensor = argument.tensor
    lanes = f"its lanes are {step} element{'s' if step > 1 else ''} apart"
    for other in arguments:
        shape, strides = _layout(other)
        flat = other.tensor.is_contiguous() and tensor.is_contiguous() and shape.numel() == tensor.numel()
        if step > 1 and not flat and other.identity != argument.identity:  # flat: perhaps a view with other axes
            if any(size > 1 and stride == step for size, stride in zip(shape, strides)):
                return f"{lanes}, a stride of {other.name}"
    return (
        f"{lanes}, as if it were contiguous" if step in row_major(tensor.shape) and not tensor.is_contiguous() else None
    )


def wrong_stride(launch: Launch, argument: Argument, line: int, failed: Touch | None = None) -> str:
    """The cause of a store gone wrong, as the end of a message: from program to program, or from lane to lane, it moves
    on by a stride of another tensor, and by none of its own. "" if it doesn't.

    failed: the store that ended the run, which is not among the launch's touches.
    """
    stores = [*launch.touches, *([failed] if failed else [])]
    stores = [t for t in stores if (t.operation, t.line, t.argument.number) == ("store", line, argument.number)]
    own = argument.tensor.stride()
    return "" if len(own) < 2 else _between_programs(launch, argument, stores) or _between_lanes(launch, stores)


def _between_programs(launch: Launch, argument: Argument, stores: list[Touch]) -> str:
    starts: dict[Program, int] = {}
    for touch in stores:
        active = touch.addresses[touch.addresses >= 0]
        if active.size:
            starts.setdefault(touch.program, int(active[0]))
    steps = set(np.diff(list(starts.values())).tolist())
    if len(steps) != 1:
        return ""
    step, (before, program) = steps.pop() // argument.itemsize, list(starts)[-2:]
    of = [
        other.name
        for other in launch.arguments
        if other.identity != argument.identity and step in other.tensor.stride() and other.tensor.dim() > 1
    ]
    own = argument.tensor.stride()
    if step in own or not of:
        return ""
    return (
        f". From program {program_name(before)} to {program_name(program)} this store moves on by {step} elements, a "
        f"stride of {of[0]}, but {argument.name} has strides {own}: compare with --pid "
        + program_name(before).strip("()").replace(" ", "")
    )


def _between_lanes(launch: Launch, stores: list[Touch]) -> str:
    for touch in stores:
        argument = touch.argument
        own = {stride for size, stride in zip(argument.tensor.shape, argument.tensor.stride()) if size > 1}
        for axis in range(touch.addresses.ndim):
            lanes = np.moveaxis(touch.addresses, axis, -1)
            apart = np.unique(np.diff(lanes)[(lanes[..., 1:] >= 0) & (lanes[..., :-1] >= 0)])
            step = abs(int(apart[0])) // argument.itemsize if apart.size == 1 else 0
            reason = explanation(step, argument, launch.arguments) if step and step not in own else None
            if reason:
                at = f"In program {program_name(touch.program)} {reason}"
                return f". {at}, but {argument.name} has strides {argument.tensor.stride()}"
    return ""


# ---- outputs and bytes ----------------------------------------------------------------------------------------------


def unwritten_outputs(
    launches: list[Launch], returned: Mapping[int, list[torch.Tensor]] | None = None
) -> list[Finding]:
    """Elements of allocated, partly written outputs that hold no value after all the launches.

    returned: identities of what the call gave back, and the tensors in each, if that is known. Anything else is
    scratch, some of whose elements nobody may need.
    """
    last: dict[tuple, tuple[Launch, Argument]] = {}
    stores = [(launch, touch) for launch in launches for touch in launch.touches if touch.operation != "load"]
    for launch, touch in stores:
        tensor = touch.argument.tensor
        wanted = returned is None or touch.argument.identity in returned
        if touch.argument.fresh and wanted and (touch.elements >= 0).any():
            last[touch.argument.identity, tensor.storage_offset(), tuple(tensor.shape)] = launch, touch.argument
    # A later launch may fill what an earlier one left: what counts is the storage's last recorded state.
    final = {identity: launch for (identity, *_), (launch, _) in last.items()}
    found = []
    for (identity, *_), (launch, argument) in last.items():
        if launch is not final[identity]:
            continue
        # An element that is stored counts as written, also if the value is what fresh memory holds.
        offsets = np.concatenate([_active(touch) for _, touch in stores if touch.argument.identity == identity])
        empty = np.flatnonzero(unwritten(argument.after).reshape(-1))
        holes = np.setdiff1d(empty, argument.elements_in_storage(offsets))
        views = returned[identity] if returned else []
        if views and all(view.element_size() == argument.itemsize for view in views):
            shown = np.concatenate([_offsets(view) for view in views])
            holes = np.intersect1d(holes, argument.elements_in_storage(shown))
        if holes.size:
            message = f"no program of {launch.kernel} writes {argument.element_name(int(holes[0]))}"
            if holes.size > 1:
                message += f" ({holes.size} of {argument.after.numel()} elements are left out)"
            own = [t for t in launch.touches if t.argument is argument and t.operation != "load"]
            lines = list(dict.fromkeys(touch.line for touch in own if touch.file == own[0].file))
            if len(lines) > 1:
                message += f"; it is stored in lines {', '.join(map(str, lines))}"
            message += next(filter(None, (wrong_stride(launch, argument, line) for line in lines)), "")
            found.append(Finding(own[0].file, own[0].line, message))
    return found


def _offsets(tensor: torch.Tensor) -> np.ndarray:
    """Byte offsets in the storage of all elements."""
    places = np.array(tensor.storage_offset())
    for size, step in zip(tensor.shape, tensor.stride()):
        places = np.add.outer(places, np.arange(size) * step)
    return places.reshape(-1) * tensor.element_size()


def _active(touch: Touch) -> np.ndarray:
    """Byte offsets in the storage of the lanes that are not masked off."""
    return touch.addresses[touch.elements >= 0]


def launches_of_a_call(launches: list[Launch]) -> list[list[Launch]]:
    """The launches of each call in EXAMPLE, those of its backward pass by themselves."""
    groups: dict[tuple, list[Launch]] = {}
    for launch in launches:
        groups.setdefault((launch.direction, launch.call), []).append(launch)
    return list(groups.values())


def pass_traffic(launches: list[Launch]) -> dict[str, dict[str, int]]:
    """Direction -> bytes that the operation moves: what `cost` must say.

    Counted are the launches of EXAMPLE's first call in that direction, together: an element that two of them read is
    one element. Scratch, that is memory which one of these launches writes and a later one reads, is left out.
    """
    result: dict[str, dict[str, int]] = {}
    for group in launches_of_a_call(launches):
        direction = group[0].direction
        if direction in result:
            continue
        written: set[int] = set()
        scratch: set[int] = set()
        for launch in group:
            touches = [touch for touch in launch.touches if _active(touch).size]
            scratch |= {t.argument.identity for t in touches if t.operation == "load"} & written
            written |= {t.argument.identity for t in touches if t.operation != "load"}
        result[direction] = traffic(group, scratch)
    return result


def traffic(launches: list[Launch], scratch: Collection[int] = ()) -> dict[str, int]:
    """Bytes that launches read and write, requested and distinct; an atomic counts as a write."""
    totals = {}
    touches = [t for launch in launches for t in launch.touches if t.argument.identity not in scratch]
    for kind in ("read", "written"):
        requested, distinct = 0, dict[tuple, list]()
        for touch in touches:
            if (touch.operation == "load") == (kind == "read"):
                requested += _active(touch).size * touch.argument.itemsize
                distinct.setdefault((touch.argument.identity, touch.argument.itemsize), []).append(_active(touch))
        totals[f"requested_{kind}"] = requested
        totals[f"bytes_{kind}"] = sum(np.unique(np.concatenate(a)).size * size for (_, size), a in distinct.items())
    return totals


# ---- races ----------------------------------------------------------------------------------------------------------


def _races(launch: Launch) -> Iterator[Finding]:
    """Pairs of programs that meet at one element, one of them storing, with no atomic to put them in order."""
    schedule = _Order(launch)
    for identity in dict.fromkeys(touch.argument.identity for touch in launch.touches if touch.operation == "store"):
        here = [touch for touch in launch.touches if touch.argument.identity == identity]
        address = np.concatenate([_active(touch) for touch in here])
        owner = np.repeat(np.arange(len(here)), [_active(touch).size for touch in here])
        order = np.argsort(address, kind="stable")
        address, owner = address[order], owner[order]
        found: Finding | None = None
        for group in np.split(np.arange(address.size), np.flatnonzero(np.diff(address)) + 1):
            meeting = [here[i] for i in dict.fromkeys(owner[group])]
            pair = _conflict(meeting, schedule)
            harmless = pair is not None and _all_store_the_same(meeting, int(address[group[0]]))
            if pair and found is None:
                first, second = pair
                element = int(first.argument.elements_in_storage(address[group[:1]])[0])
                verbs = {"load": "reads", "store": "stores"}
                one, other = (
                    f"program {program_name(touch.program)} {verbs.get(touch.operation, 'updates')}" for touch in pair
                )
                where = f"{first.argument.element_name(element)} (line {first.line})"
                message = f"race in {launch.kernel}: {one} {where} and {other} it too"
                handed = schedule.handed(first, second)
                if handed is None:
                    message += "; on a GPU their order is undefined"
                else:
                    message += (
                        f". The atomic in line {handed.by.line} says that it is done, but one thread does it, and "
                    )
                    message += "others may not be so far: tl.debug_barrier() before it makes them wait for each other"
                message += wrong_stride(launch, second.argument, second.line) if second.operation == "store" else ""
                found = Finding(second.file, second.line, message, harmless=True)
            if found and pair and not harmless:
                found = replace(found, harmless=False)
                break
        if found:
            yield found


def _all_store_the_same(touches: list[Touch], place: int) -> bool:
    stored = []
    for touch in touches:
        if touch.operation != "store" or touch.values is None:
            return False
        stored.append(np.broadcast_to(touch.values, touch.addresses.shape)[touch.addresses == place])
    return np.unique(np.concatenate(stored)).size == 1


def _conflict(touches: list[Touch], schedule: _Order) -> tuple[Touch, Touch] | None:
    """Two accesses to one element by two programs, in the order of the run, which nothing puts in order on a GPU."""
    for number, second in enumerate(touches if len({touch.program for touch in touches}) > 1 else []):
        for first in touches[:number]:
            if first.program != second.program and "store" in (first.operation, second.operation):
                if not schedule.holds(first, second):
                    return first, second
    return None


@dataclass(frozen=True)
class _Handed:
    """What an atomic of a program hands to whoever meets it later: the accesses before it. Those of a block only if
    they are before a barrier: the atomic is done by one thread, and the others may be late."""

    number: int
    barriers: int
    by: Touch

    def holds(self, number: int, touch: Touch) -> bool:
        late = touch.elements.size > 1 and touch.barriers >= self.barriers and self.by.elements.size == 1
        return number < self.number and (touch.barriers < 0 or not late)


class _Order:
    """Which accesses of one program come before which of another, whatever the schedule.

    Those before an atomic come before those that follow another program's atomic on the same element, if it came
    second. A load from there counts as one: it waits for a flag.
    """

    def __init__(self, launch: Launch):
        self._touches = launch.touches

    @cached_property
    def _known(self) -> dict[int, tuple[int, dict[Program, _Handed]]]:
        """Of each access its number, and what its program had been handed by then."""
        at: dict[tuple, dict[Program, _Handed]] = {}  # element -> what was handed over there
        known: dict[Program, dict[Program, _Handed]] = {}
        found = {}
        for number, touch in enumerate(self._touches):
            atomic = touch.operation.startswith("atomic")
            here = known.setdefault(touch.program, {})
            places = [*map(int, _active(touch))] if touch.elements.size <= _FLAGS else ["all"]
            keys = [(touch.argument.identity, place) for place in places]
            if touch.operation == "load" or atomic and touch.order in ("acq_rel", "acquire"):
                if handed := [at[key] for key in keys if key in at]:
                    here = known[touch.program] = _newest(here, *handed)
            found[id(touch)] = number, here
            if atomic and touch.order in ("acq_rel", "release"):
                mine = _newest(here, {touch.program: _Handed(number, touch.barriers, touch)})
                at.update({key: _newest(at.get(key, {}), mine) for key in keys})
        return found

    def handed(self, first: Touch, second: Touch) -> _Handed | None:
        """The last thing that the first one's program handed over and the second one's knew of, if it came after the
        first one."""
        handed = self._known[id(second)][1].get(first.program)
        return handed if handed is not None and self._known[id(first)][0] < handed.number else None

    def holds(self, first: Touch, second: Touch) -> bool:
        handed = self.handed(first, second)
        return handed is not None and handed.holds(self._known[id(first)][0], first)


#: Lanes of an atomic that are looked at one by one.
_FLAGS = 64


def _newest(*tables: dict[Program, _Handed]) -> dict[Program, _Handed]:
    found: dict[Program, _Handed] = {}
    for program, handed in (item for table in tables for item in table.items()):
        if program not in found or found[program].number < handed.number:
            found[program] = handed
    return found


# ---- threads of one program -----------------------------------------------------------------------------------------


def _unordered(launch: Launch) -> Iterator[Finding]:
    """Elements that one lane of a program stores and another reads, or stores anew, with no barrier between.

    Only a lane of the same number, of a block of the same shape, is the same thread for sure; a number is stored by one
    thread and read by all. The result of an atomic on a number is handed to all threads with a barrier.
    """
    stored = {touch.argument.identity for touch in launch.touches if touch.operation == "store" and touch.barriers >= 0}
    groups: dict[tuple, list[tuple[int, Touch]]] = {}
    atomics = dict[Program, int]()
    for touch in launch.touches:
        if touch.operation.startswith("atomic"):
            atomics[touch.program] = atomics.get(touch.program, 0) + (touch.elements.size == 1)
        elif touch.argument.identity in stored and _active(touch).size:
            stage = touch.barriers + atomics.get(touch.program, 0)
            groups.setdefault((touch.program, touch.argument.identity), []).append((stage, touch))
    for (program, _), staged in groups.items():
        if len(staged) > 1 and any(touch.operation == "store" for _, touch in staged[:-1]):
            yield from _unordered_here(launch, program, staged)


def _unordered_here(launch: Launch, program: Program, staged: list[tuple[int, Touch]]) -> Iterator[Finding]:
    """In one program, on one storage. staged: each access with how many barriers came before it."""
    start = min(int(_active(touch).min()) for _, touch in staged)
    size = max(int(_active(touch).max()) for _, touch in staged) - start + 1
    stage, writer, number = np.full(size, -1), np.full(size, -1), np.full(size, -1)
    shapes: dict[tuple, int] = {}
    for index, (now, touch) in enumerate(staged):
        active = touch.elements >= 0
        places = touch.addresses[active] - start
        shape = shapes.setdefault(touch.elements.shape if touch.elements.size > 1 else (), len(shapes))
        lanes = np.arange(active.size, dtype=np.int64).reshape(active.shape)[active] + (shape << 32)
        same = (writer[places] == lanes) & (active.size > 1 or touch.operation == "store")
        foreign = (stage[places] == now) & (writer[places] != _ANY) & ~same
        if foreign.any():
            first = staged[int(number[places[foreign][0]])][1]
            place = int(places[foreign][0]) + start
            if touch.operation == "load" or _value_at(first, place) != _value_at(touch, place):
                element = first.argument.element_name(int(first.argument.elements_in_storage(np.array([place]))[0]))
                what = (
                    "another thread reads" if touch.operation == "load" else "another thread stores something else in"
                )
                message = (
                    f"program {program_name(program)} of {launch.kernel} stores {element} in line {first.line}, and "
                )
                message += (
                    f"{what} it in line {touch.line}, with no tl.debug_barrier() between: on a GPU the threads of "
                )
                message += "a program don't wait for each other"
                yield Finding(touch.file, touch.line, message)
                return
        if touch.operation == "store":
            stage[places], writer[places], number[places] = now, lanes, index
            kept, counts = np.unique(places, return_counts=True)
            writer[kept[counts > 1]] = _ANY


#: Several lanes have stored the same number there.
_ANY = -2


def _value_at(touch: Touch, place: int) -> float:
    assert touch.values is not None
    value = touch.values[np.broadcast_to(touch.addresses, touch.values.shape) == place].reshape(-1)[0]
    return 0.0 if np.isnan(value) else float(value)
