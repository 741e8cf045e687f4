"""Do a page's formulas hold? Each is evaluated in float64 at random points; derivatives by autograd."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from academy.book.problems import FormulaError, PageError
from academy.files.cache import kept
from academy.files.dependencies import made_by
from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import Environment, evaluate, everywhere
from academy.formulas.meaning.rules import case_weights
from academy.formulas.meaning.values import DTYPE, wrong
from academy.formulas.reading.page import Page, Step
from academy.formulas.reading.tree import Equation, Node, as_derivative, free_indices, nodes

TOLERANCES = {"rtol": 1e-8, "atol": 1e-10}
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
            with page.placed(step.block):
                _run(page, step, env, step.pos >= start, tallies[at])
    for step, tally in zip(page.steps, tallies.values()):
        if step.equation and step.equation.condition and step.pos >= start and not (tally.true and tally.false):
            page.fail(step.pos, f"its condition {'excludes nothing' if tally.true else 'was never true'}", "value")
    return tallies


def checked(page: Page) -> list[int]:
    """How many numbers `check` compared at each step; kept, for the site and whoever else asks of the same page.

    Raises:
        PageError: as `check`, each time.
    """
    key = [str(page.path), page.text, made_by(__name__), torch.backends.cpu.get_cpu_capability()]
    return kept("equations", key, lambda: [tally.points for tally in check(page).values()])


def problems(page: Page) -> list[PageError]:
    """All false formulas of a page, not only the first. What follows a definition without meaning is not looked at."""
    found: list[PageError] = []
    start: int | None = 0
    while start is not None:
        try:
            check(page, start=start)
            return found
        except PageError as error:
            found.append(error)
            line_end = len("\n".join(page.text.split("\n")[: error.problem.line]))
            later = [step.pos for step in page.steps if step.pos > line_end]
            start = later[0] if later and error.kind == "value" else None
    return found


# ---------------------------------------------------------------- random points
def random_point(page: Page, seed: int, lengths: dict[str, int] | None = None) -> Environment:
    """Random values for everything that the front matter gives. lengths: of all dims, if they aren't random, too."""
    front, generator = page.front, torch.Generator().manual_seed(seed)
    lengths = _lengths(front, generator) if lengths is None else lengths
    values = {key: spec.draw(lengths, generator) for key, spec in front.given.items()}
    integers = {key: (torch.randint(lengths[dim], (), generator=generator), dim) for key, dim in front.classes.items()}
    generic = {key: _smooth(torch.randn(4, 3, generator=generator, dtype=DTYPE)) for key in front.generic}
    ranges = front.index_ranges(lengths)
    for key, here in ranges.items():
        if here.count < 1:
            front.fail(f"is empty where it runs over {here.first}..{here.last}", "math", "index", key)
    return Environment(lengths, ranges, values, integers, generic, front.loss, front.origin)


def _lengths(front, generator: torch.Generator) -> dict[str, int]:
    """Different lengths for all dims, where the computed ones allow it, and no empty range."""
    pool = _LENGTHS[: max(5, len(front.free_dims))]
    candidates = (torch.randperm(len(pool), generator=generator).tolist() for _ in itertools.count())
    for order in itertools.islice(candidates, 40):
        lengths = front.lengths({dim: pool[k] for dim, k in zip(front.free_dims, order)})
        counts = [*lengths.values(), *(here.count for here in front.index_ranges(lengths).values())]
        if len(set(lengths.values())) == len(lengths) and min(counts, default=1) > 0:
            break
    return lengths


def _smooth(coefficients: torch.Tensor):
    """A smooth function without symmetry or zeros at special places."""
    return lambda x: sum(a * torch.sin(b * x + p) for a, b, p in coefficients) + 0.3 * x + 1.7


# ---------------------------------------------------------------- one step
def _run(page: Page, step: Step, env: Environment, look: bool, tally: Tally) -> None:
    env.enter(step)
    if look and step.kind == "define" and not step.continues:
        _against_reference(page, step, env)
    if look and step.equation:
        _hold(step, env, tally)


def _against_reference(page: Page, step: Step, env: Environment) -> None:
    """The definition evaluates, and agrees with the second source that the front matter names for it."""
    key, definition = step.keys[0], step.equation.definition
    got = evaluate(Node("bare" if definition.formals else "sym", (key,), definition.pos), env)
    if not definition.formals and names.recursive(key, env) and not names.settles(key, env):
        message = f"this definition never settles: an element of {key} depends on itself"
        raise FormulaError(message, definition.pos, "type")
    source = page.front.reference.get(key)
    if source is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = torch.as_tensor(eval(source, reference_names(page, env)), dtype=DTYPE)
    except Exception as error:  # any mistake in an expression that an author wrote
        page.front.fail(f"{source}: {type(error).__name__}: {error}", "math", "reference", key)
    if got.shape != expected.shape or not torch.allclose(got, expected, **TOLERANCES):
        raise FormulaError(f"the definition of {key} differs from its reference {source}", definition.pos, "value")


