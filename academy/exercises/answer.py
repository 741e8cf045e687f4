"""A reader's text, imported, and what the checks ask of it.

Everything that comes out of it is plain data: numbers, text, tensors, tuples, lists and dicts of these. An object of a
class of the text's own could be equal to everything.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from academy.runtime import device
from academy import interpreter
from academy.command import trouble
from academy.compiler.rules.allowed import Raised
from academy.exercises import loop_limit, watch
from academy.exercises.questions import Failed

#: What checks need of these modules; a text that replaces any of it is told so.
_GUARDED = (
    "torch", "torch.nn.functional", "triton", "triton.language", "math", "random", "builtins", "academy.judge.accuracy",
    "academy.exercises.answer", "academy.exercises.questions", "academy.exercises.marking",
    "academy.exercises.loop_limit", "academy.exercises.watch", "academy.exercises.provenance", "academy.traces.proof",
)  # fmt: skip


class Answer:
    """path: of the text, which `allowed.check` has read. Raises `Raised`, and SyntaxError."""

    def __init__(self, path: Path):
        self.path = path
        self._rewritten: dict = {}  # its kernels, as the first call has rewritten them
        self._before = _snapshot()
        with self._told():
            self._rounds = loop_limit.Rounds()
            self._module = self._rounds.load(path)

    def close(self) -> None:
        sys.modules.pop(self.path.stem, None)
        interpreter.forget(str(self.path))

    def has(self, name: str) -> bool:
        return hasattr(self._module, name)

    def variable(self, name: str) -> Any:
        return plain(getattr(self._module, name), name)

    def parameters(self, function: str) -> list[str]:
        """The names of a function's parameters; none of what has no signature."""
        try:
            return list(inspect.signature(getattr(self._module, function)).parameters)
        except (TypeError, ValueError):
            return []

    def run(self, function: str, arguments: tuple, lanes: float | None = None) -> watch.Run:
        """Call a function that launches kernels, and watch them. lanes: see `watch.Watcher`."""
        given = [value for value in arguments if isinstance(value, torch.Tensor)]
        with self._told():
            call = getattr(self._module, function)
            counted = partial(self._rounds.counted, partial(call, *arguments))
            run = watch.run(str(self.path), counted, given, self._rewritten, lanes)
        run.result = plain(run.result, function)
        return run

    def call(self, function: str, arguments: tuple) -> Any:
        """Call a function that is Python, and nothing else."""
        with self._told():
            result = self._rounds.counted(lambda: getattr(self._module, function)(*arguments))
        return plain(result, function)

    def evaluate(self, expression: str, names: dict[str, Any]) -> Any:
        """The value of an expression in the text's module, for what a call gives that isn't plain data."""
        with self._told():
            result = self._rounds.counted(lambda: eval(expression, {**vars(self._module), **names}))
        return plain(result, expression)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the text raises, as `Raised`; SystemExit too. Then whether it has replaced anything."""
        try:
            yield
        except (SyntaxError, Failed):  # a function of the checks, which the text has called, may fail
            raise
        except BaseException as raised:
            trouble.let_through(raised)
            error, line = watch.cause_of(raised, str(self.path))
            if isinstance(error, KeyboardInterrupt) and line is None:
                raise
            stopped = isinstance(error, watch.STOPPED)
            message = getattr(error, "message", str(error)) if stopped else watch.in_words(error)
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                message = f"{message}: an answer returns its result, it doesn't end the program"
            if isinstance(error, MemoryError):
                message = f"{message}: this needs more memory than there is"
            raise Raised(message, line, stopped) from raised
        finally:
            _restore(self._before)


def plain(value: Any, name: str, depth: int = 0) -> Any:
    """The value itself, if it is plain data. Raises `Raised`."""
    kind = type(value)
    if depth > 9:
        raise Raised(f"{name} returns a list or tuple that is nested more than nine times")
    if kind is torch.Tensor:
        if value.layout is not torch.strided or value.device.type != device.DEVICE.type:
            raise Raised(f"{name} returns a tensor without numbers in its memory: {value.layout}, on {value.device}")
        return value
    if kind in (int, float, bool, str, type(None)):
        return value
    if kind in (Fraction, Decimal):
        try:
            return int(value) if float(value).is_integer() else float(value)
        except (OverflowError, ValueError) as error:  # larger than any float, or a Decimal's signalling NaN
            raise Raised(f"{name} is no number that a float can hold: {error}") from error
    if isinstance(value, (int, float)) and kind.__module__ != "numpy":  # an IntEnum: what it is beneath
        return int.__index__(value) if isinstance(value, int) else float.__float__(value)
    if isinstance(value, np.generic) and kind.__module__ == "numpy":
        return value.item()
    if kind in (tuple, list):
        return kind(plain(item, name, depth + 1) for item in value)
    if kind is dict:
        return {plain(key, name): plain(item, name, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple) and kind.__module__.startswith("torch"):  # torch.Size, what x.max(1) returns
        return tuple(plain(item, name, depth + 1) for item in value)
    message = (
        f"{name} returns {_article(kind.__name__)}, but a result is a number, a string, a tensor, or a tuple, list"
    )
    raise Raised(f"{message} or dict of these")


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _snapshot() -> list[tuple[Any, str, dict[str, Any]]]:
    modules = [sys.modules[name] for name in _GUARDED if name in sys.modules]
    named = [(module, module.__name__) for module in modules] + [(torch.Tensor, "torch.Tensor")]
    return [(owner, name, dict(vars(owner))) for owner, name in named]


def _restore(before: list[tuple[Any, str, dict[str, Any]]]) -> None:
    """Put back what the text has replaced. Raises `Raised` if there is any."""
    replaced = []
    for owner, name, entries in before:
        now = vars(owner)
        for key, value in entries.items():
            new = now.get(key, value)
            if new is not value and _guarded(key, value) and not _own(new, entries):
                replaced.append(f"{name}.{key}")
                setattr(owner, key, value)
        for key in set(now) - set(entries) if owner is torch.Tensor else ():
            replaced.append(f"{name}.{key}")
            delattr(owner, key)
    if replaced:
        raise Raised(f"an answer may not replace {replaced[0]}: the checks and the kernels need it")


def _guarded(key: str, value: Any) -> bool:
    return key not in ("__builtins__", "_") and (callable(value) or key.isupper())


def _own(new: Any, entries: dict[str, Any]) -> bool:
    """Whether PyTorch filled a name of its own when it was first used: then nothing else has stood for it so far."""
    module = getattr(new, "__module__", None) or ""
    return module.partition(".")[0] == "torch" and all(new is not value for value in entries.values())
