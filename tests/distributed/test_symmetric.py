"""Kernels that wait for other ranks, in processes that share memory: the same source that runs on cards."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from triton.runtime.interpreter import InterpreterBuilder

from academy.runtime import device
from academy.judge.mutants import Mutant, assert_caught
from annotated_examples.common.symmetric import symmetric_memory
from annotated_examples.distributed import all_gather_matmul as product
from annotated_examples.distributed import all_reduce as lesson
from tests.distributed import ranks

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="processes that share memory stand in for cards")


def slow_loads(seconds):
    """This rank reads late: what another does too early shows."""
    original = InterpreterBuilder.create_masked_load

    def late(*arguments, **options):
        time.sleep(seconds)
        return original(*arguments, **options)

    InterpreterBuilder.create_masked_load = late


def rounds(rank, world, module, slow):
    """The same memory again and again, by tensors of several sizes, without a barrier in between."""
    memory = symmetric_memory(50, programs=2)
    if rank == slow:
        slow_loads(0.01)
    for turn, size in enumerate((50, 7, 33, 50, 50, 1)):
        generators = [torch.Generator().manual_seed(10 * turn + r) for r in range(world)]
        values = [torch.randn(size, generator=g) for g in generators]
        total = module.all_reduce(values[rank], memory)
        expected = values[0]
        for value in values[1:]:
            expected = expected + value
        assert torch.equal(total, expected), f"round {turn} on rank {rank}: {total - expected}"
    dist.barrier()
    assert not any(pad.any() for pad in memory.pads), "every signal has been taken back"


@pytest.mark.parametrize("world", [2, 3, 4])
def test_one_shot_all_reduce(world):
    ranks.run(rounds, world, lesson, world - 1)


MUTANTS = [
    Mutant("buffers filled again too early", "meet(pads, programs + pid, RANK, WORLD)", "pass"),
    Mutant("read before it is written", "    meet(pads, pid, RANK, WORLD)\n", "    pass\n"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant(mutant, tmp_path):
    assert_caught(lesson, mutant, lambda broken: ranks.run(rounds, 2, broken, 1, seconds=20), tmp_path)


def one_program_more(rank, world):
    """A grid that doesn't fit on the card: here each rank runs one program at a time, in its own order."""
    memory = symmetric_memory(8, programs=2)
    x = torch.ones(8)
    for program in (0, 1) if rank == 0 else (1, 0):
        part = x[4 * program :][:4]
        pads = tuple(pad[program * world :] for pad in memory.pads)
        lesson.one_shot_all_reduce_kernel[(1,)](
            part,
            part.clone(),
            tuple(b[4 * program :] for b in memory.buffers),
            pads,
            4,
            RANK=rank,
            WORLD=world,
            BLOCK=4,
        )


def test_programs_that_are_not_all_running_wait_for_ever():
    with pytest.raises(AssertionError, match="were not done after 2 s: one waits for another"):
        ranks.run(one_program_more, 2, seconds=2)


def products(rank, world, module, delay):
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # what has not arrived is NaN
    memory = symmetric_memory(5 * 20)
    original = torch.Tensor.fill_

    def late(tensor, value):  # the flag: set by the thread that copies
        time.sleep(delay)
        return original(tensor, value)

    for turn in range(2):
        torch.manual_seed(turn)
        x, w = torch.randn(world, 5, 20), torch.randn(world, 20, 9)
        torch.Tensor.fill_ = late
        out = module.all_gather_matmul_forward(x[rank], w[rank], memory, BLOCK_M=4, BLOCK_N=8, BLOCK_K=16)
        torch.Tensor.fill_ = original
        torch.testing.assert_close(out, x.view(-1, 20) @ w[rank])


@pytest.mark.parametrize("world", [2, 3])
def test_rows_are_multiplied_as_they_arrive(world):
    ranks.run(products, world, product, 0.02)


def late_rows(rank, world, module):
    """The copies themselves are late."""
    original = torch.Tensor.copy_

    def late(tensor, other, non_blocking=False):
        time.sleep(0.05 * non_blocking)
        return original(tensor, other)

    torch.Tensor.copy_ = late
    products(rank, world, module, 0)


PRODUCT_MUTANTS = [
    Mutant("multiplied before it arrives", '        while tl.atomic_cas(arrived_ptr + source, 1, 1, sem="acquire", scope="sys") != 1:\n            pass\n', ""),
    Mutant("waits for its own flag only", "tl.atomic_cas(arrived_ptr + source,", "tl.atomic_cas(arrived_ptr + RANK,"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", PRODUCT_MUTANTS, ids=str)
def test_product_mutant(mutant, tmp_path):
    assert_caught(product, mutant, lambda broken: ranks.run(late_rows, 2, broken, seconds=20), tmp_path)


def test_a_flag_finds_an_sm(monkeypatch):
    """It is set by a kernel, for which the product's programs wait: they may not take all SMs."""
    monkeypatch.setattr(device, "INTERPRET", False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(multi_processor_count=132))
    assert (product.resident(500), product.resident(500, spare=1), product.resident(7, spare=1)) == (132, 131, 7)
    asked = []
    monkeypatch.setattr(product, "resident", lambda wanted, spare=0: asked.append(spare) or 1)
    monkeypatch.setattr(device, "INTERPRET", True)
    product.all_gather_matmul(torch.ones(2, 16), torch.ones(16, 16))
    assert asked[-1] == 1
