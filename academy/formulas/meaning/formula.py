"""Tagged equations as torch functions, straight from their LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from academy.book.problems import FormulaError
from academy.formulas.meaning import names
from academy.formulas.meaning.environment import Environment
from academy.formulas.meaning.values import DTYPE
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import Equation, Node, free_indices, pieces


class Formulas:
    r"""The last sides of tagged equations as a float64 function of the page's given symbols: tag -> value.

    Symbols are passed by their Python names (`page.names`): $\nabla_Y$ as `nabla_Y`, $\hat{X}$ as `X_hat`, a
    class as an integer that counts from 0. A name that the page defines may be passed too, in place of its definition.
    Names listed in `batch` carry one more leading axis of rows, over which the
    formulas are vectorised (`torch.func.vmap`); the results carry it too.

    A result's axes: the free indices of the equation's left side, in order, or the axes of a vector equation. What
    several equations are made of is evaluated once.

    >>> Formulas(Page("backprop_math/layernorm.md"), ["LN-Y", "LN-X"])(
    ...     batch=("X", "nabla_Y"), X=…, gamma=…, beta=…, nabla_Y=…, varepsilon=…)
    """

    def __init__(self, page: Page, tags: Iterable[str]):
        self.page, known = page, page.tags()
        for tag in tags:
            if tag not in known:
                raise KeyError(f"{page.path} has no tag {tag!r}; it has {', '.join(known) or 'none'}")
        self.steps = {tag: known[tag] for tag in tags}
        self._complete = {id(steps[-1]): tag for tag, steps in self.steps.items()}

    def __call__(self, batch: Sequence[str] = (), **inputs: torch.Tensor | float) -> dict[str, torch.Tensor]:
        """Evaluate at `inputs`.

        Raises:
            TypeError: a name that the page doesn't give.
            ValueError: a shape that doesn't fit, or a symbol that a formula needs and didn't get.
        """
        front = self.page.front
        keys = {name: key for key, name in self.page.names.items()}
        for name in [*inputs, *batch]:
            if name not in keys or keys[name] in front.ranges or keys[name] in front.dims:
                given = ", ".join(front.names[key] for key in (*front.given, *front.classes))
                raise TypeError(f"{', '.join(self.steps)} has no input {name!r}; the page gives {given}")
        tensors = [torch.as_tensor(value) for value in inputs.values()]
        tensors = [t.to("cpu", DTYPE if t.is_floating_point() else torch.int64) for t in tensors]

        def one(*values: torch.Tensor) -> dict[str, torch.Tensor]:
            return self._evaluate({keys[name]: value for name, value in zip(inputs, values)})

        if not batch:
            return one(*tensors)
        return torch.func.vmap(one, in_dims=tuple(0 if name in batch else None for name in inputs))(*tensors)

    def _evaluate(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        front, lengths = self.page.front, self._lengths(inputs)
        integers = {key: (inputs[key].long(), dim) for key, dim in front.classes.items() if key in inputs}
        values = {key: tensor.to(DTYPE) for key, tensor in inputs.items() if key not in integers}
        for key, spec in front.given.items():
            if key not in values and spec.fixed:
                shape = tuple(lengths[dim] for dim in spec.dims)
                values[key] = torch.full(shape, float(spec.domain == "ones"), dtype=DTYPE)
        env = Environment(lengths, front.index_ranges(lengths), values, integers, loss=front.loss, origin=front.origin)
        found: dict[str, torch.Tensor] = {}
        for step in self.page.steps:
            env.enter(step)
            if tag := self._complete.get(id(step)):
                steps = self.steps[tag]
                try:
                    found[tag] = names.assembled([_line(each.equation, len(steps) > 1) for each in steps], env)
                except FormulaError as error:
                    raise ValueError(f"{tag} ({self.page.path}): {error.message}") from None
        return found

    def _lengths(self, inputs: dict[str, torch.Tensor]) -> dict[str, int]:
        front, found = self.page.front, dict[str, int]()
        for key in front.given.keys() & inputs.keys():
            shape, dims = tuple(inputs[key].shape), front.given[key].dims
            if len(shape) != len(dims):
                raise ValueError(f"{front.names[key]} must have {len(dims)} axes, got shape {shape}")
            for dim, length in zip(dims, shape):
                if found.setdefault(dim, length) != length:
                    raise ValueError(f"dimension {dim} is {found[dim]} and {length}")
        for dim in front.free_dims:
            if dim not in found:
                raise ValueError(f"the length of {dim} is not known: pass an input that has this axis")
        lengths = front.lengths({dim: found[dim] for dim in front.free_dims})
        for dim, length in found.items():
            if lengths[dim] != length:
                raise ValueError(f"dimension {dim} must be {lengths[dim]}, got {length}")
        return lengths


def _line(equation: Equation, several: bool) -> tuple[tuple[Node, ...], Node]:
    """(subscripts of the left side, right side). several: whether each line of a claim states some elements only."""
    written = pieces(equation)
    by_elements = several or any(index.op == "affine" for index in written)
    if not equation.definition and not by_elements:
        left = equation.sides[0]
        written = tuple(Node("index", (name,), left.pos) for name in free_indices(left))
    return written, equation.sides[-1]
