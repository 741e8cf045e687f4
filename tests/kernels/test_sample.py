"""sampling/sample: sets exactly, draws token by token and on average, rows that break samplers, errors, mutants.

The traps of samplers in use, and the check or mutant ("…") that holds each:

1. More than k are kept where logits tie: `ties`, and top-k's cases in operations/sample.py.
2. The row's stride is taken for its width: the judge's `test_hostile_inputs`.
3. NaN in a row reads outside, or is lost and another number doubled: `not_a_number`.
4. A row of −∞ alone: `nothing_to_draw`, "a row of minus infinity drawn from".
5. p = 1 drops what the float32 sum doesn't reach: `all_of_it`, "p of one left to the sum".
6. A threshold that is estimated keeps everything of a peaked row: ours is exact; `peaked`.
7. Lanes behind the end are counted: `lanes_behind_the_end`, "lanes behind the end count".
8. A random number of 0 or 1: `ends_of_the_random_numbers`, "a random number of 1", "a random number of 0".
9. The temperature in bfloat16: `temperatures`, "divided in half precision".
10. Rounded random numbers make many tokens equal, and the first wins: `noise_is_exact`, "rounded near 1".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
import triton
import triton.language as tl

from annotated_examples.common import choosing
from annotated_examples.common.seeds import random_words_reference
from annotated_examples.fast import sample as fast
from annotated_examples.sampling import sample as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant

INF, NAN = float("inf"), float("nan")
SEED = 2**41 + 12345
WAYS = [(5, None), (None, 0.7), (9, 0.6), (1, None), (None, 1e-30), (None, None)]


def randn(*shape, dtype=torch.float32, scale=1.0):
    """The same numbers on a card as here: their sums keep away from p."""
    return (torch.randn(shape) * scale).to(DEVICE, dtype)


def make(rows, dtype=torch.float32):
    return torch.tensor(rows, dtype=dtype, device=DEVICE)


def filtered(module, logits, top_k, top_p, **tiles):
    if not tiles:
        return module.filter_logits(logits, top_k=top_k, top_p=top_p)
    return module.filter_forward(logits, *module.of_all_rows(logits, top_k, top_p), **tiles)


def same(one, other):
    return one.dtype == other.dtype and torch.equal(one.nan_to_num(7.0, 1e9, -1e9), other.nan_to_num(7.0, 1e9, -1e9))


def assert_kept(module, logits, top_k=None, top_p=None, **tiles):
    """The very same logits are kept. The test's own sums keep away from p, where either answer is right."""
    wanted = lesson.filter_logits_reference(logits, top_k=top_k, top_p=top_p)
    if top_p not in (None, 1):
        kept, shifted = lesson.kept_reference(logits, top_k)
        weights = torch.where(kept, shifted.exp(), 0.0).sort(-1, descending=True).values
        sums = weights.cumsum(-1) / weights.sum(-1, keepdim=True)
        assert (sums - top_p).abs().min() > 1e-6 or top_p < 1e-6
    with harness.unchanged(logits=logits), harness.fenced_allocations():
        found = filtered(module, logits, top_k, top_p, **tiles)
    assert same(found, wanted), (top_k, top_p, found, wanted)
    return found.isfinite().sum(-1)


def scores_of(logits, temperature, top_k, top_p):
    """What the reference takes the largest of."""
    kept, shifted = lesson.kept_reference(logits, top_k, top_p, temperature)
    return torch.where(kept, shifted + lesson.gumbel_reference(logits.shape, SEED, logits.device), -INF)


def assert_drawn(module, logits, temperature=1.0, top_k=None, top_p=None):
    """Token by token as the reference draws with the same random numbers, but for the few rows with a close race."""
    options = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    wanted = lesson.sample_reference(logits, SEED, **options)
    with harness.unchanged(logits=logits), harness.fenced_allocations():
        tokens = module.sample(logits, SEED, **options)
    best = scores_of(logits, temperature or 1.0, top_k, top_p).topk(min(2, logits.shape[-1])).values
    close = (best[..., 0] - best[..., -1] < 1e-4) & (temperature > 0) & (wanted >= 0) & (logits.shape[-1] > 1)
    assert close.sum() <= close.numel() // 8
    assert tokens.dtype == torch.int64 and torch.equal(tokens[~close], wanted[~close])
    return tokens


# ---------------------------------------------------------------- checks, which mutants have to fail


def lanes_behind_the_end(module):
    """Trap 7: none may be the largest, or count."""
    assert_kept(module, harness.nan_fenced(-1000 - randn(4, 53).abs()), 20, 0.5)


