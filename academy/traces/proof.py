"""What a recorded launch proves, and what it moves.

The interpreter runs one program after the other, so a race between two programs never shows in its results. The
recording knows every element that every program touched, and finds races, unwritten outputs, and reads of memory that
nobody has written. Bytes are counted twice: requested (every lane) and distinct (every element once a launch).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from academy.traces.memory import Argument, unwritten
from academy.traces.recorder import Launch
from academy.traces.recording import program_name


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
    touches = _touches(launch)
    found = _races(launch, touches)
    for steps in launch.programs.values():
        for step in steps:
            for access in step.accesses:
                if access.unwritten is not None:
                    argument = launch.arguments[access.argument]
                    element = element_name(argument, access.unwritten)
                    found.append(
                        Finding(step.file, step.line, f"{launch.kernel} reads {element}, which nobody has written")
                    )
    return list(dict.fromkeys(found))


def unwritten_outputs(launches: list[Launch]) -> list[Finding]:
    """Elements of allocated, partly written outputs that hold no value after all the launches."""
    found = []
    last = {}
    for launch in launches:
        stored = {
            a.argument for steps in launch.programs.values() for s in steps for a in s.accesses if a.operation != "load"
        }
        for index in stored:
            argument = launch.arguments[index]
            if argument.fresh:
                last[argument.identity, argument.tensor.storage_offset(), tuple(argument.tensor.shape)] = (
                    launch,
                    argument,
                )
    # A later launch may fill what an earlier one left: what counts is the storage's last recorded state.
    final = {identity: launch for (identity, *_), (launch, _) in last.items()}
    for (identity, *_), (launch, argument) in last.items():
        if launch is not final[identity]:
            continue
        holes = np.setdiff1d(np.flatnonzero(unwritten(argument.after).reshape(-1)), _stored(argument, launches))
        if holes.size:
            message = f"no program of {launch.kernel} writes {element_name(argument, int(holes[0]))}"
            if holes.size > 1:
                message += f" ({holes.size} of {argument.after.numel()} elements are left out)"
            found.append(Finding(launch.file, launch.line, message))
    return found


def traffic(launch: Launch) -> dict[str, int]:
    """Bytes that one launch reads and writes, requested and distinct; an atomic counts as a write."""
    return _traffic([launch], scratch=set())


def pass_traffic(launches: list[Launch]) -> dict[str, dict[str, int]]:
    """Direction -> bytes that the operation moves: what `cost` must say.

    Counted are the launches of EXAMPLE's first call in that direction, together: an element that two of them read is
    one element. Scratch, that is memory which one of these launches writes and a later one reads, is left out.
    """
    result = {}
    for direction in dict.fromkeys(launch.direction for launch in launches):
        call = next(launch.call for launch in launches if launch.direction == direction)
        group = [launch for launch in launches if (launch.direction, launch.call) == (direction, call)]
        written, scratch = set(), set()
        for launch in group:
            touches = _touches(launch)
            scratch |= {t.argument.identity for t in touches if t.operation == "load"} & written
            written |= {t.argument.identity for t in touches if t.operation != "load"}
        result[direction] = _traffic(group, scratch)
    return result


def _traffic(launches: list[Launch], scratch: set[int]) -> dict[str, int]:
    totals = {}
    touches = [t for launch in launches for t in _touches(launch) if t.argument.identity not in scratch]
    for kind in ("read", "written"):
        requested, distinct = 0, {}
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


def _touches(launch: Launch) -> list[_Touch]:
    touches = []
    for program, steps in enumerate(launch.programs.values()):
        accesses = [(step, access) for step in steps for access in step.accesses]
        atomics = [i for i, (_, access) in enumerate(accesses) if access.operation.startswith("atomic")]
        for i, (step, access) in enumerate(accesses):
            addresses = access.addresses[access.elements >= 0]
            if addresses.size:
                others = [j for j in atomics if accesses[j][1].argument != access.argument]
                acquired, released = any(j < i for j in others), any(j > i for j in others)
                argument = launch.arguments[access.argument]
                touches.append(
                    _Touch(program, argument, access.operation, addresses, step.file, step.line, acquired, released)
                )
    return touches


def _races(launch: Launch, touches: list[_Touch]) -> list[Finding]:
    """Pairs of programs that meet at one element, one of them storing, with no atomic to put them in order."""
    names = list(launch.programs)
    found = []
    for identity in {touch.argument.identity for touch in touches if touch.operation == "store"}:
        here = [touch for touch in touches if touch.argument.identity == identity]
        address = np.concatenate([touch.addresses for touch in here])
        owner = np.repeat(np.arange(len(here)), [touch.addresses.size for touch in here])
        order = np.argsort(address, kind="stable")
        address, owner = address[order], owner[order]
        groups = np.split(np.arange(address.size), np.flatnonzero(np.diff(address)) + 1)
        for group in groups:
            meeting = [here[i] for i in dict.fromkeys(owner[group])]
            pair = _conflict(meeting)
            if pair:
                first, second = pair
                argument = first.argument
                element = int(argument.elements(_address_of(argument, address[group[:1]]))[0])
                verbs = {"load": "reads", "store": "stores"}
                one, other = (
                    f"program {program_name(names[touch.program])} {verbs.get(touch.operation, 'updates')}"
                    for touch in pair
                )
                where = f"{element_name(argument, element)} (line {first.line})"
                message = f"race in {launch.kernel}: {one} {where} and {other} it too; on a GPU their order is open"
                found.append(Finding(second.file, second.line, message))
                break
    return found


def _stored(argument: Argument, launches: list[Launch]) -> np.ndarray:
    """Elements of a tensor that some program stores, also if the value is what fresh memory holds."""
    touches = [touch for launch in launches for touch in _touches(launch) if touch.operation != "load"]
    offsets = [touch.addresses for touch in touches if touch.argument.identity == argument.identity]
    return argument.elements(_address_of(argument, np.concatenate(offsets)))


def _address_of(argument: Argument, storage_offset):
    return storage_offset + argument.start - argument.tensor.storage_offset() * argument.itemsize


def _conflict(touches: list[_Touch]) -> tuple[_Touch, _Touch] | None:
    if len({touch.program for touch in touches}) < 2:
        return None
    for second in touches:
        for first in touches:
            if first.program >= second.program or "store" not in (first.operation, second.operation):
                continue
            ordered = (first.released and second.acquired) or (second.released and first.acquired)
            if not ordered:
                return first, second
    return None
