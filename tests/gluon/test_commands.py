"""A reader's own Gluon file: `academy simulate`, `academy judge`, and the lanes of a run."""

import json
import re
from pathlib import Path

import pytest

from academy.runtime import device

if not device.INTERPRET:
    pytest.skip("the simulator runs where kernels are interpreted", allow_module_level=True)

from academy.gluon import command as simulate
from tests import python

MINE = Path(__file__).with_name("mine.py")


@pytest.fixture
def broken(tmp_path):
    """The same file without its fence."""
    text = MINE.read_text("utf-8")
    assert text.count("    fence_async_shared()\n") == 1
    file = tmp_path / "broken.py"
    file.write_text(text.replace("    fence_async_shared()\n", "    pass\n"), "utf-8")
    return file


def test_simulate_draws_lanes(tmp_path, capsys):
    file = tmp_path / "lanes.json"
    assert simulate.main([str(MINE), "--seeds", "3", "--lanes", "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert "nothing is wrong with double_kernel in 3 schedules" in said
    assert "TMA" in said and "not a measurement" in said
    (units,) = re.findall(r"^TMA +(\S.*)$", said, re.M)
    assert re.fullmatch(r"=+ +-+", units), "the load, then the store"
    drawn = json.loads(file.read_text("utf-8"))
    assert drawn["lanes"] == ["kernel", "TMA"]
    assert drawn["phases"] == [dict(barrier="full", phase=0, step=drawn["phases"][0]["step"])]
    load, store = (span for span in drawn["spans"] if span["lane"] == "TMA")
    assert load["what"] == "TMA load" and load["buffer"] == "x_s" and store["what"] == "TMA store"
    wait, last = (span for span in drawn["spans"] if span["what"] == "waits")
    assert last["awaits"] == "all but 0 of its copies to global memory" and last["to"] > store["to"]
    assert wait["barrier"] == "full" and load["from"] < load["to"] <= wait["to"] < store["from"] <= store["to"]
    lines = MINE.read_text("utf-8").splitlines()
    assert "mbarrier.wait(full, 0)" in lines[wait["line"] - 1] and "tma_store" in lines[store["line"] - 1]


def test_simulate_names_what_is_missing(broken, capsys):
    assert simulate.main([str(broken)]) == 1
    said = capsys.readouterr().out
    assert "missing fence on y_s: TMA store at line" in said and "--seed 0 --lanes" in said
    broken.write_text("x = 1\n", "utf-8")
    assert simulate.main([str(broken)]) == 2 and simulate.main([str(broken.with_name("nowhere.py"))]) == 2
    said = capsys.readouterr().err
    assert "launches no Gluon kernel" in said and "no such file" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [("raise SystemExit(0)", "3: SystemExit: 0"), ("x = 1 / 0", "3: ZeroDivisionError: division by zero")],
)
def test_a_file_that_stops_was_not_simulated(line, said, tmp_path, capsys):
    path = tmp_path / "stops.py"
    path.write_text(f"\ndef EXAMPLE():\n    {line}\n")
    assert simulate.main([str(path)]) == 2
    assert capsys.readouterr().err == f"academy simulate: {path}:{said}\n"


@pytest.mark.parametrize("fault", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_judge_takes_gluon_files(broken, fault):
    words = [str(broken if fault else MINE), "--only", "sizes", "--mutants", "0"]
    run = python.run(["-m", "academy.cli", "judge", *words], timeout=120)
    assert run.returncode == int(fault), run.stdout
    assert ("MissingFence: missing fence on y_s" in run.stdout) == fault
