"""The table of sanitizers: every public function, a row each, resumed where it was stopped."""

import argparse
import sys
from collections import Counter

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
    assert list(OURS)[0].startswith("fast.") and sorted(table.ORDER) == sorted(ON_A_CARD)
    for one in OURS.values():
        assert one.origin is not None and one.origin().name == one.name


def test_the_corpus_is_there():
    names = [name for name, _ in table.corpus()]
    assert len(names) > 120 and any("outside/wrong_" in name for name in names)


def test_a_row(monkeypatch):
    def check(name, origin, file, trials, seconds):
        assert {"odd sizes", "long rows", "long cols"} == {trial.name for trial in trials} and seconds == 9
        raise Wrong("gsan: a race", 12) if name == "gsan" else Skipped("not here")

    monkeypatch.setattr(sanitizers, "check", check)
    row = table.judged("softmax", OURS["tutorials.softmax.softmax"], "gsan", 9)
    assert (row["verdict"], row["message"], row["line"]) == ("wrong", "gsan: a race", 12)
    assert table.judged("softmax", OURS["tutorials.softmax.softmax"], "fpsan", 9)["verdict"] == "skipped"


def test_it_goes_on_where_it_was_stopped(monkeypatch, capsys):
    old = dict(function="fast.softmax.softmax", sanitizer="gsan", verdict="skipped", message="", line=None, seconds=1)
    made, written = [], {}
    monkeypatch.setattr(sanitizers, "missing", lambda names: {"consan": "a test"})
    monkeypatch.setattr(experiment, "kept", lambda *_: {"rows": [old]})
    monkeypatch.setattr(experiment, "write_experiment", lambda name, results, content: written.update(content))
    monkeypatch.setattr(table, "judged", lambda name, one, sanitizer, seconds: made.append((name, sanitizer)) or {
        **old, "function": name, "sanitizer": sanitizer, "verdict": "right"})  # fmt: skip
    options = dict(results=None, corpus=False, only="softmax.softmax", names="gsan,consan", minutes=1.0, seconds=5.0)
    table.run(argparse.Namespace(**options, processes=2, again=""))
    assert made == [("tutorials.softmax.softmax", "gsan")] and len(written["rows"]) == 2
    assert "1 rows made, 0 left" in capsys.readouterr().out and written["left_out"] == {"consan": "a test"}
    table.run(argparse.Namespace(**options, processes=2, again="skipped"))
    assert ("fast.softmax.softmax", "gsan") in made


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="the stand-in's calls run in the interpreter")
def test_a_public_function_under_a_stand_in(tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\nwhile [ "$1" != {sys.executable} ]; do shift; done\n"$@"; echo "= SUMMARY: 0"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    row = table.judged("vector_add", OURS["tutorials.vector_add.vector_add"], "memcheck", 300)
    assert row["verdict"] == "right", row


def test_the_guide_counts_what_the_card_said():
    content = figures.first(ROOT, "experiments/sanitizers")
    count = Counter((row["sanitizer"], row["verdict"]) for row in content["rows"])
    said = f"""on an {content["device"]} with Triton {content["versions"]["triton"]}. memcheck found nothing in
    {count["memcheck", "right"]}, and GSan nothing in {count["gsan", "right"]}. {count["gsan", "skipped"]} got no
    verdict from GSan, mostly because they took longer than 75 seconds under it.
    In {count["gsan", "wrong"]} it reports"""
    assert " ".join(said.split()) in " ".join((ROOT / "docs/guides/test-your-own-kernel.md").read_text("utf-8").split())
    assert not any(count[sanitizer, "wrong"] for sanitizer in ("memcheck", "racecheck"))
