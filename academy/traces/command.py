"""`academy trace MODULE`: a recorded run in the terminal, for any kernel file with an EXAMPLE."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import sys
import textwrap
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from academy import compiler
from academy.book import layout, syntax
from academy.book.problems import report
from academy.command.trouble import STATUS
from academy.compiler.cards import CARDS, DEFAULT
from academy.files.textfiles import check_writable, in_words, read_text, write_text
from academy.traces import faults, page, store
from academy.traces.recording import Pointer, Program, Recording, Step, grid_name, program_name

#: Columns before what a statement gives; characters that a value gets however narrow the terminal is.
_INDENT, _NARROWEST = 10, 24
#: Dtypes that go without saying beside a value.
_USUAL = {"float32", "int32", "int64", "bool", ""}
#: An EXAMPLE for a file that has none: a plain, a transposed and a sliced input show most mistakes with strides.
TEMPLATE = """To copy, with the function that launches yours:

def EXAMPLE():
    x = torch.arange(15.0).reshape(3, 5)
    for each in (x, x.T, x[:, ::2]):
        my_function(each)
"""


def main(arguments: list[str]) -> int:
    """Record, print, write what was asked for. Exit status: 0, 1 if something is wrong with the run, 2 for wrong
    usage."""
    options = _parser().parse_args(arguments)
    try:
        path = find(options.module)
        check_writable(options.json, options.html)
        # What a file outside of the project builds on is not known, so it is recorded each time.
        recording = store.load([path], again=not path.is_relative_to(store.ROOT))[path]
        numbers = chosen(recording, options.launch, options.pid)
        _Printer(path, recording).show(numbers, options.pid)
        _write(path, recording, options)
    except (SyntaxError, ValueError) as error:
        print(f"academy trace: {in_words(error)}", file=sys.stderr)
        return 2
    wrong = report(faults.wrong_in_the_run(path, recording))
    for warning in faults.warnings(recording):
        Console().print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    own = not path.is_relative_to(store.ROOT / layout.KERNELS)
    for told in recording.data.get("notes", []):
        Console().print(f"note: {told}", highlight=False, markup=False, soft_wrap=True)
    if own and not wrong and faults.hides_strides(recording):
        Console().print(f"note: {faults.HIDDEN}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    sizes = faults.sizes_to_change(path, recording) if own and not wrong else []
    if sizes:
        told = f"note: {'; '.join(sizes)}: {faults.SIZES}"
        Console().print(told, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if options.compile and not recording.data["error"] and compiler.available():
        wrong = max(wrong, _compiled(path, own))
    stale = faults.stale_numbers(path, recording, quoted=not own)
    if stale:
        Console().print("Numbers in this file that the run contradicts:", style="bold", highlight=False)
    return max(wrong, report(stale))


def _compiled(path: Path, own: bool) -> int:
    """Report what doesn't compile for a GPU, though it runs in the interpreter. Exit status as `main`."""
    try:
        made = compiler.compile_file(path)
    except RuntimeError as error:
        print(f"academy trace: not compiled: {error}", file=sys.stderr)
        return 0
    notes = dict.fromkeys(f"{kernel.name}: {note}" for kernel in made.kernels for note in kernel.notes if own)
    for note in notes:
        Console().print(f"note: {note}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    if not made.problems and made.kernels:
        which = CARDS[DEFAULT]
        print(f"compiles for {which}; `academy compile {quote(store.shorten(path))}` says what it needs")
    return report(made.problems)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="academy trace",
        description="Run a kernel file's EXAMPLE() in Triton's interpreter and show every statement of one program: "
        "the values that it assigns and the memory that it touches. Accesses outside a tensor, races, outputs that "
        "nobody writes, reads of memory that nobody wrote, inputs whose tail nobody reads and NaN that comes of masked "
        "lanes are reported with their line. Then the kernels are compiled, too. Needs no GPU.",
        epilog=STATUS,
    )
    failing = "(default: the one that fails, else "
    add = parser.add_argument
    add("module", metavar="MODULE", help="a kernel file or a dotted module name, with a function EXAMPLE()")
    add("--pid", type=_program, help=f"program to print: 13, or 1,0 {failing}the first of each launch)")
    add("--launch", type=int, help=f"launch to print, counted from 0 {failing}all)")
    add("--no-compile", dest="compile", action="store_false", help="don't compile the kernels for a GPU as well")
    add("--json", metavar="FILE", type=Path, help="write the whole recording as JSON")
    add("--html", metavar="FILE", type=Path, help="write one HTML file with the code and the viewer")
    return parser


def _program(text: str) -> Program:
    numbers = re.fullmatch(r"\(?(-?\d+)(?:, ?(-?\d+))?(?:, ?(-?\d+))?\)?", text)
    if numbers is None:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a program: write 13, or 1,0")
    x, y, z = (int(number or 0) for number in numbers.groups())
    return x, y, z


