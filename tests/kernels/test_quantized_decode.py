"""decode_quantized: formats, steps, pages, parts, channels, recent keys, rotation, addresses, errors, mutants.

The traps of quantized caches in use that reading can fall into, and the check or mutant ("…") that holds each. (Those
of writing are in test_quantized_cache.py.)

1. Scales addressed by shapes, not strides: `odd_strides`; "steps lie side by side".
2. A scale dropped, or taken for 1: every key has one of its own in `tokens`, "steps of the first head".
3. Four bits wrong at D = 64 or with one head: `test_widths`.
4. The bit width of one cache taken for that of the other: `formats`.
5. A layout that is guessed, heads before slots: page_size = Hk in `formats`.
6. The cache rotated and the query not: `rotated_cache`.
7. Shifts of a uint8: the formulas.
8. The centre: the formulas.
9. int32 offsets: `far_apart_pages`.
10. A lowest value that isn't rescaled when a larger score comes: it is added to what is rescaled: the formulas.
11. Weights times steps that float16 can't hold: `small_steps`; "weights are rounded as they are".
12. The unfinished page: `channels`, "recent keys of the first sequence".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.fences import far_apart
from annotated_examples.attention import decode
from annotated_examples.attention import quantized_decode as module
from annotated_examples.common import codes as shared
from operations.quantized_decode import codes_and_steps
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import odd_integers, unchecked

E4M3 = torch.float8_e4m3fn
FORMATS = [torch.int8, E4M3, torch.uint8]


def whole(*numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def stale(cache, scale, places):
    """What nobody should read: NaN for a step, and for a code that can be one."""
    scale[places] = math.nan
    cache.view(torch.uint8)[places] = 127


def inputs(k=torch.uint8, v=torch.uint8, B=3, H=4, Hk=2, D=8, page_size=3, lengths=(37, 0, 20), dtype=torch.float32):
    """Pages in random order among stale ones; behind a sequence's last page the table has −7."""
    pages = -(-max(lengths) // page_size)
    order, table = torch.randperm(B * pages + 2), torch.full((B, pages), -7, dtype=torch.int32)
    used = torch.zeros(B * pages + 2, page_size, dtype=torch.bool)
    for b, length in enumerate(lengths):
        table[b, : -(-length // page_size)] = order[b * pages : b * pages + -(-length // page_size)]
        at = torch.arange(length)
        used[table[b, at // page_size].long(), at % page_size] = True
    made = {"q": randn(B, H, D, dtype=dtype)}
    for name, kind in (("k", k), ("v", v)):
        cache, scale = codes_and_steps(kind, *used.shape, Hk, D)
        stale(cache, scale, ~used)
        made |= {f"{name}_cache": cache.to(DEVICE), f"{name}_scale": scale.to(DEVICE)}
    return made | dict(lengths=whole(*lengths), block_table=table.to(DEVICE))


def in_rows(given):
    """The same cache without pages."""
    (B, pages), size = given["block_table"].shape, given["k_cache"].shape[1]
    table, rows = given["block_table"].clamp(min=0).long(), {}
    for name in ("k_cache", "v_cache", "k_scale", "v_scale"):
        rows[name] = given[name].view(torch.uint8)[table].view(given[name].dtype).flatten(1, 2)
    assert rows["k_cache"].shape[:2] == (B, pages * size)
    return given | rows | dict(block_table=None)


def channels_of(given, page_size):
    """Keys by channel, and the newest of each sequence, among NaN."""
    (pages, _, Hk, half), lengths = given["k_cache"].shape, given["lengths"].tolist()
    steps = torch.rand(pages, Hk, 2 * half, 2) * torch.tensor([0.2, -2.0])
    recent = torch.full((len(lengths), page_size, Hk, 2 * half), math.nan, dtype=given["q"].dtype, device=DEVICE)
    for b, length in enumerate(lengths):
        recent[b, : length % page_size] = randn(length % page_size, Hk, 2 * half, dtype=given["q"].dtype)
    return given | dict(k_scale=steps.to(DEVICE), recent=recent)


def converted(given, dtype):
    wide = ("q", "recent")
    return {name: x.to(dtype) if name in wide and x is not None else x for name, x in given.items()}


def right(function, given, **options):
    """As accurate as PyTorch is on the decoded cache in the dtype of q."""
    __tracebackhide__ = True
    tensors = {name: x for name, x in given.items() if x is not None}
    with harness.unchanged(**tensors), harness.fenced_allocations():
        o = function(**given, **options)
    reference = lambda dtype: module.decode_quantized_reference(**converted(given, dtype), **options)  # noqa: E731
    accuracy.check("o", o, reference(given["q"].dtype), reference(torch.float64))
    return o


def small(module):
    """In tiles of 16 keys, two parts merged at a time."""

    def call(
        q, k_cache, v_cache, k_scale, v_scale, lengths, *, granularity="token", block_table=None, signs=None,
        recent=None, scale=None, num_splits=3,
    ):  # fmt: skip
        options = granularity, block_table, signs, recent
        caches = k_cache, v_cache, k_scale, v_scale, lengths
        scale = module.contract(q, *caches, *options, scale, num_splits)
        return module.quantized_forward(q, *caches, *options, scale, num_splits, BLOCK_N=16, BLOCK_S=2)

    return call


def tokens(module):
    for kind in FORMATS:
        right(small(module), inputs(kind, kind), scale=0.3)
        right(small(module), inputs(kind, kind), num_splits=1)


def formats(module):
    """Keys and values of different formats; as many slots in a page as heads."""
    for k, v in ((torch.int8, torch.uint8), (torch.uint8, E4M3), (E4M3, torch.int8)):
        given = inputs(k, v, H=9, Hk=3, page_size=3, lengths=(20, 7, 33))
        right(small(module), given, num_splits=2)
        right(small(module), in_rows(given))


def odd_strides(module):
    given = inputs(torch.int8, torch.uint8, page_size=5)
    odd = {name: torch.stack([x, x], -1)[..., 0] for name, x in given.items() if x.dim() > 2}
    odd |= {name: odd_integers(given[name]) for name in ("lengths", "block_table")}
    right(small(module), given | odd)
    pool = torch.stack([given["k_scale"].permute(2, 0, 1, 3)] * 3, 1)[:, 1].permute(1, 2, 0, 3)
    right(small(module), given | dict(k_scale=pool))
    given = channels_of(inputs(page_size=5), 5)
    odd = {name: torch.stack([x, x], -1)[..., 0] for name, x in given.items() if x.dim() > 2}
    right(small(module), given | odd, granularity="channel")


def channels(module):
    """Pages that hold less than a tile, a tile, and more than one; with recent keys, none at a page's end, and without."""
    for page_size, lengths in ((3, (20, 9, 1)), (16, (32, 5, 0)), (20, (40, 33, 19))):
        given = channels_of(inputs(page_size=page_size, lengths=lengths), page_size)
        right(small(module), given, granularity="channel", num_splits=2)
        right(small(module), given | dict(recent=None), granularity="channel", num_splits=1)
    given = channels_of(inputs(v=E4M3, H=6, Hk=3, page_size=7, lengths=(20, 9, 3)), 7)
    right(small(module), given, granularity="channel", scale=0.3)


def alternating(D):
    return 1.0 - torch.arange(D, device=DEVICE) % 3 // 2 * 2


def rotated_cache(module):
    """The result of keys and values that were turned back."""
    for D in (8, 64):
        given = inputs(torch.int8, torch.uint8, D=D)
        right(small(module), given, signs=torch.stack([alternating(D), 7 + alternating(D)], -1)[:, 0], scale=0.2)


def small_steps(module):
    """Values of a few ten-thousandths, in float16; then beside one with large values that has hardly any weight."""
    given = inputs(torch.int8, torch.int8, B=1, D=64, lengths=(20,), page_size=20, dtype=torch.float16)
    given["v_scale"] /= 10_000
    given["k_scale"] /= 500
    right(small(module), given, num_splits=1)
    page, slot = given["block_table"][0, 0].long(), 7
    given["v_scale"][page, slot] *= 3000
    given["k_cache"][page, slot], given["k_scale"][page, slot] = (given["q"][0, ::2] < 0).to(torch.int8) * 100 - 50, 0.3
    right(small(module), given, num_splits=1)


def beside_the_cache(module):
    """A length or a page that isn't there gives NaN, for that sequence only; so does a NaN among the steps."""
    for given in (inputs(B=2, lengths=(12, 12)), channels_of(inputs(B=2, lengths=(12, 12)), 3)):
        options = dict(granularity="channel") if "recent" in given else {}
        call = lambda changed: unchecked(lambda **all: small(module)(**all, **options), given | changed)  # noqa: B023, E731
        for length in (13, -1):
            inside, outside = call(dict(lengths=whole(12, length)))
            assert inside.isfinite().all() and outside.isnan().all()
        for page in (len(given["k_cache"]), -1):
            table = given["block_table"].clone()
            table[1, 2] = page
            inside, outside = call(dict(block_table=table))
            assert inside.isfinite().all() and outside.isnan().all()
        for name in ("k_scale", "v_scale"):
            scale = given[name].clone()
            scale[
                given["block_table"][1, 1].long(), 0 if scale.dim() == 4 and scale.shape[1] == 2 else slice(None), 1
            ] = math.nan
            o = call({name: scale})
            assert o[0].isfinite().all() and o[1].isnan().any()


def far_apart_pages(module):
    """Page 2 begins 2³¹ elements behind page 0."""
    if not device.INTERPRET:
        return
    given = inputs(torch.int8, torch.uint8, B=1, lengths=(9,))
    cases = [(given, {}), (channels_of(inputs(B=1, lengths=(9,)), 3), dict(granularity="channel"))]
    for given, options in cases:
        expected = small(module)(**given, **options)
        for name in ("k_cache", "v_cache", "k_scale", "v_scale"):
            far = far_apart(given[name])
            assert torch.equal(small(module)(**given | {name: far}, **options), expected), name


CHECKS = [
    tokens, formats, odd_strides, channels, rotated_cache, small_steps, beside_the_cache, far_apart_pages,
]  # fmt: skip

MUTANTS = [
    (small_steps, Mutant("weights are rounded as they are", "largest = tl.where(largest > 0.0, largest, 1.0)", "largest = largest * 0.0 + 1.0")),
    (channels, Mutant("codes of the unfinished page", "if start_page < length // UNIT * UNIT:", "if start_page < length:")),
    (channels, Mutant("recent keys of the first sequence", "load_rows(recent, hk, tl.zeros_like(slot) + b,", "load_rows(recent, hk, tl.zeros_like(slot),")),
    (channels, Mutant("parts that begin within a page", "tl.num_programs(1), PAGE)", "tl.num_programs(1), BLOCK_N)")),
    (rotated_cache, Mutant("signs with gaps", "signs = signs.contiguous()", "signs = signs[:]")),
    (beside_the_cache, Mutant("a page of NaN is zero", 's = tl.where(inside[None, :], s, float("nan"))\n        s = tl.where(mask[None, :], s, -float("inf"))\n        step', 's = tl.where(mask[None, :], s, -float("inf"))\n        step')),
    (beside_the_cache, Mutant("a length that isn't there", 'lse = tl.where(possible, lse, float("nan"))', "lse = lse + 0.0")),
]  # fmt: skip

SHARED = [
    (tokens, Mutant("steps of the first head", "slot.to(tl.int64) * stride_s + tl.cast(hk, tl.int64) * stride_h", "slot.to(tl.int64) * stride_s")),
    (odd_strides, Mutant("steps lie side by side", "at + stride_c", "at + 1")),
    (far_apart_pages, Mutant("steps in 32 bits", "at = ptr + page.to(tl.int64) * stride_p", "at = ptr + (page.to(tl.int32) * tl.cast(stride_p, tl.int32)).to(tl.int64)", interpreted=True)),
    (rotated_cache, Mutant("turned back with the signs first", "if not BACK:", "if BACK or not BACK:")),
]  # fmt: skip

test_check_passes = harness.check_test(module, CHECKS)
test_mutant_is_caught = harness.mutant_test(module, MUTANTS)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(shared, SHARED, within=module)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("kind", FORMATS, ids=str)
@pytest.mark.parametrize(("H", "Hk", "D"), [(1, 1, 2), (70, 1, 8), (1, 1, 64), (5, 1, 40), (8, 2, 128), (2, 1, 256)])
def test_widths(H, Hk, D, kind, dtype):
    """With the tiles and the number of parts that a user gets."""
    given = inputs(kind, kind, B=2, H=H, Hk=Hk, D=D, page_size=16, lengths=(90, 33), dtype=dtype)
    right(module.decode_quantized, given)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_channels_in_every_dtype(dtype):
    given = channels_of(inputs(B=2, D=64, page_size=32, lengths=(90, 64), dtype=dtype), 32)
    right(module.decode_quantized, given, granularity="channel")


def test_the_form_that_is_decoded_first():
    """The lesson on decoding, given what the codes stand for, says the same."""
    given = inputs(torch.int8, torch.uint8)
    decoded = {
        name: shared.decoded(given[name], given[name[0] + "_scale"], "token", torch.float32)
        for name in ("k_cache", "v_cache")
    }
    expected = decode.decode_attention(
        given["q"], **decoded, lengths=given["lengths"], block_table=given["block_table"]
    )
    torch.testing.assert_close(module.decode_quantized(**given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("B", "pages", "H"), [(0, 2, 2), (2, 2, 0)])
def test_nothing_to_do(B, pages, H):
    cache, scale = codes_and_steps(torch.int8, 3, 4, 2, 8)
    table = torch.zeros(B, pages, dtype=torch.int32, device=DEVICE)
    caches = (x.to(DEVICE) for x in (cache, cache, scale, scale))
    o = module.decode_quantized(randn(B, H, 8), *caches, whole(*[0] * B), block_table=table)
    assert o.shape == (B, H, 8)


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    given = inputs(dtype=torch.bfloat16)
    first = module.decode_quantized(**given)
    assert all(torch.equal(module.decode_quantized(**given), first) for _ in range(times - 1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_lengths_of_a_real_call(kind, dtype):
    given = inputs(kind, kind, H=32, Hk=8, D=128, page_size=64, lengths=(3000, 0, 1777), dtype=dtype)
    right(module.decode_quantized, given)
    right(module.decode_quantized, given, signs=alternating(128))
    if kind == torch.uint8:
        right(module.decode_quantized, channels_of(given, 64), granularity="channel")


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(q=torch.ones(2, 16)), ValueError, "q must have 3 dimensions (B, H, D)"),
        (dict(q=torch.ones(2, 3, 16)), ValueError, "q must have a multiple of the heads of k_cache, 2"),
        (dict(k_cache=torch.ones(2, 9, 2, 16)), TypeError, "k_cache must be one of int8, float8_e4m3fn, uint8, got float32"),
        (dict(k_cache=torch.ones(2, 9, 2, 8).char()), ValueError, "k_cache must have shape (2, 9, 2, 16) (the width of a head)"),
        (dict(v_cache=torch.ones(2, 8, 2, 16).char()), ValueError, "v_cache must have shape (2, 9, 2, 16) (the pages and heads of k_cache)"),
        (dict(v_cache=torch.ones(2, 9, 2, 8).byte()), ValueError, "v_scale must have shape (2, 9, 2, 2) (a step and a lowest value a row)"),
        (dict(k_scale=torch.ones(2, 9, 2, 1).half()), TypeError, "k_scale must be one of float32, got float16"),
        (dict(lengths=torch.ones(2).int() * 10), ValueError, "lengths must be in [0, 9], got 10 in row 0"),
        (dict(granularity="row"), ValueError, "granularity must be one of 'token', 'channel', got 'row'"),
        (dict(granularity="channel"), TypeError, "k_cache must be one of uint8, got int8"),
        (dict(recent=torch.ones(2, 9, 2, 16)), ValueError, "recent must be None where granularity is 'token'"),
        (dict(signs=torch.ones(8)), ValueError, "signs must have shape (16,)"),
        (dict(num_splits=0), ValueError, "num_splits must be at least 1, got 0"),
        (dict(q=torch.ones(2, 4, 16).requires_grad_()), ValueError, "q requires a gradient, but decode_quantized has no backward"),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(changes, error, message):
    cache, scale = torch.ones(2, 9, 2, 16).char(), torch.ones(2, 9, 2, 1)
    given = dict(
        q=torch.ones(2, 4, 16), k_cache=cache, v_cache=cache, k_scale=scale, v_scale=scale, lengths=torch.ones(2).int()
    )
    harness.assert_refused(error, message, module.decode_quantized, **given | changes)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(block_table=None), ValueError, "block_table must be given where granularity is 'channel'"),
        (dict(signs=torch.ones(16)), ValueError, "signs must be None where granularity is 'channel'"),
        (dict(recent=torch.ones(2, 8, 2, 16)), ValueError, "recent must have shape (2, 9, 2, 16) (a page of each sequence)"),
        (dict(recent=torch.ones(2, 9, 2, 16).half()), TypeError, "recent must have the dtype of q"),
        (dict(k_scale=torch.ones(2, 9, 2, 2)), ValueError, "k_scale must have shape (2, 2, 16, 2)"),
    ],
    ids=["table", "signs", "page", "dtype", "scale"],
)  # fmt: skip
def test_errors_of_channels(changes, error, message):
    cache, scale = torch.ones(2, 9, 2, 8).byte(), torch.ones(2, 9, 2, 2)
    given = dict(
        q=torch.ones(2, 4, 16), k_cache=cache, v_cache=cache, k_scale=torch.ones(2, 2, 16, 2), v_scale=scale,
        lengths=torch.ones(2).int(), block_table=torch.zeros(2, 1).int(), granularity="channel",
    )  # fmt: skip
    harness.assert_refused(error, message, module.decode_quantized, **given | changes)
