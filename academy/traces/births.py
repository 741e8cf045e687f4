"""Where the first NaN of a run was born: a NaN that is stored although no input holds one.

The usual cause is a load that masks lanes off and has no `other`. Its lanes are undefined on a GPU; here they are NaN,
and harmless as long as nothing else comes of them: a store masks the same lanes off. But a sum over the block makes
them part of a result. So the first NaN that counts is one in a lane that no such load has left undefined.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator

import numpy as np

from academy.traces.observer import Launch, Touch
from academy.traces.proof import Finding
from academy.traces.recorder import Recorder
from academy.traces.recording import program_name


def births(recorder: Recorder) -> tuple[list[Finding], list[Finding]]:
    """(errors, warnings): results that hang on undefined lanes, and NaN that arithmetic makes of numbers.

    One entry for each kernel. Nothing is said of a launch whose inputs hold NaN already, or that reads memory which
    nobody has written.
    """
    places = list(recorder.places)
    errors, warnings = dict[str, Finding](), dict[str, Finding]()
    for launch in recorder.launches:
        if launch.kernel in errors or launch.kernel in warnings or any(map(_reads_nan, launch.touches)):
            continue
        stored = next((touch for touch in launch.touches if touch.operation != "load" and _is_nan(touch).any()), None)
        if stored is None:
            continue
        undefined = [t for t in launch.touches if t.program == stored.program and t.undefined]
        birth = next(_new(launch, stored, undefined, recorder, places), None)
        told = f"program {program_name(stored.program)} of {launch.kernel} stores NaN in "
        told += stored.argument.element_name(int(stored.elements[_is_nan(stored)][0]))
        file, line, name = birth or (stored.file, stored.line, "")
        statement = f"`{linecache.getline(file, line).strip()}`"
        told += f". The first NaN that counts is {name}, in {statement}" if name else f". It is made in {statement}"
        if undefined and (not birth or any(t.line <= line for t in undefined if t.file == file)):
            source = undefined[0]
            told += f". It comes from the load of {source.argument.name} in line {source.line}, which masks lanes off "
            told += "and has no `other`: their value is undefined. Say what they are, as in other=0.0"
            errors[launch.kernel] = Finding(file, line, told)
        else:
            warnings[launch.kernel] = Finding(file, line, told)
    return list(errors.values()), list(warnings.values())


def _is_nan(touch: Touch) -> np.ndarray:
    """Lanes of an access, of those not masked off, that hold NaN."""
    values = np.asarray(touch.values)
    if values.dtype.kind != "f":
        return np.zeros(touch.elements.shape, dtype=bool)
    return np.isnan(np.broadcast_to(values, touch.elements.shape)) & (touch.elements >= 0)


def _reads_nan(touch: Touch) -> bool:
    """Whether an input holds NaN, or what is read was never written. What a program has stored is no input."""
    before = touch.argument.before
    return bool(
        touch.unwritten is not None
        or touch.operation == "load"
        and not touch.argument.fresh
        and before.is_floating_point()
        and before.isnan().any()
    )


def _new(
    launch: Launch, stored: Touch, undefined: list[Touch], recorder: Recorder, places: list[tuple]
) -> Iterator[tuple[str, int, str]]:
    """File, line and name of the values with a NaN in a lane that no load has left undefined, in the order of the
    run."""
    holes = [(touch.elements.shape, touch.elements < 0) for touch in undefined]
    for number, values, _ in launch.programs[stored.program]:
        _, file, line, *_ = places[number]
        for name, index in values.items():
            nan = _nan_of(recorder.pool.entries[index])
            if nan is None or not nan.any():
                continue
            if any(shape == nan.shape and not (nan & ~hole).any() for shape, hole in holes):
                continue
            yield file, line, name


def _nan_of(entry: dict) -> np.ndarray | None:
    """Where a kept value is NaN; None if it is no block or number of floats, or too long to be kept."""
    if not entry.get("t", "").startswith("f") or "d" not in entry:
        return None
    flat = [value == "nan" or value != value for value in entry["d"]]
    return np.array(flat, dtype=bool).reshape(entry["s"])
