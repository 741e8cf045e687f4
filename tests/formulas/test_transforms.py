"""The transforms that formulas are evaluated with give what PyTorch's own give."""

import pytest
import torch
from torch.func import jacrev, jvp, vmap

from academy.formulas.meaning.transforms import axis_as_batch, batch_level, elementwise_slope, for_each, jacobian

GENERATOR = torch.Generator().manual_seed(0)
W, ROWS = (torch.randn(size, 3, generator=GENERATOR, dtype=torch.float64) for size in (4, 5))
X = ROWS[0]


def layer(x):
    return torch.tanh(W @ x)


def bilinear(a, b):
    return (a * b).sin().sum()


#: A function of X, with this project's transforms and with PyTorch's.
PAIRS = {
    "a vector": (lambda x: jacobian(layer, x), jacrev(layer)),
    "a number": (lambda x: jacobian(lambda x: layer(x).sum(), x), jacrev(lambda x: layer(x).sum())),
    "a constant": (lambda x: jacobian(lambda x: W * 2, x), jacrev(lambda x: W * 2)),
    "twice": (lambda x: jacobian(lambda x: jacobian(layer, x), x), jacrev(jacrev(layer))),
    "one inside of another": (
        lambda x: jacobian(lambda a: jacobian(lambda b: bilinear(a, b), x).sum() ** 2, x),
        jacrev(lambda a: jacrev(lambda b: bilinear(a, b))(X).sum() ** 2),
    ),
    "of a sum over rows": (
        lambda x: jacobian(lambda x: for_each(lambda row: bilinear(row, x), ROWS), x),
        jacrev(lambda x: vmap(lambda row: bilinear(row, x))(ROWS)),
    ),
    "for each row": (
        lambda x: for_each(lambda row: jacobian(lambda x: bilinear(row, x), x), ROWS),
        lambda x: vmap(lambda row: jacrev(lambda x: bilinear(row, x))(x))(ROWS),
    ),
    "at each row": (lambda x: for_each(lambda row: jacobian(layer, row), ROWS), lambda x: vmap(jacrev(layer))(ROWS)),
    "elementwise": (lambda x: elementwise_slope(torch.tanh, x), lambda x: 1 - torch.tanh(x) ** 2),
    "elementwise, twice": (
        lambda x: elementwise_slope(lambda x: elementwise_slope(torch.exp, x), x),
        torch.exp,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_derivatives(name):
    ours, theirs = PAIRS[name]
    torch.testing.assert_close(ours(X), theirs(X), rtol=1e-14, atol=1e-15)


def test_an_error_leaves_no_transform_open():
    def fails(x):
        raise ArithmeticError

    for transform in (jacobian, elementwise_slope, for_each):
        with pytest.raises(ArithmeticError):
            transform(fails, X)
    torch.testing.assert_close(jacobian(layer, X), jacrev(layer)(X))
    assert not torch._C._functorch.get_inplace_requires_grad_allowed()
    assert torch._C._functorch.peek_interpreter_stack() is None


def test_a_forward_derivative_through_them():
    ours, theirs = (jvp(f, (X,), (ROWS[1],))[1] for f in (lambda x: jacobian(layer, x), jacrev(layer)))
    torch.testing.assert_close(ours, theirs)


def test_an_axis_becomes_a_batch():
    """Also one behind others, of a value that is part of an outer batch, and one that is differentiated."""

    def of_column(column):
        level = batch_level(column)
        return 2 * axis_as_batch(ROWS, 1, level).sum()  # all rows of the batch's own column

    assert torch.equal(for_each(of_column, torch.arange(3)), 2 * ROWS.sum(0))

    def of_row(row):
        return for_each(lambda place: axis_as_batch(row, 0, batch_level(place)) * place, torch.arange(3))

    assert torch.equal(for_each(of_row, ROWS), ROWS * torch.arange(3))
    slopes = jacobian(
        lambda x: for_each(lambda at: axis_as_batch(x, 0, batch_level(at)) ** 2, torch.arange(3)).sum(), X
    )
    assert torch.equal(slopes, 2 * X)
    assert batch_level(X) == -1
