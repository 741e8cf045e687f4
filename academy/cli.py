"""The `academy` command. Each subcommand has its own part of the package, which is imported only when it is used."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from academy.command import garbage, trouble
from academy.files.textfiles import in_words, read_text

if TYPE_CHECKING:
    from academy.formulas.comparing.result import Result
    from academy.formulas.project import Project

#: Modules of the subcommands that parse their own options.
_PASSED_ON = {
    "bench": "academy.bench.command",
    "compile": "academy.compiler.command",
    "exercise": "academy.exercises.command",
    "judge": "academy.judge.command",
    "simulate": "academy.gluon.command",
    "trace": "academy.traces.command",
}
#: How many mutants of a kernel file `academy mutate` tries.
SAMPLE = 32
#: What is not lost when a subcommand is stopped.
_KEPT = {
    "bench": "what was measured is kept, and the same command continues",
    "judge": "what was found until then stands above",
}
DESCRIPTION = "Triton Academy: check its pages, measure, compile and watch its kernels, judge yours, do the exercises."


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand. Exit status: see `trouble.STATUS`; as other tools 130 after Ctrl-C, 143 after SIGTERM and
    141 if nobody reads on (`| head`)."""
    # Before NumPy is imported: its threads share the product of two small tiles, and mostly wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = " ".join(["academy", *arguments[:1]])
    if argv is None and arguments[:1] != ["bench"]:  # a process of its own, that measures nothing: a third of its time
        garbage.rarely()
    with _sigterm_raises():
        try:
            _open_streams()
            try:
                return _run(arguments)
            finally:
                _flush()
        except KeyboardInterrupt:
            kept = _KEPT.get(arguments[0], "")
            _say(f"\n{command}: stopped{f'; {kept}' if kept else ''}")
            return 128 + signal.SIGINT
        except _Terminated:
            return 128 + signal.SIGTERM
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # rich makes this of it
                return _UNREAD
            raise
        except BrokenPipeError:
            return _UNREAD
        except Exception as error:
            return _in_the_way(command, error)
        finally:
            _drop_what_nobody_reads()


def _open_streams() -> None:
    """Where a standard stream is closed, the next file that is opened would be taken for it.

    Raises:
        Trouble: nobody can read what a command prints.
    """
    closed = sys.stdout is None
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        if opened:
            setattr(sys, "stdout" if opened == 1 else "stderr", os.fdopen(opened, "w"))
    os.close(opened)
    if closed:
        raise trouble.Trouble("standard output is closed, so nobody would read what is found")


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise trouble.Trouble(f"standard output can't be written: {error.strerror}") from error


def _drop_what_nobody_reads() -> None:
    """Or Python would complain about it at its end, and change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def _in_the_way(command: str, error: Exception) -> int:
    """Say in a sentence what of the machine is in the way; and of a mistake of academy's where it is."""
    named = isinstance(error, OSError) and not error.errno  # says in its own words which file
    found = error if named else trouble.of(error) or error
    if isinstance(found, (OSError, trouble.Trouble)):
        _say(f"{command}: {in_words(found)}")
    else:
        _say("".join(traceback.format_exception(error)))
        _say(f"{command}: this is a mistake in academy itself, and says nothing about your files")
    return 2


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class _Terminated(BaseException):
    """This process was told to end. Raised, so that what it has started ends too."""


#: The exit status where nobody reads on: of a process that SIGPIPE ends.
_UNREAD = 128 + 13
#: Seconds after which a process that was told to end is ended, whatever it waits for, and with it those that work for
#: it. Python drops what a handler raises in some places, and waits for its threads at its end.
_ENDING = 5


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    def end(*_) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.alarm(_ENDING)
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str]) -> int:
    parser = _parser()
    if arguments[:1] and arguments[0] in _PASSED_ON:
        return importlib.import_module(_PASSED_ON[arguments[0]]).main(arguments[1:])
    parsed = parser.parse_args(arguments)
    try:
        return parsed.run(parsed)
    except ValueError as error:
        print(f"academy {parsed.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="academy", description=DESCRIPTION, epilog=trouble.STATUS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="check every equation, each kernel against its formulas, each quoted number against a run (no GPU needed)",
        description="Evaluate every equation in float64, compare every kernel with its printed formula on hostile "
        "inputs, compare the numbers quoted in comments with a recorded run, and hold the source against the guide "
        '"Best practice". Of a kernel file of your own: the last. What has passed is '
        "looked at again only when something of it has changed. One line for each failure.",
        epilog=trouble.STATUS,
    )
    what = "derivations, kernels, pages, kernel files of your own (default: all of the project)"
    check.add_argument("files", nargs="*", type=Path, metavar="FILE", help=what)
    check.set_defaults(run=_check)
    mutate = commands.add_parser(
        "mutate",
        help="change every formula (and kernel) in small ways, and see whether a check notices each change",
        description="Mutation score of derivations and kernels. A change that no check notices and that is not on the "
        "reviewed list (backprop_math/equivalent_mutants.toml) is a failure.",
        epilog=trouble.STATUS,
    )
    mutate.add_argument("files", nargs="*", type=Path, metavar="FILE", help="derivations or kernels (default: all)")
    mutate.add_argument("--only", choices=("equations", "kernels"), help="only this kind of mutant")
    how_many = mutate.add_mutually_exclusive_group()
    how_many.add_argument("--all", action="store_true", help="every mutant of a kernel, not a sample (slow)")
    how_many.add_argument(
        "--sample", type=int, default=SAMPLE, metavar="N", help=f"so many of a kernel file (default: {SAMPLE})"
    )
    mutate.add_argument("--seen", action="store_true", help="say of kernels' mutants which comparison sees them")
    mutate.add_argument("--fine", action="store_true", help="with --seen: changes of the size of rounding")
    mutate.add_argument("--write", action="store_true", help="with --seen: keep the table, for pages")
    mutate.set_defaults(run=_mutate)
    commands.add_parser("bench", help="measure the kernels on this machine's GPU", add_help=False)
    commands.add_parser("compile", help="compile a file's kernels without a GPU, and say what they use", add_help=False)
    commands.add_parser("exercise", help="list, start and check the exercises of the learning path", add_help=False)
    commands.add_parser("judge", help="try a kernel of your own on hostile inputs", add_help=False)
    commands.add_parser("simulate", help="run Gluon kernels in a simulator that names a missing wait", add_help=False)
    commands.add_parser("trace", help="record a kernel's example and show its run", add_help=False)
    return parser


