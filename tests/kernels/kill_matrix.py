"""Which checks notice each mutant that the tests of this folder name by hand: a line for each, as TSV.

    python -m tests.kernels.kill_matrix                       of all files
    python -m tests.kernels.kill_matrix test_softmax.py …     of these
    python -m tests.kernels.kill_matrix --first …             the first that does, in a third of the time
    python -m tests.kernels.kill_matrix --columns walk …      these columns

A mutant needs no check of its own if a column before `engine` has something: those are in `make test`, or at night.

- `walk`: the judge's trials of every public function, in tests/judge/test_public.py: `make test` takes a sixth of those
  of the main function of each lesson, the nightly workflow all
- `formula`: the comparison with the printed formula, in floats, and `exact`: without rounding; both in `academy check`
- `derivatives`: the walk of test_derivatives.py
- `nightly`: all trials of the judge, for mutants that nothing above notices
- `engine`: `academy mutate` makes the same change
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from academy.runtime import device  # before anything imports triton
from academy.compiler import tuning
from academy.formulas.comparing import coverage, exactly, kernels
from academy.formulas.project import Project
from academy.judge import kernel_mutants, process, public
from academy.judge.mutants import Mutant, code_of, mutated, upon
from academy.judge.trials import Plan
from academy.judge.trying import attempt, gradient_mode, ranks
from tests.judge.test_public import ALWAYS, LONG
from tests.kernels import test_derivatives, test_harness

COLUMNS = ("walk", "formula", "exact", "derivatives", "nightly", "engine")
#: Of processor time for one check of a mutant.
LIMITS = process.Limits(300.0, 6000)
FOLDER = Path(__file__).parent
UNCHANGED = Mutant("(unchanged)", "", "", start=0)


class Named(NamedTuple):
    """A mutant of a test, the module that it changes, and the lesson that this is a part of, if it is one."""

    test: str
    mutant: Mutant
    module: ModuleType
    within: ModuleType | None


def by_hand(files: list[str]) -> Iterator[Named]:
    for path in sorted(FOLDER.glob("test_*.py")):
        if "Mutant(" in path.read_text("utf-8") and (not files or path.name in files):
            tests, modules = importlib.import_module(f"tests.kernels.{path.stem}"), set()
            for name, test in vars(tests).items():
                for mark in getattr(test, "pytestmark", ()):
                    for mutant in filter(is_by_hand, test_harness.mutants_in(mark.args[1:])):
                        pair = changed(tests, test, mutant)
                        if pair not in modules:  # what is said of this one says nothing about mutants
                            yield Named(f"{path.stem}::{name}", UNCHANGED, *pair)
                        modules.add(pair)
                        yield Named(f"{path.stem}::{name}", mutant, *pair)


def is_by_hand(mutant: Mutant) -> bool:
    """An engine's has a place of its own in the text."""
    return mutant.start < 0


def changed(tests: ModuleType, test: Any, mutant: Mutant) -> tuple[ModuleType, ModuleType | None]:
    """The module that a mutant changes, and a lesson: the test's, or those of its file whose code has the text."""
    known = inspect.getclosurevars(test).nonlocals
    if "module" in known:
        return known["module"], known.get("within")
    ours = [each for each in vars(tests).values() if getattr(each, "__name__", "").startswith("annotated_examples.")]
    ours = [each for each in ours if isinstance(each, ModuleType)] or [*map(Project.here().module, ladders())]
    found = [each for each in ours if code_of(inspect.getsource(each)).count(mutant.old) == mutant.count]
    lesson = next((each for each in ours if ".common." not in each.__name__), None)
    return found[0], lesson if ".common." in found[0].__name__ else None


def ladders() -> list[str]:
    project = Project.here()
    return [name for path in project.kernels() if (name := project.module_name(path)).startswith("ladders.")]


@cache
def cases() -> list:
    project = Project.here()
    return [each for found in coverage.declared(project, project.pages()[0])[0].values() for each in found]


