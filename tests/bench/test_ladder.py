"""Ladders as files: which rungs there are, what was measured of them, and whether that is still true."""

import json

import pytest

from academy.bench import command, ladder_run
from academy.book.layout import ROOT
from academy.results import figures, ladder, store
from tests.bench import fake

RUNG = '''"""# {}

**What was slow?** It. **What changes?** It. **Predict:** it.
"""

from annotated_examples.classics.double import double  # noqa: F401
'''


@pytest.fixture
def root(tmp_path):
    """A repository with one ladder of two rungs and something that was tried."""
    folder = tmp_path / ladder.FOLDER / "double"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for name, title in (("rung_1_slow", "Slow"), ("rung_2_quick", "Quick"), ("tried_odd", "Odd")):
        (folder / f"{name}.py").write_text(RUNG.format(title))
    lesson = tmp_path / "annotated_examples/classics/double.py"
    lesson.parent.mkdir()
    lesson.write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / ladder.BENCHMARKS).mkdir(parents=True)
    (tmp_path / ladder.BENCHMARKS / "double.py").write_text('FUNCTION = "double"\n')
    return tmp_path


def record(root, **changes):
    """What a run of that ladder would have written."""
    times = {"slow": 4.0, "quick": 2.0, "odd": 8.0, "pytorch": 1.0}
    case = {"shape": [4, 8], "dtype": "float32", "pass": "forward", "limit_ms": 0.5, "notes": {}}
    case["providers"] = {word: {"ms": ms} for word, ms in times.items()}
    content = {"ladder": "double", "device": "NVIDIA H200", "date": "2026-01-01", "versions": {}, "cases": [case]}
    content |= {"rungs": ["slow", "quick"], "tried": ["odd"], "sources": ladder.sources("double", root)} | changes
    store.write(root / "benchmarks/results/nvidia-h200/ladders/double.json", content)
    return content


def test_rungs_in_order(root):
    found = ladder.rungs("double", root)
    assert [(rung.number, rung.word, rung.name) for rung in found] == [
        (1, "slow", "Slow"),
        (2, "quick", "Quick"),
        (0, "odd", "Odd"),
    ]
    assert found[0].about.startswith("**What was slow?**")
    assert found[0].module == "annotated_examples.ladders.double.rung_1_slow"


@pytest.mark.parametrize(
    "file,text,message",
    [
        ("helper.py", RUNG, "helper.py must be named rung_"),
        ("rung_4_far.py", RUNG, "must have the rungs 1, 2, 3 …, got [1, 2, 4]"),
        ("rung_2_again.py", RUNG, "got [1, 2, 2]"),
        ("rung_3_silent.py", "x = 1\n", "must begin with a docstring"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(root, file, text, message):
    (root / ladder.FOLDER / "double" / file).write_text(text)
    with pytest.raises(ValueError) as error:
        ladder.rungs("double", root)
    assert message in str(error.value)


def test_numbers_in_prose(root):
    assert figures.measured("ladders/double/quick/ms", root) == figures.NOT_YET
    record(root)
    assert figures.measured("ladders/double/quick/ms", root) == "2 ms"
    assert figures.measured("ladders/double@4x8/quick/gain", root) == "2.00x"
    assert figures.measured("ladders/double/quick/share", root) == "25 %"
    assert figures.measured("ladders/double/pytorch/ms", root) == "1 ms"
    assert figures.measured("ladders/double/slow/gain", root) == figures.NOT_YET, "the first rung gains nothing"
    for wrong in (
        "ladders/double/other/ms",
        "ladders/double@5x5/quick/ms",
        "ladders/double/quick/speed",
        "ladders/x/y/ms",
    ):
        assert figures.measured(wrong, root) is None, wrong


def test_a_changed_rung_is_stale_and_so_is_what_builds_on_a_changed_file(root):
    content = record(root)
    assert ladder.stale(content, root) == [] and ladder.stale_note(root) == ""
    rung = root / ladder.FOLDER / "double/rung_2_quick.py"
    rung.write_text(rung.read_text() + "\n# a comment\n")
    assert ladder.stale(content, root) == [], "a comment changes no time"
    rung.write_text(rung.read_text() + "\nBLOCK = 2\n")
    assert ladder.stale(content, root) == ["Quick"]
    assert "double" in ladder.stale_note(root)
    (root / "annotated_examples/classics/double.py").write_text("def double(x):\n    return x + x\n")
    assert ladder.stale(content, root) == ["Slow", "Quick", "Odd"]


def test_a_ladder_is_measured_rung_by_rung_and_checked_first(monkeypatch):
    """On a pretended GPU: PyTorch and all rungs get a time; a rung that is wrong has none, and says why."""
    variant = ladder_run.variant("softmax")
    wrong = {**variant.ours, "two_trips": lambda x: x}
    changed = type(variant)(**{**vars(variant), "ours": wrong, "shapes": [(3, 5)]})
    monkeypatch.setattr(ladder_run, "variant", lambda name: changed)
    monkeypatch.setattr(ladder_run.experiment, "about", lambda: {"device": "none"})
    content = ladder_run.measure("softmax", fake.FakeGpu())
    (case,) = content["cases"]
    words = [rung.word for rung in ladder.rungs("softmax", ROOT)]
    assert list(case["providers"]) == [*(word for word in words if word != "two_trips"), "pytorch"]
    assert "out" in case["notes"]["two_trips"]["failed"]
    assert content["rungs"] + content["tried"] == words
    json.dumps(content)
    assert figures.ladder_times(content, case)["two_trips"] == figures.Time(None, None, None)


def test_the_command(capsys):
    assert command.main(["--ladder", "nosuch"]) == 2
    assert "there are" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--ladder", "softmax", "--only", "softmax"])
    assert "--ladder goes with --results only" in capsys.readouterr().err
