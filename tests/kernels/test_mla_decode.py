"""mla_decode: tokens and heads as rows, pages, parts, lengths, the form with keys, addresses, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.fences import far_apart
from annotated_examples.attention import mla_decode as module
from annotated_examples.attention import sparse_decode
from annotated_examples.common import latents
from annotated_examples.common import paged as paged_cache
from tests.kernels import harness, test_quantized_decode, test_sparse_decode
from tests.kernels.attention_cases import converted
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import odd_integers, unchecked

MUTANTS = [
    Mutant("page of NaN is zero", 's = tl.where(inside[None, :], s, float("nan"))\n', "s = s\n"),
    Mutant("a length that isn't there", 'tl.where(possible, lse, float("nan"))', "lse + 0.0"),
    Mutant("stride of the lengths ignored", "b.to(tl.int64) * stride_l", "b.to(tl.int64)"),
    Mutant("parts of another sequence", "first = b.to(tl.int64) * count * num_splits + split", "first = b.to(tl.int64) * H * num_splits + split"),
    Mutant("splits chosen from the lengths", "latent_splits(programs, capacity,", "latent_splits(programs, int(lengths.max()),"),
    Mutant("a page of NaN before the last tile", "tl.min(inside.to(tl.int32), axis=0) == 0", "tl.min(inside.to(tl.int32), axis=0) == 2"),
]  # fmt: skip

#: Of what it shares with decode, the two that T > 1 or a wide row could bring back.
SHARED = [
    Mutant("page times stride in 32 bits", "page.to(tl.int64)[:, None] * stride_p", "(page.to(tl.int32)[:, None] * tl.cast(stride_p, tl.int32)).to(tl.int64)", interpreted=True),
]  # fmt: skip

RANK = 12


def inputs(B=2, T=1, H=5, S=37, E=4, *, lengths=None, rank=RANK, dtype=torch.float32):
    """Inputs of a call; behind the lengths the cache holds NaN."""
    lengths = [S, *torch.randint(0, S + 1, (B,)).tolist()][:B] if lengths is None else lengths
    cache = randn(B, S, rank + E, dtype=dtype)
    for b, length in enumerate(lengths):
        cache[b, length:] = math.nan
    numbers = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    return dict(q=randn(B, T, H, rank + E, dtype=dtype), cache=cache, lengths=numbers)


def paged(given, page_size):
    """The same cache as pages of a pool in random order, among pages full of NaN; behind the last page −7."""
    (B, S, W), pages = given["cache"].shape, -(-given["cache"].shape[1] // page_size)
    order = torch.randperm(B * pages + 2)[: B * pages]
    pool = given["cache"].new_full((B * pages + 2, page_size, W), math.nan)
    padded = torch.nn.functional.pad(given["cache"], (0, 0, 0, pages * page_size - S), value=math.nan)
    pool[order.to(DEVICE)] = padded.unflatten(1, (pages, page_size)).flatten(0, 1)
    table = order.view(B, pages).int()
    for b, length in enumerate(given["lengths"].tolist()):
        table[b, -(-length // page_size) :] = -7
    return given | dict(cache=pool, block_table=table.to(DEVICE))


def small(module):
    """`mla_decode` in tiles so small that a short cache takes several, and a few heads, too."""

    def mla_decode(q, cache, lengths, *, rank, scale, block_table=None, num_splits=3, return_lse=False):
        tokens, scale = module.contract(q, cache, lengths, rank, scale, block_table, num_splits, return_lse)
        tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_S=2)
        results = module.mla_decode_forward(
            tokens, cache, lengths, block_table, rank, scale, num_splits, return_lse, **tiles
        )
        return results if return_lse else results[0]

    return mla_decode


def right(function, given, scale=0.3, rank=RANK, **options):
    __tracebackhide__ = True
    options |= dict(rank=rank, scale=scale, return_lse=True)
    reference = lambda dtype: module.mla_decode_reference(**converted(given, dtype), **options)  # noqa: E731
    with harness.unchanged(**given), harness.fenced_allocations():
        actual = function(**given, **options)
    dtype = given["q"].dtype
    for name, mine, pytorch, exact in zip(("o", "lse"), actual, reference(dtype), reference(torch.float64)):
        accuracy.check(name, mine, pytorch, exact)


def beside_the_cache(function):
    """A length or a page that isn't there gives NaN, for that sequence only."""
    given, options = inputs(B=2, T=2, S=12, lengths=[12, 12]), dict(rank=RANK, scale=0.3)
    call = lambda changed: unchecked(lambda **tensors: function(**tensors, **options), given | changed)  # noqa: E731
    for length in (13, -1):
        inside, outside = call(dict(lengths=given["lengths"].new_tensor([12, length])))
        assert inside.isfinite().all() and outside.isnan().all()
    pool, lengths = randn(6, 12, RANK + 4)[1:5], given["lengths"] * 3
    for page in (4, -1):
        table = lengths.new_tensor([[1, 3, 2], [1, page, 2]])
        inside, outside = call(dict(cache=pool, lengths=lengths, block_table=table))
        assert inside.isfinite().all() and outside.isnan().all()


