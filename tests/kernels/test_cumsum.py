"""recurrences/cumsum and fast/cumsum: the traps of running sums, parts of a row, errors, mutants.

The traps of running sums in use, and the check or mutant ("…") that holds each:

1. From the end as the total less what comes before: `large_first`, "reverse as total minus prefix"; infinities, too.
2. Summed in float16: `sixteen_bits_are_too_few`, "summed in the dtype of x".
3. The carry is the last lane of a chunk that isn't full, or lanes past the end aren't 0:
    the formula in chunks, the judge's `test_hostile_inputs`.
4. The carry is kept in the dtype of x: `sixteen_bits_are_too_few`, "carry in the dtype of x".
5. Exclusive as the sum less the element: `large_first`, "exclusive by subtraction".
6. A sum and the flag that it is there in two stores, which others see in any order: they share a word of 64 bits. A
    program waits for one that can't start: it waits for lower tickets. `test_the_second_call_gives_the_same_bits`, and
    on a card `test_programs_that_wait`, with more of them than fit.
7. Flags of the first call are still set in the second: the words are new in each call. The same tests.
8. Strides of 0, a first dimension of a transposed view, no rows, one element:
    "always along the last dimension", and the judge's `test_hostile_inputs`.
9. A scan and a sum in one kernel were compiled wrongly once: on a card `test_both_directions_compile_right`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.fast import cumsum as fast
from annotated_examples.recurrences import cumsum as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

module = harness.modules(lesson, fast)

INF = float("inf")
OPTIONS = [dict(reverse=r, exclusive=e) for r in (False, True) for e in (False, True)]

LESSON_MUTANTS = [
    Mutant("carry in the dtype of x", "carry_on(carry, tl.sum(x, axis=0))", "carry_on(carry.to(x_ptr.dtype.element_ty).to(tl.float32), tl.sum(x, axis=0))"),
    Mutant("what rounding takes is lost", "lost += rounded", "lost += 0.0 * rounded"),
    Mutant("summed in the dtype of x", "other=0.0).to(tl.float32)", "other=0.0)"),
    Mutant("reverse as total minus prefix", "lost + tl.cumsum(x, axis=0, reverse=REVERSE)", "lost + (tl.sum(x, axis=0) - tl.cumsum(x, axis=0) + x if REVERSE else tl.cumsum(x, axis=0))"),
    Mutant("exclusive by subtraction", """(offs_n + 1 if REVERSE else offs_n - 1) if EXCLUSIVE else offs_n
        x = tl.load(x_ptr + taken, mask=(taken >= 0) & (taken < N), other=0.0).to(tl.float32)
        y = carry + (lost + tl.cumsum(x, axis=0, reverse=REVERSE))""", """offs_n
        x = tl.load(x_ptr + taken, mask=(taken >= 0) & (taken < N), other=0.0).to(tl.float32)
        y = carry + (lost + tl.cumsum(x, axis=0, reverse=REVERSE)) - (x if EXCLUSIVE else 0.0)"""),
    Mutant("always along the last dimension", "moved = x.movedim(dim, -1)", "dim, moved = -1, x"),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("summed in the dtype of x", "other=0.0).to(tl.float32)", "other=0.0)"),
    Mutant("given by multiplying with 0", "tl.sum(tl.where(first, pieces, 0.0), axis=1)", "tl.sum(pieces * first.to(tl.float32), axis=1)"),
    Mutant("vectors' sums by a difference", "_, before = tl.associative_scan((vectors, tl.zeros_like(vectors)), 1, join)", "before = tl.cumsum(vectors, axis=1) - vectors"),
    Mutant("carry in the dtype of x", "carry_on(carry, tl.sum(vectors, axis=1))", "carry_on(carry.to(x_ptr.dtype.element_ty).to(tl.float32), tl.sum(vectors, axis=1))"),
    Mutant("what rounding takes is lost", "lost += rounded", "lost += 0.0 * rounded"),
    Mutant("earlier groups are left out", "return before + sum_of_words(words_ptr + parts, part // GROUP, GROUP)", "return before"),
    Mutant("a group lacks its last part", "part // GROUP, before + total)", "part // GROUP, before)"),
    Mutant("a group lacks all but its last part", "part // GROUP, before + total)", "part // GROUP, total)"),
    Mutant("rows lie whole vectors apart", "math.gcd(N, rows.stride(0), VECTOR)", "math.gcd(N, VECTOR)"),
    Mutant("always along the last dimension", "moved = x.movedim(dim, -1)", "dim, moved = -1, x"),
]  # fmt: skip


def is_fast(module):
    """Whether this is the fast file, or a mutant of it."""
    return hasattr(module, "tiles")


def in_chunks(module, x, dy, BLOCK_N=16, sizes=None, **options):
    """The launcher with small chunks, forward and back. sizes: of the fast version; None: one row, two rows, and parts."""
    if sizes is None and is_fast(module):
        for sizes in (
            dict(BLOCK_M=1, parts=1), dict(BLOCK_M=2, parts=1), dict(BLOCK_M=1, parts=2),
            dict(BLOCK_M=1, parts=3, GROUP=2),
        ):  # fmt: skip
            in_chunks(module, x, dy, BLOCK_N, sizes, **options)
        return
    sizes = dict(BLOCK_N=BLOCK_N, **(sizes or {}))
    with harness.unchanged(x=x, dy=dy), harness.fenced_allocations():
        y = module.cumsum_forward(x, **sizes, **options)
        dx = module.cumsum_backward(dy, **sizes, **options)
    reference = lambda x: lesson.cumsum_reference(x, **options)  # noqa: E731
    theirs = harness.gradients(reference, dict(x=x), dy)
    exact = harness.gradients(reference, dict(x=x.double()), dy.double())
    for name, value in dict(out=y, dx=dx).items():
        accuracy.check(name, value, theirs[name], exact[name])


def assert_right(module, x, dy=None, **options):
    call = lambda x: module.cumsum(x, **options)  # noqa: E731
    harness.assert_right(call, lambda x: lesson.cumsum_reference(x, **options), dict(x=x), dy)


def check(module):
    """Everything a mutant has to get past."""
    for options in OPTIONS:
        assert_right(module, harness.nan_fenced(randn(3, 37)), randn(3, 37), **options)
        in_chunks(module, harness.sliced(randn(3, 37)), harness.sliced(randn(3, 37)), **options)
        assert_right(module, randn(2, 5, 3), randn(2, 5, 3), dim=1, **options)
        large_first(module, **options)
        infinities_and_nan(module, **options)
    in_chunks(module, harness.transposed(randn(5, 33)), randn(5, 33))
    in_chunks(module, randn(3, 43)[:, :40], randn(3, 45)[:, 5:])
    sixteen_bits_are_too_few(module)
    rounding_is_kept(module)


def large_first(module, **options):
    """Traps 1 and 5: a sum that is got by a difference has lost the digits that a large neighbour covers."""
    x = randn(2, 50)
    x[0, 0], x[1, -1] = 1e8, 1e8
    y = module.cumsum_forward(x, BLOCK_N=16, **options)
    exact = lesson.cumsum_reference(x.double(), **options)
    small = exact.abs() < 1e6  # each sum on its own: the large ones would hide them
    assert (y - exact)[small].abs().max() < 1e-5


def infinities_and_nan(module, **options):
    """Trap 1 again: by a difference, an infinity would make everything NaN."""
    x = randn(4, 40)
    x[0, 20], x[1, 3], x[2, 39], x[3, 17], x[3, 30] = INF, float("nan"), -INF, INF, -INF
    in_chunks(module, x, randn(4, 40), **options)
    sums = module.cumsum_forward(x, BLOCK_N=16, **options)[0]
    without = {(False, False): 20, (False, True): 21, (True, False): 19, (True, True): 20}[
        bool(options.get("reverse")), bool(options.get("exclusive"))
    ]
    assert sums.isfinite().sum() == without and not sums.isnan().any()


def sixteen_bits_are_too_few(module):
    """Traps 2 and 4: neither sums nor the carry may be kept in 16 bits. 2049 has too many digits for them, and the 1
    is all that is left once 2048 is subtracted in the next chunk."""
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.zeros(1, 48, dtype=dtype, device=DEVICE)
        x[0, 0], x[0, 1], x[0, 16] = 2048, 1, -2048
        assert (module.cumsum_forward(x, BLOCK_N=16)[0, 16:] == 1).all()
        assert (module.cumsum_forward(x.flip(1), reverse=True, BLOCK_N=16)[0, :32] == 1).all()


def rounding_is_kept(module):
    """From 2²⁴ on, the 1 of each further chunk is less than the carry can hold; two of them aren't."""
    x = torch.zeros(1, 64, device=DEVICE)
    x[0, 0], x[0, 16], x[0, 32] = 2**24, 1, 1
    assert (module.cumsum_forward(x, BLOCK_N=16)[0, 48:] == 2**24 + 2).all()


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check)


