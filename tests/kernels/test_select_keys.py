"""select_keys: the very set that a stable sort gives, for rows that break selections; windows, errors, mutants.

The traps of selections in use, and the check or mutant ("…") that holds each:

1. Plateaus of exact zeros, and threads that race for them: `plateaus`, "all that tie", "the last of those that tie".
2. Buffers for candidates that overflow: `plateaus` has rows that are equal throughout; the list has room for all.
3. Lanes of −∞ behind the window counted: `minus_infinity`, "lanes behind the window".
4. Stale scores outside of the window: `windows`.
5. The first digit through float16: `magnitudes`.
6. Positions within the window: "positions within the window".
7. Rows further than 2³¹ elements apart: `test_far_away`.
8. Fewer than k keys: "what is left is 0", "what is left isn't written".
9. A NaN with a sign bit sorts last: `not_a_number`, "NaN by its bits".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import far_apart
from annotated_examples.attention import select_keys as module
from annotated_examples.common import choosing
from annotated_examples.fast import select_keys as fast
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import unchecked

MUTANTS = [
    Mutant("positions within the window", "tl.store(keys_ptr + place, first + offs_v, mask=keep)", "tl.store(keys_ptr + place, offs_v, mask=keep)"),
    Mutant("what is left is 0", "tl.full((BLOCK_V,), -1, tl.int32)", "tl.full((BLOCK_V,), 0, tl.int32)"),
    Mutant("what is left isn't written", "mask=(place >= wanted) & (place < k))", "mask=(place > wanted) & (place < k))"),
    Mutant("only the first places are filled", "for chunk in range(0, k, BLOCK_V):", "for chunk in range(0, 1, BLOCK_V):"),
    Mutant("k beyond the window", "wanted = tl.minimum(k, V)", "wanted = tl.minimum(k, S)"),
    Mutant("the row begins at its first key", "row.to(tl.int64) * stride_m + first", "row.to(tl.int64) * stride_m"),
    Mutant("each chunk begins anew", "at += tl.sum(keep.to(tl.int32), axis=0)", "at = tl.sum(keep.to(tl.int32), axis=0)"),
    Mutant("ties counted anew in each chunk", "keep, seen = kept_of_chunk(key, threshold, left, seen)", "keep, seen = kept_of_chunk(key, threshold, left, 0)"),
    Mutant("the largest of the last chunk", "largest = tl.maximum(largest, key)", "largest = tl.minimum(largest, key) | key"),
    Mutant("NaN is the smallest, in the list", "write_list(row_ptr, list_ptr, V, least, BLOCK_V, True)", "write_list(row_ptr, list_ptr, V, least, BLOCK_V, False)"),
    Mutant("an end before its start", "tl.maximum(last - first, 0)", "tl.abs(last - first)"),
    Mutant("strides of columns ignored", "rows = logits if logits.stride(1) == 1 else logits.contiguous()", "rows = logits"),
]  # fmt: skip

#: Of what it shares with sampling.
SHARED = [
    Mutant("all that tie", "((tie == 1) & (rank <= left))", "(tie == 1)"),
    Mutant("the last of those that tie", "tl.cumsum(tie, axis=0)", "tl.cumsum(tie, axis=0, reverse=True)"),
    Mutant("zeros with a sign", "tl.where(x == 0.0, 0.0, x).to(tl.int32", "x.to(tl.int32"),
    Mutant("NaN by its bits", "key = tl.where(x == x, key, 0xFFFFFFFF)", "key = key + 0"),
    Mutant("lanes behind the window", "key = tl.where(offs_v < V, key_of(x), 0)", "key = key_of(x)"),
    Mutant("the least one isn't listed", "(key >= least)", "(key > least)"),
    Mutant("beyond, of the last round", "beyond = tl.maximum(beyond, tl.max(", "beyond = tl.maximum(0.0, tl.max("),
]  # fmt: skip

#: Of the fast version.
GUESSES = [
    Mutant("NaN exceeds nothing", "~(x <= bound)", "((x > bound) | (bound != bound))"),
    Mutant("scores behind the window", "V.to(tl.uint32, bitcast=True)) &", "V.to(tl.uint32, bitcast=True) + 1) &"),
    Mutant("the guess is believed", "more = (at < last) | (n < wanted)", "more = at < last"),
    Mutant("a tile that was too much counts", "return tl.where(n <= ROOM, n, n - added), at", "return n, at"),
    Mutant("a tile that was too much is left out", "at = tl.where(n <= ROOM, at + TILE, at)", "at = at + TILE"),
    Mutant("128 of 128 are a negative number", "((lines >> 24) & 255)", "(lines >> 24)"),
    Mutant("a line before it left out", "line > 2, of_line2", "line > 3, of_line2"),
    Mutant("positions within the window", "first + both.to(tl.int32)", "both.to(tl.int32)"),
    Mutant("what is left is 0", "tl.full((ROOM,), -1, tl.int32)", "tl.full((ROOM,), 0, tl.int32)"),
    Mutant("positions within a part", "both + behind[:, None]", "both"),
    Mutant("each chunk of a list begins anew", "kept += tl.sum(", "kept = tl.sum("),
    Mutant("ties counted anew in each chunk of a list", "kept_of_chunk(keys, least, left, seen)", "kept_of_chunk(keys, least, left, 0)"),
    Mutant("strides of columns ignored", "rows = logits if logits.stride(1) == 1 else logits.contiguous()", "rows = logits"),
]  # fmt: skip

TILES = (dict(BLOCK_V=16, BITS=4), dict(BLOCK_V=32, BITS=1), dict(BLOCK_V=256, BITS=2))
SMALL = dict(WARPS=1, THREADS=1, SAMPLE=8)
FAST_TILES = (SMALL, SMALL | dict(PART=32), SMALL | dict(WARPS=2, SAMPLE=16), dict(WARPS=1, SAMPLE=16))


def tiles_of(module):
    return FAST_TILES if hasattr(module, "walk") else TILES


def bounds(numbers):
    return None if numbers is None else torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def wanted(logits, k, start=None, end=None):
    """By a stable sort of each window, written here once more."""
    out = torch.full((len(logits), k), -1, dtype=torch.int32)
    for row, x in enumerate(logits.cpu().float()):
        first = 0 if start is None else start[row]
        x = x[first : len(x) if end is None else end[row]] + 0.0
        best = torch.sort(x, descending=True, stable=True).indices[:k] + first
        out[row, : len(best)] = best.sort().values.int()
    return out.to(DEVICE)


def assert_selected(module, logits, k, start=None, end=None, tiles=None):
    __tracebackhide__ = True
    tiles = tiles or tiles_of(module)[0]
    expected = wanted(logits, k, start, end)
    with harness.unchanged(logits=logits), harness.fenced_allocations():
        found = module.select_keys_forward(logits, k, bounds(start), bounds(end), **tiles)
    assert found.dtype == torch.int32 and torch.equal(found, expected), (k, found, expected)


# ---------------------------------------------------------------- checks, which mutants have to fail


def plateaus(module):
    rows = torch.stack([
        torch.zeros(70), torch.full((70,), -3.0), torch.randn(70).relu(), -torch.randn(70).relu(),
        torch.where(torch.arange(70) % 2 == 0, 0.0, -0.0), torch.randn(70).bfloat16().float().round(),
        torch.arange(70) % 7 * 0.5, torch.arange(70.0),
    ]).to(DEVICE)  # fmt: skip
    for k in (1, 16, 17, 35, 69, 70, 90):
        assert_selected(module, rows, k)
    for tiles in tiles_of(module)[1:]:
        assert_selected(module, rows, 35, tiles=tiles)


def windows(module):
    """Windows of 0, 1, k, k + 1 and all keys; outside of them lie larger numbers and NaN."""
    logits = randn(9, 60)
    start, end = [0, 3, 20, 20, 0, 59, 60, 31, 40], [60, 3, 36, 37, 1, 60, 60, 48, 20]
    outside = torch.ones_like(logits, dtype=torch.bool)
    for row, (first, last) in enumerate(zip(start, end)):
        outside[row, first:last] = False
    for stale in (1e30, math.nan, -math.inf):
        for k in (1, 16, 40):
            assert_selected(module, logits.masked_fill(outside, stale), k, start, end)
    assert_selected(module, logits, 16, None, end)
    assert_selected(module, logits, 16, start, None)


def minus_infinity(module):
    """Within the window it is a score like others; what lies behind is none."""
    logits = torch.full((3, 50), -math.inf, device=DEVICE)
    logits[1, 7], logits[2, 20:] = -1e38, -5.0
    for k in (1, 2, 20, 45, 50, 60):
        assert_selected(module, logits, k, end=[50, 41, 33])


def not_a_number(module):
    """Of either sign, before infinity."""
    logits = randn(3, 40)
    logits[0, 3], logits[0, 8], logits[0, 5] = math.nan, -torch.tensor(math.nan).abs(), math.inf
    logits[1] = math.nan
    logits[2, 30:] = -torch.tensor(math.nan).abs()
    assert math.copysign(1, logits[2, 30].item()) < 0
    for k in (1, 2, 3, 4, 17, 40):
        for tiles in tiles_of(module):
            assert_selected(module, logits, k, tiles=tiles)


def magnitudes(module):
    """Numbers that float16 can't tell apart, and denormal ones."""
    logits = torch.stack([65504 + torch.arange(60.0), torch.randn(60) * 1e38, torch.randn(60) * 1e-42, randn(60).cpu()])
    for k in (1, 7, 30):
        assert_selected(module, logits.to(DEVICE), k)


