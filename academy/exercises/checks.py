"""What the `check(t)` of an exercise can ask for: hostile inputs, and comparisons that say what is wrong, and where."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from academy import accuracy, device
from academy.exercises import rounds, watch
from academy.traces import memory, proof

#: Elements of memory on either side of an input; they hold NaN, or the largest integer.
AROUND = 16


class Failed(Exception):
    """A check that failed: what is wrong, in which case, at which line of the reader's text (None: at none)."""

    def __init__(self, message: str, case: str = "", line: int | None = None):
        super().__init__(f"{case}: {message}" if case and not message.startswith(case) else message)
        self.case, self.line = case or None, line


class Checks:
    """`module`: the reader's text, imported. Every method that compares raises `Failed`."""

    def __init__(self, module: ModuleType):
        self.module, self.file = module, str(module.__file__)
        self.cases = 0
        self._drawn = 0
        self._rewritten: dict = {}  # the kernels of the text, as the first comparison has rewritten them

    @property
    def source(self) -> str:
        """The reader's text, for a message that fits what is written there; never to decide what is right."""
        return Path(self.file).read_text("utf-8")

    # ---- inputs: without symmetry, away from zero, and with other data past their ends

    def values(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Numbers without a pattern, between -3 and 3.4 times `scale`; whole ones for an integer dtype."""
        self._drawn += 1
        count = math.prod(shape)
        numbers = (torch.arange(count) * 37 + 11 * self._drawn) % 101 - 47
        numbers = numbers * (scale / 16) if dtype.is_floating_point else numbers
        return self.surrounded(numbers.to(dtype)).view(*shape)

    def surrounded(self, numbers: torch.Tensor) -> torch.Tensor:
        """A copy of a vector, on the device, in the middle of memory that nobody may read or write."""
        other = math.nan if numbers.dtype.is_floating_point else torch.iinfo(numbers.dtype).max
        whole = torch.full((len(numbers) + 2 * AROUND,), other, dtype=numbers.dtype, device=device.DEVICE)
        inside = whole[AROUND : AROUND + len(numbers)]
        inside.copy_(numbers)
        return inside

    def cut(self, rows: int, columns: int, **options: Any) -> torch.Tensor:
        """A matrix cut out of wider rows, with NaN between its rows."""
        wide = torch.full(
            (rows, columns + 5), math.nan, dtype=options.get("dtype", torch.float32), device=device.DEVICE
        )
        wide[:, :columns] = self.values(rows, columns, **options)
        return wide[:, :columns]

    def turned(self, rows: int, columns: int, **options: Any) -> torch.Tensor:
        """A transposed matrix: its rows are the columns of what lies in memory."""
        return self.values(columns, rows, **options).T

    # ---- comparisons

    def get(self, name: str) -> Any:
        if not hasattr(self.module, name):
            raise Failed(f"`{name}` is missing: keep the name that the starter gives it")
        return getattr(self.module, name)

    def compare(
        self, case: str, function: str, want: Callable, *arguments: Any,
        name: str = "out", exact: bool = False, note: str = "", kernel: bool = True,
        lanes: float | None = None,
    ) -> watch.Run:  # fmt: skip
        """Call the reader's function and compare each result with `want`, which gets the same arguments.

        A result may have twice the error of `want` in the same dtype, both against float64 (`academy.accuracy`);
        `exact`: none at all. name: what messages call the result; several are separated by ", ". note: a helpful
        sentence, added if a value is wrong. kernel: whether a kernel has to be launched. lanes: what a load without
        `other` leaves in the lanes that it masks off; by default NaN, which a maximum swallows.
        """
        self.cases += 1
        call = self.get(function)
        inputs = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        before = [value.clone() for value in inputs]
        try:
            run = watch.run(self.file, lambda: call(*arguments), self._rewritten, lanes)
            run.given = inputs
        except Exception as raised:
            error, line = watch.cause_of(raised, self.file)
            if isinstance(error, watch.STOPPED):
                raise Failed(str(error), case, line) from raised
            raise
        for number, (value, old) in enumerate(zip(inputs, before), 1):
            if (place := _first(~_same(value, old))) is not None:
                raise Failed(f"{function} changes its argument {number}: {_at('it', place, value, old)}", case)
        if kernel and device.INTERPRET and not run.launches:
            raise Failed(f"{function} launches no kernel", case)
        if run.launches and run.stores_nothing:
            raise Failed(f"{run.launches[-1].kernel} stores nothing yet", case)
        for finding in run.findings:
            raise Failed(finding.message, case, finding.line if finding.file == self.file else None)
        double = [value.double() if _is_floating(value) else value for value in arguments]
        wanted, exactly = _tuple(want(*arguments)), _tuple(want(*double))
        results = run.result if isinstance(run.result, tuple) else (run.result,)
        names = name.split(", ")
        if len(results) != len(names):
            count = "1 result" if len(results) == 1 else f"{len(results)} results"
            raise Failed(f"{function} returns {count}, not {len(names)}: {name}", case)
        for each, result, pytorch, reference in zip(names, results, wanted, exactly):
            if not isinstance(result, torch.Tensor):
                raise Failed(f"{function} returns {_shown(result)}, not a tensor", case)
            if problem := _difference(each, result, pytorch, reference, exact):
                raise Failed(f"{problem}. {note}" if note else problem, case)
        return run

    def value(self, function: str, arguments: tuple, want: Any, note: str = "") -> None:
        """Call the reader's function, which is Python, and compare what it returns: numbers, tuples, lists."""
        self.cases += 1
        got = rounds.counted(lambda: self.get(function)(*arguments))
        if not _equal(got, want):
            call = f"{function}({', '.join(_shown(argument) for argument in arguments)})"
            raise Failed(f"{call} is {_shown(got)}, should be {_shown(want)}" + (f". {note}" if note else ""), call)

    def number(self, want: float, mistakes: dict[float, str], otherwise: str) -> None:
        """Compare a number that the reader predicts. mistakes: what to say about a number that results from a common
        mistake."""
        self.cases += 1
        got = self.get("answer")
        if got is None:
            raise Failed("answer is still None: put your number there")
        if not isinstance(got, (int, float)) or isinstance(got, bool):
            raise Failed(f"answer is {_shown(got)}, and should be a number")
        if not _equal(got, want):
            why = next((text for number, text in mistakes.items() if _equal(got, number)), otherwise)
            raise Failed(f"answer is {_shown(got)}, which is not right. {why}")

    def traffic(self, case: str, run: watch.Run, read: int, written: int) -> None:
        """Require that the launches of a run request no more bytes than this; an element loaded twice counts twice.

        PyTorch's own work isn't counted, so it may do none of it.
        """
        if not device.INTERPRET:
            return
        if other := run.of_pytorch():
            raise Failed(f"PyTorch computes {other}, which moves bytes too: let the kernel compute everything", case)
        moved = proof.traffic(run.launches)
        for operation, kind, limit in (("load", "read", read), ("store", "written", written)):
            if moved[f"requested_{kind}"] > limit:
                message = f"{moved[f'requested_{kind}']} bytes are {kind}, {limit} are enough"
                sizes = {touch.argument.itemsize for launch in run.launches for touch in launch.touches}
                message += f" (an element is {sizes.pop()} bytes)" if len(sizes) == 1 else ""
                line, most = None, run.most_often(operation)
                if most and most[2] > 1:
                    touch, element, times = most
                    line, word = touch.line, {"load": "loaded", "store": "stored"}[operation]
                    message += f": {touch.argument.element_name(element)} is {word} {times} times"
                raise Failed(message, case, line)

    def require(self, holds: bool, message: str, case: str = "") -> None:
        """Require anything else."""
        if not holds:
            raise Failed(message, case)


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Which elements are equal, or both NaN."""
    return (one == other) | ((one != one) & (other != other))


def _difference(name: str, result, pytorch, reference, exact: bool) -> str | None:
    """What is wrong with a result, naming the first wrong element; None if nothing is."""
    if result.shape != reference.shape:
        return f"{name} has shape {tuple(result.shape)}, should have {tuple(reference.shape)}"
    if result.dtype != pytorch.dtype:
        return f"{name} has dtype {result.dtype}, should have {pytorch.dtype}"
    if exact or not result.is_floating_point():
        place = _first(~_same(result, pytorch))
        return None if place is None else _at(name, place, result, pytorch)
    problem = accuracy.problem(result, pytorch, reference)
    if problem is None:
        return None
    theirs, scale = _largest(pytorch.double() - reference), _largest(reference)
    allowed = max(2 * theirs, accuracy.MAX_FLOOR * torch.finfo(result.dtype).eps * scale)
    near = (result.double() - reference).abs() <= allowed
    place = _first(~(near | _same(result, pytorch)))
    return f"{name}: {problem}" if place is None else _at(name, place, result, pytorch)


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value, of those that are finite."""
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _first(wrong: torch.Tensor) -> tuple[tuple[int, ...], int] | None:
    """Index of the first element that is true, and how many are."""
    places = wrong.nonzero()
    return (tuple(places[0].tolist()), len(places)) if len(places) else None


def _at(name: str, place: tuple[tuple[int, ...], int], value: torch.Tensor, wanted: torch.Tensor) -> str:
    """`y[1, 3] is 0.5, should be 0.25; row 1 is the first that is wrong`."""
    index, count = place
    element = f"{name}[{', '.join(map(str, index))}]" if index else name
    never = value.is_floating_point() and value.numel() and memory.unwritten(value)[index]
    got = "was never written" if never else f"is {_shown(value[index].item())}"
    message = f"{element} {got}, should be {_shown(wanted[index].item())}"
    if len(index) == 2:
        return f"{message}; row {index[0]} is the first that is wrong"
    return f"{message} ({count} of {value.numel()} elements are wrong)" if value.numel() > 1 else message


def _equal(got: Any, want: Any) -> bool:
    if isinstance(want, (tuple, list)):
        return isinstance(got, (tuple, list)) and len(got) == len(want) and all(map(_equal, got, want))
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return got == want or math.isclose(got, want, rel_tol=1e-9)
    return type(got) is type(want) and got == want


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        text = ", ".join(map(_shown, value))
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return getattr(value, "__name__", None) or repr(value)