@pytest.mark.parametrize("sizes", [(1, 100_000), (9, 7)], ids=str)
def test_the_second_call_gives_the_same_bits(module, sizes):
    """Traps 6 and 7: in the lesson a row has one program, in the fast version parts wait for each other's sums."""
    call = lambda x: module.cumsum(x)  # noqa: E731
    harness.assert_bitwise_repeatable(call, dict(x=randn(*sizes)), randn(*sizes))


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(dim=2), IndexError, "dim must be from -2 to 1 for a tensor of 2 dimensions, got 2"),
        (dict(x=torch.ones(1).expand(2**31)), ValueError, "fewer than 2147467264 elements"),
    ],
    dict(x=torch.ones(2, 3)),
    *(each.cumsum for each in (lesson, fast)),
)


def test_bad_tile_size(module):
    with pytest.raises(ValueError, match="BLOCK_N must be a power of two"):
        module.cumsum_forward(randn(2, 3), BLOCK_N=100)


@pytest.mark.parametrize("N", [1, 2, 3, 5, 31, 33, 8191, 8192, 8193, 16384])
def test_tuned_tile_sizes(N):
    """Rows shorter than a vector; several rows in a block; the first lengths that are cut into parts."""
    dtype = torch.bfloat16 if N % 2 else torch.float32
    for options in (dict(), dict(reverse=True)):
        assert_right(fast, harness.nan_fenced(randn(3, N, dtype=dtype)), randn(3, N, dtype=dtype), **options)


