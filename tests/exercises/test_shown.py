"""The run that a check ends with, recorded: which program and step is to blame."""

import pytest

pytest.importorskip("triton")
from academy.book import exercise_files
from academy.exercises import shown


def watched(name, text=None):
    exercise = exercise_files.named(name)
    return shown.watched(name, exercise.starter if text is None else getattr(exercise, text), seed=3)


def test_an_element_that_nobody_wrote_is_shown_in_the_whole_launch():
    found = watched("first_kernel/dropped_tail")
    assert found["state"] == "failed" and found["at"] == {"launch": 0, "whole": True}
    assert "out[8] is 0" in found["problems"][0]["message"]
    assert found["data"]["launches"][0]["grid"] == [2, 1, 1], "the case with ten elements, the second one"


def test_the_step_that_wrote_the_wrong_element_is_shown():
    found = watched("rows/wrong_other")
    program = found["data"]["launches"][0]["programs"][0][1]
    assert found["at"]["pid"] == [0, 0, 0] and program[found["at"]["step"]][2][0][0] == "store"


def test_a_run_that_was_ended_is_shown_to_its_end():
    found = watched("first_kernel/unmasked_store")
    assert found["at"]["pid"] == [1, 0, 0] and len(found["data"]["launches"][0]["programs"]) == 2
    assert found["problems"][0]["line"]


def test_a_race_is_shown_at_its_line():
    found = watched("operations/race")
    place = found["data"]["places"][found["data"]["launches"][0]["programs"][0][1][found["at"]["step"]][0]]
    assert place[1] == found["problems"][0]["line"]


def test_a_right_text_shows_one_of_its_cases():
    found = watched("first_kernel/dropped_tail", "solution")
    assert found["state"] == "passed" and found["data"] and not found["problems"] and found["at"] is None


def test_where_nothing_is_launched_there_is_nothing_to_show():
    found = watched("first_kernel/bytes_saved")
    assert found["data"] is None and "There is no run to show" in found["problems"][0]["message"]
    broken = shown.watched("first_kernel/dropped_tail", "x = (")
    assert broken["data"] is None and "not valid Python" in broken["problems"][0]["message"]