def far_pages(function):
    """Page 2 begins 2³¹ elements behind page 0."""
    given, options = paged(inputs(B=1, S=9, lengths=[9], dtype=torch.float16), 3), dict(rank=RANK, scale=0.3)
    far = given | dict(cache=far_apart(given["cache"]))
    assert torch.equal(function(**far, **options), function(**given, **options))


def check(module):
    function = small(module)
    given = inputs(B=4, T=3, H=7, S=40, lengths=[40, 1, 0, 33])
    right(function, given | dict(lengths=odd_integers(given["lengths"])), num_splits=2)
    right(function, paged(inputs(B=2, T=2, H=3, lengths=[37, 20]), 3), num_splits=5)
    beside_the_cache(function)
    if device.INTERPRET:
        far_pages(function)
    with pytest.MonkeyPatch.context() as patch:
        assert allocated(module, patch, [3000, 5]) == allocated(module, patch, [9, 5])


def allocated(module, monkeypatch, lengths):
    """Shapes of the tensors that a call makes: the partial results tell the number of parts."""
    given, shapes, empty = inputs(S=3000, H=2, lengths=lengths), [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **named: shapes.append(size) or empty(*size, **named))
    module.mla_decode(**given, rank=RANK, scale=0.3)
    monkeypatch.undo()
    return shapes


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(paged_cache, SHARED, check, within=module)


def test_the_form_with_keys():
    """Absorbed, read and expanded is attention of decompressed keys and values, whose scale it keeps."""
    T, H, D, E, V, R, S = 3, 5, 6, 4, 7, 24, 41
    q_nope, q_pe, c, k_pe = randn(T, H, D), randn(T, H, E), randn(S, R), randn(S, E)
    w_uk, w_uv, scale = randn(H, D, R), randn(H, V, R), 1 / math.sqrt(D + E)
    lengths = torch.tensor([S], dtype=torch.int32, device=DEVICE)
    q = module.absorb(q_nope[None], q_pe[None], w_uk)
    o = module.mla_decode(q, torch.cat([c, k_pe], -1)[None], lengths, rank=R, scale=scale)
    s = torch.einsum("thd,shd->hts", q_nope, torch.einsum("sr,hdr->shd", c, w_uk))
    s = (s + torch.einsum("the,se->hts", q_pe, k_pe)).double() * scale
    p = s.masked_fill(torch.ones(T, S, device=DEVICE).tril(S - T) == 0, -math.inf).softmax(-1)
    expected = torch.einsum("hts,shv->thv", p, torch.einsum("sr,hvr->shv", c, w_uv).double())
    torch.testing.assert_close(module.expand(o, w_uv)[0].double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("H", [1, 5, 17, 128])
def test_numbers_of_heads(H):
    right(module.mla_decode, inputs(H=H, T=2, S=40, lengths=[40, 9]))


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("rank", "E"), [(1, 0), (40, 64), (512, 0), (512, 64)])
def test_widths(rank, E, dtype):
    """With the tiles and the number of parts that a user gets; without a rotated part, too."""
    right(module.mla_decode, inputs(H=2, S=70, E=E, rank=rank, lengths=[70, 33], dtype=dtype), 0.05, rank)


@pytest.mark.parametrize("page_size", [1, 3, 7, 16, 100])
def test_page_sizes(page_size):
    right(small(module), paged(inputs(B=3, T=2, lengths=[37, 1, 12]), page_size))


@pytest.mark.parametrize("num_splits", [1, 4, 64])
def test_numbers_of_parts(num_splits):
    """More parts than keys: those left over are empty, and weigh nothing."""
    right(small(module), inputs(B=4, T=2, lengths=[37, 1, 0, 2]), num_splits=num_splits)


def test_one_token_needs_no_axis():
    given, options = inputs(T=1), dict(rank=RANK, scale=0.3, return_lse=True)
    o, lse = module.mla_decode(**given, **options)
    flat_o, flat_lse = module.mla_decode(**given | dict(q=given["q"][:, 0]), **options)
    assert torch.equal(o[:, 0], flat_o) and torch.equal(lse[:, 0], flat_lse)


