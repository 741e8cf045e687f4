"""Run an edited kernel file, and say what is wrong with it and where: what the browser's worker calls.

It needs what the recorder needs, and runs natively as well.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import linecache
import re
import sys
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from academy.runtime import device  # noqa: F401
import numpy as np

from academy import interpreter
from academy.book import syntax
from academy.traces import page, store, worker
from academy.traces.memory import Argument
from academy.traces.observer import Launch
from academy.traces.recorder import Recorder
from academy.traces.recording import Recording
from academy.traces.watched_memory import WatchedMemory

_dumps = json.dumps  # as it was before any text ran
#: Statements that a run may take; the longest example of a lesson takes a third of it.
MAX_STEPS = 40_000
#: Units in the last place that a sum in another order may differ by, of the largest number of its tensor.
_ULPS = 256
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def run(path: Path, source: str, original: str | None = None, seed: int = 0) -> dict:
    """Record EXAMPLE of an edited file, which is written to `path` first.

    seed: of the order in which Gluon kernels are simulated; the next one is tried, too.
    original: the text that it was edited from. If the code differs, the tensors that the launches leave behind are
    compared with those of the original code in the edited EXAMPLE.

    Returns:
        state: "passed"; "differs" if nothing is wrong, but a tensor has other values than the original gives; "failed"
            if something was proven wrong; "error" if the run did not come to its end.
        at: launch, program and step that wrote the first element that differs.
        same: whether the code differs from the original, and its results don't. without_rounding: what is said of it
            without rounding, then; "" where that can't tell.
        problems: of each the line of the edited file (None if it is elsewhere), and a message.
        data: what the viewer shows, None if nothing ran. stopped: launch and program in which the run ended early.
        printed, seconds. picture: SVG that EXAMPLE returned, if it did; another value is printed.
    """
    begun = time.perf_counter()
    path.write_text(source)
    _forget(path)
    wrong = syntax.problem(source, str(path))
    if wrong:
        return _outcome(
            "error", [_problem(wrong.line, f"SyntaxError: {wrong.message}, in `{(wrong.source or '').strip()}`")], begun
        )
    if not store.has_example(path):
        message = "There is no function EXAMPLE(): it makes small inputs and calls a launcher. Reset brings it back."
        return _outcome("error", [_problem(None, message)], begun)
    returned: list[object] = []
    example = lambda module: returned.append(module.EXAMPLE())  # noqa: E731
    data = worker.record(path, store.built_on(path), MAX_STEPS, example, (seed, seed + 1))
    shown, error = store.shorten(path), data["error"]
    found = [error] if error else data["findings"] + data["warnings"]
    problems = [_problem(each["line"] if each["file"] == shown else None, _located(each, shown)) for each in found]
    state = "error" if error else "failed" if data["findings"] else "passed"
    recording = Recording(data)
    same, at, second = False, None, ""
    if state == "passed" and original is not None and not _same_code(source, original):
        wanted = reference(path, original, _example(source))
        difference = _difference(recording, wanted, shown)
        state, problems = ("differs", [*problems, difference]) if difference else (state, problems)
        same, at = bool(wanted) and difference is None, difference and difference.pop("at")
        second = _without_rounding(path, source, original) if same else ""
    said, picture = _value(returned[0]) if returned else ("", None)
    outcome = _outcome(state, problems, begun, data["printed"] + said, recording.stopped) | {"picture": picture}
    outcome |= {"same": same, "at": at, "without_rounding": second}
    return outcome | {"data": page.viewer_data(path, recording) if data["launches"] else None}


def _value(value: object) -> tuple[str, str | None]:
    """What EXAMPLE returned, as a notebook would show it: text, or an SVG."""
    shown = getattr(value, "_repr_html_", None)
    found = re.search(r"<svg.*</svg>", str(shown()), re.S) if callable(shown) else None
    return ("", found[0]) if found else ("" if value is None else f"{value}\n", None)


def _same_code(one: str, other: str) -> bool:
    return ast.dump(syntax.tree(one)) == ast.dump(syntax.tree(other))


def _outcome(state: str, problems: list[dict], begun: float, printed: str = "", stopped=None) -> dict:
    seconds = time.perf_counter() - begun
    return dict(state=state, problems=problems, printed=printed, stopped=stopped, data=None, seconds=seconds)


def _problem(line: int | None, message: str) -> dict:
    return {"line": line, "message": message}


def _located(finding: dict, shown: str) -> str:
    where = "" if finding["file"] == shown else f"{finding['file']}, line {finding['line']}: "
    return where + finding["message"].removeprefix("EXAMPLE fails: ")


def _forget(path: Path) -> None:
    """The text that Python has read of this file, the module that it made of it, and its kernels."""
    linecache.clearcache()
    importlib.invalidate_caches()
    for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(path)]:
        del sys.modules[name]
    interpreter.forget(str(path))


# ---- the difference from the original -------------------------------------------------------------------------------


def _example(source: str) -> str:
    """The text of EXAMPLE, without notes."""
    functions = (node for node in syntax.tree(source).body if isinstance(node, ast.FunctionDef))
    return ast.unparse(next(node for node in functions if node.name == "EXAMPLE"))


@lru_cache(maxsize=8)
def reference(path: Path, original: str, example: str) -> list[Launch]:
    """The launches of the original code in this EXAMPLE; [] where they do not fit together."""
    with _beside(path, original, example) as file, WatchedMemory() as watched:
        recorder = Recorder([], watched)  # no statement is recorded: what the launches leave behind is enough
        try:
            with recorder.running():
                syntax.import_file(file, store.ROOT).EXAMPLE()
        except Exception:
            return []
    return recorder.launches


@contextlib.contextmanager
def _beside(path: Path, original: str, example: str) -> Iterator[Path]:
    """A file of the original code with this EXAMPLE."""
    lines = original.split("\n")
    node = next(n for n in syntax.tree(original).body if isinstance(n, ast.FunctionDef) and n.name == "EXAMPLE")
    lines[node.lineno - 1 : node.end_lineno] = example.split("\n")
    file = path.with_name(f"reference_of_{path.name}")
    file.write_text("\n".join(lines))
    _forget(file)
    try:
        yield file
    finally:
        file.unlink()
        _forget(file)


def _without_rounding(path: Path, source: str, original: str) -> str:
    """The second verdict on what gives the same in floats; "" where there is none."""
    from academy.playground import without_rounding  # lazy: it makes tables

    with _beside(path, original, _example(source)) as file:
        runs = [partial(lambda each: syntax.import_file(each, store.ROOT).EXAMPLE(), each) for each in (path, file)]
        return without_rounding.verdict(*runs)


def _difference(recording: Recording, wanted: list[Launch], shown: str) -> dict | None:
    """The first element that the original code leaves with another value."""
    launches, skipped = recording.launches, 0
    if [launch["kernel"] for launch in launches] != [launch.kernel for launch in wanted]:
        skipped = len(launches) - 1
        launches, wanted = launches[-1:], wanted[-1:]  # other kernels on the way: what the last one leaves behind
    for launch, other in zip(launches, wanted):
        arguments = {argument.name: argument for argument in other.arguments}
        for number, tensor in enumerate(launch["tensors"]):
            argument = arguments.get(tensor["name"])
            if argument is None or list(argument.tensor.shape) != tensor["shape"]:
                continue
            element = _first_wrong(recording.value(tensor["after"]), argument)
            if element is not None:
                got = float(np.reshape(recording.value(tensor["after"]), -1)[element])
                place = recording.writer(launch, number, element)
                step = (recording.steps(launch, place[0]) or [])[place[1]] if place else None
                line = step.line if step and step.file == shown else None
                at = place and {"launch": launches.index(launch) + skipped, "pid": list(place[0]), "step": place[1]}
                return _problem(line, _told(argument, element, got)) | {"at": at}
    return None


def _after(argument: Argument) -> np.ndarray:
    return np.asarray(argument.after.detach().double().numpy())


def _first_wrong(got: np.ndarray | None, argument: Argument) -> int | None:
    if got is None or not argument.tensor.numel():
        return None
    want, got = _after(argument).reshape(-1), np.reshape(got, -1).astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    eps = _EPS.get(str(argument.tensor.dtype).removeprefix("torch."), 0.0)
    allowed = _ULPS * eps * (finite.max() if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        right = (np.abs(got - want) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))
    wrong = np.flatnonzero(~right)
    return int(wrong[0]) if wrong.size else None


def _told(argument: Argument, element: int, got: float) -> str:
    text = (
        f"`{argument.element_name(element)}` is {got:.6g}, in the original {_after(argument).reshape(-1)[element]:.6g}"
    )
    if argument.tensor.dim() > 1:
        text += f"; row {np.unravel_index(element, tuple(argument.tensor.shape))[0]} is the first that differs"
    return text + ". (The original code was run on your EXAMPLE, too.)"


# ---- questions of the page


def answer(question: str) -> str:
    """What the worker hands on, as JSON: `{"action": "run", "path", "source", "original"}`, with a path under the
    repository's root, or `{"action": "check", "name", "source"}`, with a
    `seed` if values are to be drawn again, or `{"action": "watch", …}`, the same for the case that a check ends with.

    `spent` in the answer says that Python has to be started anew.
    """
    asked = json.loads(question)
    begun = time.perf_counter()
    try:
        if asked["action"] == "check":
            from academy.exercises import marking

            outcome = marking.mark(asked["name"], asked["source"], asked.get("seed")).as_json()
        elif asked["action"] == "watch":
            from academy.exercises import shown

            outcome = shown.watched(asked["name"], asked["source"], asked.get("seed"))
        else:
            path = store.ROOT / asked["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            outcome = run(path, asked["source"], asked.get("original"))
    except BaseException as error:  # SystemExit and its like are no Exception, and a page never exits
        message = _ENDED.get(type(error), f"{type(error).__name__}: {error}".removesuffix(": "))
        outcome = _outcome("error", [_problem(None, message)], begun)
        outcome |= {"message": message, "line": None, "spent": True}
    said = [outcome.get("message", ""), *(each["message"] for each in outcome.get("problems", ()))]
    if any("MemoryError" in message for message in said):
        outcome["spent"] = True  # memory that a page has given is never given back
    return _dumps(outcome, separators=(",", ":"))


#: What to say about an end that isn't an error of the text's arithmetic.
_ENDED: dict[type, str] = {
    SystemExit: "The text ends Python, with sys.exit() or its like: take that out.",
    KeyboardInterrupt: "The text raises KeyboardInterrupt: take that out.",
    MemoryError: "The text needs more memory than a page has: make its tensors smaller.",
    RecursionError: "The text calls itself without an end (RecursionError).",
}


def without_javascript() -> None:
    """Make the modules that lead from Python to the browser's own functions unknown.

    It makes for a clear message. What keeps a text inside are the names that the worker has given up, and the page's
    Content-Security-Policy.
    """
    closed = ("js", "pyodide_js", "pyodide", "_pyodide", "_pyodide_core", "webbrowser")

    class Closed:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] in closed:
                raise ImportError(f"{name} can't be imported here: a text runs cut off from the page and the network")

    for name in [name for name in sys.modules if name.partition(".")[0] in closed]:
        del sys.modules[name]
    for finder in list(sys.meta_path):
        if hasattr(finder, "jsproxies"):
            finder.jsproxies.clear()
            sys.meta_path.remove(finder)
    sys.meta_path.insert(0, Closed)


def prepare(question: str) -> None:
    """Run the original while the reader is still looking at its picture, so that the first edit doesn't have to wait
    for it."""
    asked = json.loads(question)
    source, original = asked["source"], asked.get("original")
    if asked["action"] == "run" and original is not None and syntax.problem(original, "") is None:
        if syntax.problem(source, "") is None and _same_code(source, original):
            reference(store.ROOT / asked["path"], original, _example(source))
