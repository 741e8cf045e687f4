"""What compiles of the launches of a call: for several cards, without one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from academy.runtime import device
from academy import compiler
from academy.book.problems import Problem
from academy.compiler import launches
from academy.compiler.cards import card
from academy.judge.findings import Remark, Skipped, Wrong

#: A100, H100, and the RTX 5090 with its small shared memory.
ARCHITECTURES = (80, 90, 120)
#: Kinds of launches of a call that are compiled, at most.
MOST = 12


def check(function: Callable, call: Callable[[], object]) -> None:
    """Compile what a call launches.

    Raises Wrong for a launch that compiles for none of the cards, and Remark for one that a card refuses: what it lacks
    is no mistake of the kernel.
    """
    if not device.INTERPRET:
        raise Skipped("the kernels are compiled here anyway")
    if not compiler.available():
        raise Skipped("Triton's compiler isn't installed here")
    with launches.noted() as seen:
        call()
    kinds = list({str(_kind(launch)): launch for launch in reversed(seen)}.values())[-MOST:]
    file = inspect.getfile(inspect.unwrap(function))
    refused: dict[str, dict[int, Problem]] = {}
    for arch in ARCHITECTURES if kinds else ():
        try:
            report = compiler.compile_launches(file, kinds, arch)
        except compiler.Crashed as error:
            raise Skipped(f"it can't be compiled here: {error}") from error
        for kernel in report.kernels:
            for problem in kernel.problems[:1]:
                refused.setdefault(f"{kernel.name} {kernel.constants}", {})[arch] = problem
    for problems in sorted(refused.values(), key=len, reverse=True):
        arch, problem = list(problems.items())[-1]
        where = "" if problem.source is not None else f" ({problem.path}:{problem.line})"
        if len(problems) == len(ARCHITECTURES):
            line = problem.line if problem.source is not None else None
            raise Wrong(f"it doesn't compile: {problem.message}{where}", line)
        where = where or f" (line {problem.line})"
        raise Remark(
            f"it doesn't compile for {' and '.join(str(card(one)) for one in problems)}: {problem.message}{where}"
        )


def _kind(data: Any) -> Any:
    """What of a launch reaches the compiler: of a number that is no constant, only what it is a multiple of."""
    if isinstance(data, dict):
        return {name: _kind(value) for name, value in data.items()}
    if type(data) is int and data != 1:
        return "multiple of 16" if data % 16 == 0 else "int" if data < 2**31 else "int64"
    return data
