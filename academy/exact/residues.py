r"""Arithmetic without rounding: numbers modulo 3²⁰, 7¹¹, 11⁹ and 23⁷, in arrays.

A finite float is $m \cdot 2^e$ with whole $m$ and $e$, and 2 has an inverse modulo any odd number. So every float,
every constant and every whole number has a residue modulo $p^k$, and $+$, $-$, $\cdot$ and $/$ of residues are those
of exact arithmetic: whatever order a kernel adds in, the sum is the same number. These functions go along:

- **exp** is $\exp(x) := (1 + p)^x$. It turns sums into products, which is all that softmax, its online form and
  attention by blocks need: $\exp(x - m) / \sum \exp(x - m) = \exp(x) / \sum \exp(x)$. As $(1 + p)^{p^{k-1}} = 1$, it
  needs $x$ modulo $p^{k-1}$ only. What base 2 makes of it: `LN2`, the logarithm of 2, is the factor between them.
- **log** of whatever $p$ doesn't divide. Each such number is $\omega^t (1 + p)^x$, where $\omega$ is a root of unity of
  order $p - 1$. Its logarithm is $x$, and beside it the *turn* $t$, which a later exp takes back. A turn that was
  multiplied with something is lost: the number goes on without it, and only an exp, sin, cos or erf of it is NAR.
- **sin** and **cos** are the parts of a power of a point on the unit circle near 1: $\cos x + i \sin x := u^x$, with
  $u = (1 + ip) / (1 - ip)$. So the sums of angles hold, and $\cos^2 x + \sin^2 x = 1$.
- **√**. Modulo these primes, all of them 3 modulo 4, $-1$ is no square. So of the two roots of a square one is a square
  itself. It is taken: then $\sqrt a \sqrt b = \sqrt{ab}$. What is no square has no root.

A number that has no residue is NAR ("not a residue"), and so is all that is computed from it. $p$ divides a denominator
or what a logarithm or a root is taken of; that is no square; or a turn is lost. Infinities and NaN have marks of their
own.

`k` is at least 7, because modulo $p^k$ exp is a polynomial of degree $k - 1$, and $p$ divides $\exp(x) - 1$, $\tanh x$
and the difference of two weights of a softmax: their $k$-th powers are 0.

An array of residues has one more axis than its numbers, the last: one element for each of `PRIMES`. An element is a
uint64: the residue in its lower 32 bits, the turn above, the marks on top.

Sources: J. T. Schwartz, "Fast probabilistic algorithms for verification of polynomial identities", 1980 (equal at
random points: equal); F. Q. Gouvêa, "p-adic Numbers", chapter 4 (exp and log, Hensel's lemma).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

PRIMES = (3, 7, 11, 23)
POWERS = (20, 11, 9, 7)
COUNT = len(PRIMES)
_MODULI = [p**k for p, k in zip(PRIMES, POWERS)]

U = np.uint64
P, M = np.array(PRIMES, U), np.array(_MODULI, U)
_SMALLEST = min(_MODULI)
#: Which prime: an index beside those of tables.
_EACH = np.arange(COUNT)
#: Two results are compared modulo $p^{k-2}$: a logarithm knows its number modulo $p^{k-1}$, that of one once less.
COMPARED = np.array([p ** (k - 2) for p, k in zip(PRIMES, POWERS)], U)

NUMBER = U(2**32 - 1)
_TURN, _TURNS, LOST = U(32), U(31), U(2**40)
NAN, MINUS, PLUS, NAR = U(2**60), U(2**61), U(2**62), U(2**63)


def _table(rows: int, entry: Callable[[int, int, int], int]) -> np.ndarray:
    """A table of shape (rows, primes): `entry(row, p, k)`."""
    return np.array([[entry(row, p, k) for p, k in zip(PRIMES, POWERS)] for row in range(rows)], U)


def _generator(p: int) -> int:
    """The smallest number whose powers are all numbers from 1 to p - 1."""
    return next(g for g in range(2, p) if len({pow(g, t, p) for t in range(p - 1)}) == p - 1)


def _root_of_unity(turn: int, p: int, k: int) -> int:
    return pow(_generator(p), turn * p ** (k - 1), p**k)


_LARGEST = max(PRIMES)
_SQUARES = [{x * x % p for x in range(1, p)} for p in PRIMES]
_UNITY = _table(_LARGEST - 1, _root_of_unity)
#: A number modulo p -> its turn, the inverse of its root that is one.
_TURN_OF = _table(_LARGEST, lambda y, p, k: next((t for t in range(p - 1) if pow(_generator(p), t, p) == y), 0))
_ROOT_OF = _table(
    _LARGEST,
    lambda y, p, k: next((pow(x, -1, p) for x in range(1, p) if x * x % p == y and pow(x, (p - 1) // 2, p) == 1), 0),
)
#: So many digits to the base p of a number are looked up in tables; a round of Newton's iteration doubles them.
_DIGITS, _ROUNDS = (6, 3, 3, 2), 2
_NEAR = np.array([p**w for p, w in zip(PRIMES, _DIGITS)], U)
_INVERSE_NEAR = _table(max(_NEAR), lambda y, p, k: pow(y, -1, p**k) if y % p else 0)
#: 2^e, for all exponents of float64 and of products with its fraction.
_LEAST = -1140
_TWO = _table(2300, lambda e, p, k: pow(2, e + _LEAST, p**k))
_HALF = _TWO[-1 - _LEAST]
#: (1 + p)^(b · 2048^j): an exponent of 32 bits is three numbers of 11.
_PIECE = 11
_EXP = [_table(1, lambda *_: 1)] * 3
for _bit in range(3 * _PIECE):
    _step = np.array([pow(1 + p, 1 << _bit, p**k) for p, k in zip(PRIMES, POWERS)], U)
    _EXP[_bit // _PIECE] = np.concatenate([_EXP[_bit // _PIECE], _EXP[_bit // _PIECE] * _step % M])


# ---------------------------------------------------------------- what an element holds
def _plain(a: np.ndarray) -> bool:
    """Whether there is neither a turn nor a mark."""
    return not a.size or bool(a.max() <= NUMBER)


_EACHES, _MODULI_OF_MANY = np.tile(_EACH, 2**16), np.tile(M, 2**16)


def _beside(many: np.ndarray, a: np.ndarray) -> np.ndarray:
    """A number for each prime, beside each number of `a`: numpy takes them in one go, and of a row of four it would
    take four at a time."""
    return many[: a.size].reshape(a.shape) if a.size <= many.size else many[:COUNT]


def _remainder(a: np.ndarray) -> np.ndarray:
    """a modulo M, in place: nobody else has `a`."""
    return np.remainder(a, _beside(_MODULI_OF_MANY, a), out=a)


def _once(a: np.ndarray) -> np.ndarray:
    """The same of what is below 2 M, without a division: what would be negative is a large number in uint64."""
    return np.minimum(a, a - _beside(_MODULI_OF_MANY, a), out=a)


def _looked_up(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`table[rows, each prime]`."""
    at = rows.view(np.int64) * COUNT
    at += _beside(_EACHES, at)
    return table.reshape(-1).take(at)


