"""Through every public function: no derivative that autograd is asked for may be wrong in silence.

The kernels have a first derivative in reverse mode, and nothing else. A gradient penalty, a forward-mode tangent and
`torch.func.jvp` therefore raise, or are right.
"""

from itertools import product

import pytest
import torch
import torch.autograd.forward_ad as forward_ad

from academy.judge import public
from tests.kernels import harness

ALL = public.calls() + public.calls(gluon=True)
SEVERAL = [case for case in ALL if case.differentiable]


def one_of_each(calls):
    """One call of each function in `make test`, and at night its others."""
    first = {(each.module, each.function): each for each in reversed(calls)}.values()
    return [pytest.param(each, id=str(each), marks=[pytest.mark.nightly] * (each not in first)) for each in calls]


def inputs_of(case):
    """In float32, so that finite differences say what is right. (What takes 16 bits alone raises before that.)"""
    wide = case.differentiable and not case.module.startswith("gluon.")
    return {n: v.float() if wide and v.is_floating_point() else v for n, v in case.inputs().items()}


def floating(inputs):
    return [name for name, value in inputs.items() if value.is_floating_point()]


def finite_difference(function, inputs, name, direction, step=1e-2):
    ahead, behind = (function(**{**inputs, name: inputs[name] + sign * step * direction}) for sign in (1, -1))
    return (ahead - behind) / (2 * step)


def right_or_raised(tangent_of, function, inputs, name):
    """`tangent_of(direction)` raises, or is what finite differences are."""
    direction = torch.ones_like(inputs[name])
    try:
        tangent = tangent_of(direction)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        assert str(error), "an error has to say something"
        return
    assert tangent is not None, "the tangent was dropped"
    expected = finite_difference(function, inputs, name, direction)
    torch.testing.assert_close(tangent, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["a third", "all"])
@pytest.mark.parametrize("case", one_of_each(ALL))
def test_forward_mode(case, every):
    function, ways = case.load(), [*product(floating(inputs_of(case)), (True, False))]
    for name, gradients in ways if every else ways[ALL.index(case) % min(3, len(ways)) :: 3]:
        inputs = inputs_of(case)

        def tangent_of(direction, inputs=inputs, name=name, gradients=gradients):
            with torch.set_grad_enabled(gradients), forward_ad.dual_level():
                dual = forward_ad.make_dual(inputs[name].clone(), direction)
                return forward_ad.unpack_dual(function(**{**inputs, name: dual})).tangent

        right_or_raised(tangent_of, function, inputs, name)


TRANSFORMS = {
    "grad": lambda one, x: torch.func.grad(one)(x),
    "vjp": lambda one, x: torch.func.vjp(one, x),
    "jacrev": lambda one, x: torch.func.jacrev(one)(x),
    "jvp": lambda one, x: torch.func.jvp(one, (x,), (x,)),
    "vmap": lambda one, x: torch.func.vmap(one)(torch.stack([x, x])),
}


@pytest.mark.parametrize("case", {(each.module, each.function): each for each in ALL}.values(), ids=str)
def test_a_transform_of_torch_func_is_named(case):
    function, inputs = case.load(), inputs_of(case)
    for name in floating(inputs):
        one = lambda value, name=name: function(**{**inputs, name: value}).sum()  # noqa: E731
        for transform, transformed in TRANSFORMS.items():
            with pytest.raises(NotImplementedError, match=rf"is inside a transform: torch\.func\..*\b{transform}\b"):
                transformed(one, inputs[name].clone())


#: Linear functions: the gradient is a constant, so a penalty on it has no gradient that could be lost.
LINEAR = {
    "tutorials.vector_add",
    "classics.rope",
    "classics.dropout",
    "gluon.tile_copy",
    "recurrences.cumsum",
    "fast.cumsum",
}


@pytest.mark.parametrize("case", one_of_each(SEVERAL))
def test_gradient_penalty(case):
    harness.assert_gradient_penalty_raises(case.load(), inputs_of(case), constant=case.module not in LINEAR)


FORWARD_ONLY = {(each.module, each.function): each for each in reversed(ALL) if not each.differentiable}


@pytest.mark.parametrize("case", FORWARD_ONLY.values(), ids=str)
def test_without_a_backward_pass_a_gradient_is_refused(case):
    """Of each input; where gradients are off nobody asks for one."""
    function, inputs = case.load(), inputs_of(case)
    for name in floating(inputs):
        given = {**inputs, name: inputs[name].clone().requires_grad_()}
        with pytest.raises(ValueError, match="requires a gradient, but .* has no backward pass"):
            function(**given)
        with torch.no_grad():
            function(**given)


@pytest.mark.parametrize("case", one_of_each(SEVERAL))
def test_without_a_gradient_no_frame_is_entered(case, monkeypatch):
    def entered(*_):
        raise AssertionError("an autograd frame was entered although nothing requires a gradient")

    monkeypatch.setattr(torch.autograd.Function, "apply", classmethod(entered))
    function, inputs = case.load(), inputs_of(case)
    with torch.no_grad():
        assert not function(**inputs).requires_grad
    if not case.function.startswith("apply_"):  # a module's parameters require gradients
        assert not function(**inputs).requires_grad
