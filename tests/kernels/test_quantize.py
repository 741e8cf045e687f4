"""fp8/quantize: codes and scales bit for bit, on every edge; layouts, groups that end early, NaN, errors, mutants.

The traps of kernels that quantize, and the check or mutant ("…") that holds each. First those of all arithmetic with
codes:

1. Reciprocals and products in another order, or `x / y` that isn't IEEE's on a card: codes are compared bit for bit,
   `all_numbers_near_codes`, on a card as well.
2. A logarithm or `exp2` next to a power of two: `edges_of_powers_of_two`.
3. The largest magnitude as a maximum of floats, which drops a NaN: `not_a_number_stays_in_its_group`,
   "maximum of floats".
4. A conversion that overflows to NaN where another saturates (PyTorch's own, eager and compiled): the references clamp,
   `all_numbers_near_codes`.
5. Offsets in 32 bits: `test_more_than_2_to_31_elements`, on a card.
6. A scale that travels over the CPU: `test_cuda_graph_replays`, on a card.
7. AMD's formats taken for these: `test_bad_arguments`.

Then those of quantizing:

8. A row, a block, a tensor of zeros, 0 / 0: `zeros_and_small_numbers`, "zero divided by zero".
9. An epsilon that flattens small numbers: `zeros_and_small_numbers`, "epsilon".
10. 448 divided by a tiny magnitude is infinite: `zeros_and_small_numbers`, "subnormal scale".
11. Infinity and NaN, and the groups beside theirs: `not_a_number_stays_in_its_group`, "infinity in the scale".
12. The largest magnitude or the scale in bfloat16: `edges_of_powers_of_two`.
13. Rounding twice, by way of float16: `all_numbers_near_codes`, one bit beside each border.
14. Scales stored under the mask of a tile's own rows: `scales_end_with_the_rows`, "mask of the tile's own rows".
15. Strides of scales: `scales_of_blocks_decoded`, `test_strides_of_scales`; of the input: the judge's layouts.
16. Subnormal codes decoded as normal ones: `each_code_decoded`.
17. The same random bits at each launch, or misaligned below the smallest normal number: `stochastic_by_the_word`,
    `random_bits_belong_to_elements`, "subnormal like normal".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import Fences
from annotated_examples.classics import dropout
from annotated_examples.common import fp8
from annotated_examples.fp8 import quantize as lesson
from tests.kernels import harness
from tests.kernels.harness import DTYPES, Mutant, randn

DEVICE = harness.DEVICE
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = (E4M3, E5M2)
INF, NAN = float("inf"), float("nan")


def same_codes(one, other):
    """Bit for bit, but that any NaN is as good as another."""
    one, other = one.cpu(), other.cpu()
    same = (one.view(torch.uint8) == other.view(torch.uint8)) | (one.isnan() & other.isnan())
    return one.shape == other.shape and one.dtype == other.dtype and bool(same.all())


def same_scales(one, other):
    return one.shape == other.shape and torch.equal(one.cpu().nan_to_num(-1), other.cpu().nan_to_num(-1))


def launched(module, x, granularity, dtype, power_of_two, GROUP, seed=None):
    """The launchers with groups of the test's size."""
    if granularity == "tensor":
        return module.quantize_tensor_forward(x, dtype, power_of_two, seed, BLOCK=16, num_programs=3)[:2]
    if granularity == "row":
        return module.quantize_rows_forward(x, dtype, power_of_two, seed, BLOCK_K=GROUP)
    each_row = granularity == "1x128"
    return module.quantize_tiles_forward(
        x, dtype, power_of_two, seed, each_row=each_row, BLOCK_M=4 if each_row else None, GROUP=GROUP
    )


def assert_equal(module, x, granularity, dtype=E4M3, power_of_two=False, GROUP=8):
    wanted = lesson.quantize_fp8_reference(x, granularity, dtype=dtype, power_of_two=power_of_two, GROUP=GROUP)
    q, scale = launched(module, x, granularity, dtype, power_of_two, GROUP)
    assert same_scales(scale, wanted[1]), (granularity, dtype, power_of_two)
    assert same_codes(q, wanted[0]), (granularity, dtype, power_of_two)


def every_way(module, x, GROUP=8):
    for granularity in lesson.GRANULARITIES:
        for dtype in FORMATS:
            for power_of_two in (False, True):
                assert_equal(module, x, granularity, dtype, power_of_two, GROUP)


# ---------------------------------------------------------------- checks, which mutants have to fail