def marked(a: np.ndarray) -> np.ndarray:
    """Where there is no residue: NAR, an infinity or NaN."""
    return a >= NAN


def infinite(a: np.ndarray) -> np.ndarray:
    return (a & (PLUS | MINUS)) != 0


def turned(a: np.ndarray) -> np.ndarray:
    """Where there is a turn, a lost one included."""
    return ((a > NUMBER) & (a < NAN)).astype(bool)


def _joined(number: np.ndarray, turn: np.ndarray, lost: Any, bad: Any) -> np.ndarray:
    out = number | ((turn % (P - U(1))) << _TURN) | np.where(lost, LOST, U(0))
    return np.where(bad, NAR, out)


def _turnless(*arrays: np.ndarray) -> bool:
    """Whether none has a turn; there may be marks."""
    return all(_plain(a) or not turned(a).any() for a in arrays)


def _parts(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Number, turn, whether a turn was lost, whether it is no residue."""
    return a & NUMBER, (a >> _TURN) & _TURNS, (a & LOST) != 0, marked(a)


def full(shape: tuple[int, ...], element: np.ndarray | U) -> np.ndarray:
    """The same residue everywhere."""
    return np.broadcast_to(element, (*shape, COUNT))


# ---------------------------------------------------------------- numbers
def whole(values: np.ndarray) -> np.ndarray:
    """Residues of integers."""
    values = np.asarray(values)
    if values.dtype == bool:
        return np.repeat(values.astype(U)[..., None], COUNT, -1)
    if values.dtype == np.uint64:
        return values[..., None] % M
    negative = values < 0
    size = np.repeat(np.abs(values.astype(np.int64)).astype(U)[..., None], COUNT, -1)
    size = _remainder(size) if size.size and size.max() >= _SMALLEST else size
    return np.where(negative[..., None] & (size != 0), M - size, size) if negative.any() else size


def embed(values: np.ndarray) -> np.ndarray:
    """Residues of floats, exactly; integers and truth values go as they are."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return whole(values)
    values = values.astype(np.float64)
    finite = np.isfinite(values)
    finite_all = bool(finite.all())
    fraction, exponent = np.frexp(values if finite_all else np.where(finite, values, 0.0))
    out = _remainder(np.repeat(np.abs(fraction * 2.0**53).astype(U)[..., None], COUNT, -1))
    out *= _TWO.take(exponent - (53 + _LEAST), 0)
    out = _remainder(out)
    if (negative := values < 0).any():
        out = np.where(negative[..., None], M - out, out)
    return out if finite_all else marks(values, out)


def marks(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`out`, but infinities and NaN where the floats are."""
    finite = np.isfinite(values)
    if finite.all():
        return out
    mark = np.where(np.isnan(values), NAN, np.where(values > 0, PLUS, MINUS))[..., None]
    return np.where(finite[..., None], out, mark)


# ---------------------------------------------------------------- arithmetic
def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _plain(a) and _plain(b):
        return _once(a + b)
    if _turnless(a, b):
        return np.where(marked(a) | marked(b), NAR, _once((a & NUMBER) + (b & NUMBER)))
    (r, t, lost, bad), (s, u, gone, worse) = _parts(a), _parts(b)
    return _joined((r + s) % M, t + u, lost | gone, bad | worse)


def minus(a: np.ndarray) -> np.ndarray:
    r = a & NUMBER
    out = _beside(_MODULI_OF_MANY, r) - r
    out *= r != 0
    if _plain(a):
        return out
    _, t, lost, bad = _parts(a)
    return _joined(out, P - U(1) - t, lost, bad)


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _plain(a) and _plain(b):
        out = a - b
        return np.minimum(out, out + _beside(_MODULI_OF_MANY, out), out=out)
    return add(a, minus(b))


def mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """0 times what is no residue is 0. A turn stays with 1, with the factors between logarithms of two bases, and with
    their negatives."""
    if _plain(a) and _plain(b):
        return _remainder(a * b)
    zero = ((a == 0) & ~infinite(b) & (b != NAN)) | ((b == 0) & ~infinite(a) & (a != NAN))
    if _turnless(a, b):
        return np.where((marked(a) | marked(b)) & ~zero, NAR, _remainder((a & NUMBER) * (b & NUMBER)))
    (r, t, lost, bad), (s, u, gone, worse) = _parts(a), _parts(b)
    left, right = turned(a), turned(b)
    keeps = left & ~right & (_base(s) != 0)
    kept = right & ~left & (_base(r) != 0)
    turn = np.where(keeps, t * _base(s), np.where(kept, u * _base(r), U(0)))
    lost = np.where(keeps, lost, np.where(kept, gone, left | right)) & ~zero
    return _joined(np.where(zero, U(0), (r * s) % M), np.where(zero, U(0), turn), lost, (bad | worse) & ~zero)


def _base(s: np.ndarray) -> np.ndarray:
    """What a turn is multiplied with: 1 for a factor between bases, -1 for its negative; 0: the turn is lost."""
    once, back = ((s == sign(LN2)) | (s == sign(LOG2E)) | (s == sign(_ONE)) for sign in (lambda x: x, minus))
    return np.where(once, U(1), np.where(back, P - U(2), U(0)))


def inverse(a: np.ndarray) -> np.ndarray:
    """1 / a; NAR where p divides a. (Newton's iteration: each round doubles the digits that are known.) Of log 2 it is
    `LOG2E`, which loses no turn."""
    y = a & NUMBER
    x = _looked_up(_INVERSE_NEAR, y % _NEAR)
    good = (x != 0) & ~marked(a)
    for _ in range(_ROUNDS):
        x = _remainder(x * _remainder(U(2) + M - _remainder(y * x)))
    x = np.where(turned(a) & (a != _LOG2), x | LOST, x)
    return np.where(good, x, NAR)


def exp(a: np.ndarray) -> np.ndarray:
    x, t, lost, bad = _parts(a)
    out = _power_of_generator(x)
    if _plain(a):
        return out
    return np.where(bad | lost, NAR, _remainder(out * _looked_up(_UNITY, t)))


def _power_of_generator(x: np.ndarray) -> np.ndarray:
    """(1 + p)^x."""
    piece = U(2**_PIECE - 1)
    out = _looked_up(_EXP[0], x & piece)
    for j in (1, 2):
        out = _remainder(out * _looked_up(_EXP[j], (x >> U(_PIECE * j)) & piece))
    return out


def _on_circle(x: int, p: int, k: int) -> tuple[int, int]:
    """Real and imaginary part of u^x."""
    m = p**k
    norm = pow(1 + p * p, -1, m)
    (a, b), (c, d) = (1, 0), ((1 - p * p) * norm % m, 2 * p * norm % m)
    while x:
        if x & 1:
            a, b = (a * c - b * d) % m, (a * d + b * c) % m
        c, d, x = (c * c - d * d) % m, 2 * c * d % m, x >> 1
    return a, b


@functools.cache
def _circle() -> list[np.ndarray]:
    """u^(b · 256^j): the real parts and the imaginary ones. (Made where somebody asks for them.)"""
    made = [[_on_circle(b << 8 * j, p, k) for p, k in zip(PRIMES, POWERS)] for j in range(4) for b in range(256)]
    return np.split(np.array(made, U), 4)


def circle(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin."""
    x, _, lost, bad = _parts(a)
    real, imaginary = full(x.shape[:-1], U(1)), full(x.shape[:-1], U(0))
    for j in range(4):
        byte = ((x >> U(8 * j)) & U(255)).astype(np.int64)
        c, s = np.moveaxis(_circle()[j][byte, _EACH], -1, 0)
        real, imaginary = (real * c % M + (M - imaginary * s % M)) % M, (real * s % M + imaginary * c % M) % M
    return np.where(bad | lost, NAR, real), np.where(bad | lost, NAR, imaginary)


def log(a: np.ndarray) -> np.ndarray:
    """The exponent and the turn. Its first w digits are looked up; then (1 + p)^(d·p^w) is 1 + d·u·p^(w+1) modulo
    p^(2w+2), with one u for all d, so that each round knows twice as many digits and one more."""
    y = a & NUMBER
    good = (a <= NUMBER) & (y % P != 0)
    y = np.where(good, y, U(1))
    t = _looked_up(_TURN_OF, y % P)
    z = _remainder(y * _looked_up(_UNITY, (P - U(1) - t) % (P - U(1))))
    near, rounds = _logs()
    x = _looked_up(near, (z - U(1)) // P % _NEAR)
    for known, after, inverse_of_u in rounds:
        rest = _remainder(z * _power_of_generator(_ORDER - x))
        x = (x + (rest - U(1)) // after * inverse_of_u % after * known) % _ORDER
    return np.where(good, x | (t << _TURN), NAR)


#: Of 1 + p.
_ORDER = np.array([p ** (k - 1) for p, k in zip(PRIMES, POWERS)], U)


@functools.cache
def _logs() -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """(z - 1) / p modulo p^w -> the first w digits of z's exponent; and for each round p^w, p^(w+1) and 1/u."""
    near, rounds, digits = np.zeros((int(max(_NEAR)), COUNT), U), [], tuple[int, ...](_DIGITS)
    for prime, (p, w) in enumerate(zip(PRIMES, digits)):
        for x in range(p**w):
            near[(pow(1 + p, x, p ** (w + 1)) - 1) // p, prime] = x
    for _ in range(_ROUNDS):
        known = np.array([p**w for p, w in zip(PRIMES, digits)], U)
        tops = [p ** (w + 1) for p, w in zip(PRIMES, digits)]
        units = [(pow(1 + p, p**w, top * top) - 1) // top for p, w, top in zip(PRIMES, digits, tops)]
        rounds.append((known, np.array(tops, U), np.array([pow(u, -1, top) for u, top in zip(units, tops)], U)))
        digits = tuple(2 * w + 1 for w in digits)
    return near, rounds


def inverse_root(a: np.ndarray) -> np.ndarray:
    """1 / √a, a square itself; NAR where a is no square."""
    y = a & NUMBER
    x = _looked_up(_roots_near(), y % _NEAR)
    return np.where((x != 0) & (a <= NUMBER), _nearer_root(y, x, _ROUNDS), NAR)


def _nearer_root(y: np.ndarray, x: np.ndarray, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        x = _remainder(_remainder(x * _remainder(U(3) + M - _remainder(y * _remainder(x * x)))) * _HALF)
    return x


@functools.cache
def _roots_near() -> np.ndarray:
    """As `_ROOT_OF`, of a number modulo `_NEAR`."""
    y = np.repeat(np.arange(max(_NEAR), dtype=U)[:, None], COUNT, -1)
    return _nearer_root(y, _looked_up(_ROOT_OF, y % P), 5)


def root(a: np.ndarray) -> np.ndarray:
    x = inverse_root(a)
    return np.where(x == NAR, NAR, (a & NUMBER) * (x & NUMBER) % M)


def power(a: np.ndarray, exponent: int) -> np.ndarray:
    """a ** exponent, for a whole number."""
    base, out = (inverse(a) if exponent < 0 else a), full(a.shape[:-1], U(1))
    for bit in bin(abs(exponent))[2:]:
        out = mul(out, out)
        out = mul(out, base) if bit == "1" else out
    return out


def two_to_the(exponent: np.ndarray) -> np.ndarray:
    """2 ** n for whole numbers between -1140 and 1159."""
    return _TWO.take(exponent.astype(np.int64) - _LEAST, 0)


_MIXERS = [U(0x9E3779B97F4A7C15), U(0xC2B2AE3D27D4EB4F), U(0x165667B19E3779F9), U(0x27D4EB2F165667C5)]


def scrambled(a: np.ndarray, seed: int) -> np.ndarray:
    """A fixed function without identities, even: of a and -a the same number, else any."""
    r, _, lost, bad = _parts(a)
    r = r % COMPARED
    x = np.minimum(r, (COMPARED - r) % COMPARED) + U(seed * 0x100000001)
    for mixer in _MIXERS:
        x = (x ^ (x >> U(29))) * mixer
    return np.where(bad | lost, NAR, (x ^ (x >> U(32))) % M)


# ---------------------------------------------------------------- sums
def total(a: np.ndarray, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> np.ndarray:
    """The sum along axes of the numbers (not negative; None: all of them)."""
    axes = tuple(range(a.ndim - 1)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    if _plain(a):
        return _remainder(a.sum(axes, dtype=U, keepdims=keepdims))
    if _turnless(a):
        number = (a & NUMBER).sum(axes, dtype=U, keepdims=keepdims) % M
        return np.where(marked(a).any(axes, keepdims=keepdims), NAR, number)
    r, t, lost, bad = _parts(a)
    number, turn = (part.sum(axes, dtype=U, keepdims=keepdims) for part in (r, t))
    return _joined(number % M, turn, *(np.any(part, axes, keepdims=keepdims) for part in (lost, bad)))


def running(a: np.ndarray, axis: int, function: Callable = add) -> np.ndarray:
    """Sums (`mul`: products) of all elements up to each one along an axis."""
    out = np.moveaxis(np.array(a), axis, 0)
    for i in range(1, len(out)):
        out[i] = function(out[i - 1], out[i])
    return np.moveaxis(out, 0, axis)


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of matrices (..., rows, inner) and (..., inner, columns), each with the axis of primes behind.

    float64 adds numbers below 2^53 exactly. With factors cut into halves of 16 bits, the sum of 2^21 products is one.
    """
    if _plain(a) and _plain(b):
        return _product(a, b)
    out = _product(np.where(turned(a) | marked(a), a & NUMBER, a), np.where(turned(b) | marked(b), b & NUMBER, b))
    for test, mark in ((turned, LOST), (marked, NAR)):
        some = [np.moveaxis(values.astype(np.float64), -1, 0) for values in (test(a), b != 0, a != 0, test(b))]
        hit = np.moveaxis(some[0] @ some[1] + some[2] @ some[3], 0, -1) > 0
        out = np.where(hit, mark if mark == NAR else out | mark, out)
    return out


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows, inner, columns = a.shape[-3], a.shape[-2], b.shape[-2]
    if inner >= 2**20:
        raise ValueError(f"a product over {inner} elements: residues add up to 1,048,575 of them")
    halves = []
    for each, axis in ((a, -2), (b, -1)):  # the lower halves before the higher ones: one product has all four
        number, low = np.ascontiguousarray(np.moveaxis(each, -1, 0)) & NUMBER, U(0xFFFF)
        halves.append(np.concatenate([number & low, number >> U(16)], axis, dtype=np.float64))
    made = (halves[0] @ halves[1]).astype(U)
    upper, lower = made[..., :rows, :], made[..., rows:, :]
    m = M.reshape(-1, *[1] * (made.ndim - 1))
    out = lower[..., columns:] % m << U(16)
    out += upper[..., columns:] + lower[..., :columns]
    out = out % m << U(16)
    out += upper[..., :columns]
    out %= m
    return np.ascontiguousarray(np.moveaxis(out, 0, -1))


# ---------------------------------------------------------------- constants that stand for real numbers
_ONE = whole(np.array(1))
_LOG2 = log(whole(np.array(2)))
LN2 = _LOG2 & NUMBER
LOG2E = inverse(LN2)
LN10 = log(whole(np.array(10))) & NUMBER
#: π is any square. So √(2/π) is a residue where √2 is. (Elsewhere √4 isn't 2, and √(2/π) wouldn't be 2 / √(2π).)
PI = np.array([next(n for n in range(1234567, 2**31) if n % p in s) for p, s in zip(PRIMES, _SQUARES)], U)


@functools.cache
def _symbols() -> dict[bytes, np.ndarray]:
    """float32 bits -> residue, for short fractions times the constants that kernels are written with."""
    two, cubic = whole(np.array(2)), mul(whole(np.array(44715)), inverse(whole(np.array(10**6))))
    known = {
        1.0: whole(np.array(1)),
        math.log2(math.e): LOG2E,
        math.log(2): LN2,
        math.log(10): LN10,
        math.log10(math.e): inverse(LN10),
        math.log2(10): mul(LN10, LOG2E),
        math.pi: PI,
        math.sqrt(2 / math.pi): root(mul(two, inverse(PI))),
        0.044715 * math.sqrt(2 / math.pi): mul(cubic, root(mul(two, inverse(PI)))),  # GELU's, multiplied in
        1 / math.sqrt(2 * math.pi): inverse_root(mul(two, PI)),
        math.sqrt(0.5): inverse_root(two),
        math.sqrt(0.5) * math.log2(math.e): mul(inverse_root(two), LOG2E),
        2 / math.sqrt(math.pi): mul(two, inverse_root(PI)),
    }
    odd, exponents = range(1, 16, 2), np.arange(-12, 7)
    fractions = [(a, b) for a in odd for b in odd if math.gcd(a, b) == 1]
    tops, bottoms = np.array(fractions).T
    scaled = mul(mul(whole(tops), inverse(whole(bottoms)))[:, None], two_to_the(exponents))
    found: dict[bytes, np.ndarray] = {}
    for value, residue in known.items():
        floats = (value * tops / bottoms)[:, None] * 2.0**exponents
        for sign, out in ((1, mul(residue, scaled)), (-1, minus(mul(residue, scaled)))):
            pairs = zip((sign * floats).astype(np.float32).reshape(-1), out.reshape(-1, COUNT))
            found.update((single.tobytes(), element) for single, element in pairs if single.tobytes() not in found)
    return found


_TEN = _table(130, lambda e, p, k: pow(10, e - 60, p**k))
_READ_AS_ROOTS: list[bool] = []
#: Of whole numbers up to here, as the widths of heads and layers are.
_WIDEST = 2**14


@contextlib.contextmanager
def literals_of_roots(computed: bool) -> Iterator[None]:
    """While this lasts, a literal that is near the root of a whole number n is read as one, and so is its inverse, its
    own root, and each of these times log₂e, as in `scale * LOG2E`. (Else it is the float, of which each prime decides.)

    Args:
        computed: it is the root that `tl.sqrt` makes of n, where n has one. If not, it is any number: what is written
            in two ways is the same, and half of all primes needn't be done without.
    """
    _READ_AS_ROOTS.append(computed)
    try:
        yield
    finally:
        _READ_AS_ROOTS.pop()


def _root_of_whole(single: np.float32) -> np.ndarray | None:
    """None: it is no such literal."""
    value = abs(float(single))
    for unit, factor in ((1.0, _ONE), (math.log2(math.e), LOG2E)):
        for power in (2, -2, 4, -4):
            n = round(wide) if 1.5 < (wide := (value / unit) ** power) < _WIDEST else 0
            if n == 0 or np.float32(unit * n ** (1 / power)) != value:
                continue
            if _READ_AS_ROOTS[-1]:
                fourth, second = root(root(whole(np.array(n)))), root(whole(np.array(n)))
            else:
                fourth = embed(np.array(n**0.25, np.float32))
                fourth = np.where(fourth % P == 0, fourth + U(1), fourth)
                second = mul(fourth, fourth)
            found = second if abs(power) == 2 else fourth
            found = mul(factor, inverse(found) if power < 0 else found)
            return minus(found) if single < 0 else found
    return None


def literal(value: float) -> np.ndarray:
    """The residue of a number that is written in code, or handed to a kernel, from the float32 that the kernel holds.

    It stands for the first of these that rounds to it: a short fraction, also of log₂e, ln 2, ln 10, π, √(2/π),
    1/√(2π), 2/√π or 1/√2; 1/n; a binary fraction of up to 12 digits; a decimal one of up to 6, so that 0.134145 is
    three times 0.044715. Else it is exactly that float32. (See `literals_of_roots` as well.)
    """
    return _literal(value, *_READ_AS_ROOTS[-1:])


@functools.lru_cache(4096)
def _literal(value: float, *reading: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        single = np.float32(value)
    if not np.isfinite(single):
        return embed(np.array(value, np.float64))
    if (known := _symbols().get(single.tobytes())) is not None:
        return known
    if 0 < abs(single) < 1:
        n = round(1 / float(single))
        if abs(n) <= 2**16 and np.float32(1 / n) == single:
            return inverse(whole(np.array(n)))
    if single != 0 and not (math.frexp(single)[0] * 2**12).is_integer():
        digits, _, exponent = np.format_float_scientific(single, trim="-").partition("e")
        digits, _, behind = digits.partition(".")
        count = len(digits.lstrip("-") + behind)
        if count > 5 and _READ_AS_ROOTS and (found := _root_of_whole(single)) is not None:
            return found
        if count <= 6:
            return mul(whole(np.array(int(digits + behind))), _TEN[int(exponent) - len(behind) + 60])
    return embed(np.array(single))
