"""`academy compile FILE`: what the compiler makes of a file's kernels, for cards that aren't there."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from academy import compiler
from academy.book import problems, syntax
from academy.command.trouble import STATUS
from academy.compiler.cards import CARDS, DEFAULT, Card, card
from academy.files.textfiles import read_python

_LOADS = ("global load", "global store")


def main(arguments: list[str]) -> int:
    """Exit status: 0, 1 if a kernel doesn't compile or doesn't fit, 2 for wrong usage or a file that can't be run."""
    options = _parser().parse_args(arguments)
    path = options.file
    try:
        read_python(path)
    except ValueError as error:
        return _wrong(str(error))
    if not compiler.available():
        return _wrong("Triton's compiler isn't installed here: it comes with triton, which has wheels for Linux only")
    reports = {}
    for arch in dict.fromkeys(options.arch or [DEFAULT]):
        try:
            reports[arch] = compiler.compile_file(path, arch, options.kernel, options.all_configs)
        except RuntimeError as error:
            return _wrong(str(error))
    if not any(report.kernels for report in reports.values()):
        return _wrong(_nothing(path, options.kernel, next(iter(reports.values()))))
    if options.json:
        print(json.dumps({arch: asdict(report) for arch, report in reports.items()}, indent=1))
        return int(any(report.problems for report in reports.values()))
    console = Console(highlight=False)
    for arch, report in reports.items():
        _print(console, card(arch), report)
    _not_launched(console, path, reports)
    return problems.report(dict.fromkeys(p for report in reports.values() for p in report.problems))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="academy compile",
        description="Compile a file's kernels without a GPU: registers, spilled registers, shared memory, and the "
        "instructions worth knowing about. Which kernels there are, and with which arguments, is seen by running the "
        "file's EXAMPLE(), or the file as a script if it has none; nothing is launched.",
        epilog=STATUS,
    )
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="a Python file with kernels; it may lie anywhere")
    cards = "; ".join(f"{arch}: {each.names}" for arch, each in CARDS.items())
    said = f"compute capability, without the point. {cards} (default: {DEFAULT}; may be repeated)"
    add("--arch", type=int, action="append", choices=tuple(CARDS), help=said)
    add("--kernel", metavar="NAME", help="only this kernel")
    add("--all-configs", action="store_true", help="every configuration of autotuned kernels, not only the first")
    add("--json", action="store_true", help="print everything as JSON")
    return parser


def _wrong(message: str) -> int:
    print(f"academy compile: {message}", file=sys.stderr)
    return 2


def _nothing(path: Path, kernel: str | None, report: compiler.Report) -> str:
    if report.stopped:
        return f"{path} stops before it launches a kernel: line {report.stopped.line}: {report.stopped.message}"
    what = f"no kernel named {kernel}" if kernel else "no kernel"
    return (
        f"{path} launches {what}. Give it a function EXAMPLE() that makes small inputs and calls the function that "
        "launches yours"
    )


def _print(console: Console, on: Card, report: compiler.Report) -> None:
    console.rule(f"[bold]{on}[/], {on.shared:,} bytes of shared memory for a program")
    for kernel in report.kernels:
        console.print(f"[bold]{kernel.name}[/]  {_described({**kernel.constants, **kernel.options})}")
        for note in kernel.notes:
            console.print(f"  note: {note}", style="yellow", markup=False, soft_wrap=True)
        if kernel.registers is not None:
            console.print(_table(kernel, on))
        else:
            console.print("  doesn't compile, see below" if kernel.problems else "  not compiled", style="bold red")
    if report.stopped:
        where = f"{report.stopped.path}:{report.stopped.line}: {report.stopped.message}"
        told = f"No kernel ran, so the script stopped. Launches that come later are missing. {where}"
        console.print(told, style="yellow", markup=False, soft_wrap=True)


def _described(values: dict) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _table(kernel: compiler.Compiled, on: Card) -> Table:
    table = Table.grid(padding=(0, 2))
    row = lambda name, value: table.add_row(f"  {name}", value)  # noqa: E731
    assert kernel.registers is not None and kernel.shared is not None and kernel.num_warps is not None
    spilled = kernel.sass.get("local load", 0) + kernel.sass.get("local store", 0)
    spills = (
        f"{kernel.stack} bytes of local memory a thread, {spilled} instructions" if kernel.stack or spilled else "none"
    )
    row("registers", f"{kernel.registers} a thread, {32 * kernel.num_warps} threads a program")
    row("spills", spills)
    share = 100 * kernel.shared / on.shared
    row("shared memory", f"{kernel.shared:,} bytes, {share:.0f} % of what a program may use")
    row("programs an SM", _resident(kernel, on))
    moved = {kind: count for kind, count in kernel.sass.items() if kind.startswith(_LOADS)}
    row("machine code", _counted({k: n for k, n in kernel.sass.items() if k not in moved}) or "nothing of note")
    row("global memory", _counted(moved) or "through the TMA only")
    row("PTX", _counted({k: n for k, n in kernel.ptx.items() if not k.startswith(_LOADS)}) or "nothing of note")
    return table


def _counted(kinds: dict[str, int]) -> str:
    named = ((kind.partition(", "), count) for kind, count in kinds.items())
    return ", ".join(f"{count} {name}" + (f" of {size}" if size else "") for (name, _, size), count in named)


def _resident(kernel: compiler.Compiled, on: Card) -> str:
    """How many programs an SM holds at a time, and what the limit is. Registers are handed out to warps by 256, and
    each quarter of an SM has a quarter of them.
    """
    assert kernel.registers is not None and kernel.shared is not None and kernel.num_warps is not None
    per_warp = -(-max(kernel.registers, 1) * 32 // 256) * 256
    limits = {
        "registers": on.registers // per_warp // 4 * 4 // kernel.num_warps,
        "threads": on.threads // (32 * kernel.num_warps),
        "shared memory": (on.shared + 1024) // (kernel.shared + 1024),
        "the number of programs": on.programs,
    }
    least = min(limits.values())
    return f"at most {least}, because of {' and '.join(name for name, count in limits.items() if count == least)}"


def _not_launched(console: Console, path: Path, reports: dict[int, compiler.Report]) -> None:
    """Kernels of the file that nothing was seen of."""
    text = path.read_text("utf-8")
    seen = {kernel.name for report in reports.values() for kernel in report.kernels}
    kernels = [function.name for function in syntax.jitted_functions(text) if function.name.endswith("kernel")]
    missing = [name for name in kernels if name not in seen]
    if missing:
        console.print(f"not launched, so not compiled: {', '.join(missing)}", style="yellow")
