"""What the `check(t)` of an exercise can ask for: hostile inputs, and comparisons that say what is wrong, and where."""

from __future__ import annotations

import contextlib
import math
import random
import re
import struct
from collections.abc import Callable, Collection
from typing import Any, Protocol

import torch

from academy.runtime import device
from academy.compiler.rules.allowed import Raised
from academy.exercises import classes, watch
from academy.judge import elements, layouts

#: Elements of memory on either side of an input; they hold NaN, or the largest integer.
AROUND = 16
#: What a load without `other` leaves in lanes that are masked off, after NaN: a maximum swallows NaN, a minimum the
#: largest number.
LANES = (1e30, -1e30)
#: Arguments with at most so many numbers are shown in messages.
_SHOWN = 12
#: What is said where a NaN got lost.
LOST = "What is made of a NaN has to be NaN: `tl.maximum` and `tl.minimum` take the other number"
#: What a function raises at values that it should have computed with: a note on these values helps there, too.
_ARITHMETIC = re.compile(r" raises (OverflowError|ZeroDivisionError|ValueError: math domain error)")
#: Functions that make a common mistake, each with what to say about it.
Mistakes = dict[Callable, str] | None


class Failed(Exception):
    """A check that failed: what is wrong, in which case, at which line of the reader's text (None: at none)."""

    def __init__(self, message: str, case: str = "", line: int | None = None):
        super().__init__(f"{case}: {message}" if case and not message.startswith(case) else message)
        self.case, self.line = case or None, line


class Asked(Protocol):
    """A reader's text, as `answer.Answer` has it, or what stands around one."""

    def has(self, name: str) -> bool: ...

    def variable(self, name: str) -> Any: ...

    def parameters(self, function: str) -> list[str]: ...

    def run(self, function: str, arguments: tuple, lanes: float | None = None) -> watch.Run: ...

    def call(self, function: str, arguments: tuple) -> Any: ...

    def evaluate(self, expression: str, names: dict[str, Any]) -> Any: ...

    def close(self) -> None: ...


