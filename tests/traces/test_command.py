"""`academy trace` for a reader's own kernel: the terminal, JSON, one HTML file, exit status, clear errors."""

import importlib
import json
import re
import sys

import pytest

from academy import cli
from academy.files import cache
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


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def kernel_file(kernel_file, in_process):
    return kernel_file


@pytest.fixture
def traced(capsys):
    """What `academy trace` prints, which ends with this status."""

    def run(*words, status=0):
        assert cli.main(["trace", *map(str, words)]) == status
        return capsys.readouterr().out

    return run


def test_prints_a_readable_run_and_writes_files(kernel_file, tmp_path, traced):
    path = kernel_file(OWN.format(shift=""))
    printed = traced(path, "--pid", "2", "--json", f"{tmp_path}/run.json", "--html", f"{tmp_path}/run.html")
    assert "scale_kernel" in printed and "grid (3,)" in printed and "program 2, line by line" in printed
    assert "offsets = [8, 9, 10, 11]" in printed and "mask = [1, 1, 0, 0]" in printed
    assert "x = [8, 9, 0, 0]" in printed and "reads 2 of 4 in x_ptr" in printed
    assert "loop at line" in printed and "iteration 1" in printed
    assert "reads 40 bytes (80 requested, each byte 2 times), writes 40 bytes" in printed
    assert max(map(len, printed.split("\n"))) <= 200
    assert json.loads((tmp_path / "run.json").read_text())["launches"][0]["kernel"] == "scale_kernel"
    html = (tmp_path / "run.html").read_text()
    assert not re.search(r"(src|href)=\"(?!#)", html) and "http" not in html.replace("http://www.w3.org", "")


def test_columns_of_80_and_120(kernel_file, traced, monkeypatch):
    path = kernel_file(OWN.format(shift="").replace("BLOCK=4", "BLOCK=64"))
    shown = {}
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = traced(path).split("\n")
        assert all(len(line) <= columns and line == line.rstrip() for line in lines)
        shown[columns] = next(line for line in lines if "offsets = 64 [0, 1, 2" in line)
        assert "    for k in range(0, 2):" in "\n".join(lines)  # indented as in the file
        assert "reads 10 of 64 in x_ptr" in "\n".join(lines)  # not broken within
    assert len(shown[120]) > len(shown[80]) + 30


def test_a_statement_is_shown_to_its_end(kernel_file, traced, monkeypatch):
    """Also where it is wider than the terminal, or takes several lines: the bug may stand at its end."""
    monkeypatch.setenv("COLUMNS", "80")
    zeros = "(offsets[None, :].to(tl.float32) + tl.zeros((1, BLOCK), tl.float32)).reshape(BLOCK)"
    late = f"tl.load(\n            x_ptr + offsets,\n            mask=mask, other=0.0 + 1.0 * {zeros},\n        )"
    path = kernel_file(OWN.format(shift="").replace("tl.load(x_ptr + offsets, mask=mask, other=0.0)", late))
    lines = traced(path).split("\n")
    assert all(len(line) <= 80 for line in lines)
    number = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "x = tl.load(" in text)
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{number:>4}  "))
    assert lines[start + 1].startswith(f"{number + 1:>4}  ") and "x_ptr + offsets," in lines[start + 1]
    assert " ".join(" ".join(lines[start : start + 5]).split()).endswith(
        f"{number + 2} mask=mask, other=0.0 + 1.0 * {zeros}, {number + 3} )"
    )


STRIDED = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, N, stride_xm, stride_xn, stride_ym, stride_yn, eps, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + columns * stride_xn, mask=columns < N)
    tl.store(y_ptr + row * stride_ym + columns * stride_yn, x + eps, mask=columns < N)

def EXAMPLE():
    x, y = torch.arange(15.0).view(3, 5).T, torch.empty(5, 3)
    copy_kernel[(5,)](x, y, 3, *x.stride(), *{strides}.stride(), 1e-5, BLOCK=4)
