"""Do a page's formulas hold? Each is evaluated in float64 at random points; derivatives by autograd."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from academy.formulas.errors import FormulaError, PageError
from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import Environment, define
from academy.formulas.meaning.evaluate import evaluate
from academy.formulas.meaning.values import DTYPE, Value, arranged, union
from academy.formulas.reading.page import Page, Step
from academy.formulas.reading.tree import Node, as_derivative

RTOL, ATOL = 1e-8, 1e-10
SEEDS = range(5)
#: Lengths of the dims: all different, so that a wrong axis shows, and none so short that sums say little.
_LENGTHS = (3, 4, 5, 6, 7, 8, 9, 10, 11)


@dataclass
class Tally:
    """What was compared for one step: numbers, and how often its condition was true and false."""

    points: int = 0
    true: int = 0
    false: int = 0


def check(page: Page, seeds: Iterable[int] = SEEDS, start: int = 0) -> dict[int, Tally]:
    """Verify every step at or behind offset `start`. Returns step number -> what was compared.

    Raises:
        PageError: the first formula that has no meaning (kind "type") or is false ("value").
    """
    tallies = {at: Tally() for at in range(len(page.steps))}
    for seed in seeds:
        env = random_point(page, seed)
        for at, step in enumerate(page.steps):
            try:
                _run(page, at, step, env, step.pos >= start, tallies[at])
            except FormulaError as error:
                page.fail(step.block.source_pos + error.position, error.message, error.kind)
    for at, step in enumerate(page.steps):
        if step.equation and step.equation.condition is not None and step.pos >= start:
            tally = tallies[at]
            if not (tally.true and tally.false):
                problem = "excludes nothing" if tally.true else "was never true"
                page.fail(step.pos, f"its condition {problem}", "value")
    return tallies


def problems(page: Page, seeds: Iterable[int] = SEEDS) -> list[PageError]:
    """All false formulas of a page, not only the first. What follows a definition without meaning is not looked at."""
    found: list[PageError] = []
    start = 0
    while True:
        try:
            check(page, seeds, start)
            return found
        except PageError as error:
            found.append(error)
            lines = page.text.split("\n")
            line_end = len("\n".join(lines[: error.problem.line])) if error.problem.line < len(lines) else -1
            later = [step.pos for step in page.steps if step.pos > line_end]
            if error.kind != "value" or line_end < 0 or not later:
                return found
            start = later[0]


# ---------------------------------------------------------------- random points
def random_point(page: Page, seed: int) -> Environment:
    """Random values for everything that the front matter gives."""
    front, generator = page.front, torch.Generator().manual_seed(seed)
    lengths = _lengths(front, generator)
    values = {key: Value(spec.draw(lengths, generator)) for key, spec in front.given.items()}
    integers = {key: (torch.randint(lengths[dim], (), generator=generator), dim) for key, dim in front.classes.items()}
    generic = {key: _smooth(torch.randn(4, 3, generator=generator, dtype=DTYPE)) for key in front.generic}
    ranges = front.index_ranges(lengths)
    return Environment(lengths, ranges, values, integers, generic, front.loss, front.origin)


def _lengths(front, generator: torch.Generator) -> dict[str, int]:
    """Different lengths for all dims, where the computed ones allow it, and no empty range."""
    free = [dim for dim, formula in front.dims.items() if formula is None]
    pool = _LENGTHS[: max(5, len(free))]
    candidates = (torch.randperm(len(pool), generator=generator).tolist() for _ in itertools.count())
    for order in itertools.islice(candidates, 40):
        lengths = front.lengths({dim: pool[order[k]] for k, dim in enumerate(free)})
        different = len(set(lengths.values())) == len(lengths)
        if different and min(lengths.values(), default=1) > 0 and not front.empty_range(lengths):
            break
    return lengths


def _smooth(coefficients: torch.Tensor):
    """A smooth function without symmetry or zeros at special places."""
    return lambda x: sum(a * torch.sin(b * x + p) for a, b, p in coefficients) + 0.3 * x + 1.7


# ---------------------------------------------------------------- one step
def _run(page: Page, at: int, step: Step, env: Environment, look: bool, tally: Tally) -> None:
    if step.kind == "forget":
        env.forget(step.keys)
    if step.kind not in ("define", "claim"):
        return
    env.labels.clear()
    if step.kind == "define" and not step.continues:
        define(page, at, env)
        if look:
            _against_reference(page, step, env)
    if look:
        _hold(step, env, tally)


def _against_reference(page: Page, step: Step, env: Environment) -> None:
    """The definition evaluates, and agrees with the second source that the front matter names for it."""
    key, definition = step.keys[0], step.equation.definition
    if definition.formals:
        value = evaluate(Node("bare", (key,), definition.pos), env)
    else:
        value = names.symbol(key, env, step.equation.sides[0])
    source = page.front.reference.get(key)
    if source is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = torch.as_tensor(eval(source, reference_names(page, env)), dtype=DTYPE)
    except Exception as error:  # any mistake in an expression that an author wrote
        page.front.fail(f"{source}: {type(error).__name__}: {error}", "math", "reference", key)
    got = value.tensor
    if got.shape != expected.shape or not torch.allclose(got, expected, rtol=RTOL, atol=ATOL):
        raise FormulaError(f"the definition of {key} differs from its reference {source}", definition.pos, "value")


def reference_names(page: Page, env: Environment) -> dict:
    """What an expression under `reference` may use: the given symbols by their Python names, dims, torch, F."""
    names = {page.front.names[key]: value.tensor for key, value in env.values.items()}
    names |= {page.front.names[key]: value[0] for key, value in env.integers.items()}
    names |= {page.front.names[key]: length for key, length in env.dims.items()}
    return names | {"torch": torch, "F": torch.nn.functional}


_HOLDS = {"<": torch.lt, ">": torch.gt, r"\le": torch.le, r"\ge": torch.ge}


def _hold(step: Step, env: Environment, tally: Tally) -> None:
    equation = step.equation
    if equation.free:
        env = _freed(equation, env)
    relations = equation.relations[1:] if equation.definition else equation.relations
    values = [evaluate(side, env) for side in equation.sides]
    _same_operands(equation.sides, relations, env)
    mask = None if equation.condition is None else positions.condition(equation.condition, env)
    if mask is not None:
        tally.true += int(mask.tensor.sum())
        tally.false += int((~mask.tensor).sum())
    if not relations:
        _finite(values[0], equation.sides[0])
    for at, relation in enumerate(relations):
        _compare(values[at], values[at + 1], relation, mask, step, equation.sides[at + 1], tally)


def _freed(equation, env: Environment) -> Environment:
    r"""Random values for the symbols behind `\text{for any}`."""
    generator, values = torch.Generator().manual_seed(12345), dict(env.values)
    for key in equation.free:
        shape = names.symbol(key, env, equation.sides[0]).tensor.shape
        values[key] = Value(torch.rand(shape, generator=generator, dtype=DTYPE) + 0.5)
    return env.child(values=values, labels={})


def _same_operands(sides: list[Node], relations: list[str], env: Environment) -> None:
    """Of two pure derivatives by the same variable, what is derived must agree, not only the derivatives."""
    for left, right, relation in zip(sides, sides[1:], relations):
        a, b = as_derivative(left), as_derivative(right)
        if relation != "=" or not a or not b or str(a[1:]) != str(b[1:]):
            continue
        x, y = evaluate(a[0], env), evaluate(b[0], env)
        labels, rank = union(x, y), max(x.rank, y.rank)
        pair = torch.broadcast_tensors(arranged(x, labels, rank), arranged(y, labels, rank))
        if not torch.allclose(*pair, rtol=RTOL, atol=ATOL):
            message = "the operands of these two derivatives differ (though their derivatives may agree)"
            raise FormulaError(message, right.pos, "value")


def _finite(value: Value, node: Node) -> None:
    if not bool(torch.isfinite(value.tensor).all()):
        raise FormulaError("not finite at a random point", node.pos, "value")


def _compare(
    left: Value, right: Value, relation: str, mask: Value | None, step: Step, node: Node, tally: Tally
) -> None:
    if (left.rank == 0) != (right.rank == 0) or (left.rank and left.shape != right.shape):
        raise FormulaError(f"left side has shape {left.shape}, right side {right.shape}", node.pos, "type")
    labels, rank = union(left, right, mask), left.rank
    x, y = torch.broadcast_tensors(arranged(left, labels, rank), arranged(right, labels, rank))
    if mask is not None:
        if rank:
            raise FormulaError("a condition on a vector equation", step.equation.pos, "type")
        where = arranged(mask, labels, 0)
        where = where.expand(torch.broadcast_shapes(x.shape, where.shape))
        x, y = x.expand(where.shape)[where], y.expand(where.shape)[where]
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise FormulaError("not finite at a random point", node.pos, "value")
    if relation == "=":
        holds = torch.isclose(x, y, rtol=RTOL, atol=ATOL)
    elif relation == r"\approx":
        holds = (x - y).abs() <= step.tolerance
    else:
        holds = _HOLDS[relation](x, y)
    tally.points += x.numel()
    if not bool(holds.all()):
        worst = float((x - y).abs().max())
        raise FormulaError(f"'{relation}' does not hold: largest difference {worst:.3g}", node.pos, "value")
