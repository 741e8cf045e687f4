"""decode_attention: splits and their merge, pages, groups, options, addresses, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools
import math

import pytest
import torch

from academy.runtime import checks, device
from academy.judge import accuracy
from academy.judge.fences import far_apart
from annotated_examples.attention import decode as lesson
from annotated_examples.common import paged as paged_cache
from tests.kernels import harness
from tests.kernels.attention_cases import converted
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

module = harness.modules(lesson)

MUTANTS = [
    Mutant("strides of the sinks ignored", "None if sinks is None else sinks.contiguous()", "sinks"),
    Mutant("a page outside of the pool is zero", 's = tl.where(inside[None, :], s, float("nan"))\n', "s = s\n"),
    Mutant("splits chosen from the lengths", "default_splits(programs, capacity) if", "default_splits(programs, int(lengths.max())) if"),
]  # fmt: skip

#: Of what it shares with other kernels that read a cache.
SHARED = [
    Mutant("page times stride in 32 bits", "page.to(tl.int64)[:, None] * stride_p", "(page.to(tl.int32)[:, None] * tl.cast(stride_p, tl.int32)).to(tl.int64)", interpreted=True),
    Mutant("page size taken for a power of two", "slot = offs_n % page_size", "slot = offs_n & (page_size - 1)"),
    Mutant("page size taken for a power of two, pages", "offs_n // page_size", "offs_n // (page_size | 1)"),
    Mutant("strides of the table ignored", "(offs_n // page_size).to(tl.int64) * stride_tp", "(offs_n // page_size).to(tl.int64)"),
    Mutant("window counted from the capacity", "tl.maximum(length - 1 - left, 0)", "tl.maximum(capacity - 1 - left, 0)"),
    Mutant("merge not rescaled", "acc = acc * alpha + tl.sum(weights[:, None] * parts, axis=0)", "acc = acc + tl.sum(weights[:, None] * parts, axis=0)"),
    Mutant("a length past the capacity", "possible = (length >= 0) & (length <= capacity)", "possible = length == length"),
    Mutant("a page outside of the pool is read", "(page >= 0) & (page < num_pages)", "page == page"),
]  # fmt: skip


def caches(B=2, S=37, H=4, Hk=2, D=8, *, lengths=None, dtype=torch.float32, sinks=False):
    """Inputs of a call. Behind the lengths the caches hold NaN."""
    lengths = [S, *torch.randint(0, S + 1, (B,)).tolist()][:B] if lengths is None else lengths
    inputs = dict(q=randn(B, H, D, dtype=dtype))
    for name in ("k_cache", "v_cache"):
        inputs[name] = randn(B, S, Hk, D, dtype=dtype)
        for b, length in enumerate(lengths):
            inputs[name][b, length:] = math.nan
    inputs["lengths"] = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    return inputs | (dict(sinks=randn(H, dtype=dtype)) if sinks else {})


def paged(inputs, page_size, spare=2):
    """The same caches as pages of a pool in random order, beside pages full of NaN; the rest of the table is junk."""
    B, S = inputs["k_cache"].shape[:2]
    pages = -(-S // page_size)
    order = torch.randperm(B * pages + spare)[: B * pages].view(B, pages)
    pools = {}
    for name in ("k_cache", "v_cache"):
        cache = inputs[name]
        pools[name] = cache.new_full((B * pages + spare, page_size, *cache.shape[2:]), math.nan)
        padded = cache.new_full((B, pages * page_size, *cache.shape[2:]), math.nan)
        padded[:, :S] = cache
        pools[name][order.flatten().to(DEVICE)] = padded.unflatten(1, (pages, page_size)).flatten(0, 1)
    table = order.to(torch.int32)
    for b, length in enumerate(inputs["lengths"].tolist()):
        table[b, -(-length // page_size) :] = torch.tensor([-1, 10**9, -(2**31)]).int()[b % 3]
    return inputs | pools | dict(block_table=table.to(DEVICE))


def assert_right(function, inputs, **options):
    """The 2x rule, with soft-capped scores the 3x rule; see `attention_cases.assert_right`."""
    __tracebackhide__ = True
    exact = lesson.decode_attention_reference(**converted(inputs, torch.float64), **options)
    pytorch = lesson.decode_attention_reference(**converted(inputs, torch.float32), **options)
    with harness.unchanged(**inputs), harness.fenced_allocations():
        actual = function(**inputs, **options)
    factor = 3 if options.get("softcap") else 2
    accuracy.check("o", actual, pytorch.to(inputs["q"].dtype), exact, factor)


def with_tiles(module, BLOCK_N=16, BLOCK_S=2):
    """`decode_attention` in tiles so small that a short cache takes several."""

    def decode_attention(q, k_cache, v_cache, lengths, *, block_table=None, sinks=None, **options):
        defaults = dict(scale=None, window=None, softcap=0.0, num_splits=3)
        options = defaults | options
        numbers = module.contract(q, k_cache, v_cache, lengths, block_table, sinks=sinks, **options)
        arguments = *numbers, sinks, options["num_splits"]
        tiles = dict(BLOCK_N=BLOCK_N) | ({} if hasattr(module, "lesson") else dict(BLOCK_S=BLOCK_S))
        return module.decode_forward(q, k_cache, v_cache, lengths, block_table, *arguments, **tiles)

    return decode_attention


def odd_integers(values):
    """The same integers with others in between."""
    return torch.stack([values, values + 77], dim=-1)[..., 0]


def allocated(module, monkeypatch, lengths):
    """Shapes of the tensors that a call makes: the partial results tell the number of splits."""
    inputs, shapes, empty = caches(B=2, S=3000, H=2, Hk=1, lengths=lengths), [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **named: shapes.append(size) or empty(*size, **named))
    module.decode_attention(**inputs)
    monkeypatch.undo()
    return shapes


def beside_the_cache(module, dtype=torch.float32):
    """A length or a page that isn't there gives NaN, for that sequence only, though memory there could be read."""
    small = with_tiles(module)
    inputs = caches(B=2, S=12, lengths=[12, 12], dtype=dtype)
    shorter = {n: x[:, :9] if n.endswith("cache") else x for n, x in inputs.items()}
    for length in (10, -1):
        inside, outside = unchecked(small, shorter | dict(lengths=inputs["lengths"].new_tensor([9, length])))
        assert inside.isfinite().all() and outside.isnan().all()
    pool = {n: randn(6, 4, 2, 8) for n in ("k_cache", "v_cache")}
    for page in (4, -1):
        table = inputs["lengths"].new_tensor([[1, 3, 2], [1, page, 2]])
        views = {n: x[1:5].to(dtype) for n, x in pool.items()}
        inside, outside = unchecked(small, inputs | views | dict(block_table=table))
        assert inside.isfinite().all() and outside.isnan().all()


