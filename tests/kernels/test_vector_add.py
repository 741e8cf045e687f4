"""tutorials/vector_add: the block that is asked for, constants, errors."""

import pytest
import torch

from annotated_examples.tutorials import vector_add as lesson
from tests.kernels import harness
from tests.kernels.harness import randn


def test_a_tensor_without_dimensions():
    x, y = randn(), randn()
    harness.assert_right(lesson.vector_add, lesson.vector_add_reference, dict(x=x, y=y), randn())


@pytest.mark.parametrize("BLOCK", [1, 4, 64])
def test_small_blocks(BLOCK):
    """Exactly the block that is asked for, and no other: lengths around its multiples."""
    for n in (1, 63, 64, 65):
        x, y = randn(n), randn(n)
        with harness.unchanged(x=x, y=y), harness.fenced_allocations():
            out = lesson.vector_add_forward(x, y, BLOCK=BLOCK)
        assert torch.equal(out, x + y)


def test_n_has_no_constexpr_annotation():
    import inspect

    parameters = inspect.signature(lesson.vector_add_kernel.fn).parameters
    assert [n for n, p in parameters.items() if "constexpr" in str(p.annotation)] == ["BLOCK"]


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=[1.0]), TypeError, "x must be a torch.Tensor, got list"),
        (dict(y=torch.ones(3)), ValueError, r"y must have the shape of x, \(2,\), got \(3,\)"),
        (dict(y=torch.ones(2).half()), TypeError, "y must have the dtype of x, float32, got float16"),
        (dict(x=torch.ones(2).long()), TypeError, "x must be one of float32, float16, bfloat16, got int64"),
        (dict(x=torch.ones(2, device="meta")), ValueError, "x is on meta"),
    ],
    dict(x=torch.ones(2), y=torch.ones(2)),
    lesson.vector_add,
)
test_bad_tile_size = harness.raises_test(
    [(lambda: lesson.vector_add_forward(randn(5), randn(5), BLOCK=100), ValueError, "BLOCK must be a power of two")]
)
