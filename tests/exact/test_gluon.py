"""Kernels below Triton, in the simulator: right ones are decided in every element, a last bit too many is refused."""

from collections import Counter

import numpy as np
import pytest

from academy.exact import gluon
from academy.exact import residues as r
from academy.exact.memory import Memory
from academy.formulas.comparing import exactly
from academy.gluon import arrays
from academy.judge.mutants import import_source
from tests.formulas.project import CASES, PROJECT

pytestmark = pytest.mark.interpreted

CASES = {str(each): each for each in CASES}
#: A case, a piece of its kernel, and the same with a factor that moves it by less than rounding does.
FAULTS = {
    "gluon.matmul: one_group_of_warps": ("c_s.store(acc.to(", "c_s.store((acc * 1.0000001).to("),
    "gluon.scaled_matmul: promoted_rows": ("acc = acc * (s_a", "acc = acc * 1.0000001 * (s_a"),
    "gluon.flash_attention: below_triton": ("p = gl.exp2(", "p = 1.0000001 * gl.exp2("),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_factor_below_rounding_is_found_below_triton(name):
    comparison, (old, new) = CASES[name], FAULTS[name]
    text = PROJECT.module_path(comparison.module).read_text("utf-8")
    assert old in text
    assert exactly.run(comparison, import_source(text, "mutant"), {}).kind == "exact"
    assert exactly.run(comparison, import_source(text.replace(old, new), "mutant"), {}).kind == "refused"


@pytest.fixture
def lost():
    found = Counter()
    with gluon.simulated(Memory(), found):
        yield found


def known(shape):
    """Floats with residues that are not their own, so that a rule which takes those of the floats is noticed."""
    floats = np.random.default_rng(1).normal(size=shape)
    return gluon.carried(floats, r.add(r.embed(floats), r.embed(np.full(shape, 0.5))))


X, Y = known((4, 3)), known((4, 3))
MOVES = {
    "item": lambda a: a[1], "mask": lambda a: a[a[..., 0] != a[..., 0]], "new axis": lambda a: a[:, None],
    "behind an ellipsis": lambda a: a[..., 1], "transpose": lambda a: a.transpose((1, 0)),
    "reshape": lambda a: a.reshape((2, 6)), "copy": lambda a: a.copy(), "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "expand_dims": lambda a: np.expand_dims(a, 1), "broadcast_to": lambda a: np.broadcast_to(a, (2, 4, 3)),
    "broadcast_arrays": lambda a: np.broadcast_arrays(a, np.zeros((2, 1, 1)))[0],
    "stack": lambda a: np.stack([a, a], -1), "where": lambda a: np.where(np.ones((4, 3), bool), a, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES)
def test_moves(move, lost):
    """As of an array of the residues' lower digits, prime by prime."""
    made = MOVES[move](X)
    for prime in range(r.COUNT):
        alone = MOVES[move](np.asarray(X.residues[..., prime], np.float64))
        assert (made.residues[..., prime] == alone).all()
    assert (np.asarray(made) == MOVES[move](np.asarray(X))).all() and not lost


@pytest.mark.parametrize(
    "made, residues",
    [
        (lambda: X + Y, lambda: r.add(X.residues, Y.residues)),
        (lambda: 2.0 * X, lambda: r.add(X.residues, X.residues)),
        (lambda: X / Y, lambda: r.mul(X.residues, r.inverse(Y.residues))),
        (lambda: np.exp2(X), lambda: r.exp(r.mul(X.residues, r.LN2))),
        (lambda: X @ Y.transpose((1, 0)), lambda: r.matmul(X.residues, Y.residues.transpose(1, 0, 2))),
        (lambda: np.sum(X, axis=1), lambda: r.total(X.residues, 1)),
        (lambda: X.astype(np.float32), lambda: X.residues),
    ],
)
def test_operations(made, residues, lost):
    assert (made().residues == residues()).all() and not lost


def test_a_part_of_a_buffer_is_written(lost):
    buffer = arrays.full((2, 4, 3), np.nan, np.float32)
    buffer[1][...] = X
    assert (buffer.residues[1] == X.residues).all() and (buffer.residues[0] == r.NAN).all()
    assert (arrays.from_torch(arrays.to_torch(X)).residues == X.residues).all()


def test_what_has_no_rule_is_no_residue_and_counted(lost):
    assert (gluon.residues_of(np.arctan(X)) == r.NAR).all() and lost
