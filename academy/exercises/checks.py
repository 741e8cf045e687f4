"""What the `check(t)` of an exercise can ask for: hostile inputs, and comparisons that say what is wrong, and where."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from academy import device
from academy.exercises import rounds, watch
from academy.judge import elements, layouts
from academy.traces import proof

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
        return layouts.nan_fenced(numbers.to(device.DEVICE), AROUND)

    def cut(self, rows: int, columns: int, **options: Any) -> torch.Tensor:
        """A matrix cut out of wider rows, with NaN between its rows."""
        return layouts.sliced(self.values(rows, columns, **options), padding=5)

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
            if (place := elements.first(~elements.same(value, old))) is not None:
                raise Failed(f"{function} changes its argument {number}: {elements.at('it', place, value, old)}", case)
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
                raise Failed(f"{function} returns {elements.shown(result)}, not a tensor", case)
            if problem := elements.difference(each, result, pytorch, reference, exact):
                raise Failed(f"{problem}. {note}" if note else problem, case)
        return run

    def value(self, function: str, arguments: tuple, want: Any, note: str = "") -> None:
        """Call the reader's function, which is Python, and compare what it returns: numbers, tuples, lists."""
        self.cases += 1
        got = rounds.counted(lambda: self.get(function)(*arguments))
        if not _equal(got, want):
            call = f"{function}({', '.join(elements.shown(argument) for argument in arguments)})"
            raise Failed(
                f"{call} is {elements.shown(got)}, should be {elements.shown(want)}" + (f". {note}" if note else ""),
                call,
            )

    def number(self, want: float, mistakes: dict[float, str], otherwise: str) -> None:
        """Compare a number that the reader predicts. mistakes: what to say about a number that results from a common
        mistake."""
        self.cases += 1
        got = self.get("answer")
        if got is None:
            raise Failed("answer is still None: put your number there")
        if not isinstance(got, (int, float)) or isinstance(got, bool):
            raise Failed(f"answer is {elements.shown(got)}, and should be a number")
        if not _equal(got, want):
            why = next((text for number, text in mistakes.items() if _equal(got, number)), otherwise)
            raise Failed(f"answer is {elements.shown(got)}, which is not right. {why}")

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


def _equal(got: Any, want: Any) -> bool:
    if isinstance(want, (tuple, list)):
        return isinstance(got, (tuple, list)) and len(got) == len(want) and all(map(_equal, got, want))
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return got == want or math.isclose(got, want, rel_tol=1e-9)
    return type(got) is type(want) and got == want