def ties(module):
    """Trap 1: exactly k are kept, the first of those that equal each other; zeros of either sign do."""
    rows = [[2, 1, 2, 2, 1, 0, 2, 2, 1, 2], [0.0, -0.0, 0.0, -0.0, -1, 0.0, -0.0, -2, 0.0, -0.0], [3] * 10]
    logits = make([*rows, [-1, -2, -2, -1, -2, -3, -2, -2, -1, -2]])
    for BLOCK_V, several, top_p in ((4, (1, 5, 9), 0.32), (16, (2, 11), 0.97)):
        for top_k in several:
            kept = assert_kept(module, logits, top_k, BLOCK_V=BLOCK_V, BITS=4)
            assert kept.tolist() == [min(top_k, 10)] * 4
        for top_k in (None, 3, 7):
            assert_kept(module, logits, top_k, top_p, BLOCK_V=BLOCK_V, BITS=8)
    assert module.sample(logits, 1, temperature=0).tolist() == [0, 0, 0, 0]
    almost = make([[0.0] + [-0.01 * (row + 1)] * 15 for row in range(32)])  # p of what rounding may take for all of it
    assert bool((filtered(module, almost, 12, 1 - 2.0**-24, BITS=8).isfinite().sum(-1) <= 12).all())


def lists(module):
    """Rows of many chunks, whose lanes' largest logits say much, little or nothing about the row."""
    tiles = dict(BLOCK_V=16, BITS=4)
    spread = randn(2, 208, scale=3.0)
    one_lane = torch.full((2, 208), -9.0, device=DEVICE) + randn(2, 208)
    one_lane[:, 5::16] = 4 + randn(2, 13)  # the largest of other lanes are far below the k-th
    alike = torch.arange(208.0, device=DEVICE).expand(2, 208) * 1e-3  # hardly anything can be left out
    ties = torch.arange(208, device=DEVICE).expand(2, 208) % 7 * 0.5
    for logits in (spread, one_lane, alike, ties):
        for top_k in (1, 207):  # more than there are lanes, too
            assert_kept(module, logits, top_k, 0.637, **tiles)
        assert_kept(module, logits, None, 0.8731, **tiles)
        seed = torch.tensor(SEED, device=DEVICE)
        for top_k, top_p in ((16, None), (30, 0.8)):
            tokens = module.sample_forward(logits, seed, 0.7, *module.of_all_rows(logits, top_k, top_p), **tiles)
            wanted = lesson.sample_reference(logits, SEED, temperature=0.7, top_k=top_k, top_p=top_p)
            assert torch.equal(tokens, wanted)


def own_k_for_each_row(module):
    logits = randn(5, 23)
    for numbers in (torch.tensor([1, 2, 30, 7, 23]), torch.tensor([[3, 0], [1, 0], [9, 0], [40, 0], [2, 0]])[:, 0]):
        for dtype in (torch.int32, torch.int64):
            numbers = numbers.to(DEVICE, dtype)
            assert assert_kept(module, logits, numbers).tolist() == numbers.clamp(max=23).tolist()
            assert_drawn(module, logits, 1.0, numbers, 0.8)
    assert_kept(module, randn(2, 2, 9), make([[1, 2], [3, 4]], torch.int32))


def not_a_number(module):
    """Trap 3: the row with NaN gives no token, and other rows don't notice."""
    for bad in (NAN, -NAN):
        for place, ways in ((0, WAYS[:1]), (36, WAYS[1:3])):
            logits = randn(3, 37)
            logits[1, place] = bad
            for top_k, top_p in ways:
                with harness.fenced_allocations():
                    y = filtered(module, logits, top_k, top_p, BLOCK_V=16, BITS=4)
                assert same(y, lesson.filter_logits_reference(logits, top_k=top_k, top_p=top_p))
                assert bool(y[1].isnan().all()) and not y[[0, 2]].isnan().any()
            tokens = assert_drawn(module, logits, 0.5, 3)
            assert tokens[1] == -1 and bool((tokens[[0, 2]] >= 0).all())


