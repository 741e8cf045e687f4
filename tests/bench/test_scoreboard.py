"""The scoreboard of judges: what each of them is, on kernels whose fault is known, and how its table counts."""

import json

import pytest
import torch

from academy.compiler import stand_in
from academy.judge import subject
from benchmarks import scoreboard
from tests.judge.test_faults import KERNELS

ROWS = (KERNELS / "rows.py").read_text("utf-8")
CASES = scoreboard.cases()


def judged(name, source, tmp_path):
    (tmp_path / "kernel.py").write_text(source)
    with stand_in.for_files():
        for one in subject.from_file(tmp_path / "kernel.py"):
            scoreboard.OTHERS[name](one)


def test_the_corpus_has_enough_of_both():
    assert sum(case.faulty for case in CASES) >= 110 and sum(not case.faulty for case in CASES) >= 40
    assert all(case.path.is_file() and case.source for case in CASES) and len({case.name for case in CASES}) == len(
        CASES
    )


@pytest.mark.parametrize("name", scoreboard.OTHERS)
def test_each_passes_what_is_right_and_finds_another_function(name, tmp_path):
    judged(name, ROWS, tmp_path)
    with pytest.raises(scoreboard.Found):
        judged(name, ROWS.replace("dim=-1)", "dim=-1) * 1.1"), tmp_path)


def test_only_those_with_odd_sizes_see_a_tail(tmp_path):
    tail = ROWS.replace("rows, cols = x.shape", "rows, cols = x.shape[0] // 4 * 4, x.shape[1]")
    judged("torch.testing.assert_close, one shape", tail, tmp_path)
    for name in ("Liger-Kernel's style", "FlashAttention's style"):
        with pytest.raises(scoreboard.Found):
            judged(name, tail, tmp_path)


def test_tolerances_are_those_that_are_told():
    """KernelBench's rule allows an error that assert_close doesn't."""
    off = subject.of_functions(lambda x: x + 5e-5, lambda x: x + 0, {"x": "rows cols"})
    scoreboard.kernelbench(off)
    with pytest.raises(scoreboard.Found):
        scoreboard.assert_close(off)


def test_a_crash_counts_as_found(monkeypatch, tmp_path):
    (tmp_path / "kernel.py").write_text(ROWS.replace("softmax_kernel[", "no_such_kernel["))
    case = scoreboard.Case(tmp_path / "kernel.py", "a name", "own", True, ())
    ((verdict, said, _),) = scoreboard.judge((case, "KernelBench's rule"))
    assert verdict == "found" and "NameError" in said


def test_the_table_counts_what_was_judged():
    bad, good = (scoreboard.Case(scoreboard.CORPUS / name, "", "", name == "a.py", ()) for name in ("a.py", "b.py"))
    row = lambda verdict, seconds: {scoreboard.OURS: dict(verdict=verdict, message="", seconds=seconds)}  # noqa: E731
    text = scoreboard.table({"a.py": row("found", 2.0), "b.py": row("found", 4.0)}, [bad, good])
    assert f"| {scoreboard.OURS} | 1 of 1 (100%) | 1 of 1 |" in text and "Not run: the evaluators" in text
    assert scoreboard.table({"a.py": row("passed", 2.0)}, [bad, good]).count("0 of 1 (0%) | not counted |") == 1


def test_what_is_kept_is_of_this_corpus():
    content = json.loads(scoreboard.RESULTS.read_text("utf-8"))
    assert set(content["rows"]) <= {case.name for case in CASES}
    assert scoreboard.TABLE.read_text("utf-8") == scoreboard.table(content["rows"], CASES)
    assert content["versions"]["torch"] and torch.__version__
