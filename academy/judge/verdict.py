"""One verdict: what a function gives, beside what PyTorch gives in the same dtype and in float64.

`run` calls a function and differentiates it: every result and every gradient, by name. `three` does so three times.
The rule for the three results is that of `academy.judge.accuracy`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

import torch

from academy.judge import elements, writes
from academy.judge.findings import Wrong

#: Of the outputs that autograd knows: tensors, or what makes them.
Upstreams: TypeAlias = "list[torch.Tensor] | Callable[[list[torch.Tensor]], list[torch.Tensor]]"


@dataclass
class Run:
    """outputs: by name, detached. gradients: of the inputs that get one. upstreams: what they were computed with."""

    outputs: dict[str, Any]
    gradients: dict[str, torch.Tensor]
    upstreams: list[torch.Tensor]

    @property
    def values(self) -> dict[str, Any]:
        """`{"out": …, "d<name>": …}`"""
        return self.outputs | {f"d{name}": gradient for name, gradient in self.gradients.items()}


def leaves(
    inputs: dict[str, Any], wanted: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The arguments, and those of them that require gradients: `wanted`, or all that can."""
    found, asked = dict(inputs), {}
    made: dict[int, torch.Tensor] = {}
    for name, value in inputs.items():
        if elements.floating(value):
            if id(value) not in made:
                made[id(value)] = value.detach()
                if wanted is None or name in wanted:
                    asked[name] = made[id(value)].requires_grad_()
            found[name] = made[id(value)]
    return found, asked


def named(result: Any, name: str = "out") -> dict[str, Any]:
    """The tensors and numbers in a result, which may be a tuple, a dict or a dataclass, one inside of another."""
    if isinstance(result, (tuple, list)):
        parts = {f"{name}[{number}]": value for number, value in enumerate(result)}
    elif isinstance(result, dict):
        parts = {f"{name}[{key!r}]": value for key, value in result.items()}
    elif is_dataclass(result):
        parts = {f"{name}.{field.name}": getattr(result, field.name) for field in fields(result)}
    else:
        packed = torch.is_tensor(result) and result.dtype == getattr(torch, "float4_e2m1fn_x2", None)
        return {} if result is None else {name: result.view(torch.uint8) if packed else result}
    return {inner: each for part, value in parts.items() for inner, each in named(value, part).items()}


def ones(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients from above in `.sum().backward()`: their strides are zero."""
    return [torch.ones((), dtype=out.dtype, device=out.device).expand(out.shape) for out in outputs]


def run(
    function: Callable,
    inputs: dict[str, Any],
    upstreams: Upstreams | None = None,
    wanted: Collection[str] | None = None,
    names: Callable[[Any], dict[str, Any]] = named,
) -> Run:
    """Call a function with leaves, and ask for the gradients of `wanted`, or of all floating inputs.

    Raises Wrong if the backward pass writes to the gradient that it gets from above.
    """
    given, asked = leaves(inputs, wanted)
    outputs = names(function(**given))
    attached = [out for out in outputs.values() if torch.is_tensor(out) and out.requires_grad]
    found = {name: out.detach() if torch.is_tensor(out) else out for name, out in outputs.items()}
    if not attached or not asked or upstreams is None:
        return Run(found, {}, [])
    upstreams = upstreams(attached) if callable(upstreams) else upstreams
    above = {f"upstream {number}": up.to(out.dtype) for number, (up, out) in enumerate(zip(upstreams, attached))}
    shown = writes.copies(above)
    grads = torch.autograd.grad(attached, list(asked.values()), list(shown.values()), allow_unused=True)
    if writes.changed(shown, above):
        raise Wrong("the backward pass writes to the gradient that it gets from above, which others may use")
    return Run(found, {name: grad for name, grad in zip(asked, grads) if grad is not None}, upstreams)


def three(
    function: Callable, pytorch: Callable, reference: Callable, inputs: dict[str, Any], upstreams: Upstreams,
    wanted: Collection[str] | None = None,
) -> list[tuple[str, Any, Any, Any]]:  # fmt: skip
    """(name, the function's, PyTorch's, the reference's in float64) of each output and gradient of the reference. What
    the function writes to the inputs, the others don't see."""
    kept, wide = writes.copies(inputs), elements.in_float64(inputs)
    ours = run(function, inputs, upstreams, wanted)
    theirs = run(pytorch, kept, ours.upstreams, wanted).values
    exact = run(reference, wide, ours.upstreams, wanted).values
    return [(name, ours.values[name], theirs[name], value) for name, value in exact.items()]