def nothing_to_draw(module):
    """Trap 4, and infinities among numbers: ∞ takes everything, −∞ nothing."""
    rows = [[-INF] * 6, [-INF, -INF, 2, -INF, -INF, -INF], [1, INF, 2, 3, INF, -INF], [5, 4, -INF, -INF, 3, -INF]]
    rows += [[-INF] * 5 + [-3e38], [3e38, -3e38, 3.4e38, 0, 1, 2]]
    logits = make(rows)
    for top_k, top_p in [*WAYS[:2], (4, 0.9), (None, None)]:
        assert_kept(module, logits, top_k, top_p)
        tokens = assert_drawn(module, logits, 1.0, top_k, top_p)
        assert tokens[0] == -1 and tokens[1] == 2 and tokens[4] == 5
        assert tokens[2] in (1, 4) and bool((tokens[1:] >= 0).all())
    assert module.sample(logits, SEED, temperature=0).tolist() == [-1, 2, 1, 0, 5, 2]
    many = torch.tensor([[1.0, INF, 2.0, INF]], device=DEVICE).expand(12, 4)
    assert module.sample(many, SEED).unique().tolist() == [1, 3]


def all_of_it(module):
    """Trap 5: with p = 1 everything is kept, however little it adds; with the smallest p one token is."""
    logits = torch.linspace(0, -200, 77, device=DEVICE)[None]
    for one in (1, 1.0):
        assert assert_kept(module, logits, None, one).tolist() == [77]
        assert assert_kept(module, logits, 60, one).tolist() == [60]
    assert assert_kept(module, logits, None, torch.finfo(torch.float32).tiny).tolist() == [1]


def peaked(module):
    """Trap 6: one logit far above all others is all that p needs."""
    logits = randn(3, 300)
    logits[:, 123] = 60.0
    assert assert_kept(module, logits, None, 0.999).tolist() == [1, 1, 1]
    assert assert_drawn(module, logits).tolist() == [123, 123, 123]


def temperatures(module):
    """Trap 9: in float32 whatever the dtype of the logits; 0 is the largest logit. Top-k doesn't depend on it."""
    for dtype in DTYPES:
        logits = randn(3, 41, dtype=dtype, scale=3.0)
        for temperature in (0.0, 1e-30, 3e38) if dtype == torch.float32 else (0.7,):
            assert_drawn(module, logits, temperature, 30, 0.85)
        assert torch.equal(module.sample(logits, 3, temperature=0), logits.argmax(-1))
    pair = make([[0.0, -1.003]]).expand(24, 2)  # the first one alone has 0.80735; with -1 beside it, 0.80668
    assert assert_drawn(module, pair, 0.7, None, 0.807).unique().tolist() == [0]
    near = make([[1.0, 1.0 + 2.0**-20, 1.0 - 2.0**-20] * 11])
    assert_drawn(module, near.expand(8, 33), 2.0**-21)
    assert assert_drawn(module, near.expand(8, 33), 1e-4, 2).unique().tolist() == [1, 4]


