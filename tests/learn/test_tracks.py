"""How long the learning path says that it takes, and its short tracks."""

import pytest

from academy.book.learning_path import LearningPath
from academy.site import path_map, taught_before_used
from academy.site.library import Library

PATH = LearningPath.read(taught_before_used.ROOT / "docs")


@pytest.fixture(scope="module")
def index():
    return Library.read(taught_before_used.ROOT)


def test_the_first_operation_of_ones_own_comes_within_three_hours(index):
    (milestone,) = [stage for stage in PATH.stages if stage.milestone]
    assert PATH.stages.index(milestone) == 2
    assert path_map.until(index, milestone) <= 180
    shown = "\n".join(path_map.stages(index))
    assert f"/exercises/{milestone.milestone}.md)**: {path_map.hours(path_map.until(index, milestone))} from" in shown


def test_the_whole_and_each_stage_say_how_long_they_take(index):
    lines = path_map.stages(index)
    assert lines[1].startswith(f"{len(PATH.pages)} steps: ") and "exercises for about" in lines[1]
    assert sum("min to read" in line or "h to read" in line for line in lines) == len(PATH.stages) + 1


def test_hours_are_written_as_one_says_them():
    said = [path_map.hours(time).replace("\N{NO-BREAK SPACE}", " ") for time in (0, 59, 60, 61, 154, 1499)]
    assert said == ["0 min", "59 min", "1 h", "1 h", "2 h 30 min", "25 h"]


def test_three_tracks_follow_the_path_and_use_nothing_unexplained(index):
    assert len(PATH.tracks) == 3 and path_map.time_of(index, PATH.tracks[0]) <= 60
    exercises = {exercise.name: exercise for exercise in index.exercises.values()}
    for track in PATH.tracks:
        assert sorted(track.pages, key=PATH.steps.__getitem__) == list(track.pages)
        assert all(exercises[name].page in track.pages for name in track.exercises), track.title
        reader = taught_before_used.Reader()
        for page in track.pages:
            reader.page(page)
        missing = [use for use in reader.missing if not use.file.startswith("exercises/")]
        assert not missing, (track.title, missing)


def test_writing_derivations_is_beside_the_path_and_the_two_parts_are_on_it():
    assert "guides/writing-derivations.md" not in PATH.pages
    first, second = map(PATH.pages.index, ("guides/how-a-gpu-runs-triton.md", "guides/keep-the-card-busy.md"))
    assert first < PATH.pages.index("learn/softmax.py") < second


def test_the_old_anchors_of_the_first_part_lead_to_the_second():
    part = (taught_before_used.ROOT / "docs/guides/how-a-gpu-runs-triton.md").read_text("utf-8")
    for anchor in ("memory-from-near-to-far", "occupancy-who-fits-beside-whom", "a-matrix-product-lives-on-reuse"):
        assert f"keep-the-card-busy.md#{anchor}){{ #{anchor} }}" in part
