"""indexer_logits: windows, heads, codes and their scales, pages, addresses, errors, mutants.

The traps of indexers in use, and the check or mutant ("…") that holds each. (Those of the selection are in
test_select_keys.py.)

1. What is masked is 0 and beats negative scores: "zero outside".
2. Padding that nobody has cleaned: all of the result is written, `harness.fenced_allocations`.
3. The ReLU of the sum, or heads folded before the product: "no ReLU", "ReLU of the sum".
4. A window from the sequence's start: "every window begins at the first key".
5. Scales of another key, or a page's codes and scales mixed up: each key has one of its own, and `paged` puts a page's scales
    behind its codes; "scale of the first key", "scale dropped", "scales without gaps", "codes without gaps".
6. A NaN code decoded as 480: `test_codes_that_are_nan`.
7. Narrow keys: `test_widths`.
8. More than 2³¹ scores: `test_far_away`, `test_more_than_2_to_31_scores`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.fences import far_apart
from annotated_examples.attention import indexer as module
from annotated_examples.common import windows as shared
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.test_decode import unchecked

CODES = torch.float8_e4m3fn
KINDS = [*harness.DTYPES, CODES]

MUTANTS = [
    Mutant("no ReLU", "z = tl.where(z <= 0.0, 0.0, z)", "z = z + 0.0"),
    Mutant("ReLU of the sum", "logits = tl.sum(z * weights[None, :], axis=1) * scale", "logits = tl.maximum(tl.sum(z * weights[None, :], axis=1), 0.0) * scale"),
    Mutant("heads that aren't there are NaN", "tl.where((offs_h < H)[None, :], rows_by_rows(k, q, INPUT_PRECISION), 0.0)", "rows_by_rows(k, q, INPUT_PRECISION)"),
    Mutant("a NaN is taken for 0", "z = tl.where(z <= 0.0, 0.0, z)", "z = tl.maximum(z, 0.0)"),
    Mutant("zero outside", '(offs_n < behind), logits, -float("inf"))', "(offs_n < behind), logits, 0.0)"),
    Mutant("the end belongs to the window", "(offs_n < behind)", "(offs_n <= behind)"),
    Mutant("every window begins at the first key", "(offs_n >= begin)", "(offs_n >= 0)"),
    Mutant("scale dropped", "axis=1) * scale", "axis=1)"),
    Mutant("scale of the first key", "at = page.to(tl.int64) * stride_p + slot.to(tl.int64) * stride_s", "at = page.to(tl.int64) * stride_p + slot.to(tl.int64) * 0"),
    Mutant("scales without gaps", "strided(k_scale[:, :, None])", "(k_scale, k_scale.shape[1], 1, 1, 1)"),
    Mutant("codes without gaps", "strided(cache[:, :, None])", "(cache, cache[0].numel(), cache.shape[2], 0, 1)"),
    Mutant("weights of the first query", "load_numbers(head(weights_tensor, b, t, 0), offs_h, H)", "load_numbers(head(weights_tensor, b, 0, 0), offs_h, H)"),
    Mutant("tiles of the first queries only", "last = tl.where(offs_t < T, first, S), tl.where(offs_t < T, last, 0)", "last = tl.where(offs_t < T, first, S), tl.where(offs_t < 1, last, 0)"),
    Mutant("a tile that some window ends in is left out", "(furthest <= start_n)", "(furthest <= start_n + 1)"),
    Mutant("a tile that some window begins in is left out", "tl.min(first, axis=0) >= start_n + BLOCK_N", "tl.min(first, axis=0) >= start_n + BLOCK_N - 1"),
    Mutant("empty tiles are not written", "empty, mask=corner", "empty, mask=corner & (offs_t < 0)[:, None]"),
    Mutant("a window that can't be is only empty", 'tl.where(real, logits, float("nan"))', "tl.where(real, logits, logits)"),
    Mutant("a window that can't be is only empty, in empty tiles", 'tl.where(possible, -float("inf"), float("nan"))[:, None]', 'tl.where(possible, -float("inf"), -float("inf"))[:, None]'),
    Mutant("a page of NaN is zero", 'tl.where(inside, logits, float("nan"))', "tl.where(inside, logits, logits)"),
    Mutant("a later token is seen", "length - T + 1 + rows", "length - T + 2 + rows"),
    Mutant("every token sees the last key", "length - T + 1 + rows", "length + 0 * rows"),
    Mutant("length in another sequence", "b.to(tl.int64) * stride_l", "b.to(tl.int64) * 0"),
    Mutant("a length beyond the pages", "(length >= 0) & (length <= S)", "(length >= 0)"),
    Mutant("rows of the first sequence", "rows_ptr = out_ptr + b.to(tl.int64) * T * S", "rows_ptr = out_ptr + b.to(tl.int64) * S"),
]  # fmt: skip

SHARED = [
    Mutant("a bound below 0", "(first >= 0) & ", ""),
    Mutant("an end beyond the keys", " & (last <= S)", ""),
    Mutant("stride of the bounds ignored", "rows.to(tl.int64) * stride_end", "rows.to(tl.int64)"),
]  # fmt: skip


def bounds(numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def inputs(M=7, S=37, H=5, D=20, dtype=torch.float32, start=None, end=None):
    """A scale for each key, weights of both signs; queries 0 and 1 have no key and one, if nothing else is said."""
    scales = 2.0 ** (torch.arange(S) % 5 - 2.0)
    end = [0, 1, *((place * 7) % S + 1 for place in range(2, M))][:M] if end is None else end
    return dict(
        q=randn(M, H, D).to(dtype), k=randn(S, D).to(dtype), weights=randn(M, H), k_scale=scales.to(DEVICE),
        start=start if start is None else bounds(start), end=bounds(end),
    )  # fmt: skip


def paged(B=3, T=2, H=5, D=20, page_size=7, lengths=(33, 5, 0), dtype=torch.float32):
    """Pages in random order among pages of NaN, in each all codes and behind them all scales, as servers lay them out;
    behind the last page of a sequence stands −7."""
    pages, size = -(-max(lengths) // page_size), page_size * D * dtype.itemsize
    whole = torch.empty(B * pages + 2, size + 4 * page_size, dtype=torch.uint8, device=DEVICE)
    pool, scale = whole[:, :size].view(dtype).unflatten(1, (page_size, D)), whole[:, size:].view(torch.float32)
    pool.copy_(torch.tensor(math.nan)), scale.fill_(math.nan)
    table, order = torch.full((B, pages), -7, dtype=torch.int32), torch.randperm(B * pages + 2).tolist()
    for b, length in enumerate(lengths):
        for page in range(-(-length // page_size)):
            table[b, page] = place = order.pop()
            rows = min(page_size, length - page * page_size)
            pool[place, :rows], scale[place, :rows] = randn(rows, D).to(dtype), torch.rand(rows).to(DEVICE) + 0.5
    return dict(
        q=randn(B, T, H, D).to(dtype), k_cache=pool, weights=randn(B, T, H), lengths=bounds(lengths),
        block_table=table.to(DEVICE), k_scale=scale,
    )  # fmt: skip


def converted(given, dtype):
    return {
        name: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for name, x in given.items()
    }


def right(function, reference, given):
    """The same places are −∞, and elsewhere it is as accurate as PyTorch is in the same dtype."""
    __tracebackhide__ = True
    with harness.unchanged(**{name: x for name, x in given.items() if x is not None}), harness.fenced_allocations():
        logits = function(**given)
    theirs, exact = reference(**given), reference(**converted(given, torch.float64))
    assert logits.dtype == torch.float32 and torch.equal(logits == -math.inf, exact == -math.inf)
    seen = exact.isfinite()
    if seen.any():
        accuracy.check("logits", logits[seen], theirs[seen].float(), exact[seen])


def small(module):
    """Both functions in tiles of 16 keys and two queries."""
    forward, tiles = module.indexer_logits_forward, dict(BLOCK_T=2, BLOCK_N=16)

    def logits(q, k, weights, k_scale=None, *, start=None, end):
        scale = k_scale if k_scale is None else k_scale[None]
        return forward(q[None], k[None], weights[None], scale, start, end, None, None, **tiles)[0]

    def logits_paged(q, k_cache, weights, lengths, block_table, k_scale=None):
        return forward(q, k_cache, weights, k_scale, None, None, lengths, block_table, **tiles)

    return logits, logits_paged


def unseen(function):
    """A NaN reaches its own key or query; what no window has may be NaN."""
    given = inputs(M=4, S=40, start=[3, 3, 5, 3], end=[9, 8, 20, 0])
    expected = function(**given)
    k = given["k"].clone()
    k[20:], k[:3] = math.nan, math.nan
    assert torch.equal(function(**given | dict(k=k)), expected)
    k[6] = math.nan
    found, q = function(**given | dict(k=k)), given["q"].clone()
    assert found[:3, 6].isnan().all() and found.isnan().sum() == 3
    q[1, 2, 4] = math.nan
    found = function(**given | dict(q=q))
    assert found[1, 3:8].isnan().all() and found.isnan().sum() == 5
    q, k = given["q"].abs(), given["k"].clone()
    k[6, 0] = math.inf
    found = function(**given | dict(q=q, k=k, weights=given["weights"].abs()))
    assert (found[:3, 6] == math.inf).all() and not found.isnan().any()


def impossible(function, function_paged):
    """A window, a length, a page that can't be: NaN for that row or those keys, and nothing outside is read."""
    given = inputs(M=5, S=20, start=[0, -1, 0, 21, 0], end=[20, 20, 21, 20, -1])
    found = unchecked(lambda **tensors: function(**tensors), given)
    assert found[0].isfinite().all() and found[1:].isnan().all()
    given = paged(B=2, page_size=4, lengths=(9, 9))
    for length in (13, -1):
        inside, outside = unchecked(function_paged, given | dict(lengths=bounds([9, length])))
        assert not inside.isnan().any() and outside.isnan().all()
    for page in (-1, len(given["k_cache"])):
        table = given["block_table"].clone()
        table[1, 1] = page
        inside, outside = unchecked(function_paged, given | dict(block_table=table))
        assert not inside.isnan().any()
        assert outside[:, 4:8].isnan().all() and outside.isnan().sum() == 8