def odd_groups(module):
    every_way(module, randn(13, 21))


def zeros_and_small_numbers(module):
    """A row, a block and a tensor of zeros; numbers whose scale or its reciprocal would be subnormal or infinite."""
    x = randn(9, 19)
    x[3], x[:, 8:16] = 0, 0
    x[5, :8], x[6, :8], x[7, :8], x[8] = 1e-45, 1e-38, 1e30, 3e38
    every_way(module, x)
    every_way(module, torch.zeros(5, 7, device=DEVICE))
    every_way(module, torch.full((5, 7), -0.0, device=DEVICE))


def not_a_number_stays_in_its_group(module):
    for bad in (NAN, -NAN, INF, -INF):
        x = randn(9, 19)
        x[4, 9] = bad
        every_way(module, x)
        q, scale = launched(module, x, "1x128", E4M3, False, 8)
        assert bool(q[4, 8:16].isnan().all()) and bool(scale[4, 1].isnan())
        assert int(q.isnan().sum()) == 8 and int(scale.isnan().sum()) == 1
        assert bool(launched(module, x, "tensor", E4M3, False, 8)[1].isnan())
        q, amax = module.quantize_fp8_delayed(x, torch.ones((), device=DEVICE))
        assert bool(amax.isnan() if math.isnan(bad) else amax == INF)
        assert int(q.isnan().sum()) == int(math.isnan(bad)), "infinity saturates, and only NaN is NaN"


def edges_of_powers_of_two(module):
    """At each power of two, at 1.75 times it, and one bit to each side: a logarithm would be rounded."""
    for exponent in (-126, -9, 0, 8, 60, 127):
        for mantissa in (1.0, 1.75):
            number = torch.tensor(mantissa * 2.0**exponent, device=DEVICE)
            beside = [torch.nextafter(number, number * 0), number, torch.nextafter(number, number * INF)]
            x = torch.stack(beside)[:, None] * torch.tensor([1, 0.5, -0.25, 0.1], device=DEVICE)
            every_way(module, x)


def all_numbers_near_codes(module):
    """Each code of both formats, each midpoint between two, and what lies one bit to each side, under a scale of 1."""
    one = torch.ones((), device=DEVICE)
    for dtype in FORMATS:
        codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        codes = codes[codes.isfinite()].unique()
        numbers = torch.cat([codes, (codes[1:] + codes[:-1]) / 2, torch.tensor([464.0, 465.0, 61440.0, 3e38, INF])])
        numbers = torch.cat([torch.nextafter(numbers, numbers * side) for side in (0, 1, INF)]).to(DEVICE)
        numbers = torch.cat([numbers, -numbers, torch.tensor([NAN], device=DEVICE)])
        q, _ = module.quantize_fp8_delayed(numbers, one, dtype=dtype)
        assert same_codes(q, lesson.quantize_fp8_delayed_reference(numbers, one, dtype=dtype)[0]), dtype


def scales_end_with_the_rows(module):
    """130 rows in tiles of 16, of 128: nothing is written behind the last scale, or behind the last code."""
    for rows, GROUP in ((130, 128), (6, 4)):
        for granularity in lesson.GRANULARITIES:
            with Fences() as fences:
                q, scale = launched(module, harness.nan_fenced(randn(rows, 9)), granularity, E4M3, False, GROUP)
            assert not fences.broken() and bool(scale.isfinite().all()) and not q.isnan().any(), granularity


def each_code_decoded(module):
    """All 256 codes of both formats, subnormal ones too, in all three dtypes."""
    for dtype in FORMATS:
        q = torch.arange(256, dtype=torch.uint8).view(dtype).view(16, 16).to(DEVICE)
        for out in DTYPES:
            for scale in (torch.tensor(0.75), 2.0 ** torch.arange(-8.0, 8)[:, None]):
                found = module.dequantize_fp8(q, scale.to(DEVICE), out)
                wanted = lesson.dequantize_fp8_reference(q, scale.to(DEVICE), out)
                assert torch.equal(found.nan_to_num(-7), wanted.nan_to_num(-7)) and found.dtype == out, (dtype, out)


