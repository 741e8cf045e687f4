"""academy/runtime/autograd: a gradient of a gradient raises, whatever the upstream gradient; without one nothing
changes."""

import pytest
import torch

from academy.runtime import autograd
from academy.runtime.autograd import dependence, needs_frame, once_differentiable


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


#: Two ways to ask for the gradient of a penalised loss. The second looks only at what lies between it and the inputs.
WAYS = {"backward": lambda value, x: value.backward(), "grad": torch.autograd.grad}


@pytest.mark.parametrize("ask", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_gradient_penalty_raises(loss, ask):
    x = torch.randn(5, requires_grad=True)
    value = loss(*SquareAndCube.apply(x))
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        ask(value + gradient.pow(2).sum(), x)


class SquareThatSavesItsGradient(torch.autograd.Function):
    """It saves nothing that depends on its input, so it has to keep the dependence itself."""

    @staticmethod
    def forward(ctx, x, kept):
        ctx.save_for_backward(2 * x)
        ctx.dependence = dependence(x) if kept else ()
        return (x**2).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        return dloss * ctx.saved_tensors[0], None


def penalised(kept):
    x = torch.randn(5, requires_grad=True)
    value = SquareThatSavesItsGradient.apply(x, kept)
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    return value + gradient.pow(2).sum(), x


def test_a_function_that_saves_its_gradient_keeps_the_dependence():
    value, x = penalised(kept=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(value, x)
    value, x = penalised(kept=False)
    torch.autograd.grad(value, x)  # in silence: this is what `dependence` is for


def test_a_dependence_keeps_no_memory():
    x = torch.randn(1000, requires_grad=True) * 1
    (kept,) = dependence(x)
    assert kept.grad_fn is not None and kept.numel() == 0 and kept.untyped_storage().nbytes() == 0


def test_a_dependence_made_in_inference_mode_serves_later():
    """What is kept for a device may be made anywhere, and autograd has to be able to save it."""
    autograd._no_rows.cache_clear()
    with torch.inference_mode():
        dependence(torch.ones(2))
    (kept,) = dependence(torch.ones(2, requires_grad=True))
    assert kept.requires_grad


def test_when_a_frame_is_needed():
    x, leaf = torch.randn(3), torch.randn(3, requires_grad=True)
    assert needs_frame(x, leaf) and not needs_frame(x, None)
    with torch.no_grad():
        assert not needs_frame(x, leaf)
        with torch.autograd.forward_ad.dual_level():
            assert needs_frame(None, torch.autograd.forward_ad.make_dual(x, x))


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
