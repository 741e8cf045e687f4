"""The GPT trained by 2 and 4 processes: losses and gradients are the single process's, and what travels is counted."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import dataclasses
import functools
import os

import pytest
import torch

from academy.runtime import device
from academy.bench.collectives import Traffic
from academy.judge.mutants import Mutant, assert_caught
from annotated_examples.capstone import gpt, parallel
from tests import python
from tests.distributed import ranks
from tests.kernels.harness import ROOT

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="gloo's processes share no card; a card has NCCL")

#: The plain operations say the same in a fraction of the time; ours are in the tests of one way each.
PLAIN = dataclasses.replace(gpt.PLAIN, drop=lambda x, *_: x)


def expected(options):
    """A float64 model's losses and first gradients, and how far float32 is from it. Once, before the ranks start."""
    return parallel.train_alone(options)


def pieces(name, whole, options, rank, world):
    """The part of a whole model's gradient that this rank of `tp` has."""
    c = options.model
    head = c.width // c.heads
    if name.endswith("qkv"):
        return parallel.rows_of(whole, rank, world, [c.heads * head, c.key_heads * head, c.key_heads * head])
    if name.endswith("gate_up"):
        return parallel.rows_of(whole, rank, world, [c.hidden, c.hidden])
    if name.endswith(("out", "down")):
        return whole.chunk(world, 1)[rank]
    return whole.chunk(world)[rank] if name == "embedding" else whole


def compare(rank, world, module, options, alone):
    losses, gradients = module.train_in_parallel(options)
    torch.testing.assert_close(losses, alone[0], rtol=1e-5, atol=1e-5)
    assert gradients.keys() == alone[1].keys()
    for name, whole in alone[1].items():
        mine = pieces(name, whole, options, rank, world) if options.way == "tp" else whole
        torch.testing.assert_close(gradients[name], mine, rtol=1e-4, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")
    return losses.tolist()


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("way", parallel.WAYS)
def test_losses_and_gradients_are_those_of_one_process(way, world):
    options = parallel.Options(way=way, steps=2, operations=PLAIN)
    every = ranks.run(compare, world, parallel, options, expected(options))
    assert all(losses == every[0] for losses in every), "not the same losses on every rank"


@pytest.mark.parametrize("way", parallel.WAYS)
def test_our_kernels(way):
    options = parallel.Options(way=way, steps=1)
    ranks.run(compare, 2, parallel, options, expected(options))


MUTANTS = [
    Mutant("rank 0 has all queries", "torch.cat([part.chunk(world)[rank] for part in weight.split(parts)])", "weight.chunk(world)[rank]"),
    Mutant("the input's gradient isn't summed", "linear(copied_to_ranks(x, group), weight)", "linear(x, weight)"),
    Mutant("the terms aren't summed", "summed_over_ranks(operations.linear(x, weight), group)", "operations.linear(x, weight)"),
    Mutant("tokens of other ranks look up row 0", "torch.where(here[:, None], found, 0.0)", "found"),
    Mutant("every rank has all sequences", "slice(rank, None, world)", "slice(rank, rank + 1)"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant(mutant, tmp_path):
    def check(broken):
        way = "ddp" if "sequences" in mutant.name else "tp"
        options = parallel.Options(way=way, steps=1, sequences=4, operations=PLAIN)
        ranks.run(compare, 2, broken, options, expected(options))

    assert_caught(parallel, mutant, check, tmp_path)


def bytes_of_a_step(rank, world, options):
    model = parallel.WAYS[options.way](parallel.whole_model(options))
    tokens, labels = next(parallel.batches(options, rank, world))
    if options.way == "ddp":
        model(tokens, labels).backward()  # the first backward pass also agrees on the order of the buckets
    with Traffic() as traffic:
        model(tokens, labels).backward()
    return {kind: (count, traffic.bytes(kind)) for kind, count in traffic.counts().items()}


@pytest.mark.parametrize("way", parallel.WAYS)
def test_what_travels_is_what_the_guide_calculates(way):
    """docs/guides/snippets/many_cards.py has the model of cost; here its bytes are counted."""
    guide = runpy_of_the_guide()
    options = parallel.Options(way=way, operations=PLAIN)
    world = 2
    counted = ranks.run(bytes_of_a_step, world, options)[0]
    calculated = guide.bytes_of_a_step(options.model, way, options.sequences, world, itemsize=4)
    counted.pop("broadcast", None)  # of DDP: the order of its buckets, and the tables of angles
    assert {kind: total for kind, (_, total) in counted.items()} == calculated


@functools.cache
def runpy_of_the_guide():
    from academy.book import syntax

    return syntax.import_path(ROOT / "docs/guides/snippets/many_cards.py", "many_cards")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(way="pp"), "way must be one of ddp, fsdp, tp, got 'pp'"),
        (dict(way="ddp", sequences=5), "sequences must be a multiple of the 2 ranks for ddp, got 5"),
        (
            dict(model=dataclasses.replace(parallel.Options().model, key_heads=1)),
            "key_heads must be a multiple of the 2",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(parallel.Options(), **change).check(2)


@pytest.mark.nightly
@pytest.mark.parametrize(("world", "way"), [(2, "tp"), *((4, way) for way in parallel.WAYS)])
def test_under_torchrun(world, way):
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += [str(ROOT / "annotated_examples/capstone/parallel.py"), "--way", way, "--steps", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = python.run(command, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{way} on {world} ranks" in done.stdout