def test_parts():
    """Few long rows are cut into parts of 8192 columns, none of them is empty, and together they are the row."""
    for M, N in ((1, 2**26), (1, 2**31 - 2**14 - 1), (3, 100_000), (600, 100_000), (2, 8192), (2, 8191), (5, 3)):
        BLOCK_M, BLOCK_N, parts, length, _ = fast.tiles(M, N, None, None, None)
        assert parts == 1 or M <= 512 and length == 8192
        assert (parts - 1) * length < N <= parts * length and length % BLOCK_N == 0 and (BLOCK_M == 1 or parts == 1)
    assert fast.tiles(1, 2**26, None, None, None)[2] == 8192 and fast.tiles(600, 2**20, None, None, None)[2] == 1
    assert fast.tiles(2, 16383, None, None, None)[2] == 1 and fast.tiles(2, 16384, None, None, None)[2] == 2


@pytest.mark.parametrize("GROUP", [1, 2, 4, 8])
def test_groups_of_parts(GROUP):
    """Parts in one group and in several, the last one full and not."""
    for parts in (2, 4, 9):
        sizes = dict(BLOCK_M=1, parts=parts, GROUP=GROUP)
        for options in (dict(), dict(reverse=True)):
            in_chunks(fast, randn(2, 16 * parts - 3), randn(2, 16 * parts - 3), sizes=sizes, **options)


@pytest.mark.nightly
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_row_of_thousands_of_chunks(module, exclusive):
    """The errors of 4096 additions to the carry don't pile up: they would make seven or eight eps."""
    x = torch.rand(1, 2**15, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    sizes = dict(BLOCK_N=8) if module is lesson else dict(BLOCK_M=1, BLOCK_N=8, parts=1)
    y = module.cumsum_forward(x, exclusive=exclusive, **sizes)
    exact = x.double().cumsum(-1) - (x.double() if exclusive else 0)
    assert ((y - exact).square().mean() / exact.square().mean()).sqrt() < 1 * 2.0**-23


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1 << 26), (1, 1_000_003), (5, 3_000_000), (300, 20_000)], ids=str)
def test_programs_that_wait(shape):
    """Traps 6 and 7: 200 equal calls, of more programs than fit on the card, and right."""
    x = randn(*shape, dtype=torch.bfloat16)
    assert_right(fast, x, randn(*shape, dtype=torch.bfloat16))
    first = fast.cumsum(x)
    for call in range(200):
        assert torch.equal(fast.cumsum(x).view(torch.int16), first.view(torch.int16)), call


@pytest.mark.gpu
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("BLOCK_N", [16, 128, 1024, 4096])
def test_both_directions_compile_right(module, options, BLOCK_N):
    """H9 and trap 9: a scan and a sum in one kernel, either way, in blocks of several sizes."""
    in_chunks(module, randn(64, 5000), randn(64, 5000), BLOCK_N=BLOCK_N, **options)
