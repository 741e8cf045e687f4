"""tutorials/softmax and fast/softmax: values, gradients, long rows, infinities, hostile inputs, errors, mutants."""

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.fast import softmax as fast
from annotated_examples.tutorials import softmax as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

module = harness.modules(lesson, fast)

INF = float("inf")

LESSON_MUTANTS = [
    Mutant("chunk of minus infinity gives NaN", 'tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("x and y move on by different distances", "VECTOR if (stride - N) % VECTOR == 0 else 1", "VECTOR"),
]  # fmt: skip


def is_fast(module):
    """Whether this is the fast file, or a mutant of it."""
    return hasattr(module, "tiles")


def small_tiles(module):
    """Tiles with which a row of 37 is one block, and with which it takes several chunks."""
    return [dict(BLOCK_M=2, BLOCK_N=64) if is_fast(module) else dict(BLOCK_N=64), dict(BLOCK_N=16)]


@pytest.fixture(params=[0, 1], ids=["one block", "chunks"])
def tiles(request, module):
    return small_tiles(module)[request.param]


def pytorch(x):
    return torch.softmax(x, dim=-1)


def assert_right_with_tiles(module, x, dy, **tiles):
    """The launchers with small tiles, so that loops over chunks run more than once."""
    with harness.unchanged(x=x, dy=dy), harness.fenced_allocations():
        y = module.softmax_forward(x, **tiles)
        saved = y.clone()
        dx = module.softmax_backward(dy, y, **tiles)
    assert torch.equal(y.isnan(), saved.isnan()) and torch.equal(y.nan_to_num(), saved.nan_to_num()), "y was written to"
    theirs = harness.gradients(pytorch, dict(x=x), dy)
    exact = harness.gradients(pytorch, dict(x=x.double()), dy.double())
    for name, value in dict(out=y, dx=dx).items():
        accuracy.check(name, value, theirs[name], exact[name])


def rows_with_minus_infinity():
    """Masked scores: at the start (a whole first chunk), at the end, everywhere, in all but one place."""
    x = randn(4, 50)
    x[0, :20], x[1, 30:], x[2, :], x[3, 1:] = -INF, -INF, -INF, -INF
    return x


def rows_of_minus_infinity(module):
    """A row without any score is NaN, as in PyTorch; a masked score among others has probability zero."""
    x = rows_with_minus_infinity()
    for tiles in small_tiles(module):
        y = module.softmax_forward(x, **tiles)
        assert y[2].isnan().all() and not y[[0, 1, 3]].isnan().any()
        assert (y[0, :20] == 0).all() and y[3, 0] == 1
        assert_right_with_tiles(module, x, randn(4, 50), **tiles)


def stays_in_its_rows(module):
    """Blocks of vectors and of edges are wider than the row: what lies beside it is neither read nor written."""
    for N in (33, 46):
        for dtype, before, behind in (
            (torch.float32, 0, 0),
            (torch.float16, 0, 8),
            (torch.float16, 3, 5),
            (torch.float16, 3, 0),
        ):
            memory = harness.nan_fenced(torch.full((9, before + N + behind), float("nan"), dtype=dtype, device=DEVICE))
            x = memory[:, before : before + N].copy_(randn(9, N))
            assert_right_with_tiles(module, x, harness.nan_fenced(randn(9, N, dtype=dtype)), BLOCK_N=16)
    assert_right_with_tiles(module, randn(3, 9, dtype=torch.bfloat16), randn(3, 9, dtype=torch.bfloat16), BLOCK_N=2)


def test_rows_of_minus_infinity(module):
    rows_of_minus_infinity(module)


def test_it_stays_in_its_rows():
    stays_in_its_rows(fast)


def test_one_probability_is_nearly_one(module, tiles):
    """Then the gradient is a difference of two nearly equal numbers. Many different rows, because the rounding of a
    single one would decide the comparison."""
    steps = torch.linspace(2.5, 3.5, 24, device=DEVICE)[:, None]
    assert_right_with_tiles(module, torch.arange(37.0, device=DEVICE) * steps, randn(24, 37), **tiles)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, rows_of_minus_infinity)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, stays_in_its_rows)


@pytest.mark.parametrize("N", [1025, 3001, 7001, 12001, 16384, 16385, 28700, 33000, 70001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
def test_tuned_tile_sizes(N, dtype):
    """Every branch of the fast version's tables."""
    x, dy = randn(3, N, dtype=dtype), randn(3, N, dtype=dtype)
    harness.assert_right(fast.softmax, pytorch, dict(x=harness.nan_fenced(x)), dy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
@pytest.mark.parametrize("N", range(33, 41))
def test_rows_that_begin_anywhere(N, dtype):
    """Rows of every length modulo 8; their distance is the length, or differs from it by one, or by 16 bytes or 32."""
    for padding in (0, 1, 8):
        x = randn(7, N + padding, dtype=dtype)[:, :N]
        assert_right_with_tiles(fast, x, randn(7, N, dtype=dtype), BLOCK_N=16)


def test_overwritten_output_raises(module):
    x = randn(3, 40).requires_grad_()
    y = module.softmax(x)
    loss = (y * randn(3, 40)).sum()
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=[1.0]), TypeError, "x must be a torch.Tensor, got list"),
        (dict(x=None), TypeError, "x must be a torch.Tensor, got NoneType"),
        (dict(x=torch.ones(2, 3).long()), TypeError, "x must be one of float32, float16, bfloat16, got int64"),
        (dict(x=torch.ones(2, 3).double()), TypeError, "got float64"),
        (dict(x=torch.ones(())), ValueError, "x must have at least 1 dimensions"),
        (dict(x=torch.ones(2, 3, device="meta")), ValueError, "x is on meta"),
        (dict(x=torch.ones(1).expand(2**31)), ValueError, "fewer than 2147467264 elements"),
    ],
    {},
    lesson.softmax,
    fast.softmax,
)
PASSES = (
    lambda each, **size: each.softmax_forward(randn(2, 3), **size),
    lambda each, **size: each.softmax_backward(randn(2, 3), randn(2, 3), **size),
)
SIZES = [(each, dict(BLOCK_N=size)) for each in (lesson, fast) for size in (100, 0, -4)]
SIZES += [(fast, dict(BLOCK_M=3)), (fast, dict(num_warps=5))]
test_bad_tile_size = harness.raises_test(
    [(lambda run=run, each=each, size=size: run(each, **size), ValueError, f"{[*size][0]} must be a power of two")
     for each, size in SIZES for run in PASSES]
)  # fmt: skip
