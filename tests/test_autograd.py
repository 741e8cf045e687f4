"""academy/autograd: a gradient of a gradient raises, whatever the upstream gradient; without one nothing changes."""

import pytest
import torch

from academy.autograd import once_differentiable


class SquareAndCube(torch.autograd.Function):
    """A backward pass that autograd can't look into: it runs on detached tensors, like a kernel."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)  # the upstream gradient of an output that isn't used is None
        ctx.save_for_backward(x)
        return x**2, x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, dsquare, dcube):
        x = ctx.saved_tensors[0].detach()
        terms = [(dsquare, 2 * x), (dcube, 3 * x**2)]
        return sum(d * slope for d, slope in terms if d is not None)


LOSSES = {
    "constant": lambda square, cube: (square + cube).sum(),
    "of the input": lambda square, cube: (square * cube).sum(),
    "one is None": lambda square, cube: cube.sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_gradient_penalty_raises(loss):
    x = torch.randn(5, requires_grad=True)
    value = loss(*SquareAndCube.apply(x))
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (value + gradient.pow(2).sum()).backward()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("create_graph", [False, True])
def test_first_derivative_is_right(loss, create_graph):
    x = torch.randn(5, requires_grad=True)
    (actual,) = torch.autograd.grad(loss(*SquareAndCube.apply(x)), x, create_graph=create_graph)
    (expected,) = torch.autograd.grad(loss(x**2, x**3), x)
    torch.testing.assert_close(actual.detach(), expected)
    assert actual.requires_grad == create_graph


def test_callers_upstream_gradient_is_left_alone():
    """It is marked as a copy: the caller's own tensor doesn't begin to require gradients."""
    x, upstream = torch.randn(5, requires_grad=True), torch.ones(5)
    torch.autograd.grad(SquareAndCube.apply(x)[0], x, upstream, create_graph=True)
    assert not upstream.requires_grad
