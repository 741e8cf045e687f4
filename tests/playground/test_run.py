"""What the playground says of each kind of mistake, and on which line. Run natively: the browser calls the same code."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("triton")
from academy.book import exercise_files, layout
from academy.book.splitter import split
from academy.playground import run
from academy.site.playground_page import starter

ROOT = Path(__file__).resolve().parents[2]


def text_of(name: str) -> str:
    path = f"annotated_examples/{name}.py"
    return starter(split((ROOT / path).read_text(), path))


def edited(name: str, *edits: tuple[str, str]) -> str:
    text = text_of(name)
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return text


def outcome(folder: Path, name: str, *edits: tuple[str, str]) -> dict:
    path = folder / "edited_kernel.py"
    return run.run(path, edited(name, *edits), text_of(name))


def line_of(name: str, piece: str, *edits: tuple[str, str]) -> int:
    lines = edited(name, *edits).split("\n")
    return next(number for number, line in enumerate(lines, 1) if piece in line)


VECTOR, BLOCKED = "tutorials/vector_add", "tutorials/matmul_blocked"
LOAD_X = "x = tl.load(x_ptr + offsets, mask=mask, other=0.0)"
# name of the mistake, file, edits, state, text at whose line it is told, what is said
MISTAKES = {
    "syntax": (VECTOR, [("mask = offsets < n", "mask = offsets <")], "error", "mask = offsets <", "SyntaxError: invalid"),
    "indentation": (VECTOR, [("    out = x + y", "      out = x + y")], "error", "      out = x", "unexpected indent"),
    "a line that ends too early": (VECTOR, [("out = x + y", "out = x +")], "error", "out = x +", "invalid syntax, in `out = x +`"),
    "a name that is not there": (VECTOR, [("out = x + y", "out = x + z")], "error", "x + z", "The names of this function are x_ptr"),
    "a function of PyTorch": (VECTOR, [("out = x + y", "out = torch.relu(x)")], "error", "torch.relu", "tl.maximum(x, 0.0)"),
    "a number taken for an address": (VECTOR, [("out = x + y", "out = tl.load(n)")], "error", "tl.load(n)", "tl.load takes addresses"),
    "a wrong name": (VECTOR, [(LOAD_X, LOAD_X.replace("mask=mask", "mask=msk"))], "error", "mask=msk", "'msk' is not defined"),
    "a misspelt function": (VECTOR, [(LOAD_X, LOAD_X.replace("load", "laod"))], "error", "laod", "no attribute 'laod'. Did you mean: 'load'?"),
    "a wrong argument": (VECTOR, [("BLOCK=BLOCK)\n    return", "BLOK=BLOCK)\n    return")], "error", "BLOK", "missing 1 required"),
    "a shape": (VECTOR, [("tl.arange(0, BLOCK)", "tl.arange(0, 3)")], "error", "tl.arange(0, 3)", "power of 2"),
    "out of bounds": (
        VECTOR, [("mask = offsets < n", "mask = offsets <= n")], "error", "x = tl.load",
        "program 2 of vector_add_kernel does a load outside a tensor: element 10 of x_ptr, which has shape (10,)",
    ),
    "two programs store to one element": (
        VECTOR, [("pid * BLOCK +", "pid * (BLOCK - 1) +")], "failed", "tl.store", "out_ptr[3]",
    ),
    "an element nobody wrote": (VECTOR, [("triton.cdiv(n, BLOCK)", "n // BLOCK")], "failed", "", "out_ptr[8]"),
    "an endless loop": (
        VECTOR, [("    out = x + y", "    out = x\n    while True:\n        out += y")], "error", "while True",
        "ran too long and was stopped",
    ),
    "a difference from the reference": (
        VECTOR, [("out = x + y", "out = x * 2 + y")], "differs", "tl.store", "`out_ptr[1]` is 12, in the original 11. ",
    ),
    "a difference in a row": (
        BLOCKED, [("acc = tl.zeros", "acc = (offs_m[:, None] == 1) + tl.zeros")], "differs", "tl.store",
        "row 1 is the first that differs",
    ),
    "an error outside of the kernel": (VECTOR, [("out = torch.empty_like(x)", "out = torch.empty_lik(x)")], "error", "empty_lik(", "empty_lik"),
    "no example": (VECTOR, [("def EXAMPLE", "def example")], "error", "", "no function EXAMPLE"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_on_its_line(mistake, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "MAX_STEPS", 500)
    name, edits, state, piece, said = MISTAKES[mistake]
    found = outcome(tmp_path, name, *edits)
    told = found["problems"][0]
    assert found["state"] == state and said in told["message"], found["problems"]
    if piece:
        assert told["line"] == line_of(name, piece, *edits)


def test_unchanged_and_harmless_edits_pass(tmp_path):
    first = outcome(tmp_path, VECTOR)
    assert first["state"] == "passed" and not first["problems"] and first["data"]["launches"][0]["kernel"]
    same = outcome(tmp_path, VECTOR, ("out = x + y", "out = y + x"))
    assert same["state"] == "passed" and same["same"] and not first["same"]
    larger = outcome(tmp_path, VECTOR, ("torch.arange(10,", "torch.arange(7,"), ("BLOCK=4)", "BLOCK=2)"))
    assert larger["state"] == "passed" and larger["data"]["launches"][0]["grid"] == [4, 1, 1]


@pytest.mark.parametrize(
    "edit, said",
    [
        ("y + x", "Without rounding, too, it gives the same."),
        ("x + y + 1e-12 * x * y", "Without rounding it gives something else, first in `out_ptr[1]`: a term"),
        ("x + y * 1.0000001", "Without rounding it gives something else, first in `out_ptr[1]`: a term"),
        ("x + tl.floor(y)", "Without rounding, too, it gives the same."),
    ],
)
def test_what_gives_the_same_gets_a_second_verdict(tmp_path, edit, said):
    found = outcome(tmp_path, VECTOR, ("out = x + y", f"out = {edit}"))
    assert found["same"] and found["without_rounding"].startswith(said), found["without_rounding"]


DIVIDED = """
import torch, triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, total_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) / tl.load(total_ptr))


