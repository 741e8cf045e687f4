"""A recording as data: what the worker writes, the quote check reads and the viewer shows. Needs numpy only.

    {"triton": "3.7.1", "files": {path: [line of each statement]}, "error": null or {"file", "line", "message"},
     "findings", "warnings": [{"file", "line", "message"}], "launches": [...],
     "printed": what EXAMPLE and its kernels print}

An error inside a kernel has two more entries, `launch` and `program`: where the run stopped. The launches are those up
to there, and the last statement of the last program is the one that fails.

A launch holds `kernel`, `functions` (all that run in it), `direction` (forward or backward), `grid`, `repairs`,
`traffic`, `tensors`, and `programs`: per program the steps, as `[number of the place, {name: value}, [access, ...]]`.
Values are numbers of entries in `pool`, so that what is equal is stored once; a dtype that numpy lacks is named there,
as `n`. An access is `[operation, tensor, elements, values, 1 if lanes are undefined]`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

#: Arrays longer than this are recorded by shape alone.
MAX_VALUES = 1 << 14
Program = tuple[int, int, int]


@dataclass(frozen=True)
class Pointer:
    """A pointer or a block of pointers: element offsets from the first element of one tensor."""

    base: str
    offsets: np.ndarray


@dataclass(frozen=True)
class Converted:
    """A block of numbers of a dtype that numpy lacks, as float32."""

    dtype_name: str
    data: np.ndarray


class Pool:
    """Values, each stored once."""

    def __init__(self) -> None:
        self.entries: list[dict] = []
        self._numbers: dict[str, int] = {}
        self._of_bytes: dict[tuple, int] = {}

    def add(self, value: Any) -> int:
        if isinstance(value, tuple):
            return self._enter({"t": "tuple", "d": [self.add(item) for item in value]})
        if value is None or isinstance(value, str):
            return self._enter({"t": "text", "d": str(value)})
        array, more = _unwrapped(value)
        # Most blocks have been here before, and comparing bytes is far quicker than writing numbers.
        content = array.tobytes() if array.size <= MAX_VALUES else b""
        key = array.dtype, array.shape, content, *more.values()
        if key not in self._of_bytes:
            self._of_bytes[key] = self._enter({**_array(array), **more})
        return self._of_bytes[key]

    def _enter(self, entry: dict) -> int:
        key = json.dumps(entry, separators=(",", ":"))
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(entry)
        return self._numbers[key]


def _unwrapped(value: Any) -> tuple[np.ndarray, dict[str, str]]:
    """The numbers of a value, and what its entry says besides."""
    if isinstance(value, Converted):
        return np.asarray(value.data), {"n": value.dtype_name}
    if isinstance(value, Pointer):
        return np.asarray(value.offsets), {"b": value.base}
    if type(value) is int and -(2**63) <= value < 2**63:  # whatever numpy's own default is where this runs
        return np.asarray(value, dtype=np.int64), {}
    return np.asarray(value), {}


def _array(array: np.ndarray) -> dict:
    entry: dict = {"t": f"{array.dtype.kind}{array.dtype.itemsize}", "s": list(array.shape)}
    if array.size <= MAX_VALUES:
        flat = array.reshape(-1)
        whole = array.dtype.kind in "iub" or _whole(flat)
        entry["d"] = list(map(int, flat.tolist())) if whole else _numbers(flat)
    return entry


def _whole(flat: np.ndarray) -> bool:
    """Whether all are whole numbers, none of them -0, which is far quicker to tell than of each by itself."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(((flat == np.trunc(flat)) & (np.abs(flat) < 1e15) & ~((flat == 0) & np.signbit(flat))).all())


def _numbers(flat: np.ndarray) -> list[int | float | str]:
    """float32: the shortest decimals that read back as the same values. float16: the values, to be shown so."""
    exact = flat.tolist()
    shown = map(float, flat.astype(str)) if flat.dtype.itemsize == 4 else exact
    return [_number(*pair) for pair in zip(exact, shown)]


def _number(exact: float, shown: float) -> int | float | str:
    if not math.isfinite(exact):
        return str(exact)
    whole = exact.is_integer() and abs(exact) < 1e15 and not (exact == 0 and math.copysign(1, exact) < 0)
    return int(exact) if whole else shown


