"""A report is replayed to the same verdicts, or it says what is different."""

import hashlib
import json

import pytest

from academy import cli
from academy.judge import replay
from tests.judge.test_faults import KERNELS

ROWS = (KERNELS / "rows.py").read_text("utf-8")
WRONG = ROWS.replace("x.stride(0)", "cols")


@pytest.fixture
def report(tmp_path, capsys):
    def judged(source, *options):
        (tmp_path / "kernel.py").write_text(source)
        path = tmp_path / "report.json"
        cli.main(["judge", str(tmp_path / "kernel.py"), *options, "--json", str(path)])
        capsys.readouterr()
        return path

    return judged


def test_a_report_has_what_it_was_made_of(report, tmp_path):
    data = json.loads(report(ROWS, "--only", "arguments", "--seed", "3").read_text())
    assert data["asked"]["seed"] == 3 and data["asked"]["groups"] == ["arguments"]
    assert {"python", "torch", "triton", "numpy", "triton-academy"} <= set(data["versions"])
    (one,) = data["functions"]
    assert one["sha256"] == {"kernel.py": hashlib.sha256(ROWS.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("source", "options"), [(ROWS, ("arguments", "--mutants", "1")), (WRONG, ("layouts",))], ids=["right", "wrong"]
)
def test_it_is_replayed_to_the_same_verdicts(source, options, report, capsys, tmp_path):
    path = report(source, "--only", *options)
    assert cli.main(["judge", "--replay", str(path)]) == 0
    assert "replayed: the same verdicts" in capsys.readouterr().out
    data = json.loads(path.read_text())
    data["functions"][0]["outcomes"][0]["state"] = "died"
    data["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(data))
    assert cli.main(["judge", "--replay", str(path)]) == 1
    said = capsys.readouterr().out
    assert "was died, is " in said and "torch was 1.0, is " in said


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda tmp, path: (tmp / "kernel.py").write_text(ROWS + "# more\n"), "is not what was judged: its SHA-256"),
        (lambda tmp, path: (tmp / "kernel.py").unlink(), "kernel.py is missing, which was judged"),
        (lambda tmp, path: path.write_text("[1"), "not a report of academy judge --json"),
        (lambda tmp, path: path.write_text('{"right": true}'), "not a report of academy judge --json: KeyError"),
        (lambda tmp, path: path.unlink(), "not a report of academy judge --json: FileNotFoundError"),
        (lambda tmp, path: path.write_text(path.read_text().replace('"complete": true', '"complete": false')),
         "came to no end"),
    ],
)  # fmt: skip
def test_what_can_not_be_replayed(change, message, report, capsys, tmp_path):
    path = report(ROWS, "--only", "arguments")
    change(tmp_path, path)
    assert cli.main(["judge", "--replay", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_file_elsewhere_may_stand_for_it(report, capsys, tmp_path):
    path = report(ROWS, "--only", "arguments")
    (tmp_path / "kernel.py").rename(tmp_path / "moved.py")
    assert cli.main(["judge", str(tmp_path / "moved.py"), "--replay", str(path)]) == 0


def test_a_trial_that_is_new_or_gone_is_a_difference():
    trial = {"group": "sizes", "name": "odd sizes"}
    of = lambda *outcomes: {"functions": [{"name": "f", "outcomes": list(outcomes)}], "mutants": [],  # noqa: E731
                            "device": "CPU", "versions": {}}  # fmt: skip
    one = {"trial": trial, "state": "right"}
    assert replay.differences(of(one), of(one)) == []
    assert replay.differences(of(one), of()) == ["f: sizes: odd sizes: was right, is not tried"]
    assert replay.differences(of(), of(one)) == ["f: sizes: odd sizes: was not tried, is right"]


def test_the_file_is_needed_without_a_report(capsys):
    assert cli.main(["judge"]) == 2 and "FILE is missing" in capsys.readouterr().err