"""


RIGHT, OUTSIDE = OWN.format(shift=""), OWN.format(shift=" + 1")
THIRD = OWN.format(shift=" + tl.where(tl.program_id(0) == 1, 10, 0)")
AGAIN = "    scale_kernel[({0},)](torch.arange({1}.0), torch.empty({1}), {2}, BLOCK=4)\n"
LATER = RIGHT + AGAIN.format(3, 10, 11)


def with_line(line: str) -> str:
    return RIGHT.replace("    tl.store", f"    {line}\n    tl.store")


#: A file, what is asked for, the exit status, and what is printed; after "not: ", what isn't.
SHOWN = {
    "strides": (STRIDED.format(strides="y"), "--pid 1", 0, [
        "x_ptr 5×3 (1, 5) float32", "y_ptr 5×3 (3, 1) ", "reads 3 of 4 in x_ptr[1, 0:3]",
        "writes 3 of 4 in y_ptr[1, 0:3] at offsets [3, 4, 5] the values [1, 6, 11]", "not: warning", "not: note:",
    ]),
    "strides of another tensor": (STRIDED.format(strides="x"), "--pid 1", 0, [  # each element is written once, inside
        "writes 3 of 4 in y_ptr[0, 1], [2, 0], [3, 2]", "at offsets [1, 6, 11]",
        "warning: {file}:11:1: program 0 of copy_kernel stores in y_ptr[0, 0], [1, 2], [3, 1]: its lanes are "
        "5 elements apart, a stride of x_ptr, but y_ptr has shape (5, 3) and strides (3, 1)",
    ]),
    "all contiguous": (STRIDED.format(strides="x").replace("view(3, 5).T", "view(5, 3)"), "", 0, [
        "note: every matrix of this run is contiguous",
    ]),
    "one axis": (RIGHT, "", 0, ["not: note:"]),  # there is nothing to mix up
    "too long to keep": (RIGHT.replace("BLOCK=4", "BLOCK=1 << 15"), "", 0, [
        "reads a block of 32768 in x_ptr", "writes a block of 32768 in y_ptr",
    ]),
    "a late program": (RIGHT.replace("(3,)", "(300,)"), "--pid 299", 0, ["Values are kept of the first programs only"]),
    "printed": (RIGHT.replace("    mask =", '    tl.device_print("here", offsets)\n    mask ='), "", 0, [
        "printed:", "(2, 0, 0) here: [ 8 9 10 11]",
    ]),
    "a program of one launch": (RIGHT + AGAIN.format(2, 8, 8), "--pid 2", 0, [
        "program 2, line by line", "program 2 is not in this grid",
    ]),
    **{dtype: (with_line(f"y = x.to(tl.{dtype})").replace("2 * x,", "y,"), "--pid 2", 0, [f"y = {name} [8, "])
       for dtype, name in (("float16", "float16"), ("bfloat16", "bfloat16"), ("float8e5", "fp8e5"))},
    **{index: (with_line(f"x += {index}"), "", 1, [
        "{file}:13:1: EXAMPLE fails: IndexError: the brackets after a block take only `:` and `None`",
    ]) for index in ("x[0]", "x[1:3]", "x[None, :][0, :]", "x[BLOCK]", "x[n]", "x[mask]")},
    **{f"torch.{name}": (with_line(f"x += torch.{name}"), "", 1, [
        f"TypeError: torch.{name.partition('(')[0].rpartition('.')[2]} works on the host only: a kernel uses "
        f"triton.language, as in {instead}",
    ]) for name, instead in (("abs(x)", "tl.abs"), ("add(x, 1)", "tl.add"), ("where(x > 0, x, 0)", "tl.where"),
                             ("nn.functional.relu(x)", "tl.maximum(x, 0.0)"))},
    "outside": (OUTSIDE, "", 1, [
        "{file}:13:1: program 2 of scale_kernel does a store outside a tensor: element 10 of y_ptr",
        "program 2, line by line, up to the statement that fails:", "offsets = [8, 9, 10, 11]", "mask = [1, 1, 0, 0]",
        "tl.store(y_ptr + offsets + 1, 2 * x, mask=mask) this statement fails", "(1 of 4 lanes are outside)",
    ]),
    "before it": (THIRD, "--pid 0", 1, ["program 0, line by line:", "writes 4 in y_ptr"]),
    "after it": (THIRD, "--pid 2", 1, ["program 2 did not run: program 1 fails before it"]),
    "the launch that fails": (LATER, "", 1, ["launch 1,", "program 2", "not: launch 0,"]),
    "the one before": (LATER, "--launch 0", 1, ["launch 0,", "writes 40 bytes", "not: launch 1,"]),
    "a name": (RIGHT.replace("mask = offsets < n", "mask = offset < n"), "", 1, [
        "offsets = [0, 1, 2, 3]", "this statement fails", "EXAMPLE fails: NameError: name 'offset' is not defined",
    ]),
    "between launches": (RIGHT + "    raise ValueError('too late')\n", "", 1, [
        "program 0, line by line:", "EXAMPLE fails: ValueError: too late", "not: this statement fails",
    ]),
    "no launch": ("def EXAMPLE():\n    pass\n", "", 1, ["{file}:6:1: EXAMPLE() launches no kernel"]),
}  # fmt: skip


@pytest.mark.parametrize("source, words, status, said", SHOWN.values(), ids=SHOWN)
def test_what_is_printed(kernel_file, traced, source, words, status, said):
    path = kernel_file(source)
    printed = " ".join(traced(path, *words.split(), status=status).split())
    for text in said:
        wanted = text.removeprefix("not: ")
        assert (wanted.format(file=path) in printed) == (wanted == text), text


def test_a_number_is_shown_as_the_kernel_gets_it(kernel_file, tmp_path, traced):
    path = kernel_file(STRIDED.format(strides="y"))
    assert "eps = 1e-05 " in traced(
        path, "--json", f"{tmp_path}/run.json"
    )  # no dtype beside it: float32 goes without saying
    data = json.loads((tmp_path / "run.json").read_text())
    steps = data["launches"][0]["programs"][0][1]
    (eps,) = [data["pool"][values["eps"]] for _, values, _ in steps if "eps" in values]
    assert eps["t"] == "f4"


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
        (["{file}", "--launch", "5"], "--launch 5: EXAMPLE launches 1 kernel, number 0"),
        (["{file}", "--launch", "-1"], "--launch -1: EXAMPLE launches 1 kernel, number 0"),
        (["{twice}", "--launch", "2"], "--launch 2: EXAMPLE launches 2 kernels, 0 to 1"),
        (["{file}", "--pid", "7"], "--pid 7 is outside the grid (3,) of scale_kernel (launch 0)"),
        (["{file}", "--pid", "-1"], "--pid -1 is outside the grid (3,)"),
        (["{file}", "--pid", "0,1"], "--pid (0, 1) is outside the grid (3,)"),
        (["{wrong}", "--pid", "3"], "--pid 3 is outside the grid (3,)"),
        (["{wrong}", "--launch", "1"], "--launch 1: EXAMPLE launches 1 kernel, number 0, and fails in launch 0"),
        (["{twice}", "--pid", "3"], "outside every grid: (3,) of scale_kernel (launch 0), (2,) of scale_kernel"),
        (["{typo}"], ":6:5: invalid syntax"),
        (["{file}", "--json", "{bare}/run.json"], "run.json can't be written: Not a directory"),
        (["{bare}"], "has no function EXAMPLE()"),
        (["{text}"], "is not a Python file"),
    ],
)
def test_bad_use_is_explained(kernel_file, tmp_path, capsys, arguments, message):
    (tmp_path / "note.txt").write_text("")
    again = "    scale_kernel[(2,)](torch.arange(8.0), torch.empty(8), 8, BLOCK=4)\n"
    sources = {
        "file": OWN.format(shift=""),
        "wrong": OWN.format(shift=" + 1"),
        "twice": OWN.format(shift="") + again,
        "bare": "x = 1",
        "typo": "x = = 1",
    }
    files = {name: kernel_file(source) for name, source in sources.items()} | {"text": tmp_path / "note.txt"}
    assert cli.main(["trace", *(argument.format(**files) for argument in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_example_to_copy_runs_and_shows_a_wrong_stride(kernel_file, capsys):
    body, _, _ = STRIDED.partition("def EXAMPLE")
    launch = "    copy_kernel[(x.shape[0],)](x, y, x.shape[1], *x.stride(), *{}.stride(), 0.0, BLOCK=8)\n"
    body += "def my_function(x):\n    y = torch.empty(x.shape)\n" + launch
    assert cli.main(["trace", str(kernel_file(body.format("x")))]) == 2
    example = "def EXAMPLE" + capsys.readouterr().err.partition("def EXAMPLE")[2]
    assert cli.main(["trace", str(kernel_file(body.format("y") + example))]) == 0
    cli.main(["trace", str(kernel_file(body.format("x") + example))])
    assert "a stride of x_ptr, but y_ptr has" in capsys.readouterr().out


def test_a_program_that_is_none(kernel_file, capsys):
    with pytest.raises(SystemExit):
        cli.main(["trace", "x.py", "--pid", "one"])
    assert "'one' isn't a program: write 13, or 1,0" in capsys.readouterr().err


def test_the_run_comes_before_the_numbers_that_it_contradicts(kernel_file, tmp_path, capsys, monkeypatch):
    """In a file of `annotated_examples`: numbers in its comments, and what its benchmark says of its EXAMPLE."""
    name = "annotated_examples.contradicted"
    (tmp_path / "academy").symlink_to(store.ROOT / "academy")
    monkeypatch.setattr(store, "ROOT", tmp_path)
    monkeypatch.setattr(importlib.import_module("annotated_examples"), "__path__", [f"{tmp_path}/annotated_examples"])
    monkeypatch.setattr("sys.path", [*sys.path])
    source = OWN.format(shift="").replace("[(3,)]", "[(2,)]")
    comment = "    # `pid=1: offsets = [4, 5, 6, 8]`, but `pid=1: offsets[0] = 4`.\n"
    source = source.replace("    mask =", f"{comment}    mask =")
    path = kernel_file(source, "contradicted", tmp_path / "annotated_examples")
    (tmp_path / "operations").mkdir()
    said = "dict(forward=dict(bytes_read=1, bytes_written=32))"
    benchmark = f'LESSON = "contradicted"\nBENCH = {{}}\nEXAMPLES = {{"contradicted": {said}}}\n'
    (tmp_path / "operations/contradicted.py").write_text(benchmark)
    try:
        assert cli.main(["trace", str(path)]) == 1
    finally:
        sys.modules.pop(name, None), sys.modules.pop("operations_contradicted", None)
    wrong, _, stale = capsys.readouterr().out.partition("Numbers in this file that the run contradicts:")
    assert "no program of scale_kernel writes y_ptr[8]" in wrong
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "[4, 5, 6, 8]" in text)
    expected = [
        f"annotated_examples/contradicted.py:{line}:8: `pid=1: offsets = [4, 5, 6, 8]`: "
        "the kernel computes [4, 5, 6, 7]",
        "operations/contradicted.py:3:1: EXAMPLES, annotated_examples/contradicted.py: 1 bytes_read for forward; "
        "the recorded run moves 32 distinct ones",
    ]
    found = [text for text in stale.split("\n") if ".py:" in text]
    assert len(found) == 2 and all(text.startswith(said) for text, said in zip(found, expected)), found
    assert not any(text in wrong for text in expected)


def test_a_kernel_of_the_project_by_its_name(traced):
    assert "vector_add_kernel" in traced("vector_add", "--pid", "2")


def test_a_file_of_a_package_and_what_it_imports(kernel_file, tmp_path, traced, monkeypatch):
    monkeypatch.undo()  # in processes of their own: the second one has to import the package anew
    monkeypatch.setattr(cache, "FILE", tmp_path / "cache" / "academy.sqlite")
    package = tmp_path / "own_package"
    kernel_file("SIZE = 4", "sizes", package)
    path = kernel_file(
        "from .sizes import SIZE\n" + OWN.format(shift="").replace("BLOCK=4", "BLOCK=SIZE"), "kernel", package
    )
    (package / "__init__.py").write_text("")
    assert "BLOCK = 4" in " ".join(traced(path, "--no-compile").split())
    (package / "sizes.py").write_text("SIZE = 8")
    assert "BLOCK = 8" in " ".join(traced(path, "--no-compile").split())


def test_an_installed_package_has_no_benchmarks_to_be_compared_with(tmp_path, monkeypatch):
    from academy.traces import faults

    monkeypatch.setattr(store, "ROOT", tmp_path)
    kernel = tmp_path / "annotated_examples" / "a.py"
    kernel.parent.mkdir()
    kernel.write_text("def EXAMPLE():\n    pass\n")
    assert faults._contradicted_cost(kernel, None) == []
    (tmp_path / "operations").mkdir()  # the repository: there, a missing file is a mistake
    assert "no file of operations/" in faults._contradicted_cost(kernel, None)[0].message
