"""Compile kernels without a card: what a file launches, for the cards in `cards.CARDS`.

A file's EXAMPLE() (or the file, run as a script) shows which kernels are launched with which arguments. Triton compiles
each as at that launch, in a process of its own where kernels are not interpreted, for a card that isn't there. What
comes back: registers, spills, shared memory, the instructions worth knowing about, and for what doesn't compile the
line, the reason, and what to do instead.

    from academy import compiler

    report = compiler.compile_file("my_kernel.py", arch=90)     # runs EXAMPLE() or the script
    for kernel in report.kernels:
        print(kernel.name, kernel.registers, kernel.shared, kernel.problems)

    with compiler.launches.noted() as seen:                      # launches in the interpreter, in this process
        my_function(x)
    for problem in compiler.problems(text, seen, arch=90):       # what of them doesn't compile
        print(problem)

Where no compiler is installed (`available()`), `refused.problems(text)` still finds Python that no kernel can have.

Names: `available`, `compile_code`, `compile_file`, `compile_launches`, `compile_source`, `problems`, `Compiled`,
`Report`.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from academy.book import syntax
from academy.book.problems import Problem
from academy.compiler.cards import CARDS, DEFAULT, card
from academy.compiler.service import ROOT, Crashed, Worker, ask, available

__all__ = [
    "CARDS",
    "Compiled",
    "Report",
    "available",
    "compile_code",
    "compile_file",
    "compile_launches",
    "compile_source",
    "problems",
]


@dataclass(frozen=True)
class Compiled:
    """One kind of launch of one kernel on one card.

    name, file, line: of the kernel. constants, options: `tl.constexpr` arguments, and num_warps and the like.
    signature: parameter -> type. registers, stack: of a thread; the stack is in bytes, and more than 0 means that
    registers are spilled or that an array is indexed at run time. shared: bytes a program. sass, ptx: how many there
    are of each kind of instruction. All of these are None or empty where it doesn't compile.

    notes: what was changed so that it compiles: blocks that `tl.dot` takes in the interpreter, but not on a GPU.
    """

    name: str
    file: str
    line: int
    arch: int
    constants: dict
    options: dict
    signature: dict = field(default_factory=dict)
    registers: int | None = None
    stack: int | None = None
    shared: int | None = None
    num_warps: int | None = None
    sass: dict[str, int] = field(default_factory=dict)
    ptx: dict[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a program may use that much shared memory on the card."""
        return self.shared is not None and self.shared <= card(self.arch).shared


@dataclass(frozen=True)
class Report:
    """What came of one file on one card. stopped: why the run ended before its end; launches after that are missing."""

    kernels: tuple[Compiled, ...]
    stopped: Problem | None = None

    @property
    def problems(self) -> list[Problem]:
        return list(dict.fromkeys(problem for kernel in self.kernels for problem in kernel.problems))


def compile_file(
    path: str | Path, arch: int = DEFAULT, kernel: str | None = None, all_configs: bool = False, again: bool = False
) -> Report:
    """Compile what a file's EXAMPLE() launches, or the file itself if it has none and is run as a script.

    Args:
        path: of the file; it may lie anywhere.
        arch: a key of `cards.CARDS`, such as 90 for an H100.
        kernel: the name of one kernel; None for all.
        all_configs: every configuration of autotuned kernels, not only the first.
        again: even if the result is kept. Kept are results of files of this project only: what else builds on is not
            known.

    Raises:
        ValueError: an `arch` that isn't in the table.
        RuntimeError: the file can't be imported, or Triton's compiler crashes.
    """
    card(arch)
    path = Path(path).resolve()
    job = dict(run=str(path), arch=arch, only=kernel, all_configs=all_configs)
    if again or not path.is_relative_to(ROOT):
        worker = Worker(path.parent if not path.is_relative_to(ROOT) else None)  # what a file does to it ends with it
        try:
            answer = worker.ask(job)
        finally:
            worker.end()
    else:
        code = [file.read_text("utf-8") for file in syntax.built_on([path], ROOT)]
        answer = ask(job, ["run", str(path.relative_to(ROOT)), arch, kernel, all_configs, *map(_digest, code)])
    return _report(answer, path)


