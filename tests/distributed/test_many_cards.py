"""The guide "Many cards": its costs against what is counted, its picture against its numbers, its table of traps."""

import re
import sys

import pytest
import torch

from academy.bench.collectives import ring_bytes
from tests.distributed.test_capstone import runpy_of_the_guide as guide
from tests.kernels.harness import ROOT


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_a_ring_sends_what_the_model_says(world):
    values = [torch.randn(24) for _ in range(world)]
    sums, sent = guide().ring_all_reduce(values)
    for each in sums:
        torch.testing.assert_close(each, sum(values))
    assert sent == [ring_bytes("all_reduce", 24 * 4, world)] * world
    halves = [ring_bytes(kind, 24 * 4, world) for kind in ("reduce_scatter", "all_gather")]
    assert sum(halves) == sent[0], "a scattered sum and a gather"


def test_a_kind_without_a_model_is_refused():
    with pytest.raises(ValueError, match="kind must be one of all_gather, .*, got 'send'"):
        ring_bytes("send", 1, 2)


def test_the_picture_has_the_guide_s_times():
    sys.path.insert(0, str(ROOT / "docs/figures"))
    try:
        import moving
        import ranks
    finally:
        sys.path.pop(0)
    facts = ranks.algorithms().facts
    assert facts == {"latency": guide().LATENCY * 1e6, "bandwidth": guide().BANDWIDTH / 1e6}
    for size in (1, 256, 65536):
        for world in (2, 8, 64):
            ways = {
                way["name"]: way
                for way in moving.run("all_reduce", dict(size=size, ranks=world), facts)["model"]["ways"]
            }
            payload = 1024 * size
            assert ways["ring"]["time"] == pytest.approx(guide().ring_time(payload, world) * 1e6)
            assert ways["one-shot"]["time"] == pytest.approx(guide().one_shot_time(payload, world) * 1e6)
            assert ways["ring"]["most"] == pytest.approx(ring_bytes("all_reduce", payload, world))
            assert ways["ring"]["sent"] * ways["ring"]["steps"] == pytest.approx(ways["ring"]["most"])
            steps, most = tree_all_reduce(world)
            assert (ways["tree"]["steps"], ways["tree"]["most"]) == (steps, most * payload)


def tree_all_reduce(world):
    """(steps, tensors that the busiest rank sends) of a sum up a binomial tree, and of its way back down."""
    values, sent, steps = list(range(world)), [0] * world, []
    for bit in range((world - 1).bit_length()):
        steps.append([(child, child - 2**bit) for child in range(2**bit, world, 2 ** (bit + 1))])
        for child, parent in steps[-1]:
            values[parent] += values[child]
            sent[child] += 1
    for pairs in reversed(steps):
        for child, parent in pairs:
            values[child] = values[parent]
            sent[parent] += 1
    assert values == [sum(range(world))] * world
    return 2 * len(steps), max(sent)


def test_every_trap_is_held_by_something_that_exists():
    """What a row of the guide's table names is a mutant, a test or a function."""
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", (ROOT / "docs/guides/many-cards.md").read_text("utf-8"), re.M)
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 25
    folders = ("tests/distributed", "annotated_examples/distributed", "annotated_examples/common")
    files = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    files += [ROOT / f"tests/kernels/test_{name}.py" for name in ("vocab_parallel_cross_entropy", "all_reduce")]
    text = "\n".join(path.read_text("utf-8") for path in files)
    named = [name for *_, holder in rows for name in re.findall(r"`([^`]+)`", holder)]
    assert len(named) >= 25 and not [name for name in named if name not in text]