def divided(x, total):
    out = torch.empty_like(x)
    kernel[(1,)](x, total, out, BLOCK=len(x))


def EXAMPLE():
    x = torch.arange(16.0) ** 2 / 10
    divided(x, x.sum())
"""


@pytest.mark.parametrize("total, said", [("total.clone()", "Without rounding, too"), ("total * (1 + 2.0**-23)", "")])
def test_what_torch_has_rounded_otherwise_is_not_judged(tmp_path, total, said):
    """It is data for the next launch: a float with another last bit, and another residue."""
    edited = DIVIDED.replace("kernel[(1,)](x, total,", f"total = {total}\n    kernel[(1,)](x, total,")
    found = run.run(tmp_path / "kernel.py", edited, DIVIDED)
    assert (
        found["same"] and bool(found["without_rounding"]) == bool(said) and found["without_rounding"].startswith(said)
    )


def test_another_file_can_take_the_place_of_the_lesson(tmp_path):
    """As the home page and the guide Debugging say: an exercise and its EXAMPLE are watched like a kernel of the site."""
    exercise = exercise_files.named("first_kernel/dropped_tail")
    example = "\n\ndef EXAMPLE(): double(torch.arange(10.0, device=device.DEVICE))\n"
    assert example.strip() in (ROOT / "docs/guides/debugging.md").read_text("utf-8")
    wrong = run.run(tmp_path / "kernel.py", exercise.starter + example, text_of(VECTOR))
    assert (
        wrong["state"] == "failed" and "no program of double_kernel reads x_ptr[8]" in wrong["problems"][0]["message"]
    )
    right = run.run(tmp_path / "kernel.py", exercise.solution + example, text_of(VECTOR))
    assert right["state"] == "passed" and right["data"]["launches"][0]["kernel"] == "double_kernel"


def test_a_run_that_stops_is_shown_up_to_there(tmp_path):
    name, edits, *_ = MISTAKES["out of bounds"]
    found = outcome(tmp_path, name, *edits)
    assert found["stopped"] == (0, (2, 0, 0)) and len(found["data"]["launches"][0]["programs"]) == 3


def test_what_is_printed_is_handed_on(tmp_path):
    assert outcome(tmp_path, VECTOR, ("    n = out", "    print('hello')\n    n = out"))["printed"] == "hello\n"


def test_the_worker_gets_json(tmp_path, monkeypatch):
    monkeypatch.setattr(run.store, "ROOT", tmp_path)
    asked = {"action": "run", "path": "some/kernel.py", "source": "x = (", "original": None}
    found = json.loads(run.answer(json.dumps(asked)))
    assert found["state"] == "error" and found["problems"][0]["line"] == 1
    assert (tmp_path / "some/kernel.py").read_text() == "x = ("


def test_after_an_unchanged_run_the_original_is_ready(tmp_path):
    text, path = text_of(VECTOR), tmp_path / "kernel.py"
    wrong = text.replace("out = x + y", "out = x * y")
    asked = {"action": "run", "path": str(path), "source": text, "original": text}
    for source, runs in ((wrong, 0), ("x = (", 0), (text, 1)):
        run.reference.cache_clear()
        run.prepare(json.dumps({**asked, "source": source}))
        assert run.reference.cache_info().misses == runs
    assert run.run(path, wrong, text)["state"] == "differs"
    assert run.reference.cache_info().hits == 1


@pytest.mark.parametrize(
    "path",
    sorted(str(p.relative_to(ROOT)) for p in layout.kernels(ROOT) if "def EXAMPLE" in p.read_text()),
)
def test_the_text_to_edit_is_the_code(path):
    """Without notes and docstrings, with nothing lost."""
    import ast

    def code(text):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if (
                isinstance(body, list)
                and body
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
            ):
                del body[0]
        return ast.dump(tree)

    text = (ROOT / path).read_text()
    shown = starter(split(text, path))
    assert code(shown) == code(text)
    assert not re.search(r"^\s*#(?! fmt)", shown, re.M) and "\n\n\n\n" not in shown
