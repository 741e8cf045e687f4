"""Every exercise: its solution and its other right ways pass, each wrong solution is told what it gets wrong."""

import ast
import re

import pytest

from academy.runtime import device
from academy.book import exercise_files
from academy.book.learning_path import LearningPath
from academy.exercises import marking

EXERCISES = {exercise.name: exercise for exercise in exercise_files.every()}
PATH = LearningPath.read(exercise_files.ROOT / "docs")
#: Of the other exercises `make test` checks one wrong solution, and of every eighth one its own; the nightly run all.
SAMPLE = {"first_kernel/reverse", "operations/race", "gemlite/unpack"}


#: Values are drawn with this seed, so that messages hold the same numbers each time.
SEED = 1


def _attempts(which):
    """(name, message that it must be told, or None for a right one, edit) of each attempt."""
    for place, (name, exercise) in enumerate(EXERCISES.items()):
        attempts = [(None, ("",)), *((message, edit) for message, *edit in exercise.wrong)]
        attempts += [(None, edit) for edit in exercise.right]
        for number, (message, edit) in enumerate(attempts):
            quick = name in SAMPLE or number == 1 or number == 0 and place % 8 == 0
            marks = [] if quick else [pytest.mark.nightly]
            if (message is None) == (which == "right"):
                kind = "solution" if number == 0 else "wrong" if message else "right"
                yield pytest.param(name, message, tuple(edit), id=f"{name}-{kind}{number}", marks=marks)


def attempt(name, edit, seed=SEED, compiled=False):
    exercise = EXERCISES[name]
    return marking.mark(name, exercise.solution if edit == ("",) else exercise.edited(edit), seed, compiled=compiled)


@pytest.mark.parametrize(("name", "_", "edit"), [*_attempts("right")])
def test_right_ways_are_accepted(name, _, edit):
    outcome = attempt(name, edit, compiled=edit == ("",) and name in SAMPLE)
    assert outcome.state == "passed" and "remark" not in outcome.message, outcome.message


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="they have been compiled")
@pytest.mark.parametrize(("name", "_", "edit"), [*_attempts("right")])
def test_right_ways_compile_for_a_gpu(name, _, edit):
    outcome = attempt(name, edit, compiled=True)
    assert outcome.state == "passed", outcome.message


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="compiled, results alone are compared")
@pytest.mark.parametrize("seed", [*range(2, 7), None])
@pytest.mark.parametrize("name", EXERCISES)
def test_the_verdict_does_not_hang_on_the_values_that_are_drawn(name, seed):
    """seed None: another one each night, which the message names."""
    exercise = EXERCISES[name]
    for message, *edit in [(None, ""), *exercise.wrong, *((None, *edit) for edit in exercise.right)]:
        outcome = attempt(name, tuple(edit), seed)
        assert (outcome.state == "passed") == (message is None), (edit, outcome)


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, results alone are compared")
@pytest.mark.parametrize(("name", "message", "edit"), [*_attempts("wrong")])
def test_wrong_solutions_are_told_what_is_wrong(name, message, edit):
    outcome = attempt(name, edit)
    assert outcome.state in ("failed", "error") and message in outcome.message, outcome.message


def test_there_are_enough_of_each_stage_and_of_each_kind():
    stages = PATH.stages
    assert sorted(stage.exercises for stage in stages) == sorted({exercise.stage for exercise in EXERCISES.values()})
    for stage in stages:
        least = 10 if stage.exercises == "below" else 5
        assert len([each for each in EXERCISES.values() if each.stage == stage.exercises]) >= least, stage.title
    assert {each.kind for each in EXERCISES.values()} == set(exercise_files.KINDS)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_its_parts(name):
    exercise = EXERCISES[name]
    stage = next(stage for stage in PATH.stages if stage.exercises == exercise.stage)
    assert exercise.page in stage.pages, "its page belongs to another stage"
    assert len(exercise.wrong) >= 3 and len(exercise.right) >= 2 and len(exercise.hints) >= 2
    assert () in [tuple(edit) for _, *edit in exercise.wrong], "what the starter is told"
    attempts = [exercise.solution, *(exercise.edited(tuple(edit)) for _, *edit in exercise.wrong)]
    attempts += [exercise.edited(edit) for edit in exercise.right]
    assert len(set(attempts)) == len(attempts), "two attempts are the same"
    ast.parse(exercise.starter)
    assert "<<<" not in exercise.starter + exercise.solution and "# ===" not in exercise.starter


def test_every_exhibit_of_the_museum_is_an_exercise():
    exhibits = {path.stem for path in (exercise_files.ROOT / "docs/guides/museum").glob("*.py")}
    bugs = {each.path.stem for each in EXERCISES.values() if each.kind == "find the bug"}
    assert exhibits <= bugs


def test_questions_and_hints_are_set_like_other_prose():
    for exercise in EXERCISES.values():
        text = "\n".join([exercise.question, *exercise.hints, exercise.why])
        assert text.count("`") % 2 == 0, exercise.name
        assert not re.search(r"^[-*] ", text, re.M) or "\n\n" in text, exercise.name
