"""Questions a reader's text: in the page, in the terminal, and in this project's own tests."""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from academy.runtime import device
from academy.book import exercise_files
from academy.book.exercise_files import Exercise
from academy.book.syntax import import_path
from academy.compiler.rules import allowed, refused
from academy.compiler.rules.allowed import Raised
from academy.exercises import watch, without_rounding
from academy.exercises.answer import Answer
from academy.exercises.questions import Asked, Failed, Questions

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


def mark(
    name: str,
    source: str,
    seed: int | None = None,
    start: Callable[[Path], Asked] = Answer,
    compiled: bool = sys.platform != "emscripten",
) -> Outcome:
    """Check a text against the exercise with this name. Raises ValueError if there is no such exercise.

    Args:
        seed: of the values that are drawn; by default another one each time.
        start: what runs the text.
        compiled: whether the kernels of a right text have to compile for an H100, where Triton's compiler is installed.
    """
    exercise = exercise_files.named(name)
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        # Triton reads a kernel's text from its file. A new name each time, so that no old lines are shown.
        path = Path(folder).resolve() / f"{exercise.path.stem}_{next(_numbers)}.py"
        path.write_text(source, "utf-8")
        state, message, line, case = _outcome(exercise, path, source, seed, start, compiled)
    if state != "passed" and exercise_files.TO_DO in source and source.strip() == exercise.starter.strip():
        message = f"This is still the starter: put your code where `{exercise_files.TO_DO}` stands. {message}"
    return Outcome(state, " ".join(message.split()), line, case, round(time.perf_counter() - begun, 3), seed)


def _outcome(
    exercise: Exercise,
    path: Path,
    source: str,
    seed: int,
    start: Callable[[Path], Asked],
    compiled: bool,
) -> tuple[str, str, int | None, str | None]:
    answer, where = None, "in Triton's interpreter" if device.INTERPRET else "compiled, on the GPU"
    simulated = f"in the simulator, each in {watch.SCHEDULES} orders"
    try:
        allowed.check(source, exercise.solution)
        for problem in refused.problems(source):
            raise Failed(problem.message, line=problem.line)
        answer = start(path)
        checks = Questions(answer, source, seed, small_dots="tl.dot(" in exercise.solution)
        _checks_of(exercise.path, exercise.path.stat().st_mtime_ns).check(checks)
        checks.finish()
        where = simulated if checks.simulated else where
        if compiled and device.INTERPRET and _compile(source, path, checks):
            where += "; its kernels compile for an H100"
        second = without_rounding.verdict(checks, in_browser=sys.platform == "emscripten")
    except SyntaxError as error:
        lines = source.split("\n")[(error.lineno or 1) - 1 :]
        return "error", f"this is not valid Python: {error.msg}, in `{''.join(lines[:1]).strip()}`", error.lineno, None
    except Failed as failed:
        return "failed", str(failed), failed.line, failed.case
    except Raised as raised:
        return "failed" if raised.stopped else "error", raised.message, raised.line, None
    finally:
        if answer is not None:
            answer.close()
    cases = "1 check" if checks.cases == 1 else f"{checks.cases} checks"
    said = f"Right: {cases} passed{f', {where}' if checks.kernels else ''}."
    return "passed", f"{said} {second}." if second else said, None, None


def _compile(source: str, path: Path, checks: Questions) -> bool:
    """The first and the last launch of each kernel, for an H100: whether there was anything to compile, and anything to
    compile it with. Raises `Failed`."""
    from academy import compiler  # not in a browser

    launched = [launch for launch in checks.launched if launch["file"] == str(path)]  # the others are a lesson's
    if not launched or not compiler.available():
        return False
    kernels = dict.fromkeys(launch["kernel"] for launch in launched)
    own = [[launch for launch in launched if launch["kernel"] == kernel] for kernel in kernels]
    chosen = [launch for some in own for launch in (some[:1] if some[0] == some[-1] else [some[0], some[-1]])]
    for problem in compiler.problems(source, chosen):
        message = f"right in the interpreter, but it doesn't compile for a GPU: {problem.message}"
        raise Failed(message, line=problem.line)
    return True


@cache
def _checks_of(path: Path, _changed: int) -> ModuleType:
    """The exercise's own file, with its `check`."""
    return import_path(path, f"exercise_{path.parent.name}_{path.stem}")
