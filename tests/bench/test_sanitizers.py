"""The table of sanitizers: every public function, a row each, resumed where it was stopped."""

import argparse
import sys
import time

import pytest

from academy.runtime import device
from academy.bench import experiment
from academy.book.layout import ROOT
from academy.judge import sanitizers
from academy.judge.findings import Skipped, Wrong
from academy.judge.trials import ON_A_CARD
from academy.results import figures
from benchmarks import sanitizers as table

OURS = dict(table.ours())


def test_every_public_function_is_there_and_can_be_made_in_another_process():
    assert len(OURS) > 80 and {"fast.softmax.softmax", "gluon.matmul.matmul"} <= set(OURS)
    assert sorted(table.ORDER) == sorted(ON_A_CARD)
    for one in OURS.values():
        assert one.origin is not None and one.origin().name == one.name


def test_the_corpus_is_there():
    names = [name for name, _ in table.corpus()]
    assert len(names) > 120 and any("outside/wrong_" in name for name in names)


def test_first_a_sanitizer_and_of_it_what_needs_it_most_and_what_is_quick():
    found = [(name, sanitizer) for name, _, sanitizer in table.in_order(list(OURS.items()), ["gsan", "memcheck"])]
    assert [sanitizer for _, sanitizer in found] == ["gsan"] * len(OURS) + ["memcheck"] * len(OURS)
    names = [name for name, sanitizer in found if sanitizer == "gsan"]
    assert {names[0], names[1], names[2]} >= {"fast.cumsum.cumsum", "fast.matmul.matmul"}
    slow = {row["function"]: row["seconds"] for row in figures.first(ROOT, "experiments/sanitizers")["rows"]}
    slowest = max((name for name in slow if name in names[3:]), key=slow.__getitem__)
    assert names.index(slowest) > len(names) / 2


def test_the_corpus_comes_after_ours():
    one = OURS["tutorials.softmax.softmax"]
    found = table.in_order([("tests/corpus/a.py:f", one), ("tutorials.softmax.softmax", one)], ["gsan", "memcheck"])
    assert [name.startswith("tests/") for name, _, _ in found] == [False, False, True, True]


def test_cards_are_those_that_are_seen(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-1, 7")
    assert table.cards(0) == ["4", "GPU-1", "7"] and table.cards(2) == ["4", "GPU-1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert table.cards(0) == ["0", "1"]


def test_a_row(monkeypatch):
    def check(name, origin, file, trials, seconds, gpu):
        assert {"odd sizes", "long rows", "long cols"} == {trial.name for trial in trials} and seconds == 9
        assert gpu == "3"
        raise Wrong("gsan: a race", 12) if name == "gsan" else Skipped("not here")

    monkeypatch.setattr(sanitizers, "check", check)
    row = table.judged("softmax", OURS["tutorials.softmax.softmax"], "gsan", 9, "3")
    assert (row["verdict"], row["message"], row["line"]) == ("wrong", "gsan: a race", 12)
    assert table.judged("softmax", OURS["tutorials.softmax.softmax"], "fpsan", 9, "3")["verdict"] == "skipped"


@pytest.fixture
def run(monkeypatch):
    """`run(known rows, their versions, options)` -> (rows made: function, sanitizer, card), what is written."""

    def run(rows, versions=None, verdict="right", **options):
        made, written = [], {}

        def judged(name, one, sanitizer, seconds, gpu):
            time.sleep(0.2)  # so that each of two threads gets one
            made.append((name, sanitizer, gpu))
            return dict(function=name, sanitizer=sanitizer, verdict=verdict, message="", seconds=0.2)

        content = {"rows": rows, "versions": versions or experiment.versions()}
        monkeypatch.setattr(sanitizers, "missing", lambda names: {"consan": "a test"})
        monkeypatch.setattr(experiment, "kept", lambda *_: content)
        monkeypatch.setattr(experiment, "write_experiment", lambda name, results, content: written.update(content))
        monkeypatch.setattr(table, "judged", judged)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
        usual = dict(results=None, corpus=False, only="softmax.softmax", names="gsan,consan", minutes=1.0, seconds=5.0)
        table.run(argparse.Namespace(**usual | dict(processes=2, gpus=2, again="") | options))
        return made, written

    return run


OLD = dict(function="fast.softmax.softmax", sanitizer="gsan", verdict="skipped", message="", seconds=1)


def test_it_goes_on_where_it_was_stopped(run, capsys):
    made, written = run([OLD])
    assert [each[:2] for each in made] == [("tutorials.softmax.softmax", "gsan")] and len(written["rows"]) == 2
    assert "1 rows made, 0 left" in capsys.readouterr().out and written["left_out"] == {"consan": "a test"}


@pytest.mark.parametrize("options", [dict(again="skipped"), dict(versions={"triton": "1.0"})])
def test_what_is_made_again(run, options):
    made, _ = run([OLD], **options)
    assert {each[0] for each in made} == {"fast.softmax.softmax", "tutorials.softmax.softmax"}


def test_rows_are_spread_over_cards(run):
    made, _ = run([])
    assert {gpu for _, _, gpu in made} == {"5", "6"}


def test_nothing_begins_after_the_end(run, capsys):
    made, written = run([OLD], minutes=0.0)
    assert not made and not written and "0 rows made, 1 left" in capsys.readouterr().out


@pytest.mark.parametrize("seconds, kept", [(5.0, 1), (500.0, 0)])
def test_what_the_end_has_cut_short_is_no_row(run, seconds, kept):
    """A minute and 20 seconds are left, so 500 weren't given."""
    assert len(run([], verdict="skipped", seconds=seconds)[1].get("rows", ())) == 2 * kept


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="the stand-in's calls run in the interpreter")
def test_a_public_function_under_a_stand_in(tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\nwhile [ "$1" != {sys.executable} ]; do shift; done\n"$@"; echo "= SUMMARY: 0"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    row = table.judged("vector_add", OURS["tutorials.vector_add.vector_add"], "memcheck", 300, "")
    assert row["verdict"] == "right", row
