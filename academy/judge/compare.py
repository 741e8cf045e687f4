"""Output and gradients of a function against plain PyTorch, under the rule of `academy.judge.accuracy`.

Everything here raises AssertionError, at the line of the test that called it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch

from academy.judge import accuracy, elements, verdict
from academy.judge.fences import fenced_allocations


def leaf(values: torch.Tensor) -> torch.Tensor:
    """The same tensor (layout kept) as a leaf that wants a gradient."""
    return values.detach().requires_grad_()


def gradients(function: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor | None = None) -> dict:
    """`{"out": …, "d<name>": …}` per floating-point input, layouts kept; no upstream means `.sum().backward()`."""
    return verdict.run(function, inputs, verdict.ones if upstream is None else [upstream]).values


@contextlib.contextmanager
def unchanged(**tensors: torch.Tensor) -> Iterator[None]:
    """Fail if a tensor's bits are not the same afterwards (NaN counts as itself)."""
    __tracebackhide__ = True
    before = {name: value.detach().clone() for name, value in tensors.items()}
    yield
    for name, value in tensors.items():
        assert bool(elements.same(value.detach(), before[name]).all()), f"{name} was written to"


def assert_right(
    function: Callable, reference: Callable, inputs: dict[str, torch.Tensor], upstream=None, eps: float = 0.0
) -> None:
    """Output and all gradients of `function` obey the 2x rule against `reference`, which is plain PyTorch.

    `reference` is run twice: in the inputs' dtype (PyTorch's own error) and in float64. Inputs must stay unchanged.
    eps: of the sums, as for `accuracy.problem`.
    """
    __tracebackhide__ = True
    watched = {**inputs, **({} if upstream is None else {"upstream": upstream})}
    above = verdict.ones if upstream is None else [upstream]
    with unchanged(**watched), fenced_allocations():
        results = verdict.three(function, reference, reference, inputs, above)
    for name, value, pytorch, exact in results:
        accuracy.check(name, value, pytorch, exact, eps=eps)


def assert_bitwise_repeatable(
    function: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor | None, times: int = 2
) -> None:
    """Each of `times` equal calls gives the same bits, forward and backward."""
    first = gradients(function, inputs, upstream)
    for _ in range(times - 1):
        again = gradients(function, inputs, upstream)
        for name in first:
            assert torch.equal(first[name], again[name]), f"{name} differs between two equal calls"


def assert_gradient_penalty_raises(function: Callable, inputs: dict[str, torch.Tensor], constant: bool = True) -> None:
    """Differentiating a gradient again must raise instead of silently losing its term.

    Once with an upstream gradient that depends on the inputs, and once with a `constant` one, unless `function` is
    linear: its gradient then is a constant too, and nothing can be lost.
    """
    losses = [lambda out: (out.float() ** 2).sum()] + [lambda out: out.float().sum()] * constant
    for loss in losses:
        leaves = {n: leaf(v) if v.is_floating_point() else v for n, v in inputs.items()}
        wanted = [v for v in leaves.values() if v.requires_grad]
        value = loss(function(**leaves))
        grads = torch.autograd.grad(value, wanted, create_graph=True)
        penalised = value + sum(g.float().pow(2).sum() for g in grads)
        for ask in (functools.partial(torch.autograd.grad, inputs=wanted, retain_graph=True), torch.Tensor.backward):
            try:
                ask(penalised)
            except RuntimeError as error:
                assert "once_differentiable" in str(error), error
            else:
                raise AssertionError("a gradient penalty silently lost its term")