def reference_names(page: Page, env: Environment) -> dict:
    """What an expression under `reference` may use: the given symbols by their Python names, dims, torch, F."""
    values = env.values | {key: position for key, (position, _) in env.integers.items()} | env.dims
    return {page.names[key]: value for key, value in values.items()} | {"torch": torch, "F": torch.nn.functional}


def _hold(step: Step, env: Environment, tally: Tally) -> None:
    equation = step.equation
    env, indices, values, mask = everything(equation, env)
    relations, sides = claims(equation), equation.sides
    for part in nodes(sides):
        _check_part(part, env)
    if mask is not None:
        tally.true += int(mask.sum())
        tally.false += int((~mask).sum())
    if not relations:
        _finite(values[0], sides[0])
    for at, relation in enumerate(relations):
        left, right = values[at : at + 2]
        if left.shape != right.shape:
            shapes = f"left side has shape {tuple(left.shape[len(indices) :])}, right side"
            wrong(f"{shapes} {tuple(right.shape[len(indices) :])}", sides[at + 1])
        if mask is not None and left.shape != mask.shape:
            wrong("a condition on a vector equation", sides[at + 1])
        if relation == "=":
            _same_operands(sides[at], sides[at + 1], indices, env)
        left, right = (left, right) if mask is None else (left[mask], right[mask])
        tally.points += left.numel()
        _holds(left, right, relation, step.tolerance, sides[at + 1])


def claims(equation: Equation) -> tuple[str, ...]:
    """The relations between neighbouring sides that can be false."""
    return tuple(equation.relations[1:] if equation.definition else equation.relations)


def everything(
    equation: Equation, env: Environment
) -> tuple[Environment, list[str], list[torch.Tensor], torch.Tensor | None]:
    """Where an equation is evaluated, its free indices, each side's values at all their positions, and where its
    condition holds."""
    env = _freed(equation, env) if equation.free else env
    indices = list(free_indices([*equation.sides, equation.condition]))
    values = [everywhere(side, env, indices) for side in equation.sides]
    mask = everywhere(equation.condition, env, indices, positions.condition) if equation.condition else None
    return env, indices, values, mask


def _freed(equation: Equation, env: Environment) -> Environment:
    r"""Random values for the symbols behind `\text{for any}`."""
    generator, values = torch.Generator().manual_seed(12345), dict(env.values)
    for key in equation.free:
        shape = names.symbol(key, env, equation.sides[0]).shape
        values[key] = torch.rand(shape, generator=generator, dtype=DTYPE) + 0.5
    return env.child(values=values)


def _check_part(node: Node, env: Environment) -> None:
    """What a part says by being there: cases cover all, weights are probabilities, what is held fixed matters."""
    if node.op == "cases":
        if not bool((everywhere(node, env, rule=case_weights).sum(-1) == 1).all()):
            raise FormulaError("the cases overlap or leave a gap", node.pos, "value")
    elif node.op == "expect" and node.args[1]:
        weights = everywhere(node.args[1], env)
        if not torch.allclose(weights.sum(-1), torch.ones_like(weights.sum(-1))) or bool((weights < 0).any()):
            raise FormulaError("these weights aren't probabilities: they don't sum to 1", node.pos, "value")
    elif node.op == "deriv":
        for name in node.args[2]:
            rest = tuple(other for other in node.args[2] if other != name)
            without = Node("deriv", (*node.args[:2], rest), node.pos)
            if torch.allclose(everywhere(node, env), everywhere(without, env)):
                wrong(f"holding {name} fixed changes nothing", node)


def _same_operands(left: Node, right: Node, indices: Iterable[str], env: Environment) -> None:
    """Of two pure derivatives by the same variable, what is derived must agree, not only the derivatives."""
    a, b = as_derivative(left), as_derivative(right)
    if a and b and str(a[1:]) == str(b[1:]):
        x, y = (everywhere(operand, env, indices) for operand in (a[0], b[0]))
        if x.shape != y.shape or not torch.allclose(x, y, **TOLERANCES):
            message = "the operands of these two derivatives differ (though their derivatives may agree)"
            raise FormulaError(message, right.pos, "value")


def _finite(tensor: torch.Tensor, node: Node) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise FormulaError("not finite at a random point", node.pos, "value")


def _holds(x: torch.Tensor, y: torch.Tensor, relation: str, tolerance: float | None, node: Node) -> None:
    _finite(x, node)
    _finite(y, node)
    if relation in ("=", r"\approx"):
        limits = TOLERANCES if relation == "=" else {"rtol": 0.0, "atol": tolerance}
        holds = torch.isclose(x, y, **limits)
    else:
        holds = positions.COMPARE[relation](x, y)
    if not bool(holds.all()):
        worst = float((x - y).abs().max())
        raise FormulaError(f"'{relation}' does not hold: largest difference {worst:.3g}", node.pos, "value")