def chosen(recording: Recording, launch: int | None, program: Program | None) -> list[int]:
    """Numbers of the launches to print: the one asked for, else the one that fails, else all.

    Raises ValueError if there is no such launch, or no such program in any of them.
    """
    launches = recording.launches
    if not launches:
        return []  # the report says why
    if launch is not None and not 0 <= launch < len(launches):
        last = len(launches) - 1
        ran = f"launches {len(launches)} kernels, 0 to {last}" if last else "launches 1 kernel, number 0"
        stops = f", and fails in launch {recording.stopped[0]}" if recording.stopped else ""
        raise ValueError(f"--launch {launch}: EXAMPLE {ran}{stops}")
    everything = [recording.stopped[0]] if recording.stopped else list(range(len(launches)))
    numbers = everything if launch is None else [launch]
    if program is not None and not any(
        all(0 <= index < size for index, size in zip(program, launches[number]["grid"])) for number in numbers
    ):
        grids = [f"{grid_name(launches[n]['grid'])} of {launches[n]['kernel']} (launch {n})" for n in numbers]
        which = "the grid" if len(grids) == 1 else "every grid:"
        raise ValueError(f"--pid {program_name(program)} is outside {which} {', '.join(grids)}")
    return numbers


def find(module: str) -> Path:
    """The file that a path, a dotted name or a kernel's name (`layernorm`) stands for.

    Raises ValueError if there is none with an EXAMPLE or it isn't UTF-8, and SyntaxError if it isn't valid Python.
    """
    path = Path(module) if Path(module).exists() else _named(module)
    if path.suffix != ".py":
        raise ValueError(f"{module} is not a Python file")
    read_text(path)
    if not store.has_example(path):
        raise ValueError(f"{module} has no function EXAMPLE(), which runs the kernel on small inputs. {TEMPLATE}")
    return path.resolve()


