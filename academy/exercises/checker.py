"""Checks a reader's text: in the page, in the terminal, and in this project's own tests."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from academy import device, interpreter  # device before triton
from academy.exercises import files, rounds, watch
from academy.exercises.checks import Checks, Failed
from academy.syntax import import_path

_numbers = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """state: passed; failed (the text runs, and something is wrong); error (it doesn't run). line: of the text."""

    state: str
    message: str
    line: int | None = None
    case: str | None = None
    seconds: float = 0.0

    def as_json(self) -> dict:
        return asdict(self)


def check(name: str, source: str) -> Outcome:
    """Check a text against the exercise with this name. Raises ValueError if there is no such exercise."""
    exercise = files.named(name)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        # Triton reads a kernel's text from its file. A new name each time, so that no old lines are shown.
        path = Path(folder).resolve() / f"{exercise.path.stem}_{next(_numbers)}.py"
        path.write_text(source, "utf-8")
        state, message, line, case = _outcome(exercise, path)
    if state == "failed" and files.TO_DO in source and source.strip() == exercise.starter.strip():
        message = f"This is still the starter: put your code where `{files.TO_DO}` stands. {message}"
    return Outcome(state, " ".join(message.split()), line, case, round(time.perf_counter() - start, 3))


def _outcome(exercise: files.Exercise, path: Path) -> tuple[str, str, int | None, str | None]:
    try:
        module = rounds.load(path)
        checks = Checks(module)
        _checks_of(exercise.path, exercise.path.stat().st_mtime_ns).check(checks)
    except SyntaxError as error:
        return "error", f"this is not valid Python: {error.msg}", error.lineno, None
    except Failed as failed:
        return "failed", str(failed), failed.line, failed.case
    except Exception as raised:
        cause, line = watch.cause_of(raised, str(path))
        if isinstance(cause, watch.STOPPED):
            return "failed", str(cause), line, None
        return "error", f"{type(cause).__name__}: {cause}", line, None
    finally:
        sys.modules.pop(path.stem, None)
        interpreter.forget(str(path))
    cases = "1 check" if checks.cases == 1 else f"{checks.cases} checks"
    where = "in Triton's interpreter" if device.INTERPRET else "compiled, on the GPU"
    return "passed", f"Right: {cases} passed, {where}.", None, None


@cache
def _checks_of(path: Path, _changed: int) -> ModuleType:
    """The exercise's own file, with its `check`."""
    return import_path(path, f"exercise_{path.parent.name}_{path.stem}")