def compile_source(text: str, launches: Sequence[dict], arch: int = DEFAULT, detail: bool = True) -> Report:
    """Compile launches of the kernels in a text, as `launches.noted` found them in the interpreter.

    Args:
        text: a Python file's. It is imported, so it must do no work on import.
        launches: from `launches.noted()`.
        arch: a key of `cards.CARDS`.
        detail: read the machine code; without it, registers, stack and instructions are left out, which is faster.

    Raises:
        ValueError: an `arch` that isn't in the table.
        RuntimeError: the text can't be imported, or Triton's compiler crashes.
    """
    card(arch)
    seen = [dict(launch) for launch in launches]
    files = {launch["file"]: _read(launch["file"]) for launch in seen}
    key = ["launches", _digest(text), arch, detail, [{**launch, "file": ""} for launch in seen]]
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        path = Path(folder).resolve() / f"kernels_{_digest(text)[:12]}.py"
        path.write_text(text, "utf-8")
        for launch in seen:  # the text itself was run from a file of its own, which may be gone
            if files[launch["file"]] in (text, None):
                launch["file"] = str(path)
        answer = ask(dict(launches=seen, path=str(path), arch=arch, detail=detail), key)
        return _report(answer, path, text)


def compile_launches(path: str | Path, launches: Sequence[dict], arch: int = DEFAULT) -> Report:
    """Compile launches of the kernels of a file and of those that it imports, as `launches.noted` found them.

    Args:
        path: of the file, which is imported.
        launches: from `launches.noted()`.
        arch: a key of `cards.CARDS`.

    Raises:
        ValueError: an `arch` that isn't in the table.
        RuntimeError: the file can't be imported, or Triton's compiler crashes.
    """
    card(arch)
    path = Path(path).resolve()
    return _report(ask(dict(launches=list(launches), path=str(path), arch=arch, detail=False, within=True)), path)


def compile_code(code: str, arch: int = DEFAULT, detail: bool = True) -> Report:
    """Compile what some lines of Python launch; for tests of what the compiler makes of a kernel.

    Args:
        code: imports what it calls, and makes its tensors on "cuda". Kept by this text and the kernel files that it
            imports.
        arch: a key of `cards.CARDS`.
        detail: as `compile_source`.

    Raises:
        ValueError: an `arch` that isn't in the table.
        RuntimeError: the code raises, or Triton's compiler crashes.
    """
    card(arch)
    files = syntax.built_on(syntax.imported_kernels(code, ROOT), ROOT)
    key = ["code", code, arch, detail, *(_digest(file.read_text("utf-8")) for file in files)]
    return _report(ask(dict(code=code, arch=arch, detail=detail), key), Path("code"), code)


def problems(text: str, launches: Sequence[dict], arch: int = DEFAULT) -> list[Problem]:
    """What of these launches doesn't compile for a card, each with its line of the text; see `compile_source`.

    Where it can't be compiled at all, the first problem says why.
    """
    found = syntax.problem(text, "")
    if found is not None:
        return [found]
    try:
        return compile_source(text, launches, arch, detail=False).problems
    except RuntimeError as error:
        return [Problem("", 1, 1, f"it can't be compiled: {error}")]


def _report(answer: dict, path: Path, text: str | None = None) -> Report:
    if "error" in answer:
        raise Crashed(f"{path.name}, line {answer['line']}: {answer['error']}" if "line" in answer else answer["error"])
    lines = (path.read_text("utf-8") if text is None else text).split("\n")
    shown = "" if text is not None else _shown(path)
    kernels = []
    for entry in answer["found"]:
        found = [_problem(each, path, shown, lines) for each in entry["problems"]]
        fields = {name: entry[name] for name in Compiled.__dataclass_fields__ if name in entry}
        fields |= dict(name=entry["kernel"], problems=tuple(found), notes=tuple(entry["notes"]))
        kernels.append(Compiled(**fields))
    stopped = answer["stopped"]
    return Report(tuple(kernels), stopped and _problem({**stopped, "file": str(path)}, path, shown, lines))


def _problem(entry: dict, path: Path, shown: str, lines: list[str]) -> Problem:
    own = Path(entry["file"]).name == path.name
    source = lines[entry["line"] - 1] if own and entry["line"] <= len(lines) else None
    return Problem(shown if own else _shown(Path(entry["file"])), entry["line"], 1, entry["message"], source)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _read(file: str) -> str | None:
    try:
        return Path(file).read_text("utf-8")
    except OSError:
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