@dataclass
class Step:
    """One executed statement. values: name -> number in the pool. accesses: as stored. loops: (line of the header,
    iteration) of every loop around it."""

    function: str
    file: str
    line: int
    depth: int
    loops: tuple[tuple[int, int], ...]
    values: dict[str, int]
    accesses: list[list]


@dataclass
class Recording:
    """A recording read back, with line numbers moved to where the statements stand now."""

    data: dict
    moved: dict[str, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._steps: dict[tuple[int, Program], list[Step]] = {}

    @property
    def launches(self) -> list[dict]:
        return self.data["launches"]

    @property
    def stopped(self) -> tuple[int, Program] | None:
        """Number of the launch, and program, in which the run failed; None if it did not, or not inside a program."""
        error = self.data["error"] or {}
        return (error["launch"], tuple(error["program"])) if "launch" in error else None

    def line(self, file: str, line: int) -> int:
        return self.moved.get(file, {}).get(line, line)

    @cached_property
    def places(self) -> list[tuple]:
        """(function, file, line, depth, ((line of the header, iteration), ...)), with lines as they are now."""
        return [
            (name, file, self.line(file, line), depth, tuple((self.line(file, head), round_) for head, round_ in loops))
            for name, file, line, depth, loops in self.data["places"]
        ]

    def dtype(self, number: int) -> str:
        """The dtype of the value with this number; "" if it is no tensor of numbers."""
        entry = self.data["pool"][number]
        if entry["t"] in ("tuple", "text") or "b" in entry:
            return ""
        return entry.get("n") or np.dtype(entry["t"]).name

    def value(self, number: int) -> Any:
        """The value with this number: numpy array or scalar, `Pointer`, text, tuple; None if too long."""
        if number not in self._values:
            self._values[number] = self._decode(self.data["pool"][number])
        return self._values[number]

    def shape(self, number: int) -> list[int]:
        """The shape of the block with this number, also where it was too long for its numbers to be kept."""
        return self.data["pool"][number]["s"]

    def _decode(self, entry: dict) -> Any:
        if entry["t"] == "tuple":
            return tuple(self.value(number) for number in entry["d"])
        if entry["t"] == "text" or "d" not in entry:
            return entry.get("d")
        numbers = [float(d) if isinstance(d, str) else d for d in entry["d"]]
        array = np.array(numbers, dtype=entry["t"]).reshape(entry["s"])
        if "b" in entry:
            return Pointer(entry["b"], array)
        return array if array.shape else array[()]

    def steps(self, launch: dict, program: Program) -> list[Step] | None:
        """What one program of a launch did, in order; None if the grid has no such program."""
        key = id(launch), program
        if key not in self._steps:
            rows = next((rows for pid, rows in launch["programs"] if tuple(pid) == program), None)
            if rows is None:
                return None
            self._steps[key] = [Step(*self.places[row[0]], *row[1:]) for row in rows]
        return self._steps[key]

    def writer(self, launch: dict, tensor: int, element: int) -> tuple[Program, int] | None:
        """The program and the number of its step that wrote this element of a tensor last; None where none did."""
        found = None
        for pid, _ in launch["programs"]:
            for at, step in enumerate(self.steps(launch, tuple(pid)) or []):
                for operation, number, elements, *_ in step.accesses:
                    if operation != "load" and number == tensor:
                        touched = self.value(elements)
                        if touched is not None and (np.asarray(touched) == element).any():
                            found = tuple(pid), at
        return found

    def offsets(self, launch: dict, access: list) -> np.ndarray:
        """Of each lane of an access that isn't masked off: how many elements it is after the first one of its
        tensor."""
        tensor, elements = launch["tensors"][access[1]], np.atleast_1d(self.value(access[2])).reshape(-1)
        index = np.unravel_index(elements[elements >= 0], tensor["shape"] or [1])
        return np.array(tensor["strides"] or [1]) @ np.stack(index)

    def stored(self, access: list) -> np.ndarray | None:
        """What each lane of a store or an atomic that isn't masked off writes or adds; None for too many to keep."""
        elements, values = self.value(access[2]), self.value(access[3])
        return None if elements is None or values is None else np.atleast_1d(values)[np.atleast_1d(elements) >= 0]


def program_name(pid: tuple[int, ...]) -> str:
    """13 for (13, 0, 0), (1, 2) for (1, 2, 0)."""
    short = without_end(pid, 0)
    return str(short if len(short) > 1 else short[0])


def grid_name(grid: tuple[int, ...]) -> str:
    """(3,) for (3, 1, 1), (2, 4) for (2, 4, 1)."""
    return str(without_end(grid, 1))


def without_end(sizes: tuple[int, ...], default: int) -> tuple[int, ...]:
    sizes = tuple(sizes)
    while len(sizes) > 1 and sizes[-1] == default:
        sizes = sizes[:-1]
    return sizes


def in_digits(value: Any, digits: int = 5) -> str:
    """Numbers in one line: whole ones without a point, others with at most so many digits, masks as 1 and 0."""
    if not isinstance(value, (np.ndarray, np.generic, float)):
        return str(value)

    def number(x) -> str:
        x = float(x)
        return str(int(x)) if abs(x) < 1e6 and x.is_integer() else f"{x:.{digits}g}"

    styles: Any = {"float_kind": number, "bool": lambda x: str(int(x))}
    limits: dict = dict(max_line_width=sys.maxsize, threshold=sys.maxsize)
    text = np.array2string(np.asarray(value), separator=", ", formatter=styles, **limits)
    return re.sub(r"\s+", " ", text).replace("[ ", "[")


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor of this shape."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def places(elements: np.ndarray, shape: Sequence[int], width: int = 40) -> str:
    """Where in a tensor the lanes of an access are: `[1, 0:4]` for a box, else the first ones, `[0, 0], [1, 2], …`.

    elements: number of the element for each lane, -1 where it is masked off. "" for a single number, or no lane.
    """
    active = np.asarray(elements).reshape(-1)
    active = active[active >= 0]
    if not active.size or not shape:
        return ""
    index = np.stack(np.unravel_index(active, tuple(shape)), axis=1)
    first, last = index.min(axis=0), index.max(axis=0)
    if np.unique(active).size == np.prod(last - first + 1):
        ranges = (str(a) if a == b else f"{a}:{b + 1}" for a, b in zip(first, last))
        return f"[{', '.join(ranges)}]"
    listed, text = [f"[{', '.join(map(str, each))}]" for each in index.tolist()], ""
    for i, each in enumerate(listed):
        if len(text) + len(each) > width:
            return f"{text}, … {listed[-1]}"
        text += f", {each}" if i else each
    return text


def failed(file: str, message: str) -> dict:
    """The data of a recording of which nothing is left but the reason."""
    empty: dict = {"findings": [], "warnings": [], "launches": [], "places": [], "pool": [], "files": {}, "traffic": {}}
    return {**empty, "error": {"file": file, "line": 1, "message": message}, "printed": ""}


def launch_data(launch, pool: Pool, places: list[tuple], file: str, traffic: dict[str, int]) -> dict:
    """A `observer.Launch` as a recording holds it. file: of the kernel, as recordings name it."""
    storages = list(dict.fromkeys(argument.identity for argument in launch.arguments))

    def tensor(argument) -> dict:
        return {
            "name": argument.name,
            "shape": list(argument.tensor.shape),
            "strides": list(argument.tensor.stride()),
            "dtype": str(argument.tensor.dtype).removeprefix("torch."),
            "fresh": argument.fresh,
            "storage": storages.index(argument.identity),
            "before": pool.add(_numpy(argument.before)),
            "after": pool.add(_numpy(argument.after)),
        }

    return {
        **{name: getattr(launch, name) for name in ("kernel", "line", "direction", "call", "repairs")},
        "functions": sorted({places[number][0] for steps in launch.programs.values() for number, *_ in steps}),
        "file": file,
        "grid": list(launch.grid),
        "traffic": traffic,
        "tensors": [tensor(argument) for argument in launch.arguments],
        "programs": [[list(pid), steps] for pid, steps in launch.programs.items()],
    }


def _numpy(tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    narrow = tensor.is_floating_point() and (tensor.element_size() == 1 or str(tensor.dtype) == "torch.bfloat16")
    return (tensor.float() if narrow else tensor).contiguous().numpy()
