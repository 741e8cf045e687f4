"""Launches: one at a time, without warnings about numbers, with errors that name the kernel's line."""

from __future__ import annotations

import functools
import operator
import sys
import threading
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
import triton.language as tl
from triton.runtime import autotuner, interpreter

from academy.interpreter import mistakes

#: Held while a kernel runs. A launch replaces functions of `triton.language` and keeps the number of its program in a
#: global, so two threads would compute with each other's. The same thread may launch from inside a launch.
LOCK = threading.RLock()


_NOT_TRACED = "on a CPU kernels run in Triton's interpreter, which torch.compile can't trace"


def repair_threads() -> None:
    """Launches of several threads wait for each other, and so does tuning, which keeps its arguments in the kernel.
    `torch.compile` leaves its graph for a launch: it can't follow what the interpreter does, and would fail on it."""
    for owner in (interpreter.InterpretedFunction, autotuner.Autotuner):
        owner.run = _alone(owner.run)


def _alone(run):
    def locked(*args, **kwargs):
        with LOCK:
            return run(*args, **kwargs)

    untraced = functools.cache(lambda: torch.compiler.disable(locked))

    @functools.wraps(run)
    def method(*args, **kwargs):
        if "torch._dynamo" not in sys.modules:  # importing it takes seconds, and nothing has been compiled
            return locked(*args, **kwargs)
        if torch.compiler.is_compiling():
            torch._dynamo.graph_break(msg=_NOT_TRACED)
        return untraced()(*args, **kwargs)

    return method


def repair_indices() -> None:
    """The bound of a loop as an int: Triton 3.6 leaves that to a rule that NumPy 2.4 gave up, later versions do it. And
    `x.T` as the builder's own operation."""
    original = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))
        scope.set_attr(tensor, "T", property(tl.trans))

    interpreter._patch_lang_tensor = patch_lang_tensor


def repair_arguments() -> None:
    """A truth value, which Triton before 3.9 takes for a number that is too wide for its type. And a float, which stays
    Python's: `1.0 - eps` would have twice a launched kernel's digits, and `eps.to(tl.float32)` would fail."""
    original = interpreter._implicit_cvt

    def convert(argument):
        if type(argument) is bool:
            return tl.tensor(interpreter.TensorHandle(np.array([argument]), tl.int1), tl.int1)
        if isinstance(argument, float):
            return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return original(argument)

    interpreter._implicit_cvt = convert


def _grid(executor, args: tuple, kwargs: dict) -> tuple:
    """The sizes of a launch's grid. A function is asked with the launch's own arguments, as on a GPU: the interpreter
    would hand it a pointer for a tensor."""
    grid = executor.grid
    if callable(grid):
        named = {name: value for name, value in kwargs.items() if name in executor.arg_names}  # no options
        grid = grid(interpreter.inspect.getcallargs(executor.fn, *args, **named))
    mistakes.check_grid(executor.fn.__name__, grid)
    return tuple(map(operator.index, grid))


def repair_messages() -> None:
    """No warnings about numbers that a GPU computes silently; an error in a kernel ends with its place in the file."""
    original = interpreter.GridExecutor.__call__

    @functools.wraps(original)
    def launch(self, *args, **kwargs):
        self.grid = _grid(self, args, kwargs)
        mistakes.running.append(self.fn.__name__)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
                return original(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            error.add_note(_failure(error, self.fn))
            raise
        finally:
            mistakes.running.pop()

    interpreter.GridExecutor.__call__ = launch


def _failure(error: BaseException, kernel) -> str:
    """The innermost line of the kernel's file that an error came through, the error, and how to see more.

    The interpreter wraps what a kernel raises, and once more for each jitted helper that it comes out of.
    """
    errors = [error]
    while isinstance(errors[-1], interpreter.InterpreterError):
        errors.append(errors[-1].__cause__)
    frames = [frame for one in errors for frame in traceback.extract_tb(one.__traceback__)]
    places = [frame for frame in frames if frame.filename == kernel.__code__.co_filename]
    if not places:  # before the first line of a program
        return f"{kernel.__name__}: {type(errors[-1]).__name__}: {errors[-1]}"
    place = places[-1]
    path = Path(place.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    lines = ["", f"{shown}:{place.lineno}: {type(errors[-1]).__name__}: {errors[-1]}", f"    {place.line}"]
    if "EXAMPLE" in kernel.__globals__:
        lines.append(f"academy trace {shown} shows the values up to there.")
    return "\n".join(lines)