def check(module):
    function, function_paged = small(module)
    reference, reference_paged = module.indexer_logits_reference, module.indexer_logits_paged_reference
    right(
        function, reference, inputs(M=9, start=[0, 0, 15, 16, 17, 33, 5, 5, 36], end=[37, 16, 17, 32, 33, 37, 5, 4, 37])
    )
    right(function, reference, inputs(M=3) | dict(k_scale=None))
    right(function, reference, inputs(M=4, S=48, start=[16, 31, 17, 30], end=[17, 33, 18, 31]))
    right(function, reference, inputs(M=2, end=[1, 33]))
    twice = inputs() | dict(end=bounds([5, 9, 9, 0, 37, 9, 1, 9, 2, 9, 20, 9, 37])[::2])
    right(function, reference, twice)
    right(function_paged, reference_paged, paged())
    right(function_paged, reference_paged, paged(B=2, T=5, page_size=1, lengths=(30, 3)))
    unseen(function)
    impossible(function, function_paged)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(shared, SHARED, check, within=module)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize(("H", "D"), [(1, 1), (5, 32), (17, 64), (64, 128), (128, 128)])
def test_widths(H, D, dtype):
    """With the tiles that a user gets."""
    right(
        module.indexer_logits,
        module.indexer_logits_reference,
        inputs(M=3, S=150, H=H, D=D, dtype=dtype, end=[150, 3, 140]),
    )


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("page_size", [1, 3, 64])
def test_pages(page_size, dtype):
    given = paged(page_size=page_size, dtype=dtype)
    right(module.indexer_logits_paged, module.indexer_logits_paged_reference, given)