@triton.jit
def noise_kernel(word_ptr, out_ptr, n, NOISE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    noise = NOISE(tl.load(word_ptr + offs, mask=offs < n, other=0).to(tl.uint32))
    tl.store(out_ptr + offs, noise, mask=offs < n)


def noise(module, words):
    words = torch.as_tensor(words, device=DEVICE)
    out = torch.empty(len(words), device=DEVICE)
    noise_kernel[(1,)](words, out, len(words), NOISE=module.noise_of, BLOCK=triton.next_power_of_2(len(words)))
    return out


def ends_of_the_random_numbers(module):
    """Trap 8."""
    found = noise(module, [0, 1, 2**31, 2**32 - 2, 2**32 - 1])
    assert bool(found.isfinite().all()) and bool((found.diff() <= 0).all())
    assert abs(found[0] - 22.87) < 0.01 and abs(found[-1] + 2.81) < 0.01


def noise_is_exact(module):
    """Trap 10: to a few roundings, and no two of the random numbers that win in a long row are equal."""
    random = random_words_reference(torch.tensor(3), torch.arange(128)).flatten()
    for words in (random, torch.arange(1, 513), torch.arange(0, 512) * 2**14, 2**32 - 1 - torch.arange(0, 512) * 2**9):
        v = ((words.double() + 0.5) / 2**32).clamp(max=1 - 2.0**-24)
        exact = -torch.log(-torch.log1p(-v))
        found = noise(module, words).cpu()
        # near v = 1, of long times that never win, v itself is rounded
        assert bool(((found - exact).abs() < 4e-6 + 2.0**-24 / (1 - v)).all())
    assert len(noise(module, torch.arange(0, 512) * 64).unique()) == 512


def chi_square(drawn, probability):
    """How far the counts are from what was to be expected, in standard deviations of the sum of squares."""
    wanted = probability * len(drawn)
    counts = torch.bincount(drawn.cpu(), minlength=len(wanted)).double()
    allowed = wanted > 0
    assert not counts[~allowed].any()
    total, free = ((counts - wanted)[allowed].square() / wanted[allowed]).sum(), int(allowed.sum()) - 1
    return float((total - free) / (2 * free) ** 0.5)


CHECKS = [
    lanes_behind_the_end,
    ties,
    own_k_for_each_row,
    not_a_number,
    nothing_to_draw,
    all_of_it,
    lists,
    peaked,
    temperatures,
    ends_of_the_random_numbers,
    noise_is_exact,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check):
    torch.manual_seed(0)
    check(lesson)


#: What a row that is cut into blocks may get wrong; its noise and its contract are the lesson's.
CUT = [ties, not_a_number, nothing_to_draw, all_of_it, own_k_for_each_row, temperatures]


@pytest.mark.parametrize("check", CUT, ids=lambda check: check.__name__)
def test_check_of_rows_over_programs(check, monkeypatch):
    """Short rows, in blocks of sixteen."""
    monkeypatch.setattr(fast, "BLOCK", 16)
    monkeypatch.setattr(fast, "LONG_ROW", 0)
    torch.manual_seed(0)
    check(fast)


def test_which_rows_are_shared():
    """Few long ones; without filters as many as a grid has on its second axis; short ones never."""
    row, few, many = (torch.empty(rows, 2**17, device="meta") for rows in (1, 16, 17))
    short = torch.empty(1, 2**13, device="meta")
    wanted = {"both": [row], "one": [row, few], "none": [row, few, many]}
    for filters, (top_k, top_p) in dict(both=(True, True), one=(False, True), none=(False, False)).items():
        found = [x for x in (row, few, many, short) if fast.shared(x, top_k, top_p, None, None)]
        assert [id(x) for x in found] == [id(x) for x in wanted[filters]], filters
    assert fast.shared(torch.empty(65_536, 2**17, device="meta"), False, False, None, None) is None
    assert fast.shared(short, True, True, 16, 8) == (16, 8) and fast.shared(row, True, True, None, None) == (2048, 4)
    assert fast.block_of_a_program(short) == 1024 and fast.block_of_a_program(many) is None


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (nothing_to_draw, Mutant("trap 4: a row of minus infinity drawn from", 'nan | (row_max == float("-inf"))', "nan")),
    (all_of_it, Mutant("trap 5: p of one left to the sum", "None if top_p is None or top_p == 1 else float(top_p)", "None if top_p is None else float(top_p)")),
    (lanes_behind_the_end, Mutant("trap 7: lanes behind the end count", 'offs_v < V, other=float("-inf")).to(tl.float32)\n        largest', "offs_v < V, other=0.0).to(tl.float32)\n        largest")),
    (lists, Mutant("a list beside its room", "list_ptr += row * V", "list_ptr += row * 2 * V", count=2)),
    (ends_of_the_random_numbers, Mutant("trap 8: a random number of 1", "tl.minimum((word.to(tl.float32) + 0.5) * 2.0**-32, LARGEST_BELOW_ONE)", "(word.to(tl.float32) + 0.5) * 2.0**-32")),
    (ends_of_the_random_numbers, Mutant("trap 8: a random number of 0", "word.to(tl.float32) + 0.5", "word.to(tl.float32)")),
    (noise_is_exact, Mutant("trap 10: rounded near 1", "tl.where(w == 1.0, v, -tl.log(w) * v / (1.0 - w))", "-tl.log(tl.minimum(w, LARGEST_BELOW_ONE))")),
    (own_k_for_each_row, Mutant("the first row's k", "k_ptr += row * stride_k", "k_ptr += 0 * stride_k", count=2)),
    (temperatures, Mutant("draws at a temperature of 0", "temperature, top_k, top_p = 1.0, 1, None", "temperature = 1.0")),
]  # fmt: skip

