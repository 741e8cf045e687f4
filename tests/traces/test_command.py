"""`academy trace` for a reader's own kernel: the terminal, JSON, one HTML file, exit status, clear errors."""

import json
import re

import pytest

from academy import cli
from academy.traces import store

OWN = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    for k in range(0, 2):
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets{shift}, 2 * x, mask=mask)

def EXAMPLE():
    scale_kernel[(3,)](torch.arange(10.0), torch.empty(10), 10, BLOCK=4)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")


@pytest.fixture
def kernel_file(kernel_file, in_process):
    return kernel_file


def test_prints_a_readable_run_and_writes_files(kernel_file, tmp_path, capsys):
    path = kernel_file(OWN.format(shift=""))
    status = cli.main(
        ["trace", str(path), "--pid", "2", "--json", f"{tmp_path}/run.json", "--html", f"{tmp_path}/run.html"]
    )
    printed = capsys.readouterr().out
    assert status == 0
    assert "scale_kernel" in printed and "grid (3,)" in printed and "program 2, line by line" in printed
    assert "offsets = [8, 9, 10, 11]" in printed and "mask = [1, 1, 0, 0]" in printed
    assert "x = [8, 9, 0, 0]" in printed and "reads 2 of 4 in x_ptr" in printed
    assert "loop at line" in printed and "iteration 1" in printed
    assert "reads 40 bytes (80 requested, each byte 2 times), writes 40 bytes" in printed
    assert max(map(len, printed.split("\n"))) <= 200
    assert json.loads((tmp_path / "run.json").read_text())["launches"][0]["kernel"] == "scale_kernel"
    html = (tmp_path / "run.html").read_text()
    assert not re.search(r"(src|href)=\"(?!#)", html) and "http" not in html.replace("http://www.w3.org", "")


def test_something_wrong_is_an_exit_status_and_a_line(kernel_file, capsys):
    path = kernel_file(OWN.format(shift=" + 1"))
    assert cli.main(["trace", str(path)]) == 1
    printed = capsys.readouterr().out
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "tl.store" in text)
    assert f"{path}:{line}:1: program 2 of scale_kernel does a store outside a tensor: element 10 of y_ptr" in printed


def test_without_a_run_to_show_the_html_is_left_out_and_the_bug_reported(kernel_file, tmp_path, capsys):
    path = kernel_file(OWN.format(shift=" + 1"))
    assert cli.main(["trace", str(path), "--html", f"{tmp_path}/run.html"]) == 1
    printed = capsys.readouterr()
    assert "is not written" in " ".join(printed.err.split()) and "outside a tensor" in printed.out
    assert not (tmp_path / "run.html").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere.py"], "no such file, and no module of that name"),
        (["{file}", "--launch", "5"], "--launch 5: EXAMPLE launches 1 kernels"),
        (["{bare}"], "has no function EXAMPLE()"),
        (["{text}"], "is not a Python file"),
    ],
)
def test_bad_use_is_explained(kernel_file, tmp_path, capsys, arguments, message):
    (tmp_path / "note.txt").write_text("")
    files = {"file": kernel_file(OWN.format(shift="")), "bare": kernel_file("x = 1"), "text": tmp_path / "note.txt"}
    assert cli.main(["trace", *(argument.format(**files) for argument in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_program_that_is_none(kernel_file, capsys):
    with pytest.raises(SystemExit):
        cli.main(["trace", "x.py", "--pid", "one"])
    assert "'one' is no program: write 13, or 1,0" in capsys.readouterr().err
    assert cli.main(["trace", str(kernel_file(OWN.format(shift=""))), "--pid", "7"]) == 0
    assert "no program 7 in this grid" in capsys.readouterr().out


def test_a_kernel_of_the_project_by_its_name(capsys):
    assert cli.main(["trace", "vector_add", "--pid", "2"]) == 0
    assert "vector_add_kernel" in capsys.readouterr().out


def test_a_file_of_a_package_and_what_it_imports(kernel_file, tmp_path, capsys, monkeypatch):
    monkeypatch.undo()  # in processes of their own: the second one has to import the package anew
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")
    package = tmp_path / "own_package"
    kernel_file("SIZE = 4", "sizes", package)
    path = kernel_file(
        "from .sizes import SIZE\n" + OWN.format(shift="").replace("BLOCK=4", "BLOCK=SIZE"), "kernel", package
    )
    (package / "__init__.py").write_text("")
    assert cli.main(["trace", str(path)]) == 0
    assert "BLOCK = 4" in " ".join(capsys.readouterr().out.split())
    (package / "sizes.py").write_text("SIZE = 8")
    assert cli.main(["trace", str(path)]) == 0
    assert "BLOCK = 8" in " ".join(capsys.readouterr().out.split())