def _named(module: str) -> Path:
    """The file of a kernel's name or a dotted name."""
    kernels = [file for file in store.kernel_files() if f".{store.name(file)}".endswith(f".{module}")]
    if len(kernels) > 1:
        raise ValueError(f"{module} could be any of {', '.join(map(store.shorten, kernels))}")
    if kernels:
        return kernels[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        raise ValueError(f"{module}: no such file, and no module of that name")
    return Path(found.origin)


def _write(path: Path, recording: Recording, options: argparse.Namespace) -> None:
    """The files that were asked for."""
    if options.json:
        write_text(options.json, json.dumps(recording.data, separators=(",", ":")))
        print(f"wrote {options.json}")
    if options.html and (recording.data["error"] or not recording.launches):
        why = "the run fails" if recording.data["error"] else "there is no launch"
        print(f"academy trace: {options.html} is not written: {why}, so there is no run to show", file=sys.stderr)
    elif options.html:
        write_text(options.html, page.standalone(path, recording))
        print(f"wrote {options.html}")


class _Printer:
    """Prints launches of a recording: the tensors, the bytes that move, and one program line by line."""

    def __init__(self, path: Path, recording: Recording):
        self.recording, self.console = recording, Console(highlight=False)
        self.shown, text = store.shorten(path), path.read_text("utf-8")
        self.lines, self.ends = text.split("\n"), _ends(text)

    def show(self, numbers: list[int], program: Program | None) -> None:
        for number in numbers:
            launch, stopped = self.recording.launches[number], self.recording.stopped
            failing = stopped[1] if stopped and stopped[0] == number else None
            grid = grid_name(launch["grid"])
            self.console.rule(f"[bold]{launch['kernel']}[/]  {launch['direction']}, launch {number}, grid {grid}")
            self.console.print(_tensors(launch))
            if failing is None:
                self.console.print(_traffic(launch["traffic"]))
            for line in launch["repairs"]:
                self.console.print(f"repaired semantics: {line}", style="dim")
            if launch["programs"]:
                self.program(launch, program or failing or tuple(launch["programs"][0][0]), failing)
            self.console.print()
        if self.recording.data["printed"]:
            self.console.print("[bold]printed:[/]")
            print(self.recording.data["printed"])

    def program(self, launch: dict, pid: Program, failing: Program | None) -> None:
        """Each statement as it stands in the file; under it, indented, what it assigned and touched."""
        steps = self.recording.steps(launch, pid)
        if steps is None:
            reason = f"did not run: program {program_name(failing)} fails before it" if failing else ""
            self.console.print(f"program {program_name(pid)} {reason or 'is not in this grid'}", style="yellow")
            return
        until = ", up to the statement that fails" if pid == failing else ""
        self.console.print(f"[bold]program {program_name(pid)}[/], line by line{until}:")
        if not any(step.values for step in steps):
            few = "Values are kept of the first programs only: give EXAMPLE smaller inputs to see those of this one."
            self.console.print(few, style="yellow")
        iteration: tuple = ()
        for step in steps:
            iteration = self.statement(launch, step, iteration)
        if pid == failing:
            self.console.print(" " * _INDENT + "    this statement fails", style="bold red")

    def statement(self, launch: dict, step: Step, iteration: tuple) -> tuple:
        """One step. iteration: of the step before; returns that of this one."""
        own = step.file == self.shown
        first, last = step.line - 1, self.ends.get(step.line, step.line)
        code = self.lines[first:last] if own else [f"{step.file}:{step.line}"]
        indent = len(code[0]) - len(code[0].lstrip())
        margin = " " * (2 * step.depth + indent)
        if step.loops and step.loops != iteration:
            header, count = step.loops[-1]
            self.console.print(f"[dim]      {margin}loop at line {header}, iteration {count}[/]")
        for number, line in enumerate(code, step.line):
            self.code(f"{number:>4}", margin + line[indent:])
        left = _INDENT + len(margin)
        for result in _flow(self.results(launch, step, self.console.width - left), self.console.width - left):
            self.console.print(Text(" " * left).append_text(result), soft_wrap=True)
        return step.loops

    def code(self, number: str, line: str) -> None:
        """A line of the file in as many lines of the terminal as it needs."""
        margin = line[: len(line) - len(line.lstrip())]
        width = max(self.console.width - len(number) - 2, len(margin) + _NARROWEST)
        for part in textwrap.wrap(line, width, subsequent_indent=f"{margin}        ", break_on_hyphens=False):
            self.console.print(f"[dim]{number}[/]  {escape(part)}", soft_wrap=True)
            number = " " * len(number)

    def results(self, launch: dict, step: Step, width: int) -> list[Text]:
        """What a statement assigned and touched, each in at most about `width` characters."""
        results = []
        for name, number in step.values.items():
            value, dtype = self.recording.value(number), self.recording.dtype(number)
            start = f"{name} = " + ("" if dtype in _USUAL else f"{dtype} ")
            room = width - len(start) - (len(f"{value.base} + ") if isinstance(value, Pointer) else 0)
            text = page.brief(value, max(room, _NARROWEST))
            if text != name:  # a pointer argument, which still points to its tensor's first element
                results.append(Text(start + text, style="magenta"))
        for access in step.accesses:
            results.append(Text(page.touched(self.recording, launch, access), style="cyan"))
            if self.recording.value(access[2]) is None:
                continue  # too many to keep
            offsets = self.recording.offsets(launch, access)
            if access[0] != "load" and offsets.size and launch["tensors"][access[1]]["strides"] not in ([], [1]):
                results.append(Text(f"at offsets {page.brief(offsets, max(width - 11, _NARROWEST))}", style="cyan"))
            if access[0] != "load" and offsets.size:
                stored = self.recording.stored(access)
                results.append(Text(f"the values {page.brief(stored, max(width - 11, _NARROWEST))}", style="cyan"))
        return results


def _ends(text: str) -> dict[int, int]:
    """First line of each statement -> its last one; of one with a body, the last one of its header."""
    ends = {}
    for node in syntax.statements(syntax.tree(text)):
        header = [
            part for part in ast.iter_child_nodes(node) if isinstance(part, (ast.expr, ast.arguments, ast.withitem))
        ]
        inside = [getattr(part, "end_lineno", 0) for each in header for part in ast.walk(each)]
        ends[node.lineno] = max([node.lineno, *inside]) if hasattr(node, "body") else syntax.last_line(node)
    return ends


def _traffic(traffic: dict[str, int]) -> str:
    """What a launch moves, in a sentence."""
    parts = []
    for kind, verb in (("read", "reads"), ("written", "writes")):
        distinct, requested = traffic[f"bytes_{kind}"], traffic[f"requested_{kind}"]
        reuse = f" ({requested} requested, each byte {requested / distinct:.3g} times)" if requested != distinct else ""
        parts.append(f"{verb} {distinct} bytes{reuse}")
    return ", ".join(parts)


def _tensors(launch: dict) -> Table:
    table = Table(show_header=True, header_style="bold", box=None, pad_edge=False)
    for title in ("tensor", "shape", "strides", "dtype", "loads", "stores"):
        table.add_column(title, justify="right" if title in ("loads", "stores") else "left")
    touched = [(a[1], a[0] == "load") for _, rows in launch["programs"] for *_, accesses in rows for a in accesses]
    for number, tensor in enumerate(launch["tensors"]):
        counts = [str(touched.count((number, reads))) for reads in (True, False)]
        shape, strides = "×".join(map(str, tensor["shape"])) or "()", str(tuple(tensor["strides"])).replace(",)", ")")
        table.add_row(tensor["name"], shape, strides, tensor["dtype"], *counts)
    return table


def _flow(items: list[Text], width: int) -> list[Text]:
    """The items in lines of at most `width`, three spaces apart; none is broken unless it alone is too long."""
    lines: list[list[Text]] = []
    for item in items:
        if lines and sum(len(other) + 3 for other in lines[-1]) + len(item) <= width:
            lines[-1].append(item)
        else:
            lines.append([item])
    return [Text("   ").join(line) for line in lines]