@pytest.mark.parametrize(("M", "S", "B"), [(0, 3, 2), (3, 0, 2), (3, 5, 0)])
def test_nothing_to_do(M, S, B):
    given = inputs(M, S, end=[0] * M)
    assert module.indexer_logits(**given).shape == (M, S)
    none = dict(q=randn(B, 1, 2, 4), k_cache=randn(3, 2, 4), weights=randn(B, 1, 2), lengths=bounds([0] * B))
    found = module.indexer_logits_paged(**none, block_table=torch.zeros(B, 2, dtype=torch.int32, device=DEVICE))
    assert found.shape == (B, 1, 4) and (found == -math.inf).all()


def test_codes_that_are_nan():
    """0x7F and 0xFF are NaN in e4m3, and not 480."""
    given = inputs(M=2, S=4, dtype=CODES, end=[4, 4])
    k = given["k"].view(torch.uint8).clone()
    k[1, 3], k[2, 0] = 0x7F, 0xFF
    found = module.indexer_logits(**given | dict(k=k.view(CODES)))
    assert found.isnan().tolist() == [[False, True, True, False]] * 2


def test_scales_are_those_of_decoded_numbers():
    """The query's scale in the weights and the key's behind the sum: as if both had been decoded first."""
    given, sigma = inputs(M=4, S=30, dtype=CODES, end=[30] * 4), torch.rand(4, 5, device=DEVICE) + 0.5
    found = module.indexer_logits(**given | dict(weights=given["weights"] * sigma))
    q, k = given["q"].double() * sigma.double()[..., None], given["k"].double() * given["k_scale"].double()[:, None]
    expected = module.indexer_logits_reference(q, k, given["weights"].double(), end=given["end"])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_pages_are_the_packed_form():
    """A sequence's keys in pages, and the same side by side, have the same bits."""
    given = paged(B=1, T=3, lengths=(33,), page_size=5)
    found = module.indexer_logits_paged(**given)[0]
    pages = given["block_table"][0].long()
    k, scale = given["k_cache"][pages].flatten(0, 1)[:33], given["k_scale"][pages].flatten(0, 1)[:33]
    packed = module.indexer_logits(given["q"][0], k, given["weights"][0], scale, end=bounds([31, 32, 33]))
    assert torch.equal(found[:, :33], packed)


@pytest.mark.skipif(not device.INTERPRET, reason="a card reads what isn't there")
def test_far_away():
    """Neighbours lie 2³¹ elements apart."""
    given = inputs(M=3, S=20, dtype=torch.float16, end=[20, 7, 12])
    expected = module.indexer_logits(**given)
    for name in ("q", "k"):
        assert torch.equal(module.indexer_logits(**given | {name: far_apart(given[name])}), expected), name


@pytest.mark.gpu
def test_more_than_2_to_31_scores():
    M, S = 33_000, 66_000
    q, k, weights = randn(M, 1, 16, dtype=torch.bfloat16), randn(S, 16, dtype=torch.bfloat16), randn(M, 1)
    end = torch.full((M,), S, dtype=torch.int32, device=DEVICE)
    end[-64:] = S // 2  # tiles of the last queries that nobody sees
    found = module.indexer_logits(q, k, weights, end=end)
    expected = module.indexer_logits_reference(q[-2:].float(), k.float(), weights[-2:], end=end[-2:])
    torch.testing.assert_close(found[-2:], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_a_real_call(dtype):
    given = inputs(M=300, S=5000, H=64, D=128, dtype=dtype)
    right(module.indexer_logits, module.indexer_logits_reference, given)


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    given = inputs(M=5, S=200, dtype=torch.bfloat16, end=[200, 5, 77, 0, 130])
    first = module.indexer_logits(**given)
    assert all(torch.equal(module.indexer_logits(**given), first) for _ in range(times))


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "q must be a torch.Tensor, got list", dict(q=[1.0])),
        (ValueError, "q must have 3 dimensions (M, H, D)", dict(q=torch.ones(2, 3))),
        (TypeError, "q must be one of float32, float16, bfloat16, float8_e4m3fn", dict(q=torch.ones(2, 3, 4).double())),
        (TypeError, "k must have the dtype of q", dict(k=torch.ones(5, 4).half())),
        (ValueError, "k must have shape (5, 4) (the width of q)", dict(k=torch.ones(5, 3))),
        (TypeError, "weights must be", dict(weights=torch.ones(2, 3).half())),
        (ValueError, "weights must have shape (2, 3)", dict(weights=torch.ones(3, 3))),
        (ValueError, "k_scale must have shape (5,)", dict(k_scale=torch.ones(5, 1))),
        (ValueError, "q must have 1 to 128 heads of 1 to 128 numbers", dict(q=torch.ones(2, 129, 4), weights=torch.ones(2, 129))),
        (TypeError, "end must be one of int32, got int64", dict(end=torch.ones(2, dtype=torch.int64))),
        (ValueError, "end must have shape (2,)", dict(end=torch.ones(3, dtype=torch.int32))),
        (ValueError, "end must be in [0, 5], got 3 to 6", dict(end=torch.tensor([3, 6], dtype=torch.int32))),
        (ValueError, "start must be in [0, 5], got -1 to 3", dict(start=torch.tensor([3, -1], dtype=torch.int32))),
        (ValueError, "indexer_logits has no backward pass", dict(q=torch.ones(2, 3, 4, requires_grad=True))),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(
        q=torch.ones(2, 3, 4), k=torch.ones(5, 4), weights=torch.ones(2, 3), end=torch.ones(2, dtype=torch.int32)
    )
    harness.assert_refused(error, message, module.indexer_logits, **given | change)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("q must have 4 dimensions (B, T, H, D)", dict(q=torch.ones(2, 3, 4))),
        ("k_cache must have shape (6, 3, 4)", dict(k_cache=torch.ones(6, 3, 5))),
        ("k_scale must have shape (6, 3)", dict(k_scale=torch.ones(6))),
        ("lengths must be in [0, 6], got 7 in row 0", dict(lengths=torch.tensor([7, 0], dtype=torch.int32))),
        ("block_table must hold pages in [0, 6), got [0, 9] in row 0", dict(block_table=torch.tensor([[0, 9]] * 2).int())),
    ],
)  # fmt: skip
def test_errors_of_pages(message, change):
    given = dict(
        q=torch.ones(2, 1, 2, 4), k_cache=torch.ones(6, 3, 4), weights=torch.ones(2, 1, 2),
        lengths=torch.tensor([6, 2], dtype=torch.int32), block_table=torch.tensor([[0, 1]] * 2).int(),
    )  # fmt: skip
    harness.assert_refused(ValueError, message, module.indexer_logits_paged, **given | change)