def _check(arguments: argparse.Namespace) -> int:
    from academy.book import operations, problems
    from academy.compiler import rules
    from academy.formulas import verify
    from academy.formulas.comparing.result import Result
    from academy.judge.process import WORKERS
    from academy.traces import faults

    _existing(arguments.files)
    start = time.perf_counter()
    project = _project(arguments.files)
    known = project.checked_files() if project else []
    own = [file for file in arguments.files if file.resolve() not in known and rules.is_kernel_file(file)]
    rest = [file for file in arguments.files if file not in own]
    found, result, files = rules.lint(None, None, own), Result(), list[Path]() if own else None
    if project and (rest or not own):
        files = _checked(rest, known, "derivations, kernels, their cases, and the pages under docs")
        wrong = verify.syntax_errors(files)
        if not wrong:
            # Half of the processes wait for such as record.
            beside: list[Callable[[], Result]] = [partial(_practised, project.root, files)]
            beside += [partial(_recorded, share) for share in faults.shares(files, max(WORKERS // 2, 1))]
            beside += [_stale] if files is None else []
            result = verify.run(files, beside)
            wrong = result.problems + project.among(files, operations.incomplete(project.root))
            result.notes.insert(0, result.summary())
        found += wrong
    status = problems.report(found)
    number = len(set(found))
    verdict = {0: "all is well", 1: "1 problem"}.get(number, f"{number} problems")
    notes = result.notes[:1] if found else result.notes
    print(*filter(None, dict.fromkeys(notes)), f"{verdict} ({time.perf_counter() - start:.1f} s)", sep="\n")
    return status


def _recorded(files: list[Path]) -> Result:
    from academy.formulas.comparing.result import Result
    from academy.traces import faults

    return Result(faults.in_files(files))


def _practised(root: Path, files: list[Path] | None) -> Result:
    from academy.compiler import rules
    from academy.formulas.comparing.result import Result

    return Result(rules.lint(root, files))


def _stale() -> Result:
    """Stale results are mentioned but aren't failures: whoever edits a kernel may not have the GPU to measure it on."""
    from academy.book.layout import ROOT
    from academy.formulas.comparing.result import Result
    from academy.results import ladder, store

    return Result(notes=[store.stale_note(ROOT), ladder.stale_note(ROOT)])


def _project(files: list[Path]) -> Project | None:
    """The project around the current directory; none is needed for kernel files of a reader's own."""
    from academy.compiler import rules
    from academy.formulas.project import Project

    try:
        return Project.here()
    except FileNotFoundError:
        if files and all(map(rules.is_kernel_file, files)):
            return None
        raise


def _mutate(arguments: argparse.Namespace) -> int:
    from academy.formulas.mutation import engine
    from academy.formulas.project import Project

    _existing(arguments.files)
    project = Project.here()
    files = _checked(arguments.files, [*project.derivations(), *project.kernels()], "derivations and kernels")
    for name in ("write", "fine"):
        if getattr(arguments, name) and not arguments.seen:
            raise ValueError(f"--{name} belongs to --seen: name both")
    if arguments.sample < 1:
        raise ValueError(f"--sample must be at least 1, got {arguments.sample}")
    if arguments.seen and arguments.only == "equations":
        raise ValueError("--seen is about kernels: leave out --only equations")
    count = None if arguments.all else arguments.sample
    if arguments.seen:
        os.environ.setdefault("TRITON_INTERPRET", "1")
        from academy.formulas.mutation import seen

        chosen = None if files is None else {project.shown(file) for file in files}
        return seen.main(project, chosen, count, arguments.write, arguments.fine)
    return engine.main(files, arguments.only, count)


def _existing(files: list[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: {'a folder, not a file' if file.is_dir() else 'no such file'}")


def _checked(files: list[Path], known: Iterable[Path], takes: str) -> list[Path] | None:
    """The named files, None if none is named. All of them, or all that are known, can be read.

    Raises:
        ValueError: one isn't among those that the command takes, or isn't UTF-8.
    """
    known = dict.fromkeys(path.resolve() for path in known)
    for file in files:
        if file.resolve() not in known:
            raise ValueError(f"{file}: nothing in this file would be checked; the command takes this project's {takes}")
    for path in files or known:
        read_text(path)
    return files or None


if __name__ == "__main__":
    sys.exit(main())
