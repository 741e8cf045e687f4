"""tutorials/matmul_grouped: long sums, the order of tiles, errors, mutants."""

import inspect
import re

import pytest
import torch

from academy.runtime import device
from annotated_examples.common import products
from annotated_examples.tutorials import matmul_grouped as lesson
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn
from tests.kernels.matmul_cases import TILES, long_sums_right, reads_inside


@pytest.mark.parametrize("K", [1025, 8192])
def test_float32_sums_of_many_terms(K):
    long_sums_right(lesson.matmul, K)


# Of the loop, which is shared. Only the interpreter can be asked for the addresses of reads that change no result.
MUTANTS_OF_THE_LOOP = [Mutant("no mask on columns", "n_mask = offs_n < N", "n_mask = offs_n >= 0")] * device.INTERPRET


def test_it_reads_inside():
    reads_inside(lesson)


test_mutant_of_the_loop_is_caught = harness.mutant_test(products, MUTANTS_OF_THE_LOOP, reads_inside, within=lesson)


def test_picture_of_the_order():
    """The picture in the notes is what the kernel computes."""
    picture = re.findall(r"# pid_m = (\d)((?: +\d+){3})", inspect.getsource(lesson))
    order = lesson.program_order(4, 3, 3)
    assert len(picture) == 4 and sorted(order) == [(m, n) for m in range(4) for n in range(3)]
    for pid_m, row in picture:
        for pid_n, pid in enumerate(row.split()):
            assert order[int(pid)] == (int(pid_m), pid_n)


@pytest.mark.parametrize(
    ("x", "y", "activation", "error", "words"),
    [
        ([1.0], torch.ones(1, 1), "none", TypeError, "x must be a torch.Tensor, got list"),
        (
            torch.ones(2, 2).long(),
            torch.ones(2, 2).long(),
            "none",
            TypeError,
            "x must be one of float32, float16, bfloat16",
        ),
        (
            torch.ones(2, 2),
            torch.ones(2, 2).half(),
            "none",
            TypeError,
            "y must have the dtype of x, float32, got float16",
        ),
        (torch.ones(2), torch.ones(2, 2), "none", ValueError, r"x must have 2 dimensions \(M, K\), got shape \(2,\)"),
        (torch.ones(2, 3), torch.ones(2, 3), "none", ValueError, "y must have as many rows as x has columns, 3"),
        (torch.ones(2, 2), torch.ones(2, 2), None, ValueError, "activation must be one of 'none', 'relu', got None"),
        (torch.ones(2, 2, device="meta"), torch.ones(2, 2), "none", ValueError, "x is on meta"),
    ],
    ids=["type", "dtype", "mixed dtypes", "one dimension", "inner sizes", "activation", "device"],
)
def test_bad_arguments(x, y, activation, error, words):
    with pytest.raises(error, match=words):
        lesson.matmul(harness.on_device(x), harness.on_device(y), activation)


def test_bad_launcher_arguments():
    x, y = randn(5, 5), randn(5, 5)
    with pytest.raises(ValueError, match="GROUP_M must be at least 1, got 0"):
        lesson.matmul_forward(x, y, **{**TILES, "GROUP_M": 0})
    with pytest.raises(ValueError, match="GROUP_M must be at least 1, got -1"):
        lesson.matmul_backward(x, x, y, **{**TILES, "GROUP_M": -1})
    with pytest.raises(ValueError, match="BLOCK_K must be a power of two, got 12"):
        lesson.matmul_forward(x, y, **{**TILES, "BLOCK_K": 12})
