"""The scoreboard of judges: what each of them is, on kernels whose fault is known, and how its tables count."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from academy.compiler import stand_in
from academy.judge import subject
from benchmarks import corpus, peers, scoreboard
from tests.judge.test_faults import KERNELS

ROWS = (KERNELS / "rows.py").read_text("utf-8")
CASES, UNSEEN = scoreboard.cases(), {name: scoreboard.cases(name) for name in scoreboard.UNSEEN}
KERNEL = corpus.Row("kernel.py", "a name", "own", "judge", "faulty", "", "", "")
#: Those whose rule stands here, and needs no checkout.
HERE = ["torch.testing.assert_close, one shape", "FlashAttention, test style"]


def judged(name, source, tmp_path):
    (tmp_path / "kernel.py").write_text(source)
    with stand_in.for_files():
        for one in subject.from_file(tmp_path / "kernel.py"):
            scoreboard.OTHERS[name].ask(one)


def is_there(name):
    needed = {"KernelBench": "KernelBench", "robust-kbench": "robust-kbench", "GPU MODE": "reference-kernels"}
    needed |= {"Liger": "Liger-Kernel", "triton-viz": "site"}
    return all((peers.FOLDER / folder).is_dir() for word, folder in needed.items() if name.startswith(word))


def test_the_corpus_has_enough_of_both():
    assert sum(case.faulty for case in CASES) >= 110 and sum(not case.faulty for case in CASES) >= 40
    unseen = [case for cases in UNSEEN.values() for case in cases]
    every = [*CASES, *unseen]
    assert len(unseen) >= len(every) / 3
    assert all(case.path.is_file() and case.source for case in every)
    assert len({case.name for case in every}) == len(every)


@pytest.mark.parametrize("name", scoreboard.OTHERS)
def test_each_passes_what_is_right_and_finds_another_function(name, tmp_path):
    if not is_there(name):
        pytest.skip(f"{name} is not in {peers.FOLDER}")
    judged(name, ROWS, tmp_path)
    if not name.startswith("triton-viz"):  # which looks at no number
        with pytest.raises(scoreboard.Found):
            judged(name, ROWS.replace("dim=-1)", "dim=-1) * 1.1"), tmp_path)


def test_only_those_with_odd_sizes_see_a_tail(tmp_path):
    tail = ROWS.replace("rows, cols = x.shape", "rows, cols = x.shape[0] // 4 * 4, x.shape[1]")
    judged(HERE[0], tail, tmp_path)
    with pytest.raises(scoreboard.Found):
        judged(HERE[1], tail, tmp_path)


def test_a_crash_counts_as_found_and_no_verdict_does_not(monkeypatch, tmp_path):
    (tmp_path / "kernel.py").write_text(ROWS.replace("softmax_kernel[", "no_such_kernel["))
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    ((name, (word, said, _)),) = scoreboard.by_others((KERNEL, HERE[:1]))
    assert (name, word) == (HERE[0], "found") and "NameError" in said

    def none(one):
        raise peers.NoVerdict("too large")

    monkeypatch.setitem(scoreboard.OTHERS, "it", peers.Judge("it", none, False, "1"))
    (tmp_path / "kernel.py").write_text(ROWS)
    assert [(word, said) for _, (word, said, _) in scoreboard.by_others((KERNEL, ["it"]))] == [("none", "too large")]


def test_who_dies_is_one_and_the_others_go_on(monkeypatch, tmp_path):
    import os

    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    (tmp_path / "kernel.py").write_text(ROWS)
    for name, ask in {"one": lambda _: None, "two": lambda _: os._exit(3), "three": lambda _: None}.items():
        monkeypatch.setitem(scoreboard.OTHERS, name, peers.Judge(name, ask, False, "1"))
    monkeypatch.setattr(scoreboard.process, "context", lambda: __import__("multiprocessing").get_context("fork"))
    found = list(scoreboard.judged([KERNEL], ["one", "two", "three"], {"kernel.py": {}}, float("inf")))
    assert [(name, word) for _, name, (word, *_) in found] == [("one", "passed"), ("two", "found"), ("three", "passed")]
    assert "exit status 3" in found[1][2][1]


def test_who_comes_to_no_end_gives_no_verdict(monkeypatch):
    death = scoreboard.process.Death("hang", "was stopped after 30 s")
    monkeypatch.setattr(scoreboard.process, "stream", lambda work, jobs, limits: iter([(jobs[0], death)]))
    found = list(scoreboard.judged(CASES[:1], HERE[:1], {}, float("inf")))
    assert found == [(CASES[0], HERE[0], ("none", "the process was stopped after 30 s", scoreboard.SECONDS))]


def test_a_checkout_must_be_at_its_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    (tmp_path / "KernelBench").mkdir()
    with pytest.raises(RuntimeError, match="should be ScalingIntelligence/KernelBench at 423217d"):
        peers.checkout("KernelBench")


def test_results_are_compared_as_one_tensor():
    """Several in one vector; what is written to arguments, where nothing is returned."""
    a, b = torch.ones(2, 2), torch.arange(2)
    assert peers.in_one(a, {}) is a and peers.in_one((a, b), {}).tolist() == [1, 1, 1, 1, 0, 1]
    assert peers.in_one(None, {"x": a, "eps": 1e-5}) is a


RIGHT = "kernel.py: right in 3 trials (1.0 s)"
WRONG = """sizes 3 1 wrong

