"""tutorials/matmul_blocked: long sums, reads outside, errors, mutants."""

import functools

import pytest
import torch

from academy.runtime import device
from annotated_examples.tutorials import matmul_blocked as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant, randn
from tests.kernels.matmul_cases import long_sums_right

TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)

# Out-of-bounds reads change no result: only the interpreter can be asked for the addresses.
MUTANTS = [
    Mutant("no mask on M loads", "m_mask[:, None] & k_mask", "(offs_m >= 0)[:, None] & k_mask"),
    Mutant("no mask on N loads", "k_mask[:, None] & n_mask[None, :]", "k_mask[:, None] & (offs_n >= 0)[None, :]"),
] * device.INTERPRET
reads_inside = functools.partial(matmul_cases.reads_inside, tiles=TILES)


def test_it_reads_inside():
    reads_inside(lesson)


@pytest.mark.parametrize("K", [1025, 8192])
def test_float32_sums_of_many_terms(K):
    long_sums_right(lesson.matmul, K)


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, reads_inside)


def test_float16_sums_are_formed_in_float32():
    """4096 ones: a float16 sum would stop at 2048."""
    ones = torch.ones(16, 4096, dtype=torch.float16, device=harness.DEVICE)
    assert (lesson.matmul(ones, ones.T) == 4096).all()


ONES = torch.ones(2, 2)
test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=[1.0]), TypeError, "x must be a torch.Tensor, got list"),
        (dict(x=ONES.long(), y=ONES.long()), TypeError, "x must be one of float32, float16, bfloat16"),
        (dict(y=ONES.half()), TypeError, "y must have the dtype of x, float32, got float16"),
        (dict(x=ONES[0]), ValueError, r"x must have 2 dimensions \(M, K\), got shape \(2,\)"),
        (dict(y=ONES[None]), ValueError, r"y must have 2 dimensions \(K, N\)"),
        (dict(x=torch.ones(2, 3)), ValueError, "y must have as many rows as x has columns, 3"),
        (dict(x=ONES.to("meta")), ValueError, "x is on meta"),
    ],
    dict(x=ONES, y=ONES),
    lesson.matmul,
)
test_bad_tile_size = harness.raises_test(
    [
        (
            lambda: lesson.matmul_forward(randn(5, 5), randn(5, 5), BLOCK_N=24),
            ValueError,
            "BLOCK_N must be a power of two",
        )
    ]
)
