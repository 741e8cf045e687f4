"""The comparison under FpSan: every fast version, Gluon kernel and rung is in it, and a difference is one."""

import json
import subprocess
from collections import Counter

import pytest
import torch

from academy.book.layout import ROOT
from academy.judge import public
from academy.results import figures, ladder
from benchmarks import fpsan

PAIRS = list(fpsan.pairs())


def test_every_version_of_a_function_and_every_rung_is_compared():
    second = {two for _, two in PAIRS}
    versions = [each for gluon in (False, True) for each in public.functions(gluon=gluon)]
    names = [each.name for each in versions]
    assert {str(each) for each in versions if names.index(each.name) < versions.index(each)} <= second
    for name in ladder.names(ROOT):
        words = [rung.word for rung in ladder.rungs(name, ROOT) if rung.number]
        assert {f"{name}/{word}" for word in words[1:]} <= second
    assert set(fpsan.SHAPES) == set(ladder.names(ROOT))


def test_what_the_ring_does_not_have_is_read_from_the_kernels():
    assert {"−∞", "a division"} <= set(fpsan.outside_of_the_ring("tutorials.softmax.softmax", "fast.softmax.softmax"))
    assert "a division" in fpsan.outside_of_the_ring("layernorm/three_trips", "layernorm/two_trips")
    assert "−∞" not in fpsan.outside_of_the_ring("matmul/tiles", "matmul/large_tiles")


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "pair",
    [("classics.matmul.matmul", "tutorials.matmul_blocked.matmul"), ("matmul/tiles", "matmul/large_tiles")],
)
def test_a_row(pair, monkeypatch):
    """Of whole numbers, whose sums are exact: here it isn't FpSan's ring, and each processor adds in its own order."""

    def whole(*sizes, dtype=torch.float32, device=None, **_):
        size = sizes[0] if isinstance(sizes[0], tuple | list) else sizes
        return torch.randint(-2, 3, tuple(size), device=device).to(dtype)

    monkeypatch.setattr(torch, "randn", whole)
    row = fpsan.row(*pair)
    assert row["verdict"] == "same" and row["two"] == pair[1] and len(row["sizes"]) == 2, row
    assert all(set(shares.values()) == {0.0} for shares in row["sizes"].values())


@pytest.mark.interpreted
def test_a_planted_eps_shows_in_the_bits_where_it_is_large_enough_for_floats(monkeypatch):
    monkeypatch.setattr(fpsan, "_planted", lambda f: lambda x, weight, **options: f(x, weight, eps=0.1, **options))
    row = fpsan.row("planted/rmsnorm", "classics.rmsnorm.rmsnorm")
    assert row["verdict"] == "differs"
    assert all(shares["out"] > 0.9 and shares["the gradient of x"] > 0.9 for shares in row["sizes"].values()), row


def test_verdicts():
    one, two, tensor = "classics.matmul.matmul", "fast.matmul.matmul", torch.tensor([1.0, -0.0])
    assert fpsan.compared({"out": tensor}, {"out": torch.tensor([1.0, 0.0])}) == {"out": 0.5}
    same, other = {"out": 0.0}, {"out": 0.5}
    for odd, whole, verdict in [
        (same, same, "same"), (other, same, "same at whole sizes"), ("OutOfResources: x", same, "same at whole sizes"),
        (same, other, "differs"), ("a", "b", "skipped"), ({}, {}, "skipped"),
    ]:  # fmt: skip
        assert fpsan.judged(one, two, {"odd: m=5": odd, "whole: m=128": whole})["verdict"] == verdict


def test_a_process_that_stops_or_does_not_end_is_skipped_with_the_reason(monkeypatch):
    def run(command, **options):
        assert options["env"]["TRITON_INSTRUMENTATION_MODE"] == "fpsan" and command[-2:] == ["a.b.c", "d.e.f"]
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(fpsan.subprocess, "run", run)
    row = fpsan.in_a_process("a.b.c", "d.e.f", 3)
    assert row["verdict"] == "skipped" and row["sizes"] == {"all": "it did not end within 3 s"}
    ended = subprocess.CompletedProcess([], -11, stdout="", stderr="x\nSegmentation fault\n")
    monkeypatch.setattr(fpsan.subprocess, "run", lambda *_, **__: ended)
    assert "-11: Segmentation fault" in json.dumps(fpsan.in_a_process("a.b.c", "d.e.f", 3))


def test_the_guide_counts_what_the_card_said():
    content = figures.first(ROOT, "experiments/fpsan")
    count = Counter(row["verdict"] for row in content["rows"])
    assert all(row["not in the ring"] for row in content["rows"] if row["verdict"] == "differs")
    said = f"""On an {content["device"]} with Triton {content["versions"]["triton"]} it had time for
    {count.total()} pairs. {count["same"]} have the same bits,
    and {count["same at whole sizes"]} has them where no lane is masked.
    {count["differs"]} differ; all of these divide, take a logarithm or choose by order, which the ring doesn't have.
    {count["skipped"]} did not get a verdict"""
    assert " ".join(said.split()) in " ".join((ROOT / "docs/guides/without-a-tolerance.md").read_text("utf-8").split())
