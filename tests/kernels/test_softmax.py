"""tutorials/softmax and fast/softmax: values, gradients, long rows, infinities, hostile inputs, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

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
    Mutant("largest not subtracted", "y = exp(x - row_max) / row_sum", "y = exp(x) / (row_sum * tl.exp(row_max))"),
    Mutant("masked lanes read zero", 'other=-float("inf")', "other=0.0", count=2),
    Mutant("old sum not scaled", "row_sum * tl.exp(row_max - shift)", "row_sum"),
    Mutant("largest of the last chunk only", "tl.maximum(row_max, tl.max(x, axis=0))", "tl.max(x, axis=0)"),
    Mutant("chunk of minus infinity gives NaN", 'tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),
    Mutant("first chunk only", "range(0, N, BLOCK_N)", "range(0, BLOCK_N, BLOCK_N)", count=4),
    Mutant("strides of x ignored", "x_ptr += row * stride_xm", "x_ptr += row * N"),
    Mutant("strides of the upstream gradient ignored", "dy_ptr += row * stride_dym", "dy_ptr += row * N"),
    Mutant("columns read as neighbours", "rows = as_rows(x)", "rows = x.reshape(-1, x.shape[-1])"),
    Mutant("behind the end of the row", "tl.store(y_ptr + offs_n, y, mask=mask)", "tl.store(y_ptr + offs_n, y)"),
    Mutant("no dot product", "dx = y * (dy - dot)", "dx = y * dy"),
    Mutant("plain average", "dot += tl.sum(dy * y, axis=0)", "dot += tl.sum(dy, axis=0) / N"),
    Mutant("gradient is zero", "return ctx.launch_backward(dy, y)", "return torch.zeros_like(y)"),
    Mutant("dx over y", "dx = torch.empty_like(y, memory_format=torch.contiguous_format)", "dx = y"),
    Mutant("second derivative loses its term", "    @autograd.once_differentiable\n", ""),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("masked lanes read zero", 'x = tl.load(x_ptrs, mask=mask, other=-float("inf")', "x = tl.load(x_ptrs, mask=mask, other=0.0"),
    Mutant("last rows dropped", "softmax_forward_kernel, (cdiv(M, BLOCK_M),)", "softmax_forward_kernel, (max(M // BLOCK_M, 1),)"),
    Mutant("masked columns of the edges read zero", 'mask=edge_mask, other=-float("inf")', "mask=edge_mask, other=0.0"),
    Mutant("edges begin before the row", "offs_n >= -edge", "offs_n >= -VECTOR"),
    Mutant("last column left out", "offs_n < N - edge", "offs_n < N - edge - 1"),
    Mutant("first edge of the wrong side", "((ALIGN - row * N % ALIGN) % ALIGN)", "(row * N % ALIGN)"),
    Mutant("cut vectors counted as whole", "whole = (N - edge) // VECTOR * VECTOR", "whole = N - edge"),
    Mutant("edges not in the sum", " + tl.sum(tl.exp(x_edge - row_max), axis=0)", ""),
    Mutant("last chunk begins one vector late", "last: tl.constexpr = (N // VECTOR * VECTOR - 1)", "last: tl.constexpr = (N // VECTOR * VECTOR)", count=2),
    Mutant("x and y move on by different distances", "VECTOR if (stride - N) % VECTOR == 0 else 1", "VECTOR"),
    Mutant("backwards to the wrong places", "start = last - BLOCK_N - done", "start = last - BLOCK_N - done + VECTOR"),
    Mutant("vectors' sums not scaled", "tl.sum(vector_sum * tl.exp(vector_max - row_max), axis=0)", "tl.sum(vector_sum, axis=0)"),
    Mutant("chunk of minus infinity gives NaN", 'tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),
    Mutant("gradients one chunk late", "            tl.store(dx_ptr + start + offs_n, dx)", "            tl.store(dx_ptr + start - BLOCK_N + offs_n, dx)"),
    Mutant("edges not in the dot product", " + tl.sum(dy_edge * y_edge, axis=0)", ""),
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


def check(module):
    """Everything a mutant has to get past."""
    harness.assert_right(module.softmax, pytorch, dict(x=harness.nan_fenced(randn(5, 37))), randn(5, 37))
    harness.assert_right(
        module.softmax, pytorch, dict(x=harness.transposed(randn(5, 37))), harness.sliced(randn(5, 37))
    )
    harness.assert_gradient_penalty_raises(module.softmax, dict(x=randn(2, 5)))
    harness.assert_right(module.softmax, pytorch, dict(x=randn(2, 33) * 1e4), randn(2, 33))
    harness.assert_right(module.softmax, pytorch, dict(x=randn(2, 33) - 50), randn(2, 33))
    for tiles in small_tiles(module):
        assert_right_with_tiles(module, harness.sliced(randn(5, 37)), harness.sliced(randn(5, 37)), **tiles)
        assert_right_with_tiles(module, randn(3, 37) - 50, randn(3, 37), **tiles)
        assert_right_with_tiles(module, randn(3, 37) - 500, randn(3, 37), **tiles)
        assert_right_with_tiles(module, randn(3, 37) * 1e4, randn(3, 37), **tiles)
        assert_right_with_tiles(module, rows_with_minus_infinity(), randn(4, 50), **tiles)
    if is_fast(module):
        stays_in_its_rows(module)


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


def offsets_past_32_bits(module):
    """Row offsets beyond 2^31 elements. There is no mutant for them: a wrapped offset ends the CUDA context."""
    x = torch.empty(2**19 + 8, 4096, device=DEVICE, dtype=torch.bfloat16).normal_()
    y = module.softmax_forward(x)
    dx = module.softmax_backward(x, y)
    theirs = harness.gradients(pytorch, dict(x=x[-3:]), x[-3:])
    exact = harness.gradients(pytorch, dict(x=x[-3:].double()), x[-3:].double())
    for name, value in dict(out=y[-3:], dx=dx[-3:]).items():
        accuracy.check(name, value, theirs[name], exact[name])


def test_check_passes(module):
    check(module)


def test_one_probability_is_nearly_one(module, tiles):
    """Then the gradient is a difference of two nearly equal numbers. Many different rows, because the rounding of a
    single one would decide the comparison."""
    steps = torch.linspace(2.5, 3.5, 24, device=DEVICE)[:, None]
    assert_right_with_tiles(module, torch.arange(37.0, device=DEVICE) * steps, randn(24, 37), **tiles)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check)


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


def test_rows_of_minus_infinity(module, tiles):
    """A row without any score is NaN, as in PyTorch; a masked score among others has probability zero."""
    x = rows_with_minus_infinity()
    y = module.softmax_forward(x, **tiles)
    assert y[2].isnan().all() and not y[[0, 1, 3]].isnan().any()
    assert (y[0, :20] == 0).all() and y[3, 0] == 1
    assert_right_with_tiles(module, x, randn(4, 50), **tiles)


def test_overwritten_output_raises(module):
    x = randn(3, 40).requires_grad_()
    y = module.softmax(x)
    loss = (y * randn(3, 40)).sum()
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        ([1.0], TypeError, "x must be a torch.Tensor, got list"),
        (None, TypeError, "x must be a torch.Tensor, got NoneType"),
        (torch.ones(2, 3).long(), TypeError, "x must be one of float32, float16, bfloat16, got int64"),
        (torch.ones(2, 3).double(), TypeError, "got float64"),
        (torch.ones(()), ValueError, "x must have at least 1 dimensions"),
        (torch.ones(2, 3, device="meta"), ValueError, "x is on meta"),
        (torch.ones(1).expand(2**31), ValueError, "fewer than 2147467264 elements"),
    ],
    ids=["list", "None", "int64", "float64", "no dimension", "device", "length"],
)
def test_bad_arguments(module, x, error, words):
    harness.assert_refused(error, words, module.softmax, x=x)


@pytest.mark.parametrize("size", [100, 0, -4])
def test_bad_tile_size(module, size):
    with pytest.raises(ValueError, match="BLOCK_N must be a power of two"):
        module.softmax_forward(randn(2, 3), BLOCK_N=size)
    with pytest.raises(ValueError, match="BLOCK_N must be a power of two"):
        module.softmax_backward(randn(2, 3), randn(2, 3), BLOCK_N=size)


@pytest.mark.parametrize("sizes", [dict(BLOCK_M=3), dict(num_warps=5)], ids=str)
def test_bad_tile_size_of_the_fast_version(sizes):
    with pytest.raises(ValueError, match="must be a power of two"):
        fast.softmax_forward(randn(2, 3), **sizes)
    with pytest.raises(ValueError, match="must be a power of two"):
        fast.softmax_backward(randn(2, 3), randn(2, 3), **sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8192, 32000), (32768, 4096), (1000, 50257), (1024, 128256), (64, 300001)], ids=str)
def test_large_shapes(module, shape):
    harness.assert_right(
        module.softmax, pytorch, dict(x=randn(*shape, dtype=torch.bfloat16)), randn(*shape, dtype=torch.bfloat16)
    )


@pytest.mark.gpu
def test_row_offsets_past_32_bits(module):
    offsets_past_32_bits(module)


@pytest.mark.gpu
def test_offsets_of_long_rows_past_32_bits(module):
    x = torch.empty(2**31 // 50257 + 8, 50257, device=DEVICE, dtype=torch.bfloat16).normal_()
    y = module.softmax_forward(x)
    accuracy.check("out", y[-3:], pytorch(x[-3:]), pytorch(x[-3:].double()))
