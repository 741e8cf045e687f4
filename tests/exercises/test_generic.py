"""Generic wrong answers to every exercise with a kernel, each refused with a message that helps."""

import pytest

from academy.runtime import device
from academy.exercises import marking
from tests.exercises import generic
from tests.exercises.test_exercises import SAMPLE, SEED

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="compiled, results alone are compared")
EXERCISES = {exercise.name: exercise for exercise in generic.exercises()}


def test_every_kernel_exercise_is_walked_and_no_exemption_is_left_over():
    assert len(EXERCISES) > 35 and len(generic.WAYS) >= 12
    assert {name for _, name in generic.EXEMPT} <= set(EXERCISES)
    assert {way for way, _ in generic.EXEMPT} <= set(generic.WAYS)


@pytest.mark.parametrize("way", generic.WAYS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in EXERCISES]
)
def test_a_generic_wrong_answer_is_refused(name, way):
    make, message = generic.WAYS[way]
    exempt = (way, name) in generic.EXEMPT
    try:
        text = make(EXERCISES[name])
    except generic.NotApplicable:
        assert exempt, "say in EXEMPT why there is nothing to change"
        return
    outcome = marking.mark(name, text, SEED, compiled=False)
    if exempt:
        assert outcome.state == "passed", "it is wrong after all: take it out of EXEMPT"
    else:
        assert outcome.state in ("failed", "error") and message in outcome.message, outcome.message


@pytest.mark.parametrize("way", generic.OF_A_CLASS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in generic.ASKED]
)
def test_what_is_wrong_for_one_class_of_values_is_refused(name, way):
    outcome = marking.mark(name, generic.OF_A_CLASS[way](EXERCISES[name]), SEED, compiled=False)
    assert outcome.state == "failed" and "should be" in outcome.message, outcome.message
