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


ONES = torch.ones(2, 2)
test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=[1.0]), TypeError, "x must be a torch.Tensor, got list"),
        (dict(x=ONES.long(), y=ONES.long()), TypeError, "x must be one of float32, float16, bfloat16"),
        (dict(y=ONES.half()), TypeError, "y must have the dtype of x, float32, got float16"),
        (dict(x=ONES[0]), ValueError, r"x must have 2 dimensions \(M, K\), got shape \(2,\)"),
        (dict(x=torch.ones(2, 3)), ValueError, "y must have as many rows as x has columns, 3"),
        (dict(activation=None), ValueError, "activation must be one of 'none', 'relu', got None"),
        (dict(x=ONES.to("meta")), ValueError, "x is on meta"),
    ],
    dict(x=ONES, y=ONES, activation="none"),
    lesson.matmul,
)
forward = lambda **tiles: lesson.matmul_forward(randn(5, 5), randn(5, 5), **TILES | tiles)  # noqa: E731
backward = lambda **tiles: lesson.matmul_backward(*[randn(5, 5)] * 3, **TILES | tiles)  # noqa: E731
test_bad_launcher_arguments = harness.raises_test(
    [
        (lambda: forward(GROUP_M=0), ValueError, "GROUP_M must be at least 1, got 0"),
        (lambda: backward(GROUP_M=-1), ValueError, "GROUP_M must be at least 1, got -1"),
        (lambda: forward(BLOCK_K=12), ValueError, "BLOCK_K must be a power of two, got 12"),
    ]
)