def impossible(module):
    """Bounds that can't be: no keys for that row, and nothing outside is read."""
    given = dict(logits=randn(4, 30), start=bounds([0, -1, 0, 31]), end=bounds([30, 30, 31, 31]))
    found = unchecked(lambda **tensors: module.select_keys(**tensors, k=5), given)
    assert (found[0] >= 0).all() and (found[1:] == -1).all()


def layouts(module):
    logits = randn(60, 7).T
    assert_selected(module, logits, 9)
    assert_selected(module, randn(7, 90)[:, 10:70], 9)


def all_of_a_tile(module):
    """As many in each of a thread's strips as there can be."""
    assert_selected(module, torch.ones(2, 1100, device=DEVICE), 580, tiles=tiles_of(module)[-1])


CHECKS = [all_of_a_tile, windows, minus_infinity, impossible, layouts, magnitudes, not_a_number, plateaus]


def check(module):
    for each in CHECKS:
        each(module)


BOTH = pytest.mark.parametrize("module", [module, fast], ids=["lesson", "fast"])


@BOTH
@pytest.mark.parametrize("each", CHECKS, ids=lambda each: each.__name__)
def test_check(module, each):
    each(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, GUESSES, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(choosing, SHARED, check, within=module)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_dtypes(module, dtype):
    logits = randn(3, 3000, dtype=dtype).relu()
    for k in (1, 700, 2048, 4096):
        assert torch.equal(module.select_keys(logits, k), wanted(logits, k))


def test_the_reference():
    logits = torch.randn(4, 33).round(decimals=1).to(DEVICE)
    start, end = [0, 3, 9, 30], [33, 3, 20, 33]
    found = module.select_keys_reference(logits, 8, start=bounds(start), end=bounds(end))
    assert torch.equal(found, wanted(logits, 8, start, end))


def test_parts_of_a_long_row():
    """The best of a row are among the best of its parts: a row can be scored in pieces."""
    logits, k = torch.randn(2, 90).round(decimals=1).to(DEVICE), 11
    whole = module.select_keys(logits, k)
    halves = [module.select_keys(part.contiguous(), k) + at for part, at in ((logits[:, :40], 0), (logits[:, 40:], 40))]
    candidates = torch.cat(halves, 1).long()
    place = module.select_keys(logits.gather(1, candidates), k)
    assert torch.equal(candidates.gather(1, place.long()).int(), whole)


@BOTH
@pytest.mark.parametrize(("M", "S"), [(0, 5), (3, 0), (1, 1)])
def test_small(module, M, S):
    found = module.select_keys(randn(M, S), 4)
    assert found.tolist() == [([0] if S else [-1]) + [-1] * 3] * M


@BOTH
@pytest.mark.skipif(not device.INTERPRET, reason="a card reads what isn't there")
def test_far_away(module):
    logits = randn(3, 20, dtype=torch.float16)
    assert torch.equal(module.select_keys(far_apart(logits), 5), module.select_keys(logits, 5))


@BOTH
@pytest.mark.gpu
@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_every_time(module, times):
    """Rows of 65536 and one of 2²¹, half of them zeros; the last row lies behind 2³¹ elements."""
    logits = torch.randn(2**31 // 2**16 + 3, 2**16, dtype=torch.bfloat16, device=DEVICE).relu_()
    first = module.select_keys(logits, 2048)
    assert torch.equal(first[-1:], wanted(logits[-1:], 2048))
    del logits
    for row in (torch.randn(64, 2**16, device=DEVICE).relu_(), torch.randn(1, 2**21, device=DEVICE).relu_()):
        first = module.select_keys(row, 2048)
        assert torch.equal(first, wanted(row, 2048))
        assert all(torch.equal(module.select_keys(row, 2048), first) for _ in range(times - 1))


@BOTH
@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "logits must be a torch.Tensor", dict(logits=[1.0])),
        (TypeError, "logits must be one of float32, float16, bfloat16", dict(logits=torch.ones(2, 3).int())),
        (ValueError, "logits must have 2 dimensions (M, S)", dict(logits=torch.ones(3))),
        (ValueError, "logits must have rows of at most 2097152 elements", dict(logits=torch.ones(1).expand(2, 2**21 + 1))),
        (ValueError, "k must be", dict(k=0)),
        (ValueError, "k must be", dict(k=4097)),
        (TypeError, "k must be", dict(k=2.0)),
        (TypeError, "start must be one of int32", dict(start=torch.zeros(2))),
        (ValueError, "start must have shape (2,)", dict(start=torch.zeros(3, dtype=torch.int32))),
        (ValueError, "end must be in [0, 3], got 0 to 4", dict(end=torch.tensor([0, 4], dtype=torch.int32))),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(module, error, message, change):
    harness.assert_refused(error, message, module.select_keys, **dict(logits=torch.ones(2, 3), k=2) | change)