sizes: odd sizes
  the gradient of x[0] is 1, should be 2
kernel.py: 1 of 3 trials wrong (1.0 s)"""


def test_what_the_command_says():
    assert scoreboard.read(0, RIGHT, "") == ("passed", "")
    assert scoreboard.read(1, WRONG, "") == ("found", "sizes: odd sizes   the gradient of x[0] is 1, should be 2")
    assert scoreboard.read(2, "", "no such file\nmore") == ("none", "no such file")


def test_a_fault_is_tried_with_what_finds_most_first(monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command[command.index("--only") + 1])
        return subprocess.CompletedProcess(command, len(asked) == 2, WRONG if len(asked) == 2 else RIGHT, "")

    monkeypatch.setattr(scoreboard.subprocess, "run", run)
    case = replace(KERNEL, name="kl_of_zero.py")
    assert scoreboard.by_ours(case)[0] == "found" and len(asked) == 2
    from academy.judge.trials import ON_A_CARD, USUAL

    assert sorted(",".join(asked).split(",")) == sorted(set(USUAL) - set(ON_A_CARD))
    asked.clear()
    assert scoreboard.by_ours(replace(case, tool="judge --only values"))[0] == "passed" and asked == ["values"]
    asked.clear()
    assert scoreboard.by_ours(replace(case, expected="right"))[0] == "passed" and asked == [",".join(scoreboard.FIRST)]


def rows(**words):
    return {name: dict(verdict=word, seconds=2.0) for name, word in words.items()}


def test_the_table_counts_what_was_judged(monkeypatch):
    for name, gradients in (("blind", False), ("seeing", True)):
        monkeypatch.setitem(scoreboard.OTHERS, name, peers.Judge(name, None, gradients, "7"))
    monkeypatch.setattr(scoreboard, "NAMES", (scoreboard.OURS, "blind", "seeing", "nobody"))
    a, b, c = (replace(KERNEL, name=name, kind="k|d") for name in ("kl_of_zero.py", "topk_ties_16_bits.py", "c.py"))
    c = replace(c, expected="right")
    ours = {scoreboard.OURS: dict(verdict="found", message="the gradient of x[0] is 1", seconds=4.0)}
    judged = {
        a.name: ours | rows(blind="passed", seeing="none"),
        b.name: rows(blind="found", seeing="found"),
        c.name: rows(blind="found", seeing="passed"),
    }
    found = scoreboard.counted(judged, [a, b, c])
    usual = dict(version="7", faults=2, found=1, right=1, seconds=2.0)
    assert found["blind"] == dict(usual, unseen=1, alarms=1, none=0)
    assert found["seeing"] == dict(usual, unseen=0, alarms=0, none=1)
    assert found[scoreboard.OURS] == dict(
        version="this repository", faults=1, found=1, unseen=0, right=0, alarms=0, none=0, seconds=4.0
    )
    text = scoreboard.table(found)
    assert "| blind | 7 | **1 of 2** (50%); 1 are in gradients | 1 of 1 |  | 2.0 |" in text and "nobody" not in text
    assert f"| {scoreboard.OURS} | this repository | **1 of 1** (100%) | not counted |" in text
    every = scoreboard.every(judged, [a, b, c], faulty=True)
    assert "| [kl_of_zero](../../tests/corpus/kl_of_zero.py) | k\\|d | ● | ○ | · |  |" in every
    assert "| [topk_ties_16_bits](../../tests/corpus/edits.toml) | k" in every and "[c]" not in every


@pytest.mark.parametrize("board, cases", [(scoreboard.BOARD, CASES), *UNSEEN.items()], ids=lambda one: str(one)[:10])
def test_what_is_kept_is_of_this_corpus(board, cases):
    """And the tables are those of the JSON, which no machine's path stands in."""
    content = json.loads((scoreboard.PAGE / f"{board}.json").read_text("utf-8"))
    rows = content["rows"]
    assert set(rows) <= {case.name for case in cases} and len(scoreboard.SHORT) == len(scoreboard.NAMES)
    counted = scoreboard.counted(rows, cases)
    for name, each in counted.items():
        each["version"] = content["judges"][name]["version"]  # of then: here PyTorch may be another
    assert content["judges"] == counted
    for name, text in {
        f"{board}.txt": scoreboard.table(content["judges"]),
        f"{board}-faults.txt": scoreboard.every(rows, cases, faulty=True),
        f"{board}-right.txt": scoreboard.every(rows, cases, faulty=False),
    }.items():
        assert (scoreboard.PAGE / name).read_text("utf-8") == text
    said = [each.get("message", "") for row in rows.values() for each in row.values()]
    assert not [text for text in said if str(scoreboard.ROOT) in text or sys.prefix in text]


