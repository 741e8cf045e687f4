"""Twenty small changes of each solution, made by the engine: every one is caught, or is right as well."""

import pytest

from academy.runtime import device
from academy.book import exercise_files
from academy.exercises import marking
from academy.judge import kernel_mutants
from academy.judge.mutants import sample
from tests.exercises.equivalent_mutants import EQUIVALENT
from tests.exercises.test_exercises import SEED

COUNT = 20
EXERCISES = {exercise.name: exercise for exercise in exercise_files.every() if exercise.kind != "predict a number"}
pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel may take the process along")


def test_no_entry_of_the_list_is_left_over():
    for name, change in EQUIVALENT:
        found = [mutant.name for mutant in kernel_mutants.of_source(EXERCISES[name].solution, every_function=True)]
        assert change in found, f"{name}: no longer a mutant: {change}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXERCISES)
def test_a_changed_solution_is_refused(name):
    solution = EXERCISES[name].solution
    mutants = kernel_mutants.of_source(solution, every_function=True)
    mutants = sample([mutant for mutant in mutants if "Layout(" not in mutant.name], COUNT)  # any that fits is right
    assert mutants  # a short solution has fewer
    for mutant in mutants:
        outcome = marking.mark(name, mutant.apply(solution), SEED, compiled=False)
        if (name, mutant.name) in EQUIVALENT:
            assert outcome.state == "passed", f"caught ({outcome.message}): take it off the list: {mutant.name}"
        else:
            assert outcome.state in ("failed", "error"), f"nothing notices this change: {mutant.name}"
