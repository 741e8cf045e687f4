"""Check the numbers that kernel comments quote. The rules stand in `academy.traces`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from academy.book import syntax
from academy.book.problems import Problem
from academy.traces import literals
from academy.traces.comments import Comment, bare_numbers, comments
from academy.traces.literals import NUMBER
from academy.traces.recording import Pointer, Program, Recording, Step, grid_name, in_digits, program_name

_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_SELECTOR = re.compile(
    r"\s*(?:(?P<kernel>[A-Za-z_]\w*)\s*(?:,\s*|(?=:)))?(?P<pairs>(?:\w+\s*=\s*(?:-?\d+|\([-\d\s,]*\))\s*,?\s*)*):(?P<body>.*)$",
    re.S,
)
_PAIR = re.compile(r"(\w+)\s*=\s*(-?\d+|\([-\d\s,]*\))")
_CLAIM = re.compile(
    rf"\s*(?P<left>[^=<>!]+?)\s*=\s*(?P<right>{NUMBER}|[\[(].*[\])]|True|False|[-+]?inf|[-+]?nan)\s*$", re.S
)
# `= 4`, `other=0.0`, `= [8`: an assignment of a number, not `2 * x`, `==` or `x <= 4`.
_ASSIGNMENT = re.compile(
    rf"(?<![=<>!+\-*/%&|^:])=(?!=)\s*(?:[\[(]\s*)?{NUMBER}(?![\w.])(?!\s*(?:[-+*/@%<>=&|^~]|if\b))"
)
_BUILTINS = {"len": len, "min": min, "max": max, "sum": sum, "abs": abs, "any": any, "all": all}


@dataclass(frozen=True)
class Claim:
    """`pid=13, k=1: offs_am = [8, 9]`. anchor: the line from which its statement is looked for."""

    line: int
    col: int
    anchor: int
    function: str
    pid: tuple[int, int, int]
    loops: dict[str, int] = field(hash=False)
    launch: int
    left: str
    right: str
    span: str


def check(path: Path, shown: str, recording: Recording) -> list[Problem]:
    """Everything wrong with the numbers in one file's comments. shown: the path for messages."""
    text = path.read_text()
    claims, found = parse(text, shown)
    problems = list(found)
    for claim in claims:
        try:
            got = computed(claim, recording, text)
            message = "" if literals.same(got, claim.right) else f"the kernel computes {in_digits(got, 9)}"
        except LookupError as error:
            message = error.args[0]
        if message:
            problems.append(_problem(shown, text, claim.line, claim.col, f"`{claim.span}`: {message}"))
    return problems


@lru_cache(maxsize=64)
def parse(text: str, shown: str = "") -> tuple[tuple[Claim, ...], tuple[Problem, ...]]:
    """The claims in a file, and what is wrong with the way numbers are written in its comments."""
    functions = syntax.jitted_functions(text)
    claims, problems, pids = list[Claim](), list[Problem](), dict[str, Program]()
    for comment in comments(text):
        function = next((f for f in functions if syntax.first_line(f) <= comment.line <= syntax.last_line(f)), None)
        for match in _SPAN.finditer(comment.text):
            place = comment.places[match.start(1)]
            try:
                claim = _claim(match[1], place, comment, function, functions, pids)
            except ValueError as error:
                problems.append(_problem(shown, text, *place, f"`{' '.join(match[1].split())}`: {error}"))
            else:
                claims += [claim] if claim else []
        if function is not None:
            problems += [_problem(shown, text, *place, message) for place, message in bare_numbers(comment)]
    return tuple(claims), tuple(problems)


def _claim(span: str, place, comment: Comment, function, functions, pids: dict) -> Claim | None:
    """The claim in a backticked span, or None if it is plain code. Raises ValueError for a number nobody can check."""
    selector = _SELECTOR.match(span)
    kernel, pairs, body = None, {}, span
    if selector and (selector["pairs"] or selector["kernel"] in {f.name for f in functions}):
        kernel, body = selector["kernel"], selector["body"]
        pairs = {name: ast.literal_eval(value) for name, value in _PAIR.findall(selector["pairs"])}
    parts = _CLAIM.match(body)
    if parts is None:
        if _ASSIGNMENT.search(body) or (pairs and "=" not in body):
            raise ValueError(
                "a number after `=` has to be checkable: write `[pid=P, k=n:] expression = literal`, and quote a "
                "keyword argument without its value"
            )
        return None
    if kernel is None:
        if function is None:
            raise ValueError(
                "outside a jitted function a number names its kernel, `kernel_name, pid=P: expression = literal`; "
                "quote a keyword argument or a default without its value"
            )
        kernel = function.name
    try:
        ast.parse(parts["left"].strip(), mode="eval")
        literals.parse(parts["right"])
    except (SyntaxError, ValueError) as error:
        raise ValueError(getattr(error, "msg", None) or str(error)) from None
    if "pid" in pairs:
        pid = pairs.pop("pid")
        pids[kernel] = (*(pid if isinstance(pid, tuple) else (pid,)), 0, 0)[:3]
    anchor = comment.line if function is not None and kernel == function.name else 0
    if anchor and comment.trailing:  # about the statement that it stands behind
        around = [node for node in syntax.statements(function) if node.lineno <= anchor <= syntax.last_line(node)]
        anchor = max(node.lineno for node in [function, *around])
    launch = pairs.pop("launch", 0)
    pid, span = pids.get(kernel, (0, 0, 0)), " ".join(span.split())
    return Claim(place[0], place[1], anchor, kernel, pid, pairs, launch, parts["left"].strip(), parts["right"], span)


