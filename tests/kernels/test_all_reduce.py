"""all_reduce and all_gather_matmul: ranks as a list, errors, what the compiler makes of them.

Several processes over shared memory are in tests/distributed/test_symmetric.py.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import re

import pytest
import torch

from academy import compiler
from academy.judge import accuracy
from annotated_examples.common import symmetric
from annotated_examples.distributed import all_gather_matmul as product
from annotated_examples.distributed import all_reduce as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, LAYOUTS, Mutant, mutant_test, randn


def sums(module, values, programs=2, block=8):
    """What each rank of a list gets; twice the same call gives the same bits, as does every rank."""
    results = []
    for _ in range(2):
        memories = module.symmetric_list(values, programs)
        before = [pad.clone() for pad in memories[0].pads]
        with harness.fenced_allocations():
            results.append([module.all_reduce_forward(x, m, BLOCK=block) for x, m in zip(values, memories)])
        after = memories[0].pads
        assert all(torch.equal(a, b) for a, b in zip(before, after)), "every signal that was set has been taken back"
    first, again = results
    assert all(torch.equal(first[0], other) for other in first[1:] + again), "not the same bits"
    return first[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (100,)], ids=str)
def test_sum(shape, world, dtype):
    values = [randn(*shape, dtype=dtype) for _ in range(world)]
    exact = torch.stack(values).double().sum(0)
    accuracy.check("sum", sums(lesson, values), torch.stack(values).sum(0), exact)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x = LAYOUTS[layout](randn(5, 21))
    with harness.unchanged(x=x):
        assert torch.equal(sums(lesson, [x, x]), x + x)


def small_terms(module):
    """Seven ranks with small numbers: summed in bfloat16, each of them would be lost beside the first."""
    values = [torch.full((9,), 256.0 if rank == 0 else 0.75, dtype=torch.bfloat16, device=DEVICE) for rank in range(8)]
    assert sums(module, values)[0].item() == 262.0  # 261.25, rounded once


def more_blocks_than_programs(module):
    values = [randn(50) for _ in range(3)]
    torch.testing.assert_close(sums(module, values, programs=2, block=8), sum(values))


def unordered(module):
    """Sums in another order differ in their last bits: `sums` compares the ranks."""
    sums(module, [randn(64) * 10**rank for rank in range(4)])


IN_FLOAT32 = "acc += tl.load(buffers[r] + offs, mask=mask, other=0.0).to(tl.float32)"
MUTANTS = [
    (small_terms, Mutant("summed in the tensor's dtype", IN_FLOAT32, IN_FLOAT32.replace("+= ", "= (acc + ") + ").to(x_ptr.dtype.element_ty).to(tl.float32)")),
    (more_blocks_than_programs, Mutant("blocks behind the grid left out", "range(pid * BLOCK, N, ", "range(pid * BLOCK, pid * BLOCK + 1, ", count=2)),
    (unordered, Mutant("own numbers first", "tl.load(buffers[r] + offs", "tl.load(buffers[(r + RANK) % WORLD] + offs")),
]  # fmt: skip
test_mutant = mutant_test(lesson, MUTANTS)


test_check = harness.check_test(lesson, [small_terms, more_blocks_than_programs, unordered])


def test_a_grid_is_never_larger_than_what_runs_at_once(monkeypatch):
    """Programs that wait for each other must all have a place: the memory says for how many."""
    grids = harness.grids(monkeypatch, lesson)
    for numel, programs in ((10_000, 3), (1000, 3), (1025, 8), (0, 3)):
        lesson.all_reduce_forward(randn(numel), symmetric.symmetric_memory(20_000, programs=programs))
    assert grids == [(3,), (1,), (2,)]
    assert symmetric.slots(3, 4) == 2 * 3 * 4, "two meetings of three programs, a slot for each of four senders"


def test_compiled_for_a_card():
    """Every signal is an atomic of its own, and the numbers move 16 bytes at a time."""
    code = """
