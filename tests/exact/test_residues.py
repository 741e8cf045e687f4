"""The arithmetic: what is an identity of real numbers is one of residues; what has no residue says so."""

import math

import numpy as np
import pytest

from academy.exact import array
from academy.exact import residues as r

GENERATOR = np.random.default_rng(0)


def drawn(*shape):
    return r.embed(GENERATOR.standard_normal(shape).astype(np.float32))


def sides(a, b):
    """Both, where both are residues; some are."""
    known = (a != r.NAR) & (b != r.NAR)
    assert known.any(tuple(range(known.ndim - 1))).all(), "a prime decides nothing"
    return a[known], b[known]


X, Y, Z = drawn(60), drawn(60), drawn(60)
ONE = r.whole(np.array(1))
COS, SIN = r.circle(X)
(COS_Y, SIN_Y), (COS_SUM, SIN_SUM) = r.circle(Y), r.circle(r.add(X, Y))

IDENTITIES = {
    "associative": (r.add(r.add(X, Y), Z), r.add(X, r.add(Y, Z))),
    "distributive": (r.mul(X, r.add(Y, Z)), r.add(r.mul(X, Y), r.mul(X, Z))),
    "x - x": (r.add(X, r.minus(X)), r.full((60,), np.uint64(0))),
    "x / x": (r.mul(X, r.inverse(X)), r.full((60,), np.uint64(1))),
    "exp of a sum": (r.exp(r.add(X, Y)), r.mul(r.exp(X), r.exp(Y))),
    "exp of a log": (r.exp(r.log(X)), X),
    "log of an exp": (r.log(r.exp(X)) % r.COMPARED, X % r.COMPARED),
    "exp of a sum of logs": (r.exp(r.add(r.log(X), r.log(Y))), r.mul(X, Y)),
    "exp2 of log2": (r.exp(r.mul(r.LN2, r.mul(r.LOG2E, r.log(X)))), X),
    "exp2 of log / log 2": (r.exp(r.mul(r.LN2, r.mul(r.log(X), r.inverse(r.log(r.whole(np.array(2))))))), X),
    "cos² + sin²": (r.add(r.mul(COS, COS), r.mul(SIN, SIN)), r.full((60,), np.uint64(1))),
    "cos of a sum": (COS_SUM, r.add(r.mul(COS, COS_Y), r.minus(r.mul(SIN, SIN_Y)))),
    "sin of a sum": (SIN_SUM, r.add(r.mul(SIN, COS_Y), r.mul(COS, SIN_Y))),
    "sin is odd": (r.circle(r.minus(X))[1], r.minus(SIN)),
    "square of a root": (r.mul(r.root(X), r.root(X)), X),
    "root of a product": (r.root(r.mul(X, Y)), r.mul(r.root(X), r.root(Y))),
    "1 / root": (r.inverse_root(X), r.inverse(r.root(X))),
    "x³ · x⁻³": (r.mul(r.power(X, 3), r.power(X, -3)), r.full((60,), np.uint64(1))),
    "a running sum": (r.running(X, 0)[-1], r.total(X, 0)),
    "an even function": (r.scrambled(X, 1), r.scrambled(r.minus(X), 1)),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_of_real_numbers_are_identities_of_residues(name):
    a, b = sides(*IDENTITIES[name])
    assert (a == b).all()


@pytest.mark.parametrize("value", [1.0, -1.0, 0.1, 3.4e38, 1e-45, -1234.5678, 2.0**100, 5e-324])
def test_a_float_is_a_fraction(value):
    over, under = value.as_integer_ratio()
    for p, k, residue in zip(r.PRIMES, r.POWERS, r.embed(np.array(value))):
        assert int(residue) == over * pow(under, -1, p**k) % p**k


def test_whole_numbers():
    assert (r.whole(np.array([-1], np.int32)) == r.M - np.uint64(1)).all()
    assert (r.whole(np.array([2**64 - 1], np.uint64)) == np.array([[(2**64 - 1) % int(m) for m in r.M]])).all()


def test_a_product_of_matrices_is_the_sum_of_products():
    a, b = drawn(5, 70), drawn(70, 4)
    product = np.zeros((5, 4, r.COUNT), np.uint64)
    for k in range(70):
        product = r.add(product, r.mul(a[:, k, None], b[k]))
    assert (r.matmul(a, b) == product).all()


def test_a_product_of_matrices_with_numbers_that_have_no_residue():
    a, b = drawn(3, 4), drawn(4, 2)
    a[0, 1], b[1, 0] = r.NAR, 0
    logs = r.log(X)
    a[1, 2] = logs[np.argmax(((logs > r.NUMBER) & (logs != r.NAR)).all(-1))]  # with a turn
    out = r.matmul(a, b)
    assert (out[0, 0] <= r.NUMBER).all(), "0 times anything is 0"
    assert (out[0, 1] == r.NAR).all() and (out[1] & r.LOST).all() and (out[2] <= r.NUMBER).all()


def test_what_has_no_residue():
    """The cases that docs/guides/without-a-tolerance.md lists."""
    multiples = r.whole(np.array([3, 7, 11, 23]))
    for function in (r.inverse, r.log, lambda x: r.root(r.mul(x, x))):
        assert (np.diagonal(function(multiples)) == r.NAR).all()
        assert (function(multiples)[0, 1:] != r.NAR).all()
    assert (r.root(r.whole(np.array(-1))) == r.NAR).all(), "-1 is no square modulo these primes"
    assert (r.exp(r.inverse(r.whole(np.array([3]))))[0, 0] == r.NAR).all(), "it spreads"
    exact = array.apply("sqrt", np.array([0.0, 3.0]), array.of(np.array([0.0, 9.0])))
    assert (exact == r.NAR).tolist() == [[False] * 4, [True, True, False, False]], "3 is no square modulo 7; √0 is 0"


def test_an_angle_that_is_off_by_little_has_another_sine():
    other = r.add(X, r.mul(X, r.literal(1e-7)))
    assert ((r.circle(other)[1] % r.COMPARED) != (SIN % r.COMPARED)).all()


def test_a_turn_times_something_is_lost_and_only_exp_sin_cos_and_erf_mind():
    y = r.log(X)
    turned = (y > r.NUMBER) & (y != r.NAR)
    scaled = r.mul(y, r.whole(np.array(5)))
    assert (scaled[turned] & r.LOST).all()
    for out in (r.exp(scaled), *r.circle(scaled), r.scrambled(scaled, 1)):
        assert (out[turned] == r.NAR).all() and (out[~turned & (y != r.NAR)] != r.NAR).all()
    number = (y & r.NUMBER) * np.uint64(5) % r.M
    assert ((scaled & r.NUMBER)[turned] == number[turned]).all()
    plain = (y <= r.NUMBER).all(-1)
    assert (r.mul(y, r.whole(np.array(0)))[turned] == 0).all() and not (r.mul(y, Y)[plain] & r.LOST).any()


LITERALS = {
    "log₂e": (math.log2(math.e), r.LOG2E),
    "3/8 log₂e": (0.375 * math.log2(math.e), r.mul(r.LOG2E, r.embed(np.array(0.375)))),
    "-log₂e / 2": (-0.5 * math.log2(math.e), r.minus(r.mul(r.LOG2E, r.embed(np.array(0.5))))),
    "ln 2": (math.log(2), r.LN2),
    "1/37": (1 / 37, r.inverse(r.whole(np.array(37)))),
    "8/3": (8 / 3, r.mul(r.whole(np.array(8)), r.inverse(r.whole(np.array(3))))),
    "0.134145": (0.134145, r.mul(r.literal(0.044715), r.whole(np.array(3)))),
    "3/2 · 0.044715 √(2/π)": (
        1.5 * 0.044715 * math.sqrt(2 / math.pi),
        r.mul(r.literal(0.0670725), r.literal(math.sqrt(2 / math.pi))),
    ),
    "log₁₀ e": (math.log10(math.e), r.inverse(r.LN10)),
    "log₂ 10⁴": (math.log2(10_000), r.mul(r.whole(np.array(4)), r.mul(r.LN10, r.LOG2E))),
    "2^64": (2.0**64, r.embed(np.array(2.0**64))),
    "a magic number": (12582912.0, r.embed(np.array(12582912.0))),
    "no short one": (0.12345678, r.embed(np.float32(0.12345678))),
}


@pytest.mark.parametrize("name", LITERALS)
def test_a_literal_stands_for(name):
    value, residue = LITERALS[name]
    assert (r.literal(value) == residue).all()


@pytest.mark.parametrize("n", [3, 40, 80, 96, 192, 2880, 5120])
def test_literals_of_the_root_of_a_width_fit_together(n):
    """A scale is written as `n ** -0.5` and as `1 / math.sqrt(n)`, times log₂e, and PyTorch takes its root."""
    plain = r.literal(math.sqrt(n))
    with r.literals_of_roots(computed=False):
        root, scale = r.literal(math.sqrt(n)), r.literal(n**-0.5)
        assert (
            (root == r.inverse(scale)).all() and (root % r.P != 0).all() and (root != r.literal(math.sqrt(n + 1))).all()
        )
        assert (r.literal(n**-0.5 * math.log2(math.e)) == r.mul(scale, r.LOG2E)).all()
        assert (r.mul(r.literal(n**-0.25), r.literal(n**-0.25)) == scale).all()
        assert (r.literal(-math.sqrt(n)) == r.minus(root)).all()
        assert (r.literal(0.134145) == r.mul(r.literal(0.044715), r.whole(np.array(3)))).all()
    with r.literals_of_roots(computed=True):
        assert (r.literal(math.sqrt(n)) == r.root(r.whole(np.array(n)))).all()
        assert (r.literal(n**-0.5) == r.inverse_root(r.whole(np.array(n)))).all()
    assert (r.literal(math.sqrt(n)) == plain).all()


@pytest.mark.parametrize("value", [math.log2(math.e), 1 / 37, 80**-0.5, 0.134145, math.sqrt(2 / math.pi)])
def test_the_next_float_is_another_literal(value):
    assert (r.literal(np.nextafter(np.float32(value), np.float32(9))) != r.literal(value)).any()


def test_roots_of_pi():
    two_by_pi, of_two_pi = r.literal(math.sqrt(2 / math.pi)), r.literal(1 / math.sqrt(2 * math.pi))
    assert ((two_by_pi == r.NAR) == (r.literal(math.sqrt(0.5)) == r.NAR)).all()
    half, known = r.embed(np.array(0.5)), two_by_pi != r.NAR
    assert (r.mul(two_by_pi, half) == of_two_pi)[known].all() and known.sum() == 2
