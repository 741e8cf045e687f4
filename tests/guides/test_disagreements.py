"""Where tools disagree: each small kernel is what the page says of it; what it says of a card is in the results."""

import json
import re

import pytest

from academy.book.layout import ROOT
from academy.judge import judge
from academy.results import figures

FOLDER = ROOT / "docs/guides/disagreements"
PAGE = " ".join((ROOT / "docs/guides/where-tools-disagree.md").read_text("utf-8").split())
#: File -> what the group *programs* finds, and in which line it says so; nothing where it is right.
FOUND = {
    "read_then_written": ("race in sum_kernel", "total_ptr"),
    "handed_between_threads": ("tl.debug_barrier", "tl.load(tmp_ptr"),
    "loaded_and_dropped": ("which nobody has written", "tl.load(tmp_ptr"),
    "inside_the_allocation": ("outside a tensor", "tl.load(x_ptr"),
    "neighbouring_bytes": None,
    "short_row": None,
    "padded_maximum": None,
}


def test_each_file_is_on_the_page_and_here():
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == set(FOUND) == set(re.findall(r"\[\[code: docs/guides/disagreements/(\w+)\.py", PAGE))


@pytest.mark.parametrize("name", FOUND)
def test_its_numbers_are_right_in_the_interpreter_and_what_programs_touch(name):
    report = judge(FOLDER / f"{name}.py", groups=["sizes", "programs"])
    wrong = [each for one in report.judged for each in one.wrong]
    assert report.complete and {each.trial.group for each in wrong} == ({"programs"} if FOUND[name] else set()), report
    if FOUND[name]:
        (words, code), outcome = FOUND[name], wrong[0]
        line = (FOLDER / f"{name}.py").read_text("utf-8").splitlines()[outcome.line - 1]
        assert words in outcome.message and code in line


def test_a_padded_maximum_is_the_same_function():
    report = judge(FOLDER / "padded_maximum.py", groups=["exact"])
    assert report.right, report


def test_what_the_page_says_of_a_card_is_in_the_results():
    content = figures.first(ROOT, "experiments/fpsan")
    pair = "loss_then_gradient", "one_pass"
    row = next(row for row in content["rows"] if (row["one"], row["two"]) == tuple(f"cross_entropy/{n}" for n in pair))
    assert {key: set(each.values()) for key, each in row["sizes"].items()} == {
        "odd: 5, 1031": {1.0}, "whole: 4, 8192": {0.0}}  # fmt: skip
    assert f"On an {content['device']} two rungs of cross entropy, `{pair[0]}` and `{pair[1]}`" in PAGE
    content = figures.first(ROOT, "experiments/sanitizers")
    wrong = [row for row in content["rows"] if row["verdict"] == "wrong"]
    said = [row["message"] for row in wrong if row["sanitizer"] == "gsan"]
    files = [re.search(r"Write after write race detected.*annotated_examples/(.*?):", each)[1] for each in said]
    assert set(files) == {"common/transposed.py", "common/frobenius.py"} and all(f"`{each}`" in PAGE for each in files)
    raced = {row["function"]: row["message"] for row in wrong if row["sanitizer"] == "racecheck"}
    others = {name for name, message in raced.items() if "standard.py:314" not in message}
    files = {name.split(".")[1] for name in others}
    unexplained = {"gated_delta_rule", "kda", "indexer_loss", "stream_coefficients"}
    assert files == {"scaled_matmul", "linear", "matmul", "flash_attention"} | unexplained
    assert all(f"`{name}`" in PAGE for name in unexplained)
    assert len(raced) - len(others) == 14 and "in thirteen other functions" in PAGE
    assert len(raced) + len(said) == len(wrong), "all of them are explained here, or said not to be"
    assert f"GSan on an {content['device']} reports" in PAGE
    assert json.dumps(content["rows"]).count("/work/") == 0