import torch
from annotated_examples.distributed.all_reduce import one_shot_all_reduce_kernel
from annotated_examples.distributed.all_gather_matmul import gathered_matmul_kernel

x = torch.empty(4096, device="cuda")
pads = tuple(torch.zeros(64, dtype=torch.int32, device="cuda") for _ in range(2))
one_shot_all_reduce_kernel[(4,)](x, x.clone(), (x.clone(), x.clone()), pads, 4096, RANK=1, WORLD=2, BLOCK=1024)
a, w = (torch.empty(256, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2))
gathered_matmul_kernel[(4,)](
    a, w, a.clone(), pads[0], 64, 64, 64, 64, 1, RANK=1, WORLD=4, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
)
"""
    reduce, gather = compiler.compile_code(code, 90).kernels
    assert not reduce.problems and not gather.problems
    assert reduce.sass["atomic"] == 2 * (2 + 2), "in each of two meetings a signal to each rank, and one from each"
    assert reduce.ptx["global load, 16 bytes"] and gather.sass["atomic"] == 1


@pytest.mark.parametrize(
    ("x", "memory", "error", "words"),
    [
        ([1.0], None, TypeError, "x must be a torch.Tensor, got list"),
        (torch.ones(4).double(), None, TypeError, "x must be one of float32"),
        (torch.ones(4), "wrong", TypeError, "memory must come from symmetric_memory, got str"),
        (torch.ones(4).half(), "ok", TypeError, "memory must have the dtype of x, torch.float16, got torch.float32"),
        (torch.ones(9), "ok", ValueError, "memory must hold 9 elements for x, got 8"),
        (torch.ones(4, requires_grad=True), "ok", ValueError, "all_reduce has no backward pass"),
    ],
)
def test_bad_arguments(x, memory, error, words):
    memory = symmetric.symmetric_memory(8, programs=1) if memory == "ok" else memory
    x = x.detach().to(DEVICE).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
    with pytest.raises(error, match=words):
        lesson.all_reduce(x, memory)
    with pytest.raises(ValueError, match="numel must be at least 1, got 0"):
        symmetric.symmetric_memory(0)


# ---------------------------------------------------------------- the product


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 33, 17), (40, 20, 70), (3, 0, 4), (0, 4, 4)], ids=str)
def test_product_alone(shape, dtype):
    rows, K, N = shape
    x, w = randn(rows, K, dtype=dtype), randn(N, K, dtype=dtype).T
    memory = symmetric.symmetric_memory(max(1, x.numel()), dtype, programs=1)
    with harness.unchanged(x=x, w=w):
        out = product.all_gather_matmul(x, w, memory)
    accuracy.check("out", out, x @ w, x.double() @ w.double())


def test_product_of_bad_arguments():
    x, memory = randn(4, 5), symmetric.symmetric_memory(10)
    for w, error, words in (
        (randn(4, 5), ValueError, r"w must have shape \(5, 5\) \(\(K, N\), with the K of x\)"),
        (randn(5, 3).half(), TypeError, "w"),
        (randn(5, 3), ValueError, "memory must hold 20 elements for x, got 10"),
    ):
        with pytest.raises(error, match=words):
            product.all_gather_matmul(x, w, memory)


def test_own_rows_come_first():
    """The tiles of a rank, in the order in which it waits for their rows."""
    from academy.judge.mutants import code_of

    text = code_of((harness.ROOT / "annotated_examples/distributed/all_gather_matmul.py").read_text("utf-8"))
    line = re.search(r"source = (.*)", text)[1]
    for rank in range(4):
        scope = dict(RANK=rank, WORLD=4, tiles_of_a_rank=3)
        seen = [eval(line, scope | dict(tile=tile)) for tile in range(12)]
        assert list(dict.fromkeys(seen)) == [(rank + step) % 4 for step in range(4)]