@pytest.mark.parametrize(("B", "S", "H"), [(0, 5, 2), (2, 0, 2), (2, 5, 0)])
def test_nothing_to_do(B, S, H):
    o, lse = module.mla_decode(**inputs(B, 1, H, S, lengths=[0] * B), rank=RANK, scale=0.3, return_lse=True)
    assert o.shape == (B, 1, H, RANK) and not o.any() and (lse == -math.inf).all()


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    given = inputs(T=2, S=600, dtype=torch.bfloat16, lengths=[600, 9])
    first = module.mla_decode(**given, rank=RANK, scale=0.3)
    assert all(torch.equal(module.mla_decode(**given, rank=RANK, scale=0.3), first) for _ in range(times - 1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("H", [16, 128])
@pytest.mark.parametrize("T", [1, 8])
def test_lengths_of_a_real_call(T, H, dtype):
    given = paged(inputs(3, T, H, 3000, 64, rank=512, lengths=[3000, 0, 1777], dtype=dtype), 64)
    right(module.mla_decode, given, 192**-0.5, 512)


@pytest.mark.parametrize("rows", [8, 128, 1024])
def test_tiles_with_a_given_number_of_parts(rows):
    """They are the same in any batch, or else sums over columns aren't. (Only a card has another order for each.)"""
    tiles = {latents.decode_tiles(B, rows, 2048, 4, 512, torch.bfloat16, None) for B in (1, 8, 1024)}
    assert len(tiles) == 1


@pytest.mark.gpu
def test_more_than_2_to_31_numbers_of_parts():
    """The last of 1025 equal sequences is as it is alone, whatever reads a cache in parts."""
    options, codes = dict(rank=512, scale=0.05, num_splits=4), test_quantized_decode
    selected = test_sparse_decode.inputs(1, 8, 128, 30, 20, 64, rank=512, dtype=torch.bfloat16)
    wide = codes.in_rows(codes.inputs(B=1, H=128, Hk=2, D=256, lengths=(20,), dtype=torch.bfloat16)) | dict(
        num_splits=64
    )
    for call, given, pool in (
        (module.mla_decode, inputs(1, 8, 128, 20, 64, rank=512, lengths=[20], dtype=torch.bfloat16) | options, ()),
        (sparse_decode.sparse_decode, test_sparse_decode.slots_of(sparse_decode, selected) | options, ("cache",)),
        (codes.module.decode_quantized, wide, ()),
    ):
        many = {
            name: x.expand(1025, *x.shape[1:]) if isinstance(x, torch.Tensor) and name not in pool else x
            for name, x in given.items()
        }
        assert torch.equal(call(**many)[-1:], call(**given))


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(q=torch.ones(2, 3)), ValueError, "q must have 3 or 4 dimensions (B, H, W or B, T, H, W)"),
        (dict(q=torch.ones(2, 1, 1, 3, 16)), ValueError, "q must have 3 or 4 dimensions"),
        (dict(q=torch.ones(2, 9, 3, 16)), ValueError, "q must have 1 to 8 tokens, got 9"),
        (dict(cache=torch.ones(2, 9, 15)), ValueError, "cache must have the width of q, 16"),
        (dict(cache=torch.ones(2, 9, 16).half()), TypeError, "cache must have the dtype of q"),
        (dict(cache=torch.ones(3, 9, 16)), ValueError, "cache must have the batch of q, 2"),
        (dict(rank=0), ValueError, "rank must be at least 1, got 0"),
        (dict(rank=17), ValueError, "q must have 17 to 81 columns with rank=17, got 16"),
        (dict(scale=None), TypeError, "scale must be a number, got NoneType"),
        (dict(num_splits=0), ValueError, "num_splits must be at least 1, got 0"),
        (dict(lengths=torch.ones(2)), TypeError, "lengths must be one of int32, got float32"),
        (dict(block_table=torch.zeros(3, 1).int()), ValueError, "block_table must have shape (2, 1)"),
        (dict(q=torch.ones(2, 3, 16).requires_grad_()), ValueError, "q requires a gradient, but mla_decode has no backward"),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(changes, error, message):
    given = dict(q=torch.ones(2, 3, 16), cache=torch.ones(2, 9, 16), lengths=torch.ones(2).int(), rank=12, scale=1.0)
    harness.assert_refused(error, message, module.mla_decode, **given | changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(w_uk=torch.ones(5, 6)), "w_uk must have 3 dimensions (H, D, R)"),
        (dict(w_uk=torch.ones(4, 6, 24)), "q_nope must have shape (2, 4, 6) (the heads and width of w_uk)"),
        (dict(q_pe=torch.ones(2, 4, 3)), "q_pe must have shape (2, 5, 3) (the tokens and heads of q_nope)"),
    ],
    ids=["dimensions", "heads", "rotated"],
)
def test_errors_of_absorb(changes, message):
    given = dict(q_nope=torch.ones(2, 5, 6), q_pe=torch.ones(2, 5, 3), w_uk=torch.ones(5, 6, 24)) | changes
    harness.assert_refused(ValueError, message, module.absorb, **given)


def test_errors_of_expand():
    message = "o must have shape (2, 5, 24) (the heads and rank of w_uv)"
    harness.assert_refused(ValueError, message, module.expand, o=torch.ones(2, 5, 23), w_uv=torch.ones(5, 7, 24))