class Questions:
    """`answer`: the reader's text. `source`: its words, for a message that fits what is written there; never to decide
    what is right. `seed`: of all that is drawn. `small_dots`: whether kernels may multiply blocks that
    the compiler refuses, as where tiles are small in order to be shown. Every method that compares raises `Failed`."""

    def __init__(self, answer: Asked, source: str = "", seed: int = 0, small_dots: bool = True):
        self.answer, self.source, self.small_dots = answer, source, small_dots
        self.cases = 0
        #: All launches, as `academy.compiler.launches` describes them.
        self.launched: list[dict] = []
        #: Whether a kernel was one of Gluon's, and has run in the simulator.
        self.simulated = False
        #: Whether a kernel had to run.
        self.kernels = False
        #: Of each function what has been compared: case, arguments, classes to spare, options.
        self._posed: dict[str, list[tuple[str, tuple, frozenset[str], dict[str, Any]]]] = {}
        #: Draws options and sizes: `t.random.randint(2, 9)`.
        self.random = random.Random(seed)

    # ---- inputs: drawn anew at each check, away from zero, and with other data past their ends

    def values(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Numbers between -3.3 and 3.3 times `scale`, half of them negative; whole ones, -50 to 50, for an integer
        dtype. They need all the digits that their dtype has."""
        count = math.prod(shape)
        if dtype.is_floating_point:
            numbers: list[float] = [self.random.uniform(0.1, 3.3) * scale for _ in range(count)]
        else:
            numbers = [self.random.randint(1, 50) for _ in range(count)]
        first = self.random.randrange(2)
        signs = [1 if (number + first) % 2 else -1 for number in range(count)]
        self.random.shuffle(signs)
        return self.surrounded(torch.tensor([s * x for s, x in zip(signs, numbers)]).to(dtype)).view(*shape)

    def positive(self, *shape: int, **options: Any) -> torch.Tensor:
        """The same, all positive: where a sum of both signs could come close to 0, whose last digits are chance."""
        return self.values(*shape, **options).abs_()

    def sizes(self, block: int, most: int = 0, many: int = 0) -> list[int]:
        """One element, the sizes beside the ends of one block and of two, a drawn one, and one of many blocks (about
        `many` elements). With `most` no larger ones, but that and the one before it."""
        many = (many or max(16 * block, 300)) + self.random.randint(1, block)
        sizes = [1, block - 1, block, block + 1, 2 * block, 2 * block + 1, self.random.randint(3 * block, 6 * block)]
        sizes = [*sizes, most - 1, most] if most else [*sizes, many]
        return sorted({size for size in sizes if 1 <= size <= (most or many)})

    def surrounded(self, numbers: torch.Tensor) -> torch.Tensor:
        """A copy of a vector, on the device, in the middle of memory that nobody may read or write."""
        return layouts.nan_fenced(numbers.to(device.DEVICE), AROUND)

    def cut(self, rows: int, columns: int, **options: Any) -> torch.Tensor:
        """A matrix cut out of wider rows, with NaN between its rows."""
        return layouts.sliced(self.values(rows, columns, **options), padding=5)

    def turned(self, rows: int, columns: int, **options: Any) -> torch.Tensor:
        """A transposed matrix: its rows are the columns of what lies in memory."""
        return self.values(columns, rows, **options).T

    @staticmethod
    def counted(count: int, what: str) -> str:
        """`1 token`, `3 tokens`: for the name of a case."""
        return f"{count} {what}" if count == 1 else f"{count} {what}s"

    # ---- comparisons

    def compare(
        self, case: str, function: str, want: Callable, *arguments: Any,
        name: str = "out", exact: bool = False, note: str = "", mistakes: Mistakes = None, kernel: bool = True,
        host: Collection[str] = (), spare: Collection[str] = (),
    ) -> watch.Run:  # fmt: skip
        """Call the reader's function and compare each result with `want`, which gets the same arguments.

        A result may have twice the error of `want` in the same dtype, both against float64 (`academy.judge.accuracy`);
        `exact`: none at all. Lanes that a load masks off without `other` hold NaN, then a large number, then its
        opposite.

        Args:
            name: what messages call the result; several are separated by ", ".
            note: a helpful sentence, added if a value is wrong.
            mistakes: common ones, as functions of the same arguments: what is said, in the place of `note`, of a result
                that is one's.
            kernel: whether a kernel has to be launched, and has to do the work itself.
            host: work that PyTorch may do nevertheless: "copies" of arguments, "loads" (what a kernel loads), "result".
            spare: what the question leaves open of `academy.exercises.classes`: "a NaN", "a NaN in y", "* in y", or
                "*", all of them in this case. At the end `finish` compares with each of the others.
        """
        options: dict[str, Any] = dict(want=want, name=name, exact=exact, kernel=kernel, host=host)
        run = self._compare(case, function, arguments, note=note, mistakes=mistakes, **options)
        self._posed.setdefault(function, []).append((case, arguments, frozenset(spare), options))
        return run

    def finish(self) -> None:
        """Compare each function again, with each class of values in each argument that holds floating-point numbers:
        in the smallest case that shows something, and in the last one, by turns."""
        for function, cases in self._posed.items():
            parameters = self.answer.parameters(function)
            numbers = [sum(value.numel() for value in case[1] if _is_floating(value)) for case in cases]
            enough = [count for count in numbers if count >= _SHOWN]
            order = [cases[numbers.index(min(enough, default=max(numbers)))], *reversed(cases)]
            places = [[number] for number, value in enumerate(cases[0][1]) if _is_floating(value)]
            every = [number for (number,) in places]
            for turn, kind in enumerate(classes.CLASSES if not self.simulated else ("a NaN",)):
                together = [every] if kind in classes.TOGETHER and len(every) > 1 else []
                for chosen in [*places, *together]:
                    names = [parameters[number] if number < len(parameters) else str(number + 1) for number in chosen]
                    kinds = (kind, "*", *(["a NaN"] if kind == "many NaN" else []))
                    spared = {*kinds, *(f"{one} in {name}" for name in names for one in kinds)}
                    for case, arguments, spare, options in (order, order[1:])[turn % 2]:
                        values = [arguments[number] for number in chosen]
                        if not spared & spare and all(x.numel() and classes.fits(kind, x.dtype) for x in values):
                            given = list(arguments)
                            for number in chosen:
                                given[number] = classes.put(kind, arguments[number], self.random)
                            which = f"{case}, {kind} in {' and '.join(names)}"
                            self._compare(which, function, tuple(given), **options, strict=False)
                            break

    def posed(self) -> dict[str, list[tuple[str, tuple, dict[str, Any]]]]:
        """Of each function what was compared: case, arguments, and what `compare` was told."""
        return {name: [(case, given, told) for case, given, _, told in cases] for name, cases in self._posed.items()}

    def _compare(
        self, case: str, function: str, arguments: tuple, want: Callable, name: str, exact: bool, kernel: bool,
        host: Collection[str], note: str = "", mistakes: Mistakes = None, strict: bool = True,
    ) -> watch.Run:  # fmt: skip
        """strict: whether infinities and NaNs must be the same; else it is enough that none is hidden."""
        self.cases += 1
        self._has(function)
        inputs = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        before = [value.clone() for value in inputs]
        run = self._run(case, function, arguments, None)
        self.launched += run.noted
        self.simulated |= run.simulated
        self.kernels |= kernel
        for number, (value, old) in enumerate(zip(run.after, before), 1):
            if (place := elements.first(~elements.same(value, old))) is not None:
                raise Failed(f"{function} changes its argument {number}: {elements.at('it', place, value, old)}", case)
        if kernel and device.INTERPRET and not run.launches:
            raise Failed(f"{function} launches no kernel", case)
        if run.launches and run.stores_nothing:
            raise Failed(f"{run.launches[-1].kernel} stores nothing yet", case)
        for message, line in [*([] if self.small_dots else run.small_dots), *run.findings]:
            raise Failed(message, case, line)
        wanted = list(zip(name.split(", "), _tuple(want(*arguments)), _tuple(want(*_double(arguments)))))
        for lanes in (None, *(LANES if run.undefined else ())):
            again = run if lanes is None else self._run(case, function, arguments, lanes)
            try:
                self._right(case, function, want, arguments, again.result, wanted, exact, note, mistakes, strict)
            except Failed as failed:
                others = (LANES[0], 0.0) if lanes is None else (None,)  # 1e30 squared may end as a NaN, too
                counts = (self._lanes_count(again, function, arguments, other) for other in others)
                if not run.undefined or not any(counts):
                    raise
                held = "NaN" if lanes is None else f"{lanes:g}"
                undefined = f"A lane that is masked off holds anything if its load has no `other`: here {held}"
                said = str(failed)
                raise Failed(f"{said}{' ' if said[-1] in '.?' else '. '}{undefined}", case) from None
        if kernel:
            self._by_kernels(case, run, host)
        return run

    def _lanes_count(self, run: watch.Run, function: str, arguments: tuple, lanes: float | None) -> bool:
        """Whether a result is another one if the lanes that a load leaves undefined hold `lanes`."""
        try:
            other = self.answer.run(function, arguments, lanes)
        except Raised:  # a lane led it astray
            return True
        pairs = list(zip(_tuple(run.result), _tuple(other.result)))
        if not all(isinstance(value, torch.Tensor) for pair in pairs for value in pair):
            return False
        return not all(one.shape == two.shape and bool(elements.same(one, two).all()) for one, two in pairs)

    def _run(self, case: str, function: str, arguments: tuple, lanes: float | None) -> watch.Run:
        try:
            return self.answer.run(function, arguments, lanes)
        except Raised as raised:
            if raised.stopped:
                raise Failed(raised.message, case, raised.line) from raised
            raise Raised(f"{case}: {raised.message}", raised.line, stopped=False) from raised

    def _right(
        self, case: str, function: str, want: Callable, arguments: tuple, result: Any, wanted: list, exact: bool,
        note: str, mistakes: Mistakes, strict: bool,
    ) -> None:  # fmt: skip
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(wanted):
            count = "1 result" if len(results) == 1 else f"{len(results)} results"
            names = ", ".join(name for name, *_ in wanted)
            raise Failed(f"{function} returns {count}, not {len(wanted)}: {names}", case)
        for number, (value, (name, pytorch, reference)) in enumerate(zip(results, wanted)):
            if not isinstance(value, torch.Tensor):
                raise Failed(f"{function} returns {elements.shown(value)}, not a tensor", case)
            if not strict and value.is_floating_point() and value.shape == pytorch.shape:
                value = torch.where(value.isfinite() | pytorch.isfinite(), value, pytorch.to(value.dtype))
            problem = elements.difference(name, value, pytorch, reference, exact)
            if problem and not exact and _is_floating(value) and value.shape == reference.shape:
                near = self._nearest(value, number, reference, want, arguments)
                problem = problem if elements.difference(name, near, pytorch, reference) else None
            if problem:
                if problem.startswith(f"{name}: "):  # no single element is to blame
                    said = f"each number of {name} is close, but all together are further off than rounding explains"
                    problem = f"{said}: {problem}"
                note = note or (LOST if ", should be nan" in problem else "")
                problem += self._with(function, arguments, problem, value)
                for wrong, said in reversed((mistakes or {}).items()):  # the first one that fits
                    theirs, in_double = (_tuple(wrong(*given))[number] for given in (arguments, _double(arguments)))
                    note = note if elements.difference(name, value, theirs, in_double, exact) else said
                raise Failed(f"{problem}. {note}" if note else problem, case)

    def _nearest(
        self, value: torch.Tensor, number: int, reference: torch.Tensor, want: Callable, arguments: tuple
    ) -> torch.Tensor:
        """A result, moved towards the reference as far as the last bit of float32 in the arguments moves that.

        No arithmetic in float32 can tell these apart, as where a sum of both signs is nearly 0, or the difference of
        two logarithms is small. Where a change in one direction alone changes much, nothing is moved: there is a step.
        """
        slack = torch.zeros_like(reference)
        for _ in range(8):
            bits = [2.0**-23 * self._signs(value) if _is_floating(value) else None for value in arguments]
            moved = []
            for sign in (1, -1):
                given = [
                    value if bit is None else value.double() * (1 + sign * bit) for value, bit in zip(arguments, bits)
                ]
                change = (_tuple(want(*given))[number].double() - reference).abs()
                moved.append(torch.where(change.isfinite(), change, torch.zeros_like(change)))
            slack = torch.maximum(slack, torch.minimum(*moved))
        off = value.double() - reference
        left = (off.abs() - slack).clamp(min=0.0)
        return torch.where(off.isfinite(), reference + left * off.sign(), value.double()).to(value.dtype)

    def _signs(self, like: torch.Tensor) -> torch.Tensor:
        signs = [float(self.random.choice((-1, 1))) for _ in range(like.numel())]
        return torch.tensor(signs, dtype=torch.float64).to(like.device).view(like.shape)

    def _with(self, function: str, arguments: tuple, problem: str, result: torch.Tensor) -> str:
        """The arguments, if they are few numbers; else what they hold at the place of the wrong element."""
        named = list(zip(self.answer.parameters(function), arguments))
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        if sum(value.numel() for value in tensors) <= _SHOWN:
            return f", for {function}({', '.join(f'{name}={_numbers(value)}' for name, value in named)})"
        found = re.match(r"\w+\[([\d, ]+)\]", problem)
        here = []
        if found:
            index = tuple(map(int, found[1].split(", ")))
            alike = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
            named_tensors = [(name, value) for name, value in alike if value.shape == result.shape]
            here = [f"{name}[{found[1]}] is {_near_a_round_one(value[index].item())}" for name, value in named_tensors]
        here += [f"{name} is {_near_a_round_one(value)}" for name, value in named if isinstance(value, (int, float))]
        return f", where {' and '.join(here)}" if here else ""

    def _by_kernels(self, case: str, run: watch.Run, host: Collection[str]) -> None:
        """Refuse what PyTorch has done in the place of a kernel."""
        words = {
            "loads": "PyTorch computes what the kernel loads as {}",
            "copies": "PyTorch copies what the kernel loads as {}",
            "result": "PyTorch computes {}",
            "numbers": "Python takes numbers out of a tensor, by {}",
        }
        for kind, what in run.host.items():
            if kind not in host and not (kind == "copies" and "loads" in host):
                raise Failed(f"{words[kind].format(what)}. Here the kernel must do all of the work", case)

    def value(self, function: str, arguments: tuple, want: Any, note: str = "", mistakes: Mistakes = None) -> None:
        """Call the reader's function, which is Python, and compare what it returns: numbers, tuples, lists. note,
        mistakes: as `compare` has them."""
        self.cases += 1
        call = f"{function}({', '.join(elements.shown(argument) for argument in arguments)})"
        try:
            got = self.call(function, *arguments)
        except Raised as raised:
            if not note or raised.stopped or not _ARITHMETIC.search(raised.message):
                raise
            raise Raised(f"{raised.message}. {note}", raised.line, stopped=False) from raised
        if not _equal(got, want):
            is_, should = _told(got, want)
            note = next((said for wrong, said in (mistakes or {}).items() if _equal(got, wrong(*arguments))), note)
            raise Failed(f"{call} is {is_}, should be {should}" + (f". {note}" if note else ""), call)

    def call(self, function: str, *arguments: Any) -> Any:
        """What the reader's function returns: plain data. An exception is told with the arguments."""
        self._has(function)
        try:
            return self.answer.call(function, arguments)
        except Raised as raised:
            if raised.stopped:
                raise
            call = f"{function}({', '.join(elements.shown(argument) for argument in arguments)})"
            raise Raised(f"{call} raises {raised.message}", raised.line, stopped=False) from raised

    def evaluate(self, expression: str, **names: Any) -> Any:
        """The value of an expression in the reader's text, where a result isn't plain data."""
        self.cases += 1
        return self.answer.evaluate(expression, names)

    def number(self, want: float, mistakes: dict[float, str], otherwise: str) -> None:
        """Compare a number that the reader predicts. Of a fraction with many digits three are enough. mistakes:
        what to say about a number that results from a common mistake, to three digits."""
        self.cases += 1
        self._has("answer")
        got = self.answer.variable("answer")
        if got is None:
            raise Failed("answer is still None: put your number there")
        if isinstance(got, torch.Tensor) and not got.dim():
            got = got.item()
        if not isinstance(got, (int, float)) or isinstance(got, bool):
            raise Failed(f"answer is {elements.shown(got)}, and should be a number")
        long = not _equal(float(f"{want:.6g}"), want) and want != int(want)
        if not _equal(got, want) and not (long and f"{got:.3g}" == f"{want:.3g}"):
            why = next((said for number, said in mistakes.items() if _equal(got, number, 5e-3)), otherwise)
            raise Failed(f"answer is {_told(got, want)[0]}, which is not right. {why}")

    def traffic(self, case: str, run: watch.Run, read: int, written: int) -> None:
        """Require that the launches of a run request no more bytes than this; an element loaded twice counts twice."""
        for operation, kind, limit in (("load", "read", read), ("store", "written", written)):
            moved = run.requested(loads=operation == "load") if device.INTERPRET else 0
            if moved > limit:
                message = f"{moved} bytes are {kind}, {limit} are enough"
                sizes = {access.itemsize for access in run.accesses}
                message += f" (an element is {sizes.pop()} bytes)" if len(sizes) == 1 else ""
                line, most = None, run.most_often(operation)
                if most and most[2] > 1:
                    access, element, times = most
                    line, word = access.line, {"load": "loaded", "store": "stored"}[operation]
                    message += f": {access.element_name(element)} is {word} {times} times"
                raise Failed(message, case, line)

    def grid(self, case: str, run: watch.Run, grid: tuple[int, ...]) -> None:
        """Require one launch, with this grid: where the question says how many programs there are."""
        if not device.INTERPRET:
            return
        if len(run.launches) != 1:
            raise Failed(f"kernels are launched {len(run.launches)} times, and once is enough", case)
        for launch in run.launches:
            if launch.grid[: len(grid)] != grid or any(size != 1 for size in launch.grid[len(grid) :]):
                shown = launch.grid[: max([len(grid), *(n for n, size in enumerate(launch.grid, 1) if size != 1)])]
                raise Failed(f"{launch.kernel} is launched with the grid {shown}, should be {grid}", case)

    def saved(self, case: str, run: watch.Run, **wanted: str) -> None:
        """Require that autograd keeps these tensors for the backward pass, as `a="argument 1"` or `y="result 1"`;
        without any, that it keeps something."""
        if device.INTERPRET and (not run.saved or not {*wanted.values()} <= {*run.saved}):
            kept, needed = " and ".join(run.saved) or "nothing", " and ".join(wanted) or "what backward needs"
            message = (
                f"save_for_backward is given {kept}, should be given {needed}. Of what is kept in another way, as "
            )
            message += "in ctx.x = x, autograd can't see that it was changed since, and its memory may never be freed"
            raise Failed(message, case)

    def require(self, holds: bool, message: str, case: str = "") -> None:
        """Require anything else."""
        if not holds:
            raise Failed(message, case)

    def _has(self, name: str) -> None:
        if not self.answer.has(name):
            raise Failed(f"`{name}` is missing: keep the name that the starter gives it")


def _double(arguments: tuple) -> Collection[Any]:
    return elements.in_float64(dict(enumerate(arguments)), codes=True).values()


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _equal(got: Any, want: Any, off: float = 1e-9) -> bool:
    if isinstance(want, (tuple, list)):
        return isinstance(got, (tuple, list)) and len(got) == len(want) and all(map(_equal, got, want))
    if isinstance(want, bool) or isinstance(got, bool):
        return isinstance(got, (bool, int, float)) and isinstance(want, (bool, int, float)) and got == want
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        nearest = struct.unpack("f", struct.pack("f", want))[0] if abs(want) < 1e38 else want  # computed in float32
        with contextlib.suppress(OverflowError):  # an integer that no float can hold
            return got in (want, nearest) or math.isclose(got, want, rel_tol=off)
        return False
    return type(got) is type(want) and got == want


def _told(got: Any, want: Any) -> tuple[str, str]:
    """Both, as messages show them, with as many digits as tell them apart."""
    digits = next((digits for digits in (6, 9, 12) if elements.shown(got, digits) != elements.shown(want, digits)), 17)
    return elements.shown(got, digits), elements.shown(want, digits)


def _near_a_round_one(number: float) -> str:
    """A number, with more digits where six would show another one, as beside a limit."""
    text = elements.shown(number)
    return text if "." in text or "e" in text or float(text) == number else elements.shown(number, 9)


def _numbers(value: Any) -> str:
    """A small tensor with its numbers."""
    return elements.shown(value.tolist() if isinstance(value, torch.Tensor) else value)