def test_what_has_been_learnt_since_is_told_as_the_runner_has_counted_it():
    """Of all kernels of a folder that were unseen. The guide has a sentence of each that is still missed or blamed, and
    of a folder that was not counted again."""
    content = json.loads(scoreboard.SINCE.read_text("utf-8"))
    text, rows = scoreboard.SINCE.with_suffix(".txt").read_text("utf-8"), content["rows"]
    assert text == scoreboard.since_table(content) and str(scoreboard.ROOT) not in text
    guide = (scoreboard.PAGE.parent / "which-judge.md").read_text("utf-8")
    again = [name for name in UNSEEN if any(each.startswith(f"{name}/") for each in rows)]
    every = [case for name in again for case in UNSEEN[name]]
    assert list(rows) == [case.name for case in every]
    assert all(name in again or f"`{name}` was not counted again" in guide for name in UNSEEN)
    for case in every:
        found = rows[case.name]["verdict"] == "found"
        assert found is (case.expected in ("faulty", "blamed")), case.name
        assert (
            found is case.faulty
            or f"`{case.path.stem}`" in guide.partition("it has learnt")[2].partition("## Every")[0]
        )


def test_a_fault_that_is_missed_stays_so_where_another_one_is_found(monkeypatch, tmp_path):
    """And groups that the manifest names are all that is asked."""
    (tmp_path / "kernel.py").write_text(ROWS.replace("dim=-1)", "dim=-1) * 1.1"))
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    case = replace(KERNEL, tool="judge --only repeats,sizes")
    assert scoreboard.learnt(case)["verdict"] == "found"
    missed = scoreboard.learnt(replace(case, expected="missed"))
    assert missed["verdict"] == "passed" and missed["message"].startswith("refused for something else: sizes: odd")
    assert scoreboard.learnt(replace(case, tool="judge --only repeats"))["verdict"] == "passed"


def test_what_has_changed_since_the_count_is_a_table(monkeypatch):
    last = UNSEEN["last"]
    names = [last[0].name, next(case.name for case in last if not case.faulty)]
    ours = {name: {scoreboard.OURS: dict(verdict="passed")} for name in names}
    monkeypatch.setattr(scoreboard, "kept", lambda name: ours if name == "last" else {})
    now = {names[0]: dict(verdict="found", message="a | b"), names[1]: dict(verdict="passed")}
    text = scoreboard.since_table({"day": "2026-01-02", "rows": now})
    assert "| `last` | when they were counted | 0 of 1 | 0 of 1 |\n| `last` | on 2026-01-02 | 1 of 1 | 0 of 1 |" in text
    assert text.count(f"\n| `{last[0].path.stem}`") == 1 and "| missed | found: ``a \\| b`` |" in text


@pytest.mark.parametrize("name", scoreboard.UNSEEN)
def test_the_guide_says_what_was_counted(name):
    """Of the newest also each kernel that was missed or blamed."""
    rows, guide = scoreboard.kept(name), (scoreboard.PAGE.parent / "which-judge.md").read_text("utf-8")
    assert set(rows) == {case.name for case in UNSEEN[name]}
    ours = scoreboard.counted(rows, UNSEEN[name])[scoreboard.OURS]
    said = " ".join(guide.replace("*", "").split())
    assert (
        f"{ours['found']} of {ours['faults']} faults" in said and f"{ours['alarms']} of {ours['right']} right" in said
    )
    for case in UNSEEN[name] if name == scoreboard.UNSEEN[-1] else ():
        found = rows[case.name][scoreboard.OURS]["verdict"] == "found"
        assert found is case.faulty or f"[`{case.path.stem}`](../../tests/corpus/{case.name})" in guide, case.name
