"""fast/muon: the lesson's bits, from descriptors and where none will do; mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from annotated_examples.fast import muon as fast
from annotated_examples.optimizers import muon as lesson
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn
from tests.kernels.test_muon import CHECKS, heads_are_matrices_of_their_own

test_behaviour = harness.check_test(fast, [*CHECKS, heads_are_matrices_of_their_own])


#: (batch, m, k), of which rows are cut out so that they begin where the second number says, in elements.
SHAPES = [((2, 40, 56), 0), ((1, 16, 16), 8), ((3, 8, 136), 0), ((1, 200, 24), 0), ((2, 24, 40), 8)]
OTHERS = [((2, 37, 56), 0), ((1, 16, 16), 4), ((2, 24, 40), 3)]


def cut(batch, m, k, before, dtype):
    return randn(batch, m, before + k, dtype=dtype)[:, :, before:]


def the_lessons_bits(module):
    for dtype in (torch.bfloat16, torch.float16):
        for (batch, m, k), before in (*SHAPES, *OTHERS):
            a = cut(batch, m, k, before, dtype)
            square = randn(batch, m, m, dtype=dtype)
            options = dict(alpha=0.7, d=square + square.mT, beta=-1.3)
            got = module.symmetric_product(a, **options)
            assert torch.equal(got, got.mT)
            assert torch.equal(got, lesson.symmetric_product(a, **options)), (dtype, batch, m, k, before)
            x = a.contiguous()
            assert torch.equal(module.step_forward(got, x, 2.0), lesson.step_forward(got, x, 2.0))
            for tiles in (dict(BLOCK=16, BLOCK_K=16), dict(BLOCK=32, BLOCK_K=64)):
                assert torch.equal(
                    module.symmetric_forward(x, got, 1.0, 1.0, **tiles),
                    lesson.symmetric_forward(x, got, 1.0, 1.0, **tiles),
                )
                assert torch.equal(module.step_forward(got, x, 2.0, **tiles), lesson.step_forward(got, x, 2.0, **tiles))


test_bits = harness.check_test(fast, [the_lessons_bits])


@pytest.mark.parametrize(("shapes", "by_descriptors"), [(SHAPES, True), (OTHERS, False)])
def test_what_descriptors_can_describe(shapes, by_descriptors):
    for (batch, m, k), before in shapes:
        assert bool(fast.describable(cut(batch, m, k, before, torch.bfloat16))) == by_descriptors, (m, k, before)
    assert not fast.describable(cut(1, 16, 16, 0, torch.float32))


MUTANTS = [
    (the_lessons_bits, Mutant("the diagonal's upper half as it came", "c = tl.where((i * BLOCK + offs)[:, None] >= (j * BLOCK + offs)[None, :], c, mirrored)", "c = tl.where(i > j, c, 2 * mirrored)")),
    (the_lessons_bits, Mutant("the second half isn't added to", "right += factor *", "right += 0 * factor *")),
    (the_lessons_bits, Mutant("no mirror", "tl.where(i == j, c, mirrored)", "c")),
]  # fmt: skip
test_mutant_is_caught = harness.mutant_test(fast, MUTANTS)
