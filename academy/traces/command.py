"""`academy trace MODULE`: a recorded run in the terminal, for any kernel file with an EXAMPLE."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from academy.problems import report
from academy.traces import check_recording, page, store
from academy.traces.recording import Recording, Step


def main(arguments: list[str]) -> int:
    """Record, print, write what was asked for. Exit status: 0, 1 if something is wrong with the run, 2 for bad use."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        path = find(options.module)
    except ValueError as error:
        Console(stderr=True).print(f"academy trace: {error}", markup=False, highlight=False)
        return 2
    if not path.is_relative_to(store.ROOT):
        store.forget(path)  # what a file outside the project builds on is not known
    recording = store.load([path])[path]
    if options.launch is not None and not 0 <= options.launch < max(len(recording.launches), 1):
        message = f"academy trace: --launch {options.launch}: EXAMPLE launches {len(recording.launches)} kernels"
        Console(stderr=True).print(message, markup=False, highlight=False)
        return 2
    show(console, path, recording, options.pid, options.launch)
    if options.json:
        options.json.write_text(json.dumps(recording.data, separators=(",", ":")))
        console.print(f"wrote {options.json}", highlight=False)
    if options.html and not recording.launches:
        message = f"academy trace: {options.html} is not written: no launch came to its end, so there is no run to show"
        Console(stderr=True).print(message, markup=False, highlight=False)
    elif options.html:
        options.html.write_text(page.standalone(path, recording))
        console.print(f"wrote {options.html}", highlight=False)
    problems = check_recording(path, recording, quoted=path.is_relative_to(store.ROOT / "annotated_examples"))
    return report(problems)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="academy trace",
        description="Run a kernel file's EXAMPLE() in Triton's interpreter and show every statement of one program: "
        "the values that it assigns and the memory that it touches. Accesses outside a tensor, races, outputs that "
        "nobody writes and reads of memory that nobody wrote are reported with their line. Needs no GPU.",
    )
    parser.add_argument(
        "module", metavar="MODULE", help="a kernel file or a dotted module name, with a function EXAMPLE()"
    )
    parser.add_argument("--pid", type=_program, help="program to print: 13, or 1,0 (default: the first of each launch)")
    parser.add_argument("--launch", type=int, help="launch to print, counted from 0 (default: all)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the whole recording as JSON")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one HTML file with the code and the viewer")
    return parser


def find(module: str) -> Path:
    """The file that a path, a dotted name or a kernel's name (`layernorm`) stands for. Raises ValueError."""
    path = Path(module)
    named = [file for file in store.kernel_files() if f".{store.name(file)}".endswith(f".{module}")]
    if not path.exists() and len(named) > 1:
        raise ValueError(f"{module} could be any of {', '.join(map(store.shorten, named))}")
    if not path.exists() and named:
        path = named[0]
    if not path.exists():
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None or not found.origin:
            raise ValueError(f"{module}: no such file, and no module of that name")
        path = Path(found.origin)
    if path.suffix != ".py":
        raise ValueError(f"{module} is not a Python file")
    try:
        if not store.has_example(path):
            raise ValueError(
                f"{module} has no function EXAMPLE(): write one that builds small inputs and launches the kernel"
            )
    except SyntaxError as error:
        raise ValueError(f"{module}: {error}") from error
    return path.resolve()


def show(console: Console, path: Path, recording: Recording, program=None, only: int | None = None) -> None:
    """Print each launch: its tensors, the bytes it moves, and one program line by line."""
    lines = path.read_text().split("\n")
    for number, launch in enumerate(recording.launches):
        if only is not None and number != only:
            continue
        grid = [size for size in launch["grid"]]
        while len(grid) > 1 and grid[-1] == 1:
            grid.pop()
        console.rule(f"[bold]{launch['kernel']}[/]  {launch['direction']}, launch {number}, grid {tuple(grid)}")
        console.print(_tensors(launch), highlight=False)
        console.print(traffic_line(launch["traffic"]), highlight=False)
        for line in launch["repairs"]:
            console.print(f"repaired semantics: {line}", style="dim", highlight=False)
        pids = [tuple(pid) for pid, _ in launch["programs"]]
        if not pids:
            continue
        pid = program if program is not None else pids[0]
        if pid not in pids:
            console.print(f"no program {page.program_name(pid)} in this grid", style="yellow", highlight=False)
            continue
        console.print(f"[bold]program {page.program_name(pid)}[/], line by line:", highlight=False)
        _steps(console, recording, launch, recording.steps(launch, pid), store.shorten(path), lines)
        console.print()


def traffic_line(traffic: dict[str, int]) -> str:
    """What a launch moves, in a sentence."""
    parts = []
    for kind, verb in (("read", "reads"), ("written", "writes")):
        distinct, requested = traffic[f"bytes_{kind}"], traffic[f"requested_{kind}"]
        reuse = f" ({requested} requested, each byte {requested / distinct:.3g} times)" if requested != distinct else ""
        parts.append(f"{verb} {distinct} bytes{reuse}")
    return ", ".join(parts)


def _tensors(launch: dict) -> Table:
    table = Table(show_header=True, header_style="bold", box=None, pad_edge=False)
    for title in ("tensor", "shape", "dtype", "reads", "writes"):
        table.add_column(title, justify="right" if title in ("reads", "writes") else "left")
    counts = {}
    for _, rows in launch["programs"]:
        for _, _, accesses in rows:
            for operation, tensor, *_ in accesses:
                counts[tensor, operation == "load"] = counts.get((tensor, operation == "load"), 0) + 1
    for number, tensor in enumerate(launch["tensors"]):
        reads, writes = counts.get((number, True), 0), counts.get((number, False), 0)
        table.add_row(
            tensor["name"], "×".join(map(str, tensor["shape"])) or "()", tensor["dtype"], str(reads), str(writes)
        )
    return table


def _steps(
    console: Console, recording: Recording, launch: dict, steps: list[Step], shown: str, lines: list[str]
) -> None:
    """Each statement as it stands in the file; under it, indented, what it assigned and touched."""
    iteration = ()
    for step in steps:
        indent = "  " * step.depth
        if step.loops and step.loops != iteration:
            header, count = step.loops[-1]
            console.print(f"[dim]      {indent}loop at line {header}, iteration {count}[/]", highlight=False)
        iteration = step.loops
        code = lines[step.line - 1].strip() if step.file == shown else f"{step.file}:{step.line}"
        number = f"[dim]{step.line:>4}[/]  {indent}"
        console.print(number + escape(code), highlight=False, no_wrap=True, overflow="ellipsis", crop=True)
        values = [
            Text(f"{name} = {page.brief(recording.value(v))}", style="magenta") for name, v in step.values.items()
        ]
        values += [Text(page.touched(recording, launch, access), style="cyan") for access in step.accesses]
        if values:
            console.print(Padding(Text("   ").join(values), (0, 0, 0, 10 + len(indent))), highlight=False)


def _program(text: str) -> tuple[int, int, int]:
    try:
        numbers = tuple(int(part) for part in text.strip("()").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no program: write 13, or 1,0") from None
    if not 1 <= len(numbers) <= 3:
        raise argparse.ArgumentTypeError("a program has one to three numbers")
    return (*numbers, 0, 0)[:3]
