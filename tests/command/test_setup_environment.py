"""What `make` says and does before anything is installed: in a process of its own, without installing anything."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from academy.command import setup_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The commands that would be run; none is."""
    commands = []
    monkeypatch.setattr(setup_environment.subprocess, "run", lambda command, **_: commands.append(command))
    monkeypatch.setattr(setup_environment, "has_pip", lambda python: False)
    monkeypatch.setattr(setup_environment.platform, "system", lambda: "Linux")
    return commands


def test_it_says_beforehand_what_comes_and_what_would_be_less(ran, tmp_path, capsys):
    assert setup_environment.main([str(tmp_path / "venv")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"about [\d.]+ GB to download, [\d.]+ GB on the disk", said) and "minutes" in said
    assert "make CPU=1" in said and "the same command goes on" in said
    made, installed = ran
    assert made[1:3] == ["-m", "venv"] and "--quiet" not in installed and installed[-1] == ".[site,test,huggingface]"


def test_without_cuda_torch_comes_first_and_alone(ran, tmp_path, capsys):
    assert setup_environment.main([str(tmp_path / "venv"), "--cpu", "--torch", "2.11"]) == 0
    assert "CUDA" not in capsys.readouterr().out
    _, torch, rest = ran
    assert torch[-1] == "torch==2.11.0" and "--no-deps" in torch and setup_environment.CPU_INDEX in torch
    assert "--index-url" not in rest and rest[rest.index("--constraint") + 1].endswith("torch-2.11.txt")


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_where_triton_has_no_wheel_the_site_is_what_works(system, ran, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(setup_environment.platform, "system", lambda: system)
    assert setup_environment.main([str(tmp_path / "venv"), "--cpu"]) == 0
    said = capsys.readouterr().out
    assert "Triton has no wheel for this system" in said and "the page's own editor" in said and "CUDA" not in said
    assert len(ran) == 2  # torch has no CUDA there in any case


def test_what_is_there_is_not_announced_again(ran, tmp_path, capsys):
    (tmp_path / "venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    (tmp_path / "venv/lib/python3.11/site-packages/torch/version.py").touch()
    assert setup_environment.main([str(tmp_path / "venv"), "--cpu"]) == 0
    assert capsys.readouterr().out == "" and len(ran) == 2


def test_a_full_disk_is_told_before_the_download(ran, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(setup_environment.shutil, "disk_usage", lambda _: SimpleNamespace(free=2e9))
    assert setup_environment.main([str(tmp_path / "venv")]) == 1
    assert "2.0 GB are free on that disk, 9.0 GB are needed" in capsys.readouterr().err and not ran


def test_a_python_without_venv_is_told_what_to_install(ran, tmp_path, capsys, monkeypatch):
    find = setup_environment.importlib.util.find_spec
    without = SimpleNamespace(find_spec=lambda name: None if name == "ensurepip" else find(name))
    monkeypatch.setattr(setup_environment.importlib, "util", without)
    assert setup_environment.main([str(tmp_path / "venv")]) == 1
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"sudo apt install python{version}-venv" in capsys.readouterr().err and not ran


def test_an_old_python_and_an_unknown_torch_are_told(ran, tmp_path, capsys, monkeypatch):
    assert setup_environment.main([str(tmp_path / "venv"), "--torch", "1.0"]) == 1
    assert "there are some for 2.11, 2.13, 2.14, 2.15" in capsys.readouterr().err
    monkeypatch.setattr(setup_environment.sys, "version_info", (3, 9, 1))
    assert setup_environment.main([str(tmp_path / "venv")]) == 1
    assert "Python 3.11 or newer is needed; this is 3.9" in capsys.readouterr().err and not ran


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "The same command goes on; what is downloaded already is kept"),
        (subprocess.CalledProcessError(1, "pip"), 1, "the installation failed, see above"),
    ],
)
def test_it_may_be_stopped(error, status, said, ran, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(setup_environment.subprocess, "run", Mock(side_effect=error))
    assert setup_environment.main([str(tmp_path / "venv")]) == status
    assert said in capsys.readouterr().err


def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path):
    """As Debian's `venv` leaves it behind without ensurepip: with a Python, without pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    found = setup_environment.commands(tmp_path / "venv", ROOT / "constraints/torch-2.13.txt", "site", False, "")
    assert found[0][1:4] == ["-m", "venv", "--clear"]


def test_it_needs_nothing_that_is_not_there_yet():
    """With the standard library alone, as the system's Python runs it."""
    script = ROOT / "academy/command/setup_environment.py"
    done = subprocess.run([sys.executable, "-I", "-S", str(script), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--cpu" in done.stdout, done.stderr


def test_make_calls_it_and_marks_what_is_done_only_at_the_end():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rule = re.search(r"^\$\(VENV\)/\.installed:.*\n((?:\t.*\n)+)", makefile, re.M)[1].split("\n")
    assert rule[0] == "\t$(SETUP)" and rule[1].endswith("> $@") and ".DELETE_ON_ERROR:" in makefile


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Which operation? For example: make check OP=layernorm"),
        (["OP=nothing"], 2, "There is no operation nothing"),
        (["-n", "OP=layernorm"], 0, "annotated_examples/fast/layernorm.py backprop_math/layernorm.md"),
    ],
)
def test_the_checks_of_one_operation(arguments, status, said, tmp_path):
    """`make check`; with `-n` make prints what it would run."""
    (tmp_path / ".installed").write_text(re.search(r"^TORCH +\?= (.+)$", (ROOT / "Makefile").read_text(), re.M)[1])
    command = ["make", "check", f"VENV={tmp_path}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr
