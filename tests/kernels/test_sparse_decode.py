"""sparse_decode and to_slots: indices and slots, pages, parts of a list, addresses, errors, mutants.

Of the traps that test_sparse_mla.py numbers: 6, an index for a slot, is `test_the_pages_of_a_sequence`; 1, 2,
4 and 5 are in the lists of `inputs`; 10 is in tests/judge/test_public.py; 11 is in the formulas.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import checks
from academy.judge import accuracy
from annotated_examples.attention import sparse_decode as module
from annotated_examples.common import selected
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import unchecked

MUTANTS = [
    Mutant("a page of -1 is none", "torch.where(page >= 0, page * page_size + flat % page_size, -2)", "page * page_size + flat % page_size"),
    Mutant("an index past the table is the last one", "torch.where(known, flat // page_size, pages)", "torch.where(known, flat // page_size, pages - 1)"),
    Mutant("a part of one key is empty", "lse = tl.where(row_sum == 0.0,", "lse = tl.where(row_sum == 1.0,"),
]  # fmt: skip

SHARED = [
    Mutant("a mistake is none", 's = tl.where(is_key(j, pages), s, float("nan"))', 's = tl.where(is_key(j, pages), s, -float("inf"))'),
]  # fmt: skip

RANK = 12


def inputs(B=2, T=2, H=5, S=37, K=40, E=4, *, page_size=3, rank=RANK, dtype=torch.float32):
    """Sequences of S tokens in pages of a pool in random order, among pages of NaN. In `indices`, which count the tokens, some are
    none, one list begins with 20 of them, and one is empty."""
    pages = -(-S // page_size)
    order = torch.randperm(B * pages + 2)[: B * pages]
    tokens, cache = randn(B, pages * page_size, rank + E, dtype=dtype), randn(0)
    tokens[:, S:] = math.nan
    cache = tokens.new_full((B * pages + 2, page_size, rank + E), math.nan)
    cache[order.to(DEVICE)] = tokens.unflatten(1, (pages, page_size)).flatten(0, 1)
    indices = torch.stack([torch.randperm(max(S, K))[:K] % max(S, 1) for _ in range(B * T)]).int().view(B, T, K)
    indices[..., ::5], indices[-1:, -1:, :20], indices[:1, -1:] = -1, -1, -1
    given = dict(q=randn(B, T, H, rank + E, dtype=dtype), cache=cache, tokens=tokens, indices=indices.to(DEVICE))
    return given | dict(table=order.view(B, pages).int().to(DEVICE))


def slots_of(module, given):
    """The arguments of `sparse_decode`."""
    slots = module.to_slots(given["indices"], given["table"], given["cache"].shape[1])
    return dict(q=given["q"], cache=given["cache"], slots=slots)


def expected(given, scale, rank, dtype):
    """Attention to the tokens of each sequence, by their indices."""
    found = []
    for q, tokens, indices in zip(*(given[name] for name in ("q", "tokens", "indices"))):
        none = (indices < 0)[:, None]
        rows = tokens.to(dtype)[indices.clamp(min=0).long()].masked_fill((indices < 0)[..., None], 0.0)
        s = (scale * torch.einsum("thw,tkw->thk", q.to(dtype), rows)).masked_fill(none, -math.inf)
        p = s.softmax(-1).masked_fill(none, 0.0)
        lse = torch.logsumexp(s.to(torch.promote_types(dtype, torch.float32)), -1)
        found.append((torch.einsum("thk,tkr->thr", p, rows[..., :rank]), lse))
    return [torch.stack(each) for each in zip(*found)]


def small(module):
    """`sparse_decode` in tiles of 16 heads and 16 keys, and two parts at a time."""

    def sparse_decode(q, cache, slots, *, rank, scale, num_splits=2, return_lse=False):
        tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_S=2)
        o, lse = module.sparse_decode_forward(q, cache, slots, rank, scale, num_splits, return_lse, **tiles)
        return (o, lse) if return_lse else o

    return sparse_decode


def right(module, function, given, *, rank=RANK, scale=0.3, **options):
    __tracebackhide__ = True
    arguments = slots_of(module, given)
    with harness.unchanged(**arguments), harness.fenced_allocations():
        actual = function(**arguments, rank=rank, scale=scale, return_lse=True, **options)
    dtype = given["q"].dtype
    results = zip(
        ("o", "lse"), actual, expected(given, scale, rank, dtype), expected(given, scale, rank, torch.float64)
    )
    for name, mine, pytorch, exact in results:
        accuracy.check(name, mine, pytorch, exact)


def mistaken(module, function):
    """A slot that the pool doesn't have gives NaN, for that token only; so does an index that the table doesn't have."""
    given = inputs(S=6, K=4, H=2)
    given["indices"] = given["indices"].clamp(min=0)
    arguments = slots_of(module, given)
    call = lambda slots: unchecked(  # noqa: E731
        lambda **tensors: function(**tensors, rank=RANK, scale=0.3), arguments | dict(slots=slots)
    )
    rows = given["cache"].shape[0] * 3
    for slot in (rows, -2, 2**40):
        slots = arguments["slots"].clone()
        slots[1, 0, 2] = slot
        o = call(slots)
        assert o[1, 0].isnan().all() and o[0].isfinite().all() and o[1, 1].isfinite().all()
    for index, page in ((6, 0), (-2, 0), (4, -1), (5, -1)):
        changed = given | dict(indices=given["indices"].clone(), table=given["table"].clone())
        changed["indices"][1, 0, 2] = index
        changed["table"][1, 1] = page if page < 0 else changed["table"][1, 1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "looks_at_values", lambda: False)
            assert module.to_slots(changed["indices"], changed["table"], 3)[1, 0, 2] == -2


def check(module):
    function = small(module)
    right(module, function, inputs(T=3, H=18))
    right(module, function, inputs(B=3, T=1, page_size=7, K=33, E=0), num_splits=5)
    mistaken(module, function)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(selected, SHARED, check, within=module)


@pytest.mark.parametrize("page_size", [1, 3, 7, 16, 100])
def test_the_pages_of_a_sequence(page_size):
    right(module, small(module), inputs(page_size=page_size))


@pytest.mark.parametrize("H", [1, 5, 17, 128])
def test_numbers_of_heads(H):
    right(module, module.sparse_decode, inputs(H=H, K=18))


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("rank", "E"), [(1, 0), (40, 64), (512, 0), (512, 64)])
def test_widths(rank, E, dtype):
    """With the tiles and the number of parts that a user gets."""
    given = inputs(H=2, K=70, S=90, E=E, rank=rank, dtype=dtype)
    right(module, module.sparse_decode, given, rank=rank, scale=0.05)


@pytest.mark.parametrize("num_splits", [1, 4, 64])
def test_numbers_of_parts(num_splits):
    """More parts than tiles: those left over are empty, and weigh nothing."""
    right(module, small(module), inputs(), num_splits=num_splits)


def test_one_token_needs_no_axis():
    arguments, options = slots_of(module, inputs(T=1)), dict(rank=RANK, scale=0.3, return_lse=True)
    o, lse = module.sparse_decode(**arguments, **options)
    flat = arguments | dict(q=arguments["q"][:, 0], slots=arguments["slots"][:, 0])
    flat_o, flat_lse = module.sparse_decode(**flat, **options)
    assert torch.equal(o[:, 0], flat_o) and torch.equal(lse[:, 0], flat_lse)


def test_more_tokens_than_share_a_tile_elsewhere():
    """Decoding over all keys takes up to 8."""
    right(module, small(module), inputs(B=1, T=11, H=2))


def test_slots_of_either_width():
    arguments, options = slots_of(module, inputs()), dict(rank=RANK, scale=0.3)
    narrow = arguments | dict(slots=arguments["slots"].int())
    assert torch.equal(module.sparse_decode(**arguments, **options), module.sparse_decode(**narrow, **options))


@pytest.mark.parametrize(("B", "T", "H", "K"), [(0, 1, 2, 3), (2, 0, 2, 3), (2, 1, 0, 3), (2, 1, 2, 0)])
def test_nothing_to_do(B, T, H, K):
    slots = torch.full((B, T, K), -1, dtype=torch.int32, device=DEVICE)
    o, lse = module.sparse_decode(randn(B, T, H, 8), randn(2, 3, 8), slots, rank=8, scale=1.0, return_lse=True)
    assert o.shape == (B, T, H, 8) and not o.any() and (lse == -math.inf).all()


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    arguments = slots_of(module, inputs(S=600, K=300, dtype=torch.bfloat16))
    first = module.sparse_decode(**arguments, rank=RANK, scale=0.3)
    assert all(torch.equal(module.sparse_decode(**arguments, rank=RANK, scale=0.3), first) for _ in range(times - 1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("H", [16, 128])
def test_a_real_call(H, dtype):
    given = inputs(3, 2, H, 3000, 2048, 64, page_size=64, rank=512, dtype=dtype)
    right(module, module.sparse_decode, given, rank=512, scale=192**-0.5)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (ValueError, "q must have 3 or 4 dimensions (B, H, W or B, T, H, W)", dict(q=torch.ones(2, 16))),
        (ValueError, "cache must have 3 dimensions (pages, page_size, W)", dict(cache=torch.ones(5, 16))),
        (ValueError, "cache must have shape (4, 3, 16) (the width of q)", dict(cache=torch.ones(4, 3, 15))),
        (TypeError, "cache must have the dtype of q", dict(cache=torch.ones(4, 3, 16).half())),
        (TypeError, "slots must be one of int32, int64, got float32", dict(slots=torch.ones(2, 5))),
        (ValueError, "slots must have 2 dimensions (a list for each token of q)", dict(slots=torch.ones(2, 1, 5).int())),
        (ValueError, "slots must have shape (2, 5) (a list for each token of q)", dict(slots=torch.ones(3, 5).int())),
        (ValueError, "slots must be in [-1, 12), got 1 to 12", dict(slots=torch.tensor([[1], [12]]))),
        (ValueError, "num_splits must be at least 1, got 0", dict(num_splits=0)),
        (ValueError, "q must have 17 to 81 columns with rank=17, got 16", dict(rank=17)),
        (TypeError, "scale must be a number, got NoneType", dict(scale=None)),
        (ValueError, "q requires a gradient, but sparse_decode has no backward", dict(q=torch.ones(2, 3, 16).requires_grad_())),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(q=torch.ones(2, 3, 16), cache=torch.ones(4, 3, 16), slots=torch.ones(2, 5).int(), rank=12, scale=1.0)
    harness.assert_refused(error, message, module.sparse_decode, **given | change)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "indices must be one of int32, int64, got float32", dict(indices=torch.ones(2, 5))),
        (ValueError, "indices must have 2 or 3 dimensions (B, K or B, T, K)", dict(indices=torch.ones(5).int())),
        (ValueError, "indices must be in [-1, 12), got 1 to 12", dict(indices=torch.tensor([[1], [12]]))),
        (TypeError, "block_table must be one of int32, got int64", dict(block_table=torch.ones(2, 4).long())),
        (ValueError, "block_table must have shape (2, 4) (a row for each sequence)", dict(block_table=torch.ones(3, 4).int())),
        (ValueError, "page_size must be at least 1, got 0", dict(page_size=0)),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors_of_slots(error, message, change):
    given = dict(indices=torch.ones(2, 5).int(), block_table=torch.ones(2, 4).int(), page_size=3)
    harness.assert_refused(error, message, module.to_slots, **given | change)