def unchecked(function, inputs):
    """Called as on a GPU, where nobody looks at the values before the launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "looks_at_values", lambda: False)
        return function(**inputs)


def far_pages(module):
    """Page 2 begins 2³¹ elements behind page 0."""
    inputs = paged(caches(B=1, S=9, H=1, Hk=1, lengths=[9], dtype=torch.float16), 3, spare=0)
    expected = with_tiles(module)(**inputs)
    for name in ("k_cache", "v_cache"):
        assert torch.equal(with_tiles(module)(**inputs | {name: far_apart(inputs[name])}), expected)


def check(module, dtype=torch.float32):
    """Everything a mutant has to get past."""
    small, made = with_tiles(module), functools.partial(caches, dtype=dtype)
    assert_right(small, made(B=3, S=67, lengths=[67, 0, 20], sinks=True), window=40, softcap=2.0)
    assert_right(small, made(B=3, S=70, lengths=[70, 0, 3], Hk=1), num_splits=5, scale=2.0)
    assert_right(small, paged(made(B=2, lengths=[37, 21]), 6))
    inputs = paged(made(B=3, lengths=[30, 9, 7], sinks=True), 5)
    odd = {n: harness.strided(x) if x.is_floating_point() else odd_integers(x) for n, x in inputs.items()}
    assert_right(small, odd | dict(v_cache=harness.sliced(inputs["v_cache"])))
    beside_the_cache(module, dtype)
    if device.INTERPRET:
        far_pages(module)
    with pytest.MonkeyPatch.context() as patch:
        assert allocated(module, patch, [3000, 5]) == allocated(module, patch, [9, 5])


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(paged_cache, SHARED, check, within=lesson)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("D", [1, 8, 80, 128, 256])
def test_head_dimensions(module, D, dtype):
    """With the tiles and the number of splits that a user gets."""
    assert_right(module.decode_attention, caches(B=2, S=300, H=2, Hk=1, D=D, lengths=[300, 77], dtype=dtype))


@pytest.mark.parametrize("H, Hk", [(1, 1), (3, 3), (6, 2), (20, 1), (150, 2)])
def test_groups(module, H, Hk):
    """Groups of one, of a number that is no power of two, and of more heads than a tile has rows."""
    assert_right(with_tiles(module), caches(B=2, H=H, Hk=Hk, lengths=[37, 12], sinks=True))


@pytest.mark.parametrize("num_splits", [1, 2, 7, 17])
def test_numbers_of_splits(module, num_splits):
    inputs = caches(B=4, S=70, lengths=[70, 1, 0, 33], sinks=True)
    assert_right(with_tiles(module), inputs, num_splits=num_splits)
    assert_right(module.decode_attention, inputs, num_splits=num_splits)


@pytest.mark.parametrize("window", [1, 16, 1000, (0, 0), (4, 9), (-1, 3), (7, -1)], ids=str)
def test_windows(module, window):
    assert_right(with_tiles(module), caches(B=3, lengths=[37, 3, 17]), window=window)


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize("page_size", [1, 3, 16, 37, 100])
def test_page_sizes(module, page_size):
    assert_right(with_tiles(module), paged(caches(B=3, lengths=[37, 0, 12]), page_size))


def test_sequences_share_pages(module):
    """Two requests with the same beginning."""
    inputs = paged(caches(B=2, S=12, lengths=[12, 12]), 4)
    inputs["block_table"][1, :2] = inputs["block_table"][0, :2]
    assert_right(with_tiles(module), inputs, num_splits=2)


def test_pages_give_the_bits_of_a_plain_cache(module):
    inputs = caches(B=2, lengths=[37, 30], dtype=torch.bfloat16)
    assert torch.equal(with_tiles(module)(**inputs), with_tiles(module)(**paged(inputs, 7)))


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(module):
    pool = torch.randn(2**31 // (16 * 8 * 128) + 64, 16, 8, 128, device=DEVICE, dtype=torch.bfloat16)
    assert pool.numel() > 2**31
    q, lengths = randn(1, 32, 128, dtype=torch.bfloat16), torch.tensor([1000], dtype=torch.int32, device=DEVICE)
    table = torch.arange(len(pool) - 63, len(pool), dtype=torch.int32, device=DEVICE)[None]
    near = pool[-63:].clone()
    expected = module.decode_attention(q, near, near, lengths, block_table=table - (len(pool) - 63))
    assert torch.equal(module.decode_attention(q, pool, pool, lengths, block_table=table), expected)


# ---------------------------------------------------------------- errors


def numbers(**given):
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in given.items()}


test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(q=torch.ones(2, 3, 8)), ValueError, "q must have a multiple of the heads of k_cache, 2"),
        (dict(q=torch.ones(2, 4, 9)), ValueError, "k_cache must have the head dimension of q, 9"),
        (dict(q=torch.ones(3, 4, 8), lengths=torch.ones(3).int()), ValueError, "k_cache must have the batch of q, 3"),
        (dict(block_table=torch.zeros(3, 1).int()), ValueError, "block_table must have shape (2, 1)"),
        (dict(num_splits=0), ValueError, "num_splits must be at least 1, got 0"),
        (dict(sinks=torch.ones(3)), ValueError, "sinks must have shape (4,)"),
        (dict(q=torch.ones(2, 4, 8).requires_grad_()), ValueError, "q requires a gradient, but decode_attention has no backward"),
        (numbers(lengths=[9, 10]), ValueError, "lengths must be in [0, 9], got 10 in row 1"),
        (numbers(lengths=[-1, 9]), ValueError, "lengths must be in [0, 9], got -1 in row 0"),
        (numbers(block_table=[[0], [2]]), ValueError, "block_table must hold pages in [0, 2), got [2] in row 1"),
        (numbers(block_table=[[-1], [1]]), ValueError, "block_table must hold pages in [0, 2), got [-1] in row 0"),
    ],
    dict(q=torch.ones(2, 4, 8), k_cache=torch.ones(2, 9, 2, 8), v_cache=torch.ones(2, 9, 2, 8), lengths=torch.tensor([9, 3]).int()),
    lesson.decode_attention,
)  # fmt: skip