def scales_of_blocks_decoded(module):
    """Each group has a scale of its own, and any strides."""
    x = randn(140, 140) * 3.0 ** torch.arange(140, device=DEVICE).fmod(5)[:, None]
    for granularity in lesson.GRANULARITIES:
        q, scale = module.quantize_fp8(x, granularity)
        wanted = lesson.dequantize_fp8_reference(q, scale)
        spread = harness.strided(scale) if scale.dim() == 2 else scale
        for codes, scales in ((q, scale), (q, spread), (q.t().contiguous().t(), scale)):
            assert torch.equal(module.dequantize_fp8(codes, scales), wanted), granularity
        assert float((wanted - x).norm() / x.norm()) < 0.04


def exact_sr(v, seed, digits, lowest, largest):
    """Stochastic rounding of float32 by whole numbers, in Python's arithmetic, to a format with so many digits behind
    the point, this lowest exponent and this largest number."""
    words = dropout.random_words_reference(torch.tensor(seed), torch.arange(v.numel()))[:, 0].tolist()
    found = []
    for value, word in zip(v.flatten().tolist(), words):
        step = 2.0 ** (max(math.frexp(value)[1] - 1, lowest) - digits)
        count, random = abs(value) / step, (word >> (9 + digits)) / 2 ** (23 - digits)
        found.append(math.copysign(min(step * math.floor(count + random), largest), value))
    return torch.tensor(found).view(v.shape)


def stochastic_by_the_word(module):
    """Each element by the Philox word of its index, in normal and subnormal range and beyond the largest code."""
    rows = [torch.full((1, 21), value, device=DEVICE) for value in (0.004, -449.0)]
    x = torch.cat([randn(3, 21), randn(3, 21) * 0.01, *rows])
    x[:, 0] = 448.0
    for dtype in FORMATS:
        scale = torch.full((8, 1), lesson.LARGEST[E4M3] / lesson.LARGEST[dtype])
        scale[-1] *= 449 / 448
        wanted = exact_sr(x.cpu() * (1 / scale), 2**40 + 3, *((3, -6, 448.0) if dtype == E4M3 else (2, -14, 57344.0)))
        for granularity in ("row", "1x128"):
            q, _ = launched(module, x, granularity, dtype, False, 32, seed=2**40 + 3)
            assert torch.equal(q.cpu().float(), wanted), (dtype, granularity)


def random_bits_belong_to_elements(module):
    """Not to blocks, granularities or launches; and another seed gives other ones."""
    x = randn(9, 40)
    x[:, 0] = 8.0
    drawn = [
        module.quantize_rows_forward(x, E4M3, True, 7, BLOCK_K=BLOCK_K)[0].view(torch.uint8) for BLOCK_K in (8, 16, 64)
    ]
    drawn.append(module.quantize_tensor_forward(x, E4M3, True, 7, BLOCK=32, num_programs=2)[0].view(torch.uint8))
    drawn.append(module.quantize_fp8(x, "128x128", power_of_two=True, seed=7)[0].view(torch.uint8))
    drawn.append(module.quantize_fp8(x, power_of_two=True, seed=torch.tensor(7, device=DEVICE))[0].view(torch.uint8))
    assert all(torch.equal(drawn[0], other) for other in drawn)
    assert not torch.equal(drawn[0], module.quantize_fp8(x, power_of_two=True, seed=8)[0].view(torch.uint8))


def a_scale_that_is_none(module):
    """Zero, negative, infinite, NaN, or too small for a finite reciprocal: NaN, if nobody has looked at the value."""
    x = randn(3, 5)
    for scale in (0.0, -1.0, -0.0, INF, -INF, NAN, 1e-45, 2.0**-127, 2.0**-126 - 2.0**-149):
        scale = torch.tensor(scale, device=DEVICE)
        for dtype in FORMATS:
            q, _, amax = module.quantize_tensor_forward(x, dtype, False, scale=scale, BLOCK=8, num_programs=1)
            assert bool(q.isnan().all()) and torch.equal(amax.view(torch.float32), x.abs().max()), (scale, dtype)
            assert same_codes(q, lesson.quantize_fp8_delayed_reference(x, scale, dtype=dtype)[0])
    for scale in (2.0**-126, 3e38):
        q, _ = module.quantize_fp8_delayed(torch.zeros(3, device=DEVICE), torch.tensor(scale, device=DEVICE))
        assert not q.float().any()


