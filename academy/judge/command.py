"""`academy judge FILE`: a kernel of the reader's own, tried as this project's kernels are."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path

from rich.console import Console

from academy.command.progress import bar
from academy.command.trouble import STATUS
from academy.files.textfiles import check_writable, read_python, write_text
from academy.judge import replay
from academy.judge.process import Limits
from academy.judge.report import html, show
from academy.judge.session import MEGABYTES, MUTANTS, SECONDS, File, Session
from academy.judge.trials import GROUPS
from academy.judge.trying import Outcome

_ABOUT = (
    """Compare a function that launches a Triton kernel with its reference in plain PyTorch, on inputs made to find
mistakes: odd sizes, strides, NaN around and between, every dtype, gradients, other orders of the programs.
FILE has both functions, `name` and `name_reference`, and says what the arguments look like:

    INPUTS = {"x": "rows cols", "weight": "cols", "labels": "rows: int64 below cols"}

FILE is executed, several times, in processes of their own with limits of time and memory. That contains accidents, such
as a segmentation fault or an endless loop, and no malice: judge only files that you would run yourself.

"""
    + STATUS
)


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        told = replay.read(options.replay, options) if options.replay else {}
        if not options.file:
            raise ValueError("FILE is missing: a Python file with a function and its reference")
        read_python(options.file)
        groups = _groups(options.only)
    except ValueError as error:
        print(f"academy judge: {error}", file=sys.stderr)
        return 2
    check_writable(options.json, options.html)
    limits = Limits(options.seconds, options.memory)
    session = Session(File(options.file, tuple(options.name)), groups, options.mutants, options.seed, limits)
    try:
        _walk(session)
    except KeyboardInterrupt:
        _write(session, options)
        raise
    if session.report.broken:
        print(f"academy judge: {session.report.broken}", file=sys.stderr)
    _write(session, options)
    if told and not session.report.broken:
        lines = replay.differences(told, session.report.as_json())
        print(*lines or ["replayed: the same verdicts"], sep="\n")
        return int(bool(lines))
    return 2 if session.report.broken else 0 if session.report.right else 1


def _walk(session: Session) -> None:
    with bar(threads=False) as progress:
        task = progress.add_task(session.report.file, total=None)
        for found in session.walk(lambda count: progress.update(task, total=count)):
            what = f"{found.trial.group}" if isinstance(found, Outcome) else "mutants"
            progress.update(task, advance=1, description=f"{session.report.file}: {what}", refresh=True)


def _write(session: Session, options: argparse.Namespace) -> None:
    report = session.report
    if not report.broken:
        show(report, Console())
    if options.json:
        write_text(options.json, json.dumps(report.as_json(), indent=1) + "\n")
        print(f"wrote {options.json}")
    if options.html and not report.broken:
        write_text(options.html, html(report, options.file))
        print(f"wrote {options.html}")


def _groups(only: str) -> list[str] | None:
    names = [name for name in only.split(",") if name]
    if unknown := [name for name in names if name not in GROUPS]:
        raise ValueError(f"--only {unknown[0]}: there is no such group; there are {', '.join(GROUPS)}")
    return names or None


def _parser() -> argparse.ArgumentParser:
    groups = "\n".join(textwrap.fill(f"{name}: {about}", 100, initial_indent="  ", subsequent_indent="      ")
                       for name, about in GROUPS.items())  # fmt: skip
    parser = argparse.ArgumentParser(
        prog="academy judge",
        description=_ABOUT,
        epilog=f"what is tried:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    file = "a Python file with a function and its reference; it is executed"
    add("file", metavar="FILE", type=Path, nargs="?", help=file)
    add("name", metavar="NAME", nargs="*", help="functions of the file (default: all that have a reference)")
    add("--only", metavar="GROUP,…", default="", help="try only these groups, see below")
    add("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    mutants = "changes of the kernels that are tried, to see whether the trials notice them (default: "
    add("--mutants", metavar="COUNT", type=int, help=f"{mutants}{MUTANTS}, and with --only none)")
    add("--seconds", type=float, default=SECONDS, help=f"processor time for one trial (default: {SECONDS:g})")
    add("--memory", metavar="MB", type=int, default=MEGABYTES, help=f"for one process (default: {MEGABYTES})")
    add("--json", metavar="FILE", type=Path, help="write all outcomes as JSON")
    again = "judge the files of a report of --json as it did; the status is 0 if all verdicts are the same"
    add("--replay", metavar="REPORT", type=Path, help=again)
    add("--html", metavar="FILE", type=Path, help="write the report, and the recorded run of a wrong trial")
    return parser
