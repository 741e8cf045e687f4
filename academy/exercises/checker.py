"""Checks a reader's text: in the page, in the terminal, and in this project's own tests."""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from academy import device
from academy.exercises import files
from academy.exercises.allowed import Raised
from academy.exercises.answer import Answer
from academy.exercises.checks import Asked, Checks, Failed
from academy.syntax import import_path

_numbers = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """state: passed; failed (the text runs, and something is wrong); error (it doesn't run). line: of the text. seed:
    with it the same values are drawn again."""

    state: str
    message: str
    line: int | None = None
    case: str | None = None
    seconds: float = 0.0
    seed: int = 0

    def as_json(self) -> dict:
        return asdict(self)


def check(name: str, source: str, seed: int | None = None, start: Callable[[Path, str], Asked] = Answer) -> Outcome:
    """Check a text against the exercise with this name. Raises ValueError if there is no such exercise.

    Args:
        seed: of the values that are drawn; by default another one each time.
        start: how the text is run: here (`Answer`), or in a process of its own (`apart.Apart`).
    """
    exercise = files.named(name)
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        # Triton reads a kernel's text from its file. A new name each time, so that no old lines are shown.
        path = Path(folder).resolve() / f"{exercise.path.stem}_{next(_numbers)}.py"
        path.write_text(source, "utf-8")
        state, message, line, case = _outcome(exercise, path, source, seed, start)
    if state == "failed" and files.TO_DO in source and source.strip() == exercise.starter.strip():
        message = f"This is still the starter: put your code where `{files.TO_DO}` stands. {message}"
    return Outcome(state, " ".join(message.split()), line, case, round(time.perf_counter() - begun, 3), seed)


def _outcome(
    exercise: files.Exercise, path: Path, source: str, seed: int, start: Callable[[Path, str], Asked]
) -> tuple[str, str, int | None, str | None]:
    answer = None
    try:
        answer = start(path, exercise.solution)
        checks = Checks(answer, source, seed)
        _checks_of(exercise.path, exercise.path.stat().st_mtime_ns).check(checks)
    except SyntaxError as error:
        return "error", f"this is not valid Python: {error.msg}", error.lineno, None
    except Failed as failed:
        return "failed", str(failed), failed.line, failed.case
    except Raised as raised:
        return "failed" if raised.stopped else "error", raised.message, raised.line, None
    finally:
        if answer is not None:
            answer.close()
    cases = "1 check" if checks.cases == 1 else f"{checks.cases} checks"
    where = "in Triton's interpreter" if device.INTERPRET else "compiled, on the GPU"
    return "passed", f"Right: {cases} passed, {where}.", None, None


@cache
def _checks_of(path: Path, _changed: int) -> ModuleType:
    """The exercise's own file, with its `check`."""
    return import_path(path, f"exercise_{path.parent.name}_{path.stem}")