#: Of what it shares with the selection of keys.
SHARED = [
    (ties, Mutant("zeros with a sign", "tl.where(x == 0.0, 0.0, x).to(tl.int32", "x.to(tl.int32")),
    (temperatures, Mutant("trap 9: divided in half precision", "tl.where(x == row_max, 0.0, x - row_max) / temperature", "tl.where(x == row_max, 0.0, x - row_max).to(tl.bfloat16).to(tl.float32) / temperature")),
    (ties, Mutant("negative logits the other way round", "tl.where(bits < 0, ~bits, bits ^", "tl.where(bits < 0, bits, bits ^")),
    (nothing_to_draw, Mutant("infinity less infinity", "tl.where(x == row_max, 0.0, x - row_max)", "(x - row_max)")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(choosing, SHARED, within=lesson)


# ---------------------------------------------------------------- values and shapes


def test_logits_that_differ_in_the_last_bit():
    """All floats in a row, and all exponents: the order of the keys is theirs."""
    bits = torch.arange(0x3F800000, 0x3F800000 + 50, dtype=torch.int32)
    neighbours = torch.cat([bits.view(torch.float32), -bits.view(torch.float32)]).flip(0)
    powers = torch.cat([2.0 ** torch.arange(-149.0, 128), -(2.0 ** torch.arange(-149.0, 128)), torch.zeros(1)])
    for row in (neighbours, powers):
        row = row[torch.randperm(len(row))].to(DEVICE)
        for top_k in (1, 2, 17, len(row) // 2, len(row) // 2 + 1, len(row) - 1):
            assert_kept(lesson, row, top_k)


def test_the_reference_against_pytorch():
    """Where nothing ties, `torch.topk` and a sort with running sums keep the same."""
    torch.manual_seed(0)
    logits = randn(5, 100)
    kept = lesson.filter_logits_reference(logits, top_k=7).isfinite()
    assert torch.equal(kept, torch.zeros_like(kept).scatter(1, logits.topk(7).indices, True))
    values, order = torch.softmax(logits.double(), 1).sort(1, descending=True)
    wanted = torch.zeros_like(kept).scatter(1, order, values.cumsum(1) - values < 0.8)
    assert torch.equal(lesson.filter_logits_reference(logits, top_p=0.8).isfinite(), wanted)


def test_65536_draws():
    """Of the reference, which the kernel equals token by token: 64 tokens, likely ones and unlikely ones."""
    logits = torch.linspace(3, -4, 64)[None]
    drawn = lesson.sample_reference(logits.expand(2**16, 64), 11)
    assert chi_square(drawn, torch.softmax(logits[0].double(), 0)) < 5


def test_long_rows_are_drawn_evenly():
    """With 2¹⁸ equal logits: rounded random numbers would tie, and the lower half would win more often."""
    noise = lesson.gumbel_reference((16, 2**18), 3).float()
    best = noise.topk(2).values
    assert bool((best[:, 0] > best[:, 1]).all())


# ---------------------------------------------------------------- errors


test_bad_arguments = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "logits", dict(logits=[1.0])),
        (TypeError, "logits", dict(logits=torch.ones(2, 3, dtype=torch.int32, device=DEVICE))),
        (TypeError, "logits", dict(logits=torch.ones(2, 3, dtype=torch.float64, device=DEVICE))),
        (ValueError, "logits", dict(logits=torch.ones((), device=DEVICE))),
        (ValueError, "logits", dict(logits=torch.ones(1, device=DEVICE).expand(2, 2**18 + 1))),
        (ValueError, "top_k", dict(top_k=0)),
        (ValueError, "top_k", dict(top_k=-1)),
        (TypeError, "top_k", dict(top_k=2.0)),
        (TypeError, "top_k", dict(top_k=True)),
        (TypeError, "top_k", dict(top_k=torch.ones(2, device=DEVICE))),
        (ValueError, "top_k", dict(top_k=torch.ones(3, dtype=torch.int32, device=DEVICE))),
        (ValueError, "top_p", dict(top_p=0)),
        (ValueError, "top_p", dict(top_p=1.0001)),
        (ValueError, "top_p", dict(top_p=NAN)),
        (ValueError, "top_p", dict(top_p=1e-300)),
        (TypeError, "top_p", dict(top_p="most")),
    ],
    dict(logits=torch.ones(2, 3)),
    lesson.filter_logits,
    functools.partial(lesson.sample, seed=1),
)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="looking at values means waiting for the GPU")
def test_a_k_of_none():
    with pytest.raises(ValueError, match="^top_k must be at least 1, got 0"):
        lesson.filter_logits(randn(2, 3), top_k=torch.tensor([2, 0]))


test_bad_draws = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "seed", dict(seed=1.0)),
        (ValueError, "seed", dict(seed=-1)),
        (ValueError, "seed", dict(seed=torch.tensor([1]))),
        (ValueError, "temperature", dict(temperature=-0.1)),
        (ValueError, "temperature", dict(temperature=INF)),
        (ValueError, "temperature", dict(temperature=1e-40)),
        (TypeError, "temperature", dict(temperature=None)),
    ],
    dict(logits=torch.ones(2, 3), seed=1),
    lesson.sample,
)


test_bad_tiles = harness.raises_test(
    [(lambda n=n, v=v: filtered(lesson, randn(2, 9), 2, None, **{n: v}), ValueError, n)
     for n, v in dict(BLOCK_V=24, BITS=3).items()]
)  # fmt: skip