# ---- evaluation -----------------------------------------------------------------------------------------------------


def computed(claim: Claim, recording: Recording, text: str):
    """What the kernel computes for the left side. Raises LookupError, with a sentence, if there is no such value."""
    names = _names(claim)
    states, (_, _, variables) = _find(claim, recording, text)
    values = {name: recording.value(variables[name]) for name in names}
    values = {name: value.offsets if isinstance(value, Pointer) else value for name, value in values.items()}
    try:
        got = eval(claim.left, {"__builtins__": _BUILTINS}, values)  # the project's own comments, numbers only
    except Exception as error:
        raise LookupError(f"{type(error).__name__}: {error}") from error
    undefined = any(a[0] == "load" and a[4] for _, step, _ in states for a in step.accesses)
    if undefined and isinstance(got, (np.ndarray, np.floating)) and got.dtype.kind == "f" and np.isnan(got).any():
        raise LookupError("this comes from lanes that a load masks off without `other`: on a GPU they are undefined")
    return got


def question(text: str, asked: str) -> Claim:
    """The claim `kernel, pid=P, k=n: expression` without its right side, about a file's text. Raises ValueError."""
    functions = syntax.jitted_functions(text)
    claim = _claim(f"{asked} = 0", (1, 1), Comment("", [], 1, False), None, functions, {})
    if claim is None:
        raise ValueError("ask for a number as in `kernel, pid=P, k=n: expression`")
    return claim


def locate(claim: Claim, recording: Recording, text: str) -> tuple[int, tuple[int, int, int], int]:
    """Where a claim holds: number of the launch, program, number of the step. Raises LookupError as `computed`."""
    _, (position, _, _) = _find(claim, recording, text)
    return recording.launches.index(_launch(claim, recording)), claim.pid, position


def _names(claim: Claim) -> set[str]:
    tree = ast.parse(claim.left, mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_BUILTINS)


def _find(claim: Claim, recording: Recording, text: str):
    """The states that the claim could be about, and the one that it is about."""
    launch = _launch(claim, recording)
    steps = recording.steps(launch, claim.pid)
    if steps is None:
        raise LookupError(f"there is no program {program_name(claim.pid)} in the grid {grid_name(launch['grid'])}")
    states = _states(steps, claim.function)
    if claim.loops:
        states = _inside(states, claim, recording, text)
        if not states:
            selected = ", ".join(f"{name}={value}" for name, value in claim.loops.items())
            raise LookupError(f"no loop of {claim.function} gets to {selected} in program {program_name(claim.pid)}")
    names = _names(claim)
    moment = _moment(states, claim.anchor, names)
    if moment is None:
        missing = sorted(names - set().union(*(set(v) for *_, v in states))) or sorted(names)
        where = f"program {program_name(claim.pid)} of the recorded run"
        raise LookupError(f"{', '.join(missing)} has no value here in {where}")
    return states, moment


def _launch(claim: Claim, recording: Recording) -> dict:
    launches = [launch for launch in recording.launches if claim.function in launch["functions"]]
    own = [launch for launch in launches if launch["kernel"] == claim.function] or launches
    if not own:
        raise LookupError(f"EXAMPLE never runs {claim.function}")
    if not 0 <= claim.launch < len(own):
        raise LookupError(f"EXAMPLE launches {claim.function} {len(own)} times, counted from 0")
    return own[claim.launch]


def _states(steps: list[Step], function: str) -> list[tuple[int, Step, dict[str, int]]]:
    """Each step of a function: its number, itself, and the variables (numbers of values) as they stand after it."""
    first_line = next((step.line for step in steps if step.function == function), 0)
    states, variables = [], dict[str, int]()
    for position, step in enumerate(steps):
        if step.function == function:
            entered = step.line == first_line  # the `def` line: a new call
            variables = {**({} if entered else variables), **step.values}
            states.append((position, step, variables))
    return states


def _inside(states, claim: Claim, recording: Recording, text: str):
    """The states inside the named iterations: where the loops' variables have those values."""
    targets = [(loop.lineno, node) for loop in syntax.loops(text) for node in ast.walk(loop.target)]
    headers = {
        name: {line for line, node in targets if isinstance(node, ast.Name) and node.id == name} for name in claim.loops
    }

    def fits(step: Step, variables: dict[str, int]) -> bool:
        """Whether the step is in a loop over each name, where there is one, and its value is the named one."""
        lines = {line for line, _ in step.loops}
        return bool(lines) and all(
            name in variables
            and (not headers[name] or headers[name] & lines)
            and np.all(np.asarray(recording.value(variables[name])) == value)
            for name, value in claim.loops.items()
        )

    return [state for state in states if fits(state[1], state[2])]


def _moment(states, anchor: int, names: set[str]):
    """The state that a claim is about: right after the first statement at or below it that assigns one of its names,
    else after the last statement above it; None if there is neither."""
    known = [state for state in states if names <= set(state[2])]
    below = [state for state in known if state[1].line >= anchor and names & set(state[1].values)]
    above = [state for state in known if state[1].line <= anchor]
    return next(iter([*below[:1], *above[-1:]]), None)


def _problem(shown: str, text: str, line: int, col: int, message: str) -> Problem:
    return Problem(shown, line, col, message, text.split("\n")[line - 1])
