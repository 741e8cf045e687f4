"""`academy exercise list|start NAME|check FILE|hint NAME`: the exercises of the learning path, in the terminal."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from shlex import quote

from academy.book import exercise_files, layout
from academy.command import misspelt
from academy.command.trouble import STATUS
from academy.files import cache
from academy.files.textfiles import read_text, write_text

#: The first line of a file that `start` writes: `check` reads from it which exercise the file is for.
MARK = "# Exercise: "


def main(arguments: list[str]) -> int:
    """Exit status: 0, 1 if the check found something, 2 for wrong usage."""
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except ValueError as error:
        print(f"academy exercise: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="academy exercise",
        description="Exercises of the learning path: write a file to change, check it, get hints. The same exercises "
        "are on the site. Without a GPU they run in Triton's interpreter; with one they are also compiled.",
        epilog=STATUS,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run, help: str, argument: str = "", about: str = "") -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help[:1].upper() + help[1:] + ".", epilog=STATUS)
        if argument:
            added.add_argument(argument.lower(), metavar=argument, help=about)
        added.set_defaults(run=run)
        return added

    command("list", _list, "list all exercises, by stage of the learning path")
    start = command("start", _start, "write the file of an exercise, for you to change", "NAME", "as `list` shows it")
    to = "where to write it (default: NAME.py, here); never overwrites a file"
    start.add_argument("--to", type=Path, metavar="FILE", help=to)
    about = "say whether a file solves its exercise, and what is wrong if not"
    check = command("check", _check, about, "FILE", "your file")
    check.add_argument("--seed", type=int, help="draw the same values again: a failed check names this number")
    hint = command("hint", _hint, "show a hint", "NAME", "as `list` shows it")
    hint.add_argument("number", type=int, nargs="?", help="which one (default: the one after that which you saw last)")
    return parser


def _named(name: str) -> exercise_files.Exercise:
    """Raises ValueError, with the name that was meant, if there is one near."""
    try:
        return exercise_files.named(name)
    except ValueError as error:
        full = [f"{path.parent.name}/{path.stem}" for path in layout.exercises(exercise_files.ROOT)]
        near = misspelt.near(name, full if "/" in name else [each.partition("/")[2] for each in full])
        if not near or "there is no" not in str(error):
            raise
        raise ValueError(f"there is no exercise {name!r}. Did you mean {near}?") from None


def _list(_: argparse.Namespace) -> int:
    from academy.book.learning_path import LearningPath

    stages = LearningPath.read(exercise_files.ROOT / layout.DOCS).stages
    titles = {stage.exercises: f"{number}. {stage.title}" for number, stage in enumerate(stages, 1)}
    exercises = exercise_files.every()
    width = max(len(exercise.name) for exercise in exercises)
    for number, (stage, inside) in enumerate(groupby(exercises, lambda each: each.stage)):
        print(("\n" if number else "") + titles[stage])
        for exercise in inside:
            print(f"  {exercise.name:{width}}  {exercise.kind:16}  {exercise.title}")
    return 0


def _start(parsed: argparse.Namespace) -> int:
    exercise = _named(parsed.name)
    path = parsed.to or Path(f"{exercise.path.stem}.py")
    asked = re.sub(r"\n*^\[\[figure: .*\]\]$", "", exercise.question, flags=re.M).strip()  # the page shows pictures
    question = f"{exercise.title}\n\n{asked}\n\nCheck it with `academy exercise check {quote(str(path))}`."
    comment = textwrap.indent(question, "# ", lambda line: True).replace("# \n", "#\n")
    try:
        write_text(path, f"{MARK}{exercise.name}\n#\n{comment}\n\n{exercise.starter}", replace=False)
    except FileExistsError:
        raise ValueError(f"{path} already exists, so nothing was written (to write elsewhere: --to FILE)") from None
    cache.put("hint", [exercise.name], 0)
    print(f"{asked}\n\nWrote {path}. Change it, then: academy exercise check {quote(str(path))}")
    return 0


def _check(parsed: argparse.Namespace) -> int:
    path = Path(parsed.file)
    text = read_text(path)
    named = re.match(rf"{MARK}(\S+)", text)
    name = _named(named[1] if named else path.stem).name
    from academy.runtime import device

    if not device.INTERPRET:  # first in the interpreter, which sees what a GPU hides, in a process of its own
        command = [sys.executable, "-m", "academy.cli", "exercise", "check", str(path)]
        command += [] if parsed.seed is None else ["--seed", str(parsed.seed)]
        if status := subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}).returncode:
            return status
    from academy.exercises.limited import marked

    outcome = marked(name, text, parsed.seed)
    place = f"{path}:{outcome.line}: " if outcome.line else ""
    print(f"{place}{outcome.message}")
    if outcome.state != "passed":
        print(f"The same values again: academy exercise check {quote(str(path))} --seed {outcome.seed}")
        print(f"Stuck? academy exercise hint {name}")
    return 0 if outcome.state == "passed" else 1


def _hint(parsed: argparse.Namespace) -> int:
    exercise = _named(parsed.name)
    count, seen = len(exercise.hints), cache.get("hint", [exercise.name]) or 0
    number = min(seen + 1, count) if parsed.number is None else parsed.number
    if not 1 <= number <= count:
        raise ValueError(f"{exercise.name} has hints 1 to {count}, not {number}")
    cache.put("hint", [exercise.name], number)
    print(f"Hint {number} of {count}: {exercise.hints[number - 1]}")
    if number < count:
        print(f"The next one: academy exercise hint {exercise.name}")
    elif parsed.number is None and seen >= count:
        print("There are no more. The solution stands on the exercise's page, folded.")
    return 0