CHECKS = [
    odd_groups,
    zeros_and_small_numbers,
    not_a_number_stays_in_its_group,
    edges_of_powers_of_two,
    all_numbers_near_codes,
    scales_end_with_the_rows,
    each_code_decoded,
    scales_of_blocks_decoded,
    stochastic_by_the_word,
    random_bits_belong_to_elements,
    a_scale_that_is_none,
]
test_check = harness.check_test(lesson, CHECKS)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (odd_groups, Mutant("scales of all columns in one", "scale_ptr += tile_k * stride_sk", "scale_ptr += tile_k * 0")),
    (scales_end_with_the_rows, Mutant("mask of the tile's own rows", "scale, mask=mask_m)", "scale, mask=tl.arange(0, BLOCK_M) < M)")),
    (a_scale_that_is_none, Mutant("a negative scale", "scale >= 1.1754943508222875e-38", "scale == scale")),
    (a_scale_that_is_none, Mutant("an infinite scale", 'scale < float("inf")', "scale == scale")),
    (a_scale_that_is_none, Mutant("a subnormal scale", "(scale >= 1.1754943508222875e-38)", "(scale > 0)")),
    (a_scale_that_is_none, Mutant("the smallest scale refused", "(scale >= 1.1754943508222875e-38)", "(scale > 1.1754943508222875e-38)")),
    (scales_of_blocks_decoded, Mutant("one scale for all rows", "(offs_m // GROUP_M)[:, None] * stride_sm", "(offs_m // GROUP_M)[:, None] * 0")),
    (scales_of_blocks_decoded, Mutant("scale of the wrong column", "(offs_k // GROUP_K)[None, :] * stride_sk", "(offs_k // GROUP_K // 2)[None, :] * stride_sk")),
    (random_bits_belong_to_elements, Mutant("random bits of the chunk", "index = row * K + offs_k\n        q = to_fp8(x * inverse, seed_ptr, index,", "index = row * K + offs_k\n        q = to_fp8(x * inverse, seed_ptr, offs_k,")),
]  # fmt: skip
HELPERS = [
    (not_a_number_stays_in_its_group, Mutant("maximum of floats", "x.to(tl.int32, bitcast=True) & 0x7FFFFFFF", "tl.abs(tl.where(x != x, 0.0, x)).to(tl.int32, bitcast=True)")),
    (odd_groups, Mutant("sign kept in the maximum", "& 0x7FFFFFFF\n", "\n")),
    (edges_of_powers_of_two, Mutant("rounded up at 1.75", "> 0x600000", ">= 0x600000")),
    (odd_groups, Mutant("446 for 448", "448.0 if E4M3 else 57344.0)\n        scale = tl.max", "446.0 if E4M3 else 57344.0)\n        scale = tl.max")),
    (odd_groups, Mutant("e5m2 with the range of e4m3", "8 if E4M3 else 15", "8")),
    (zeros_and_small_numbers, Mutant("zero divided by zero", "tl.where(bits == 0, 1.0, scale)", "scale")),
    (zeros_and_small_numbers, Mutant("exponent below the normal ones", "tl.maximum(exponent, -126) + 127", "tl.maximum(exponent, -127) + 127")),
    (zeros_and_small_numbers, Mutant("subnormal scale", "scale = tl.maximum(scale, 1.1754943508222875e-38)", "scale += 0.0")),
    (zeros_and_small_numbers, Mutant("epsilon", "scale = tl.maximum(scale, 1.1754943508222875e-38)", "scale = tl.maximum(scale, 1e-12)")),
    (not_a_number_stays_in_its_group, Mutant("infinity in the scale", "bits >= 0x7F800000", "bits > 0x7F800000")),
    (stochastic_by_the_word, Mutant("random bits too many", "word >> (32 - CUT)", "word >> (31 - CUT)")),
    (stochastic_by_the_word, Mutant("subnormal like normal", "bits < ((127 + LOWEST) << 23), count", "bits < (1 << 23), count")),
    (stochastic_by_the_word, Mutant("the upper half of the seed lost", "tl.philox(seed, low", "tl.philox(seed & 0xFFFFFFFF, low")),
    (stochastic_by_the_word, Mutant("sign lost", "| sign)", "| 0)")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(fp8, HELPERS, within=lesson)


# ---------------------------------------------------------------- shapes, repeated calls, errors


@pytest.mark.parametrize("shape", [(), (1,), (300,), (2, 3, 5), (0,), (0, 5), (5, 0), (4, 1)], ids=str)
def test_shapes(shape):
    x = randn(*shape)
    ways = ["tensor"] + ["row"] * (x.dim() > 0) + ["1x128", "128x128"] * (x.dim() == 2)
    for granularity in ways:
        wanted = lesson.quantize_fp8_reference(x, granularity)
        q, scale = lesson.quantize_fp8(x, granularity)
        assert same_codes(q, wanted[0]) and q.shape == x.shape
        if x.numel() or granularity == "tensor":
            assert same_scales(scale, wanted[1])
        assert lesson.dequantize_fp8(q, scale).shape == x.shape
    q, amax = lesson.quantize_fp8_delayed(x, torch.ones((), device=DEVICE))
    assert q.shape == x.shape and float(amax) == float(x.abs().max() if x.numel() else 0)


def test_strides_of_scales():
    """1x128 as a product wants them: column by column."""
    _, scale = lesson.quantize_fp8(randn(37, 300), "1x128")
    assert scale.shape == (37, 3) and scale.stride() == (1, 37)
    assert lesson.quantize_fp8(randn(37, 300), "128x128")[1].shape == (1, 3)


@pytest.mark.gpu
def test_more_than_2_to_31_elements():
    x = torch.ones(2**31 + 2**12, dtype=torch.bfloat16, device=DEVICE)
    x[-1] = 3.0
    q, scale = lesson.quantize_fp8(x, "tensor")
    wanted = torch.tensor(3.0, dtype=torch.float64) / 448  # rounded to float32 once, as the scale is
    assert float(q[-1].float()) == 448.0 and float(q[0].float()) == 144.0 and float(scale) == float(wanted.float())


FINE = dict(x=torch.ones(4, 4, device=DEVICE))
BAD = [
    (TypeError, "x", dict(x=[1.0])),
    (TypeError, "x", dict(x=torch.ones(4, 4, dtype=torch.float64, device=DEVICE))),
    (TypeError, "x", dict(x=torch.ones(4, 4, device=DEVICE).to(E4M3))),
    (ValueError, "x", dict(x=torch.ones(4, 4, device="meta"))),
    (ValueError, "x", dict(x=torch.ones(4, device=DEVICE), granularity="1x128")),
    (ValueError, "x", dict(x=torch.ones(2, 3, 4, device=DEVICE), granularity="128x128")),
    (ValueError, "x", dict(x=torch.ones((), device=DEVICE))),
    (ValueError, "granularity", dict(granularity="column")),
    (ValueError, "dtype", dict(dtype=torch.float16)),
    (ValueError, "dtype", dict(dtype=torch.float8_e4m3fnuz)),
    (ValueError, "power_of_two", dict(power_of_two=1)),
    (TypeError, "seed", dict(seed=1.0)),
    (ValueError, "seed", dict(seed=-1)),
]


test_bad_arguments = harness.refused_test(
    "error, name, change",
    BAD,
    FINE,
    lesson.quantize_fp8,
)


test_bad_arguments_of_dequantize = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "q", dict(q=torch.ones(4, 4, device=DEVICE))),
        (TypeError, "scale", dict(scale=torch.ones((), dtype=torch.float16, device=DEVICE))),
        (ValueError, "scale", dict(scale=torch.ones(4, device=DEVICE))),
        (ValueError, "scale", dict(scale=torch.ones(4, 2, device=DEVICE))),
        (ValueError, "dtype", dict(dtype=E4M3)),
    ],
    dict(q=torch.ones(4, 4).to(E4M3), scale=torch.ones(())),
    lesson.dequantize_fp8,
)


@pytest.mark.parametrize("scale", [torch.ones(1), torch.ones((), dtype=torch.float64), 1.0], ids=str)
def test_bad_scale_of_an_earlier_step(scale):
    with pytest.raises((TypeError, ValueError), match="^scale "):
        lesson.quantize_fp8_delayed(FINE["x"], scale.to(DEVICE) if torch.is_tensor(scale) else scale)


@pytest.mark.skipif(not device.INTERPRET, reason="on a GPU values aren't looked at: a_scale_that_is_none")
@pytest.mark.parametrize("scale", [0.0, -1.0, INF, NAN, 1e-45])
def test_a_scale_of_another_value_is_named(scale):
    with pytest.raises(ValueError, match=r"^scale must be finite and at least 2\*\*-126, got "):
        lesson.quantize_fp8_delayed(FINE["x"], torch.tensor(scale, device=DEVICE))


@pytest.mark.gpu
def test_a_scale_is_named_on_request(monkeypatch):
    monkeypatch.setenv("ACADEMY_DEBUG", "1")
    with pytest.raises(ValueError, match="^scale must be finite"):
        lesson.quantize_fp8_delayed(FINE["x"], torch.zeros((), device=DEVICE))
