"""tutorials/softmax: values, gradients, long rows, infinities, hostile inputs, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy import accuracy
from annotated_examples.tutorials import softmax as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, LAYOUTS, Mutant, randn

INF = float("inf")

MUTANTS = [
    Mutant("largest not subtracted", "tl.exp(x - row_max[:, None])", "tl.exp(x)"),
    Mutant("masked lanes read zero", 'x = tl.load(x_ptrs, mask=mask, other=-float("inf")', "x = tl.load(x_ptrs, mask=mask, other=0.0"),
    Mutant("masked lanes of the last chunk read zero", 'x_ptr + last + columns, mask=mask, other=-float("inf")', "x_ptr + last + columns, mask=mask, other=0.0"),
    Mutant("masked columns of the edges read zero", 'mask=edge_mask, other=-float("inf")', "mask=edge_mask, other=0.0"),
    Mutant("edges begin before the row", "columns >= -edge", "columns >= -VECTOR"),
    Mutant("edges end behind the row", "columns < N - edge", "columns < N + VECTOR"),
    Mutant("no first edge", "(columns >= -edge) &", "(columns >= 0) &"),
    Mutant("last column left out", "columns < N - edge", "columns < N - edge - 1"),
    Mutant("first edge of the wrong side", "((ALIGN - row * N % ALIGN) % ALIGN)", "(row * N % ALIGN)"),
    Mutant("a whole vector as the first edge", "((ALIGN - row * N % ALIGN) % ALIGN)", "(ALIGN - row * N % ALIGN)"),
    Mutant("first edge counted among the vectors", "whole = (N - edge) // VECTOR", "whole = N // VECTOR"),
    Mutant("cut vectors counted as whole", "whole = (N - edge) // VECTOR * VECTOR", "whole = N - edge"),
    Mutant("edges not in the largest", "tl.maximum(tl.max(vector_max, axis=0), tl.max(x_edge, axis=0))", "tl.max(vector_max, axis=0)"),
    Mutant("edges not in the sum", " + tl.sum(tl.exp(x_edge - row_max), axis=0)", ""),
    Mutant("edges not written", "    tl.store(y_ptr + edge_columns, y_edge, mask=edge_mask)\n", ""),
    Mutant("edges not in the average", " + tl.sum(dy_edge * y_edge, axis=0)", ""),
    Mutant("edges have no gradient", "    tl.store(dx_ptr + edge_columns, dx_edge, mask=edge_mask)\n", ""),
    Mutant("gradient of an edge without average", "dx_edge = y_edge * (dy_edge - average)", "dx_edge = y_edge * dy_edge"),
    Mutant("last chunk begins one vector late", "last: tl.constexpr = (N // VECTOR * VECTOR - 1)", "last: tl.constexpr = (N // VECTOR * VECTOR)", count=2),
    Mutant("last chunk begins one vector early", "last: tl.constexpr = (N // VECTOR * VECTOR - 1)", "last: tl.constexpr = (N // VECTOR * VECTOR - VECTOR - 1)", count=2),
    Mutant("behind the last vector", "mask = last + vectors < whole", "mask = last + vectors <= whole", count=2),
    Mutant("x and y move on by different distances", "VECTOR if (stride - N) % VECTOR == 0 else 1", "VECTOR"),
    Mutant("chunks not in the sum", 'x = tl.load(x_ptr + start + columns, eviction_policy="evict_last").to(tl.float32)\n        vector_max, vector_sum = online_update(vector_max, vector_sum, x)', "pass"),
    Mutant("last chunk not in the sum", 'other=-float("inf")).to(tl.float32)\n    vector_max, vector_sum = online_update(vector_max, vector_sum, x)', 'other=-float("inf")).to(tl.float32)'),
    Mutant("chunks not written", "        y = tl.exp(x - row_max) / row_sum\n        tl.store(y_ptr + start + columns, y)\n", ""),
    Mutant("backwards to the wrong places", "start = last - BLOCK_N - done", "start = last - BLOCK_N - done + VECTOR"),
    Mutant("largest so far begins with zero", 'vector_max = tl.full((BLOCK_N // VECTOR,), -float("inf"), tl.float32)', "vector_max = tl.zeros((BLOCK_N // VECTOR,), tl.float32)"),
    Mutant("old sum not scaled", "vector_sum * tl.exp(vector_max - reference)", "vector_sum"),
    Mutant("vectors' sums not scaled", "tl.sum(vector_sum * tl.exp(vector_max - row_max), axis=0)", "tl.sum(vector_sum, axis=0)"),
    Mutant("largest of the last chunk only", "tl.maximum(vector_max, tl.max(x, axis=1))", "tl.max(x, axis=1)"),
    Mutant("chunk of minus infinity gives NaN", 'tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),
    Mutant("not divided by the sum", "y = exponentials / row_sum[:, None]", "y = exponentials"),
    Mutant("last rows dropped", "softmax_forward_kernel[(-(-M // BLOCK_M),)]", "softmax_forward_kernel[(max(M // BLOCK_M, 1),)]"),
    Mutant("last rows dropped backward", "softmax_backward_kernel[(-(-M // BLOCK_M),)]", "softmax_backward_kernel[(max(M // BLOCK_M, 1),)]"),
    Mutant("strides of x ignored", "x_ptr + rows[:, None] * stride_xm", "x_ptr + rows[:, None] * N"),
    Mutant("strides of x ignored in chunks", "x_ptr += tl.cdiv(row * stride_xm, ALIGN)", "x_ptr += tl.cdiv(row * N, ALIGN)"),
    Mutant("strides of the upstream gradient ignored", "dy_ptr + rows[:, None] * stride_dym", "dy_ptr + rows[:, None] * N"),
    Mutant("strides of the upstream gradient ignored in chunks", "dy_ptr += tl.cdiv(row * stride_dym, ALIGN)", "dy_ptr += tl.cdiv(row * N, ALIGN)"),
    Mutant("rows taken for contiguous", "N if rows.is_contiguous() else rows.stride(0)", "N"),
    Mutant("columns read as neighbours", "rows if rows.stride(1) == 1 else rows.contiguous()", "rows"),
    Mutant("no average", "dx = y * (dy - average[:, None])", "dx = y * dy"),
    Mutant("plain average", "average = tl.sum(dy * y, axis=1)", "average = tl.sum(dy, axis=1) / N"),
    Mutant("gradient of a chunk without average", "dx = y * (dy - average)", "dx = y * dy"),
    Mutant("gradient of the other chunks without average", "y.to(tl.float32) * (dy.to(tl.float32) - average)", "y.to(tl.float32) * dy.to(tl.float32)", count=2),
    Mutant("gradients one chunk late", "            tl.store(dx_ptr + start + columns, dx)", "            tl.store(dx_ptr + start - BLOCK_N + columns, dx)"),
    Mutant("first chunk has no gradient", "        tl.store(dx_ptr + columns, dx)\n", ""),
    Mutant("chunks not in the average", "        vector_sum += tl.sum(dy * y, axis=1)\n    mask", "        pass\n    mask"),
    Mutant("average of the last chunk only", "    vector_sum += tl.sum(dy * y, axis=1)\n    # The same", "    vector_sum = tl.sum(dy * y, axis=1)\n    # The same"),
    Mutant("gradient is zero", "return softmax_backward(dy, y)", "return torch.zeros_like(y)"),
    Mutant("dx over dy", "dx = torch.empty_like(y, memory_format=torch.contiguous_format)", "dx = dy"),
    Mutant("dx over y", "dx = torch.empty_like(y, memory_format=torch.contiguous_format)", "dx = y"),
    Mutant("over the first dimension", "def softmax_forward(x, *,", "def softmax_forward(x, **o):\n    return forward(x.transpose(0, -1), **o).transpose(0, -1)\n\n\ndef forward(x, *,"),
    Mutant("second derivative loses its term", "    @once_differentiable\n", ""),
]  # fmt: skip

SMALL_TILES = [dict(BLOCK_M=2, BLOCK_N=64), dict(BLOCK_N=16)]


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
    harness.assert_right(module.softmax, pytorch, dict(x=randn(2, 33) * 1e4), randn(2, 33))
    harness.assert_right(module.softmax, pytorch, dict(x=randn(2, 33) - 50), randn(2, 33))
    for tiles in SMALL_TILES:
        assert_right_with_tiles(module, harness.sliced(randn(5, 37)), harness.sliced(randn(5, 37)), **tiles)
        assert_right_with_tiles(module, randn(3, 37) - 50, randn(3, 37), **tiles)
        assert_right_with_tiles(module, randn(3, 37) - 500, randn(3, 37), **tiles)
        # One probability is nearly 1, so the gradient is a difference of two nearly equal numbers: many different rows,
        # because the rounding of a single one would decide the comparison.
        steps = torch.linspace(2.5, 3.5, 24, device=DEVICE)[:, None]
        assert_right_with_tiles(module, torch.arange(37.0, device=DEVICE) * steps, randn(24, 37), **tiles)
        assert_right_with_tiles(module, rows_with_minus_infinity(), randn(4, 50), **tiles)
    stays_in_its_rows(module)
    harness.assert_gradient_penalty_raises(module.softmax, dict(x=randn(2, 5)))


def stays_in_its_rows(module):
    """Blocks of vectors and of edges are wider than the row: what lies beside it is neither read nor written."""
    for N in (33, 46, 47, 48):
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


def test_check_passes():
    check(lesson)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
def test_mutant_is_caught(mutant, tmp_path):
    harness.assert_caught(lesson, mutant, check, tmp_path)


def test_reference_is_pytorchs_operation():
    x = randn(4, 9).double()
    torch.testing.assert_close(lesson.softmax_reference(x), pytorch(x), rtol=1e-12, atol=1e-12)


def test_reference_gradcheck():
    harness.assert_reference_gradcheck(lesson.softmax_reference, randn(3, 5))


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 130), (9, 1), (4, 768), (3, 1000), (2, 3, 65), (70,), (3, 4097)], ids=str
)
def test_values_and_gradients(shape, dtype):
    harness.assert_right(lesson.softmax, pytorch, dict(x=randn(*shape, dtype=dtype)), randn(*shape, dtype=dtype))


@pytest.mark.parametrize("tiles", SMALL_TILES, ids=["one block", "chunks"])
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("shape", [(1, 50), (5, 33), (7, 17)], ids=str)
def test_small_tiles(shape, dtype, tiles):
    assert_right_with_tiles(lesson, randn(*shape, dtype=dtype), randn(*shape, dtype=dtype), **tiles)


@pytest.mark.parametrize("N", [1025, 3001, 7001, 12001, 16384, 16385, 28700, 33000, 50257, 70001])
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_rows_in_chunks(N, dtype):
    """With the tile sizes that a user gets."""
    x, dy = randn(3, N, dtype=dtype), randn(3, N, dtype=dtype)
    harness.assert_right(lesson.softmax, pytorch, dict(x=harness.nan_fenced(x)), dy)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("N", range(33, 42))
def test_rows_that_begin_anywhere(N, dtype):
    """Rows of every length modulo 8; their distance is the length, or differs from it by one, or by 16 bytes or 32."""
    for padding in (0, 1, 8):
        x = randn(7, N + padding, dtype=dtype)[:, :N]
        assert_right_with_tiles(lesson, x, randn(7, N, dtype=dtype), BLOCK_N=16)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_large_and_small_values(scale, dtype):
    harness.assert_right(
        lesson.softmax, pytorch, dict(x=randn(3, 300, dtype=dtype, scale=scale)), randn(3, 300, dtype=dtype)
    )


@pytest.mark.parametrize("tiles", SMALL_TILES, ids=["one block", "chunks"])
def test_rows_of_minus_infinity(tiles):
    """A row without any score is NaN, as in PyTorch; a masked score among others has probability zero."""
    x = rows_with_minus_infinity()
    y = lesson.softmax_forward(x, **tiles)
    assert y[2].isnan().all() and not y[[0, 1, 3]].isnan().any()
    assert (y[0, :20] == 0).all() and y[3, 0] == 1
    assert_right_with_tiles(lesson, x, randn(4, 50), **tiles)


@pytest.mark.parametrize("tiles", SMALL_TILES, ids=["one block", "chunks"])
def test_infinity_and_nan(tiles):
    x = randn(4, 50)
    x[0, 3], x[1, 49], x[2, 0] = INF, INF, float("nan")
    assert_right_with_tiles(lesson, x, randn(4, 50), **tiles)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(layout):
    harness.assert_right(lesson.softmax, pytorch, dict(x=layout(randn(6, 10))), layout(randn(6, 10)))


def test_transposed_input():
    """Over the last dimension as it is seen, not as it is stored."""
    x = randn(7, 5).t()
    y = lesson.softmax(x)
    torch.testing.assert_close(y.sum(dim=1), torch.ones(5, device=DEVICE))
    harness.assert_right(lesson.softmax, pytorch, dict(x=x), randn(7, 5).t())


def test_three_dimensional_layouts():
    x = randn(4, 3, 20)
    for view in (x.transpose(0, 1), x.transpose(0, 2), x[:, 1:], x[..., ::2]):
        harness.assert_right(lesson.softmax, pytorch, dict(x=view), randn(*view.shape))


def test_expanded_input_and_upstream_gradient():
    harness.assert_right(lesson.softmax, pytorch, dict(x=harness.expanded(4, 33)), harness.expanded(4, 33))


def test_gradient_of_the_sum_is_about_zero():
    """Which is why no other test uses it: a kernel that returns zeros passes here."""
    x = randn(4, 33).requires_grad_()
    lesson.softmax(x).sum().backward()
    assert x.grad.abs().max() < 1e-6


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (2, 0, 8)], ids=str)
def test_empty(shape):
    x = torch.empty(shape, device=DEVICE, requires_grad=True)
    y = lesson.softmax(x)
    y.sum().backward()
    assert y.shape == shape and x.grad.shape == shape


def test_backward_twice():
    x, dy = randn(3, 40).requires_grad_(), randn(3, 40)
    y = lesson.softmax(x)
    first, second = (torch.autograd.grad(y, x, g, retain_graph=True)[0] for g in (dy, 2 * dy))
    torch.testing.assert_close(second, 2 * first)


def test_overwritten_output_raises():
    x = randn(3, 40).requires_grad_()
    y = lesson.softmax(x)
    loss = (y * randn(3, 40)).sum()
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("shape", [(100, 64), (3, 40000)], ids=["one block", "chunks"])
def test_repeatable(shape):
    harness.assert_bitwise_repeatable(lesson.softmax, dict(x=randn(*shape)), randn(*shape))


def test_second_derivative_raises():
    harness.assert_gradient_penalty_raises(lesson.softmax, dict(x=randn(3, 9)))


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
def test_bad_arguments(x, error, words):
    x = x.to(DEVICE) if isinstance(x, torch.Tensor) and x.device.type == "cpu" else x
    with pytest.raises(error, match=words):
        lesson.softmax(x)


@pytest.mark.parametrize("tiles", [dict(BLOCK_M=3), dict(BLOCK_N=100), dict(num_warps=5)], ids=str)
def test_bad_tile_size(tiles):
    with pytest.raises(ValueError, match="must be a power of two"):
        lesson.softmax_forward(randn(2, 3), **tiles)
    with pytest.raises(ValueError, match="must be a power of two"):
        lesson.softmax_backward(randn(2, 3), randn(2, 3), **tiles)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8192, 32000), (32768, 4096), (1000, 50257), (1024, 128256), (64, 300001)], ids=str)
def test_large_shapes(shape):
    harness.assert_right(
        lesson.softmax, pytorch, dict(x=randn(*shape, dtype=torch.bfloat16)), randn(*shape, dtype=torch.bfloat16)
    )


@pytest.mark.gpu
def test_row_offsets_past_32_bits():
    offsets_past_32_bits(lesson)


@pytest.mark.gpu
def test_offsets_of_long_rows_past_32_bits():
    x = torch.empty(2**31 // 50257 + 8, 50257, device=DEVICE, dtype=torch.bfloat16).normal_()
    y = lesson.softmax_forward(x)
    accuracy.check("out", y[-3:], pytorch(x[-3:]), pytorch(x[-3:].double()))


@pytest.mark.gpu
def test_torch_compile_of_long_rows_without_a_graph_break():
    x, dy = randn(8, 40000), randn(8, 40000)
    compiled = torch.compile(lambda x: lesson.softmax(2 * x) + 1, fullgraph=True)
    plain = lambda x: pytorch(2 * x) + 1  # noqa: E731
    actual, theirs = (harness.gradients(function, dict(x=x), dy) for function in (compiled, plain))
    exact = harness.gradients(plain, dict(x=x.double()), dy.double())
    for name, value in actual.items():
        accuracy.check(name, value, theirs[name], exact[name])
