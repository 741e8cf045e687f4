"""`academy judge`: what it prints, writes and returns, on a file outside of this project."""

import json

import pytest
import torch

from academy import cli, judge
from academy.judge import subject
from academy.judge.session import Session
from tests.judge.test_faults import KERNELS

ROWS = (KERNELS / "rows.py").read_text("utf-8")
WRONG = ROWS.replace("x.stride(0)", "cols")


def run(tmp_path, capsys, source, *options):
    (tmp_path / "kernel.py").write_text(source)
    status = cli.main(["judge", str(tmp_path / "kernel.py"), *options])
    return status, capsys.readouterr()


def test_a_wrong_kernel(tmp_path, capsys):
    status, said = run(tmp_path, capsys, WRONG, "--only", "layouts", "--json", f"{tmp_path}/r.json")
    assert status == 1
    for words in ("sliced inputs", "out[1, 0] is nan, should be", "rows=5, cols=37, float32, sliced, seed 0"):
        assert words in said.out
    data = json.loads((tmp_path / "r.json").read_text())
    assert not data["right"] and data["complete"]
    wrong = [each for each in data["functions"][0]["outcomes"] if each["state"] == "wrong"]
    assert "sliced" in {each["trial"]["layout"] for each in wrong}
    assert wrong[0]["trial"]["sizes"] == {"rows": 5, "cols": 37}


@pytest.mark.nightly
def test_html_with_the_recorded_run(tmp_path, capsys):
    run(tmp_path, capsys, WRONG, "--only", "layouts", "--html", f"{tmp_path}/r.html")
    html = (tmp_path / "r.html").read_text()
    assert "out[1, 0] is nan" in html and "academyViewer" in html and "softmax_kernel" in html


def test_a_right_kernel_and_its_mutants(tmp_path, capsys):
    status, said = run(tmp_path, capsys, ROWS, "--only", "sizes", "--mutants", "3")
    assert status == 0 and "right in " in said.out and "3 mutants of the kernels:" in said.out


@pytest.mark.parametrize(
    "source, options, message",
    [
        ("import torch\n", [], "no pair of functions `name` and `name_reference`"),
        ("import missing_module\n", [], "can't be imported: ModuleNotFoundError"),
        ("import os\nos._exit(3)\n", [], "ended the process itself, with exit status 3, while it was imported"),
        (ROWS + 'INPUTS = {"y": "rows"}\n', [], "INPUTS names 'y', which is no argument of softmax(x)"),
        (ROWS + 'INPUTS = {"x": "rows cols: flaot16"}\n', [], "after the colon stands 'flaot16'"),
        (ROWS + 'INPUTS = {"x": "rows * cols"}\n', [], "'*' is no dim"),
        (ROWS + 'INPUTS = {"x": "cols"}\ndef softmax_reference(x):\n    return x[:, 0]\n', [], "fails with the inputs"),
        (ROWS, ["soft"], "no such function"),
        (ROWS, ["--only", "size"], "there is no such group; there are sizes, options"),
    ],
)
def test_what_it_can_not_judge(source, options, message, tmp_path, capsys):
    status, said = run(tmp_path, capsys, source, *options)
    assert status == 2 and message in said.err, said


def test_no_such_file(capsys):
    assert cli.main(["judge", "nowhere.py"]) == 2 and "nowhere.py: no such file" in capsys.readouterr().err


def test_help_says_that_the_file_is_executed(capsys):
    with pytest.raises(SystemExit):
        cli.main(["judge", "--help"])
    assert "FILE is executed" in capsys.readouterr().out


def test_ctrl_c_keeps_what_is_done(tmp_path, capsys, monkeypatch):
    whole = Session.walk

    def stopped(self, planned):
        walk = whole(self, planned)
        yield next(walk)
        walk.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "walk", stopped)
    status, said = run(tmp_path, capsys, ROWS, "--only", "sizes", "--json", f"{tmp_path}/r.json")
    assert status == 130 and "academy judge: stopped" in said.err and "stopped after 1 trial, none of them" in said.out
    data = json.loads((tmp_path / "r.json").read_text())
    assert not data["complete"] and [each["state"] for each in data["functions"][0]["outcomes"]] == ["right"]


def test_in_python():
    relu = lambda x: torch.relu(x)  # noqa: E731
    report = judge.judge(lambda x: x.clamp(min=0), relu, {"x": "rows cols"}, groups=["sizes", "dtypes"])
    assert report.right and "right" in str(report)
    wrong = judge.judge(lambda x: x.abs(), relu, {"x": "rows"}, groups=["sizes"])
    assert not wrong.right and "out[" in str(wrong)
    with pytest.raises(ValueError, match="reference is missing"):
        judge.judge(torch.relu)


def test_inputs_in_strings():
    tensor = subject.Tensor.parse("labels", "rows 2*cols cols/2 3: int32 below cols")
    assert tensor.names() == ["rows", "cols", "cols"] and tensor.dtype == "int32"
    made = tensor.make({"rows": 5, "cols": 4}, torch.Generator().manual_seed(0))
    assert made.shape == (5, 8, 2, 3) and made.dtype == torch.int32 and 0 <= made.min() and made.max() < 4