@cache
def same_changes(module: ModuleType) -> set[str]:
    code = code_of(inspect.getsource(module))
    return {ast.dump(ast.parse(mutant.apply(code))) for mutant in kernel_mutants.of_source(code)}


def noticed(job: tuple[Named, str]) -> Iterator[str]:
    """What a check says of a mutant; "" if nothing. In a process of its own: the module is changed for good."""
    (_, mutant, module, within), column = job
    if column == "engine":
        known = same_changes(module)
        yield "same change" if ast.dump(ast.parse(mutant.apply(inspect.getsource(module)))) in known else ""
        return
    broken, lesson = mutated(module, mutant), within or module
    broken = upon(module, broken, within) if within else broken
    vars(lesson).update({name: value for name, value in vars(broken).items() if not name.startswith("__")})
    yield from CHECKS[column](lesson, lesson.__name__.removeprefix("annotated_examples."))
    yield ""


def by_formula(lesson: ModuleType, name: str) -> Iterator[str]:
    for case in [each for each in cases() if each.module == name]:
        yield from (f"{case.case}: {each.message}" for each in kernels.run(case, lesson, first_only=True))


def by_exact(lesson: ModuleType, name: str) -> Iterator[str]:
    for case in [each for each in cases() if each.module == name]:
        yield from (f"{case.case}: {each.message}" for each in exactly.run(case, lesson, {}).problems())


def by_judge(name: str, always: bool) -> Iterator[str]:
    for one in [each for gluon in (False, True) for each in public.functions(gluon=gluon) if each.module == name]:
        tried = ("layouts",) if one.name in LONG else ALWAYS
        groups = [group for group in one.groups if not always or group in tried]
        subject, first = one.subject(), tuple(one.subject().combinations()[0].items())
        plan = Plan(subject, interpreted=device.INTERPRET)
        trial = plan.trial("odd sizes", options=first)
        plan.differentiable = gradient_mode(subject, trial) == "gradients"
        plan.ranks = ranks(subject, trial)
        with tuning.chosen():  # the first configuration of an autotuned kernel
            found = (attempt(subject, trial) for trial in plan.trials(groups))
            yield from (f"{one.name}: {each.trial}: {each.message}" for each in found if each.bad)


def by_derivatives(lesson: ModuleType, name: str) -> Iterator[str]:
    for call in [each for each in test_derivatives.SEVERAL if each.module == name]:
        for check in (test_derivatives.test_gradient_penalty, partial(test_derivatives.test_forward_mode, every=True)):
            try:
                check(call)
            except Exception as error:
                yield f"{call}: {error}"


CHECKS = {
    "walk": lambda lesson, name: by_judge(name, always=True),
    "nightly": lambda lesson, name: by_judge(name, always=False),
    "formula": by_formula,
    "exact": by_exact,
    "derivatives": by_derivatives,
}


def rows(found: list[Named], columns: list[str], first: bool) -> Iterator[dict[str, str]]:
    for each in found:
        row = dict(test=each.test, mutant=each.mutant.name, module=each.module.__name__, gpu=str(each.mutant.gpu))
        for column in COLUMNS:
            known = any(row[other] for other in COLUMNS[:4] if other in row)
            left_out = column not in columns or known and column != "engine" and (first or column == "nightly")
            said = [] if left_out else process.stream(noticed, [(each, column)], LIMITS)
            items = (" ".join(str(getattr(item, "message", item)).split()) for _, item in said)
            row[column] = next((item[:160] for item in items if item), "")
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="of tests/kernels (default: all)")
    parser.add_argument("--first", action="store_true", help="of each mutant, stop at the first that notices it")
    parser.add_argument("--columns", nargs="+", default=COLUMNS, choices=COLUMNS, metavar="COLUMN")
    options = parser.parse_args()
    found = list(by_hand(options.files))
    cases(), process.warm_up()
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody has written is NaN, as in the tests
    print("test", "mutant", "module", "gpu", *COLUMNS, sep="\t")
    for row in rows(found, options.columns, options.first):
        print(*row.values(), sep="\t", flush=True)


if __name__ == "__main__":
    main()
