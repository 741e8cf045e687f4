"""What an operation on floats does to the residues beside them: one table, for Triton's operations and PyTorch's alike.

`Numbers` are floats and residues of the same shape. A rule of `RULES` gets the result in floats and the operands, and
gives the result's residues. What depends on an order (which is larger? is it 0? how is it rounded?) follows the floats.

- `exp` that is 0 in float32 has residue 0, on either side: so -1e30 does as minus infinity.
- `sqrt` of what is exactly a square, as in √64 and √(x²), is what the floats say, where that agrees with the rule of
  `residues.root`; else it is no residue modulo that prime. (Both hold only where that root is a square itself.)
- Each number has two roots, and which one is taken can't hang together: of √(a²b) = a√b, one side may have the other
  sign where a > 0 is no square modulo p. So `other_roots` takes the others, and who compares asks for both.
- `exp2` of a whole number is a power of two, and `log2` of that one is whole.
- `erf` and its inverse have no identities here: each is a random odd function of the residue.
- What is rounded, compared or counted (`floor`, `round`, `sign`) is a choice: its residue is that of the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from academy.exact import residues as r

U = np.uint64
ONE = r.full((), U(1))


class Numbers(NamedTuple):
    """floats: any float dtype, or integers. residues: one axis more, the primes."""

    floats: np.ndarray
    residues: np.ndarray


def of(floats: np.ndarray) -> Numbers:
    """What is exactly that float."""
    return Numbers(np.asarray(floats), r.embed(floats))


def choose(condition: np.ndarray, a: np.ndarray | U, b: np.ndarray | U) -> np.ndarray:
    return np.where(np.asarray(condition)[..., None], a, b)


def spread(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`numpy.broadcast_to`, which takes its time where there is nothing to do."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def settled(floats: np.ndarray, residues: np.ndarray, operands: tuple[Numbers, ...]) -> np.ndarray:
    """Infinities and NaN as the floats have them; what is finite in spite of an infinite operand is a limit, and exact:
    1 / ∞ is 0."""
    if any(operand.residues.size and operand.residues.max() >= r.NAN for operand in operands):
        limit = np.array(False)
        for operand in operands:
            limit = limit | r.infinite(operand.residues)
        residues = np.where(limit, r.embed(floats), residues) if limit.any() else residues
    if np.isfinite(floats).all():
        return residues
    return r.marks(floats, spread(residues, (*floats.shape, r.COUNT)))


# ---------------------------------------------------------------- rules
def _vanishes(floats: np.ndarray) -> np.ndarray:
    """Where a number is 0 in float32."""
    with np.errstate(all="ignore"):
        return np.asarray(floats).astype(np.float32) == 0


def _exp(floats: np.ndarray, x: Numbers) -> np.ndarray:
    return choose(_vanishes(floats), U(0), r.exp(x.residues))


def _exp2(floats: np.ndarray, x: Numbers) -> np.ndarray:
    out = choose(_vanishes(floats), U(0), r.exp(r.mul(x.residues, r.LN2)))
    with np.errstate(all="ignore"):
        n = np.rint(x.floats.astype(np.float64))
    near = np.abs(n) < 1100
    n = np.where(near, n, 0.0).astype(np.int64)
    # A sum of logarithms, whatever became of their turns, isn't known further.
    known = (x.residues & r.NUMBER) % r.COMPARED == r.whole(n) % r.COMPARED
    whole = near[..., None] & ~r.marked(x.residues) & known
    return np.where(whole, r.two_to_the(n), out)


def _log(floats: np.ndarray, x: Numbers) -> np.ndarray:
    return r.log(x.residues)


def _log2(floats: np.ndarray, x: Numbers) -> np.ndarray:
    out = r.mul(r.log(x.residues), r.LOG2E)
    with np.errstate(all="ignore"):
        fraction, n = np.frexp(np.where(np.isfinite(x.floats), x.floats, 1.0).astype(np.float64))
    power = (fraction == 0.5)[..., None] & (x.residues == r.two_to_the(n - 1))
    return np.where(power, r.whole(n - 1), out)


_OTHER_ROOTS: list[bool] = []


@contextlib.contextmanager
def other_roots() -> Iterator[None]:
    """While this lasts, the root of a number is the one that is no square."""
    _OTHER_ROOTS.append(True)
    try:
        yield
    finally:
        _OTHER_ROOTS.pop()


def _sqrt(floats: np.ndarray, x: Numbers) -> np.ndarray:
    out, seen = r.root(x.residues), r.embed(floats)
    out = r.minus(out) if _OTHER_ROOTS else out
    out = np.where((r.mul(seen, seen) == x.residues) & (seen != out), r.NAR, out)
    return choose(floats == 0, U(0), out) if (floats == 0).any() else out


def _rsqrt(floats: np.ndarray, x: Numbers) -> np.ndarray:
    with np.errstate(all="ignore"):
        return r.inverse(_sqrt(np.sqrt(x.floats), x))


def _decay(x: Numbers) -> np.ndarray:
    """exp(-|x|)."""
    with np.errstate(all="ignore"):
        size = np.abs(x.floats.astype(np.float64))
        return choose(_vanishes(np.exp(-size)), U(0), r.exp(_abs(x, sign=-1)))


def _abs(x: Numbers, sign: int = 1) -> np.ndarray:
    return choose(sign * x.floats < 0, r.minus(x.residues), x.residues)


def _sigmoid(floats: np.ndarray, x: Numbers) -> np.ndarray:
    e = _decay(x)
    return r.mul(choose(x.floats < 0, e, ONE), r.inverse(r.add(ONE, e)))


def _tanh(floats: np.ndarray, x: Numbers) -> np.ndarray:
    e = _decay(Numbers(2 * x.floats, r.add(x.residues, x.residues)))
    size = r.mul(r.add(ONE, r.minus(e)), r.inverse(r.add(ONE, e)))
    return choose(x.floats < 0, r.minus(size), size)


def _hyperbolic(sign: Callable) -> Callable:
    def rule(floats: np.ndarray, x: Numbers) -> np.ndarray:
        e = r.exp(x.residues)
        return r.mul(r.add(e, sign(r.inverse(e))), r.two_to_the(np.array(-1)))

    return rule


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return r.mul(a, r.inverse(b))


def _fmod(whole: Callable) -> Callable:
    """x - y · (x / y made whole)."""

    def rule(floats: np.ndarray, x: Numbers, y: Numbers) -> np.ndarray:
        with np.errstate(all="ignore"):
            times = whole(x.floats.astype(np.float64) / y.floats)
        return r.difference(x.residues, r.mul(y.residues, r.embed(times)))

    return rule


def _extremum(floats: np.ndarray, a: Numbers, b: Numbers) -> np.ndarray:
    return choose(floats == a.floats, *np.broadcast_arrays(a.residues, b.residues))


def _odd(seed: int) -> Callable:
    def rule(floats: np.ndarray, x: Numbers) -> np.ndarray:
        out = r.scrambled(x.residues, seed)
        number = (x.residues & r.NUMBER) % r.COMPARED
        out = np.where((number == 0) & (out != r.NAR), U(0), out)
        return np.where(number > r.COMPARED - number, r.minus(out), out)

    return rule


def _normal(floats: np.ndarray, x: Numbers) -> np.ndarray:
    """exp(-x² / 2) / √(2π)."""
    with np.errstate(all="ignore"):
        half = Numbers(-0.5 * x.floats * x.floats, r.mul(r.mul(x.residues, x.residues), r.literal(-0.5)))
        return r.mul(_exp(np.exp(half.floats), half), r.literal(0.3989422804014327))


def _normal_below(floats: np.ndarray, x: Numbers) -> np.ndarray:
    """(1 + erf(x / √2)) / 2."""
    erf = _odd(1)(floats, Numbers(x.floats, r.mul(x.residues, r.literal(0.7071067811865476))))
    return r.mul(r.add(ONE, erf), r.literal(0.5))


def _by_float(floats: np.ndarray, *operands: Numbers) -> np.ndarray:
    return r.embed(floats)


def _pow(floats: np.ndarray, x: Numbers, y: Numbers) -> np.ndarray:
    """Powers of 2; whole and half exponents, of which there are few; and exp(y log x), where that loses no turn."""
    if (x.residues == r.whole(np.array(2))).all():
        return _exp2(floats, y)
    shape = (*floats.shape, r.COUNT)
    base, exponent_of = Numbers(x.floats, np.broadcast_to(x.residues, shape)), np.broadcast_to(y.residues, shape)
    out = r.exp(r.mul(r.log(base.residues), exponent_of))
    exponents = np.unique(y.floats)
    for exponent in exponents[: 64 if len(exponents) <= 64 else 0]:
        twice = float(2 * exponent)
        if twice.is_integer() and abs(twice) <= 128:
            if twice % 2 == 0:
                made = r.power(base.residues, int(twice) // 2)
            else:
                with np.errstate(all="ignore"):
                    made = r.power(_sqrt(np.broadcast_to(np.sqrt(x.floats), floats.shape), base), int(twice))
            out = choose(np.broadcast_to(y.floats == exponent, floats.shape), made, out)
    return out


#: An operation's name -> (result in floats, operands) -> residues.
RULES: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda floats, a, b: r.add(a.residues, b.residues),
    "sub": lambda floats, a, b: r.difference(a.residues, b.residues),
    "mul": lambda floats, a, b: r.mul(a.residues, b.residues),
    "div": lambda floats, a, b: _quotient(a.residues, b.residues),
    "fma": lambda floats, a, b, c: r.add(r.mul(a.residues, b.residues), c.residues),
    "neg": lambda floats, x: r.minus(x.residues),
    "reciprocal": lambda floats, x: r.inverse(x.residues),
    "square": lambda floats, x: r.mul(x.residues, x.residues),
    "same": lambda floats, x: x.residues,
    "abs": lambda floats, x: _abs(x),
    "exp": _exp,
    "exp2": _exp2,
    "expm1": lambda floats, x: r.difference(_exp(floats + 1, x), ONE),
    "log": _log,
    "log2": _log2,
    "log10": lambda floats, x: r.mul(r.log(x.residues), r.inverse(r.LN10)),
    "exp10": lambda floats, x: _exp(floats, Numbers(x.floats, r.mul(x.residues, r.LN10))),
    "log1p": lambda floats, x: r.log(r.add(x.residues, ONE)),
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "pow": _pow,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "sinh": _hyperbolic(r.minus),
    "cosh": _hyperbolic(lambda e: e),
    "max": _extremum,
    "min": _extremum,
    "fmod": _fmod(np.trunc),
    "remainder": _fmod(np.floor),
    "erf": _odd(1),
    "normcdf": _normal_below,
    "normpdf": _normal,
    "sin": lambda floats, x: r.circle(x.residues)[1],
    "cos": lambda floats, x: r.circle(x.residues)[0],
    "erfinv": _odd(2),
    "copysign": lambda floats, x, y: choose(
        np.signbit(floats) != np.signbit(x.floats), r.minus(x.residues), x.residues
    ),
    **dict.fromkeys("floor ceil trunc round sign".split(), _by_float),
}


#: Whose result is finite only where all operands are.
_FINITE_OF_FINITE = frozenset("add sub mul fma neg square same abs".split())


def apply(name: str, floats: np.ndarray, *operands: Numbers) -> np.ndarray:
    """The residues of a result. The shape is that of `floats`, which the operands are broadcast to."""
    out = settled(floats, RULES[name](floats, *operands), () if name in _FINITE_OF_FINITE else operands)
    return spread(out, (*floats.shape, r.COUNT))


def matmul(floats: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return settled(floats, r.matmul(a, b), ())


def extremum(x: Numbers, axis: int | None, largest: bool, keepdims: bool = False) -> np.ndarray:
    """The residue of the largest or smallest number along an axis; NaN is passed over where there is another."""
    floats, residues = x
    if axis is None:
        floats, residues, axis = floats.reshape(-1), residues.reshape(-1, r.COUNT), 0
    floats = np.where(np.isnan(floats), -np.inf if largest else np.inf, floats)
    at = (floats.argmax if largest else floats.argmin)(axis, keepdims=True)
    out = np.take_along_axis(residues, at[..., None], axis)
    return out if keepdims else np.squeeze(out, axis)
