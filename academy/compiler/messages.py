"""Why a kernel doesn't compile: the line of the file, what the compiler says, and what to do instead."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from typing import Any

from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITCallable

from academy.command import trouble
from academy.compiler import advice
from academy.compiler.cards import Card
from academy.compiler.rules import refused

_MLIR = re.compile(r"^(?P<file>[^\s:]+\.py):(?P<line>\d+):\d+: error: (?P<message>.*)$", re.M)
_SMALL_DOT = re.compile(r"[Ii]nput shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)")
_SHOWN = 300


def place(kernel: JITCallable) -> tuple[str, int]:
    """File and line of the function's definition, decorators left out."""
    code = inspect.unwrap(kernel.fn).__code__
    lines = inspect.getsourcelines(inspect.unwrap(kernel.fn))[0]
    decorators = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    return code.co_filename, code.co_firstlineno + decorators


def too_large(entry: dict, card: Card) -> dict:
    """The problem of a kernel that needs more shared memory than a program may use."""
    message = (
        f"{entry['kernel']} needs {entry['shared']:,} bytes of shared memory, and a program on {card} may use "
        f"{card.shared:,}: take smaller tiles (BLOCK_K first) or fewer num_stages there"
    )
    return dict(kind="shared memory", message=message)


def badly_assembled(entry: dict, lost: list[str]) -> dict:
    """The problem of a kernel whose machine code reads registers that nothing has written.

    lost: what `machine_code.never_written` found.
    """
    register, _, instruction = lost[0].partition(" in ")
    message = (
        f"{entry['kernel']} would compute nonsense: Triton's assembler, ptxas, lost the instruction that sets "
        f"{register}, which `{instruction}` reads. Take tiles of another size, or another num_warps"
    )
    return dict(kind="assembler", message=message)


def copied_over(entry: dict, tiles: list[str]) -> dict:
    """The problem of a kernel that copies tiles over ones which a product may still read.

    tiles: what `overtaken.overtaken` found.
    """
    message = (
        f"{entry['kernel']} may compute nonsense, now and then: Triton gives {', '.join(tiles)} a place too few, and "
        "copies a later tile over one that the tensor cores may still read. Take num_stages=1"
    )
    return dict(kind="race", message=message)


def in_words(error: BaseException | None, kernel: JITCallable, printed: str) -> list[dict]:
    """The problems behind an exception of the compiler: dictionaries of kind, file, line and message.

    printed: what the compiler wrote to standard error.
    """
    file, line = place(kernel)
    if isinstance(error, CompilationError):
        return [_of_python(error, file, line)]
    found = [
        dict(kind="compiler", file=match["file"], line=int(match["line"]), message=_with_advice(match["message"]))
        for match in _MLIR.finditer(printed)
    ]
    if found:
        return list({(each["file"], each["line"]): each for each in reversed(found)}.values())[::-1]
    known = [p for p in refused.in_file(file) if 0 <= p.line - line < len(kernel.src.split("\n"))]
    if known:
        return [dict(kind="syntax", file=file, line=p.line, message=p.message) for p in known]
    error = error and trouble.causes(error)[-1]
    said = " ".join(traceback.format_exception_only(error)).split() if error else ["it failed without a word"]
    ptxas = re.search(r"ptxas (?:/\S+|error)[^\n]*\n?[^\n]*", printed + str(error))
    text = ptxas[0] if ptxas else " ".join(said)
    return [dict(kind="compiler", file=file, line=line, message=_with_advice(f"{kernel.fn.__name__}: {text[:_SHOWN]}"))]


def _of_python(error: CompilationError, file: str, line: int) -> dict:
    """The innermost error that belongs to a line of a file outside of Triton."""
    kind, said = "compiler", ""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CompilationError):
            at = _function_of(cause.src)
            if at is not None and hasattr(cause.node, "lineno"):
                file, line = at[0], at[1] + cause.node.lineno - 1
            said = cause.error_message or said
        else:
            said = f"{cause}" or said
        cause = cause.__cause__ or cause.__context__
    said = " ".join(said.replace("\\n", " ").split())
    small = _SMALL_DOT.search(said)
    if small:
        least = max(map(int, small.groups()))
        message = f"tl.dot needs tiles of at least {least} along K on a GPU (more for 8-bit types)"
        return dict(kind="small dot", file=file, line=line, message=message)
    known = [p for p in refused.in_file(file) if p.line == line]
    if known:
        return dict(kind="syntax", file=file, line=line, message=known[0].message)
    return dict(kind=kind, file=file, line=line, message=_with_advice(said[:_SHOWN] or "the compiler refuses this"))


def _with_advice(said: str) -> str:
    said = said.strip().rstrip(".")
    todo = advice.of(said)
    return f"the compiler says: {said}" + (f". {todo[:1].upper()}{todo[1:]}" if todo else "")


def _function_of(source: str | None) -> tuple[str, int] | None:
    """File and first line of the jitted function with this source; None if it is Triton's own."""
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if issubclass(type(value), JITCallable) and value.src == source:
                file, line = place(value)
                return None if "/triton/" in file and "site-packages" in file else (file, line)
    return None


def cause_of(error: BaseException, path: str) -> tuple[str, int]:
    """What stopped a run, and the line of the file where it did."""
    lines = [frame.lineno or 1 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    text: Any = " ".join("".join(traceback.format_exception_only(error)).split())
    return text[: _SHOWN // 2], lines[-1] if lines else 1
