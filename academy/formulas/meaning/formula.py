"""A tagged equation as a torch function, straight from its LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import Environment, Piece, define
from academy.formulas.meaning.evaluate import evaluate
from academy.formulas.meaning.values import DTYPE, Value, arranged
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import Node, free_indices
from academy.formulas.reading.tree import subscripts as subscripts_of


class Formula:
    r"""The last side of a tagged equation as a float64 function of the page's given symbols.

    Symbols are passed by their Python names (`page.front.names`): $\nabla_Y$ as `nabla_Y`, $\hat{X}$ as `X_hat`, a
    class as an integer that counts from 0. A name that the page defines may be passed too, in place of its definition.
    Names listed in `batch` carry one more leading axis of rows, over which the
    formula is vectorised (`torch.func.vmap`); the result carries it too.

    >>> Formula(Page("backprop_math/layernorm.md"), "LN-X")(
    ...     batch=("X", "nabla_Y"), X=…, gamma=…, nabla_Y=…, varepsilon=…)

    The result's axes: the free indices of the equation's left side, in order, or the axes of a vector equation.
    """

    def __init__(self, page: Page, tag: str):
        if tag not in page.tags():
            raise KeyError(f"{page.path} has no tag {tag!r}; it has {', '.join(page.tags()) or 'none'}")
        self.page, self.tag = page, tag
        self.steps = page.tags()[tag]
        last = page.steps.index(self.steps[-1])
        self._scope = Environment({}, {}, {}, {})
        for at, step in enumerate(page.steps[: last + 1]):
            if step.kind == "forget":
                self._scope.forget(step.keys)
            elif step.kind == "define" and not step.continues:
                define(page, at, self._scope)

    def __call__(self, batch: Sequence[str] = (), **inputs: torch.Tensor | float) -> torch.Tensor:
        """Evaluate at `inputs`.

        Raises:
            TypeError: a name that the page doesn't give.
            ValueError: a shape that doesn't fit, or a symbol that the formula needs and didn't get.
        """
        keys = {name: key for key, name in self.page.front.names.items()}
        front = self.page.front
        for name in [*inputs, *batch]:
            if name not in keys or keys[name] in front.ranges or keys[name] in front.dims:
                given = ", ".join(front.names[key] for key in (*front.given, *front.classes))
                raise TypeError(f"{self.tag} has no input {name!r}; the page gives {given}")
        tensors = [torch.as_tensor(value) for value in inputs.values()]
        tensors = [t.to("cpu", DTYPE if t.is_floating_point() else torch.int64) for t in tensors]
        names = [keys[name] for name in inputs]

        def one(*values: torch.Tensor) -> torch.Tensor:
            return self._evaluate(dict(zip(names, values)))

        if not batch:
            return one(*tensors)
        axes = tuple(0 if name in batch else None for name in inputs)
        return torch.func.vmap(one, in_dims=axes)(*tensors)

    def _evaluate(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        front = self.page.front
        lengths = self._lengths(inputs)
        values = {key: Value(t if t.is_floating_point() else t.to(DTYPE)) for key, t in inputs.items()}
        integers = {key: (values.pop(key).tensor.long(), front.classes[key]) for key in front.classes if key in inputs}
        for key, spec in front.given.items():
            if key not in values and spec.domain in ("ones", "zeros"):
                shape = tuple(lengths[dim] for dim in spec.dims)
                values[key] = Value(torch.full(shape, float(spec.domain == "ones"), dtype=DTYPE))
        env = Environment(
            lengths, front.index_ranges(lengths), values, integers, loss=front.loss, origin=front.origin, batched=True
        )
        env.defined.update(self._scope.defined)
        step = self.steps[0]
        try:
            return self._assemble(env)
        except FormulaError as error:
            raise ValueError(
                f"{self.tag} ({self.page.path}, offset {step.block.source_pos + error.position}): {error.message}"
            ) from None

    def _lengths(self, inputs: dict[str, torch.Tensor]) -> dict[str, int]:
        front = self.page.front
        lengths: dict[str, int] = {}
        for key, tensor in inputs.items():
            spec = front.given.get(key)
            if spec is None:
                continue
            if tensor.dim() != len(spec.dims):
                raise ValueError(f"{front.names[key]} must have {len(spec.dims)} axes, got shape {tuple(tensor.shape)}")
            for dim, length in zip(spec.dims, tensor.shape):
                if lengths.setdefault(dim, length) != length:
                    raise ValueError(f"dimension {dim} is {lengths[dim]} and {length}")
        missing = [dim for dim, formula in front.dims.items() if formula is None and dim not in lengths]
        if missing:
            raise ValueError(f"the length of {missing[0]} is not known: pass an input that has this axis")
        computed = front.lengths({dim: n for dim, n in lengths.items() if front.dims[dim] is None})
        for dim, length in lengths.items():
            if computed[dim] != length:
                raise ValueError(f"dimension {dim} must be {computed[dim]}, got {length}")
        return computed

    def _assemble(self, env: Environment) -> torch.Tensor:
        lines = [_line(step.equation) for step in self.steps]
        whole = all(index.op == "index" for indices, _ in lines for index in indices)
        if len(lines) == 1 and whole:
            return self._single(*lines[0], env)
        pieces = [names.piece(Piece(indices, body), env) for indices, body in lines]
        return positions.scatter(pieces, env, lines[0][1]).tensor

    def _single(self, indices: tuple[Node, ...], body: Node, env: Environment) -> torch.Tensor:
        out = tuple(index.args[0] for index in indices)
        value = evaluate(body, env)
        extra = set(value.labels) - set(out)
        if extra:
            raise FormulaError(f"index {min(extra)} is missing on the left of {self.tag}", body.pos, "type")
        tensor = arranged(value, out, value.rank)
        return tensor.expand(tuple(env.ranges[name].count for name in out) + value.shape)


def _line(equation) -> tuple[tuple[Node, ...], Node]:
    """(subscripts of the left side, right side)"""
    body = equation.sides[-1]
    if equation.definition:
        return tuple(equation.definition.indices or ()), body
    left = equation.sides[0]
    written = subscripts_of(left)
    if any(index.op == "affine" for index in written):
        return written, body
    return tuple(Node("index", (name,), left.pos) for name in free_indices(left)), body
