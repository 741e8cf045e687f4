"""mx/microscaling: codes and scales bit for bit, on every edge; two in a byte, NaN, zeros, layouts, errors, mutants.

The traps of kernels for MXFP8, MXFP4 and NVFP4, and the check or mutant ("…") that holds each:

1. Bytes 0, 254 and 255 of an exponent: `zeros_and_extremes`, `each_code_under_each_scale`, "byte 0 is zero",
   "byte 255 is infinite".
2. Scales that overflow into the byte of NaN (zero blocks of NVFP4): `two_scales_at_their_ends`, "infinity is 448".
3. PyTorch's cast to `float8_e8m0fnu` rounds to nearest, so no scale is made by it:
   `test_pytorchs_cast_to_an_exponent_rounds_to_nearest`.
4. The largest magnitude in bfloat16: `edges_of_scales`.
5. As a maximum of floats, which drops a NaN: `not_a_number_stays_in_its_group`.
6. Which of two codes is in the low half: `every_way`, and the cases of four bits in operations/.
7. Shifts of eight bits: `each_code_under_each_scale`. Negative zero: `zeros_and_extremes`, "negative zero".
8. Every tie of four bits: `all_numbers_near_codes`.
9. Scales that are read where none is, and where a byte of 255 may lie: `nothing_behind_the_end`.
10. Groups along the wrong dimension, and strides that are ignored: the judge's layouts; of codes, `layouts_of_codes`,
    "stride of a scale".
11. Scales of NVFP4 that clip, underflow or are subnormal; a tensor of zeros: `two_scales_at_their_ends`,
    "a tensor of zeros", "the smallest tensor scale".
12. Multiplying by a reciprocal or dividing, which changes ties: `ties_under_two_scales`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import Fences
from annotated_examples.common import mx
from annotated_examples.mx import microscaling as lesson
from tests.kernels import harness
from tests.kernels.harness import DTYPES, Mutant, randn
from tests.kernels.test_quantize import exact_sr

DEVICE = harness.DEVICE
FP4, E8M0 = lesson.FP4, lesson.E8M0
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
INF, NAN = float("inf"), float("nan")
EVERY = [(dtype, scaling) for dtype in lesson.FORMATS for scaling in lesson.SCALINGS]


def same(one, other):
    """Bit for bit, but that any NaN of eight bits is as good as another."""
    if one.dtype in (E4M3, E5M2):
        equal = (one.view(torch.uint8) == other.view(torch.uint8)) | (one.float().isnan() & other.float().isnan())
        return one.shape == other.shape and one.dtype == other.dtype and bool(equal.all())
    if one.element_size() == 1:
        one, other = one.view(torch.uint8), other.view(torch.uint8)
    return torch.equal(one, other)


def assert_equal(module, x, dtype, scaling="rceil", GROUP=8, **tiles):
    q, scale = module.quantize_mx_forward(x, dtype, scaling, GROUP=GROUP, **dict(BLOCK_M=4, BLOCK_K=16) | tiles)
    wanted, byte = lesson.quantize_mx_reference(x, dtype, scaling=scaling, GROUP=GROUP)
    assert torch.equal(scale, byte.view(torch.uint8)), (dtype, scaling)
    assert same(q.view(dtype), wanted), (dtype, scaling)


def assert_equal_nvfp4(module, x, per_tensor=None, GROUP=8, **tiles):
    options = dict(BLOCK_M=4, BLOCK_K=16, num_programs=2) | tiles
    found = module.quantize_nvfp4_forward(x, per_tensor, GROUP=GROUP, **options)
    wanted = lesson.quantize_nvfp4_reference(x, per_tensor_scale=per_tensor, GROUP=GROUP)
    assert torch.equal(found[2].nan_to_num(-1), wanted[2].nan_to_num(-1))
    assert same(found[1], wanted[1]) and same(found[0].view(FP4), wanted[0])


def every_way(module, x):
    for dtype, scaling in EVERY:
        assert_equal(module, x, dtype, scaling)
    assert_equal_nvfp4(module, x)
    assert_equal_nvfp4(module, x, torch.tensor(0.01, device=DEVICE))


# ---------------------------------------------------------------- checks, which mutants have to fail


def tails(module):
    """Rows and groups that end before a tile does."""
    for shape in ((13, 24), (5, 40)):
        every_way(module, randn(*shape))


def zeros_and_extremes(module):
    """Groups of zeros, of the smallest and of the largest numbers there are: byte 0 up to the largest that occurs."""
    x = randn(12, 24)
    x[3], x[:, 8:16], x[4] = 0, 0, -0.0
    for row, size in ((5, 1e-45), (6, 1e-38), (7, 1e30), (8, 3.4e38), (9, 2.0**-126), (10, 2.0**127)):
        x[row, 16:] = size
    every_way(module, x)
    every_way(module, torch.zeros(5, 8, device=DEVICE))
    q, byte = module.quantize_mx_forward(x[4:5], FP4, "rceil", GROUP=8)
    assert q[0, 8:].tolist() == [0x88] * 4 and byte[0].tolist() == [0, 0, 0], "negative zeros keep their sign"
    lowest, highest = torch.full((1, 8), 1e-45, device=DEVICE), torch.full((1, 8), 3.4028234663852886e38, device=DEVICE)
    for dtype, most in ((FP4, 253), (E4M3, 247), (E5M2, 240)):
        assert module.quantize_mx_forward(lowest, dtype, "rceil", GROUP=8)[1].item() == 0
        assert module.quantize_mx_forward(highest, dtype, "rceil", GROUP=8)[1].item() == most


def not_a_number_stays_in_its_group(module):
    for bad in (-NAN, INF):
        x = randn(5, 24)
        x[2, 9] = bad
        every_way(module, x)
        for dtype, scaling in EVERY:
            q, byte = module.quantize_mx_forward(x, dtype, scaling, GROUP=8)
            assert byte[2, 1] == 255 and int((byte == 255).sum()) == 1
            if dtype == FP4:
                assert not q[2, 4:8].any()
            else:
                assert bool(q[2, 8:16].float().isnan().all()) and int(q.float().isnan().sum()) == 8
        q, block, _ = module.quantize_nvfp4_forward(x, torch.tensor(0.01, device=DEVICE), GROUP=8)
        assert not q[2, 4:8].any() and bool(block[2, 1].float().isnan()) and int(block.float().isnan().sum()) == 1
        _, block, per_tensor = module.quantize_nvfp4_forward(x, GROUP=8)
        assert bool(per_tensor.isnan()) and bool(block.float().isnan().all())


def beside(*numbers):
    """Numbers, and what lies one bit to each side of them."""
    x = torch.tensor(numbers, dtype=torch.float32, device=DEVICE)
    return torch.cat([torch.nextafter(x, x * side) for side in (0, 1, INF)])


def edges_of_scales(module):
    """Largest magnitudes at each border between two exponents, and one bit to each side: a logarithm would be off, and
    so would be what is rounded to bfloat16 on the way."""
    mantissas = torch.tensor([1.0, 1.25, 1.5, 1.625, 1.75, 1.875, 1.9375, 1.96875])
    exponents = torch.tensor([-126, -125, -120, -60, -9, -1, 0, 1, 2, 8, 9, 60, 126, 127])
    group = torch.tensor([1, 0.5, -0.25, 0.1, 0, -1, 0.75, 0.3], device=DEVICE)
    borders = [beside(*torch.ldexp(mantissas, exponent).tolist())[:, None] * group for exponent in exponents]
    for x in borders:
        assert_equal_nvfp4(module, x)
    for dtype, scaling in EVERY:
        assert_equal(module, torch.cat(borders), dtype, scaling, BLOCK_M=64)


def all_numbers_near_codes(module):
    """Each code, each border between two, what lies one bit to each side; under a scale that the group's first sets."""
    for dtype in lesson.FORMATS:
        if dtype == FP4:
            codes = torch.tensor(lesson.E2M1)
        else:
            codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
            codes = codes[codes.isfinite() & (codes >= 0)]
        numbers = beside(*codes.tolist(), *((codes[1:] + codes[:-1]) / 2).tolist())
        largest = float(codes.max())
        numbers = numbers[numbers <= largest]
        numbers = torch.cat([numbers, -numbers, numbers.new_zeros(-2 * len(numbers) % 7)]).view(-1, 7)
        x = torch.cat([torch.full_like(numbers[:, :1], largest), numbers], 1)
        for power in (-60.0, 0.0, 60.0):
            for scaling in lesson.SCALINGS:
                assert_equal(module, x * 2.0**power, dtype, scaling, BLOCK_M=64)
    q = module.quantize_mx_forward(
        torch.tensor([[6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]], device=DEVICE), FP4, "rceil", GROUP=8
    )[0]
    assert lesson.fp4_reference(q).tolist() == [[6, 0, 1, 1, 2, 2, 4, 4]]


def ties_under_two_scales(module):
    """NVFP4's order of operations is part of the definition: times a reciprocal, not divided."""
    for step in range(40):
        x = randn(3, 16) * 1.07**step
        x[:, 0] = 6 * x[:, 0].abs().clamp(min=0.1)
        ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=DEVICE)
        x[:, 1:8] = x[:, :1] / 6 * ties
        assert_equal_nvfp4(module, x)


def layouts_of_codes(module):
    """Strides of codes and of their scales count."""
    x = randn(24, 24) * 3.0 ** torch.arange(24, device=DEVICE)
    q, scale = module.quantize_mx_forward(x.t(), FP4, "rceil", GROUP=8)
    assert q.is_contiguous() and scale.is_contiguous()
    wanted = lesson.dequantize_mx_reference(q, scale, torch.float32, GROUP=8)
    for one, other in (
        (harness.strided(q), harness.strided(scale)),
        (q.t().contiguous().t(), scale.t().contiguous().t()),
    ):
        assert torch.equal(module.dequantize_forward(one, other, None, torch.float32, GROUP=8), wanted)


def nothing_behind_the_end(module):
    """130 rows in tiles of 16: nothing is written behind the last scale or code; bytes of 255 behind are not read."""
    for shape in ((130, 40), (6, 8)):
        for dtype in lesson.FORMATS:
            with Fences() as fences:
                q, scale = module.quantize_mx_forward(harness.nan_fenced(randn(*shape)), dtype, "rceil", GROUP=8)
                q4, block, _ = module.quantize_nvfp4_forward(harness.nan_fenced(randn(*shape)), GROUP=8)
                around = torch.full((shape[0] + 2, shape[1] // 8 + 3), 255, dtype=torch.uint8, device=DEVICE)
                around[1:-1, 1:-2] = scale
                out = module.dequantize_forward(q, around[1:-1, 1:-2], None, torch.float32, GROUP=8)
                module.dequantize_forward(q4, block, torch.ones((), device=DEVICE), torch.float32, GROUP=8)
            assert not fences.broken() and not (scale == 255).any() and bool(out.isfinite().all())


def each_code_under_each_scale(module):
    """All sixteen codes, all 256 of eight bits, under bytes 0, 1, 127, 253, 254 and 255, in all dtypes."""
    pairs = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(16, 16)
    scale = torch.tensor([0, 1, 22, 104, 127, 128, 150, 252, 253, 254, 255, 126, 130, 64, 190, 255], device=DEVICE)
    scale = scale.to(torch.uint8)[:, None].expand(16, 2)
    for codes, width in ((pairs.view(FP4), 2), (pairs.view(E4M3), 1), (pairs.view(E5M2), 1)):
        for dtype in DTYPES:
            byte = scale[:, : 16 * width // 16].contiguous()
            found = module.dequantize_forward(codes, byte, None, dtype, GROUP=16)
            wanted = lesson.dequantize_mx_reference(codes, byte, dtype, GROUP=16)
            assert torch.equal(found.nan_to_num(-7), wanted.nan_to_num(-7)) and found.dtype == dtype
            assert torch.equal(torch.signbit(found[:10]), torch.signbit(wanted[:10])) or codes.dtype != FP4
    power = 2.0 ** (scale[:, :1].cpu().double() - 127)  # on a GPU a power of two is not always exact
    exact = lesson.fp4_reference(pairs).double() * power.to(DEVICE)
    bf16 = module.dequantize_forward(pairs, scale, None, torch.bfloat16, GROUP=16).double()
    inside = (scale[:, 0] >= 1) & (scale[:, 0] <= 252)
    assert torch.equal(bf16[inside], exact[inside]), "a code times a power of two is exact in bfloat16"
    blocks = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(E4M3).view(16, 16)
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE).repeat(8).view(16, 128)
    for per_tensor in (1.0, 0.0123, 2.0**-117, 1e30):
        per_tensor = torch.tensor(per_tensor, device=DEVICE)
        found = module.dequantize_forward(codes, blocks, per_tensor, torch.float32, GROUP=16)
        wanted = lesson.dequantize_nvfp4_reference(codes, blocks, per_tensor, GROUP=16)
        assert torch.equal(found.nan_to_num(-7), wanted.nan_to_num(-7))


def two_scales_at_their_ends(module):
    """A tensor scale that is too small clips; groups far below the largest have subnormal scales, then none."""
    x = randn(6, 24)
    for size in (1e-45, 1e-38, 1e-34, 1e-30, 1.0, 1e30, 3.4e38 / 8):
        assert_equal_nvfp4(module, x * size)
    x = torch.tensor([[2688.0] * 8 + [1.0] * 8 + [1e-2] * 8 + [-1e-3] * 8 + [0.0] * 8], device=DEVICE)
    q, block, per_tensor = module.quantize_nvfp4_forward(x, GROUP=8)
    assert float(per_tensor) == 1 and block.float().tolist() == [[448, 0.171875, 2.0**-9, 0, 0]]
    assert_equal_nvfp4(module, x)
    assert not q[0, 12:].any(), "no sign where the scale is 0"
    for given in (2.0**-117, 1e-3, 3e38):
        assert_equal_nvfp4(module, x, torch.tensor(given, device=DEVICE))
    assert module.quantize_nvfp4_forward(x, torch.tensor(0.5, device=DEVICE), GROUP=8)[1].float()[0, 0] == 448


def stochastic(module):
    """By the Philox word of each element's index; what is a code never moves."""
    x = torch.cat(
        [
            (randn(4, 24) * 2).clamp(-6, 6),
            torch.full((1, 24), 0.2, device=DEVICE),
            torch.full((1, 24), 5.9, device=DEVICE),
        ]
    )
    x[:, ::8] = 6.0
    for tiles in (dict(BLOCK_M=2, BLOCK_K=8), dict(BLOCK_M=16, BLOCK_K=32)):
        q, byte = module.quantize_mx_forward(x, FP4, "rceil", 2**40 + 3, GROUP=8, **tiles)
        assert bool((byte == 127).all())
        assert torch.equal(lesson.fp4_reference(q).cpu(), exact_sr(x.cpu(), 2**40 + 3, 1, 0, 6.0))
    other = module.quantize_mx_forward(x, FP4, "rceil", 5, GROUP=8)[0]
    assert not torch.equal(q, other)
    codes = torch.tensor([*lesson.E2M1, *lesson.E2M1], device=DEVICE).view(1, 16)
    assert torch.equal(lesson.fp4_reference(module.quantize_mx_forward(codes, FP4, "rceil", 5, GROUP=16)[0]), codes)
    x = randn(5, 24)
    x[:, ::8] = 448.0
    q = module.quantize_mx_forward(x, E4M3, "rceil", 7, GROUP=8)[0]
    assert not same(q, module.quantize_mx_forward(x, E4M3, "rceil", 8, GROUP=8)[0])
    q = module.quantize_nvfp4_forward(x, seed=7, GROUP=8)[0]
    assert same(q, module.quantize_nvfp4_forward(x, seed=7, GROUP=8, BLOCK_M=4, BLOCK_K=8)[0])
    assert not same(q, module.quantize_nvfp4_forward(x, seed=8, GROUP=8)[0])


CHECKS = [
    tails,
    zeros_and_extremes,
    not_a_number_stays_in_its_group,
    edges_of_scales,
    all_numbers_near_codes,
    ties_under_two_scales,
    layouts_of_codes,
    nothing_behind_the_end,
    each_code_under_each_scale,
    two_scales_at_their_ends,
    stochastic,
]
test_check = harness.check_test(lesson, CHECKS)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (tails, Mutant("scales of every tile in one place", "offs_g = tile_k.to(tl.int64) * (BLOCK_K // GROUP)", "offs_g = 0 * (BLOCK_K // GROUP)", count=2)),
    (not_a_number_stays_in_its_group, Mutant("codes under NaN", 'tl.where(byte == 255, float("nan"), ((254', "tl.where(byte == 255, 1.0, ((254")),
    (not_a_number_stays_in_its_group, Mutant("infinity is 448", 'tl.where(bits >= 0x7F800000, float("nan"), exact)', "exact")),
    (two_scales_at_their_ends, Mutant("zero divides", "tl.where((decoded == 0)[:, :, None], 0.0, groups * inverse[:, :, None])", "groups * inverse[:, :, None]")),
    (two_scales_at_their_ends, Mutant("the smallest tensor scale", "6.018531076210112e-36", "1.1754943508222875e-38")),
    (zeros_and_extremes, Mutant("a tensor of zeros", "scale = tl.where(bits == 0, 1.0, scale)", "scale = scale")),
    (layouts_of_codes, Mutant("stride of a scale", "offs_g[None, :] * stride_sk", "offs_g[None, :]")),
    (layouts_of_codes, Mutant("stride of a code", "offs_q[None, :] * stride_qk", "offs_q[None, :]")),
    (stochastic, Mutant("random bits of the tile", "index = offs_m[:, None] * K + offs_k[None, :]", "index = tl.arange(0, BLOCK_M)[:, None] * K + offs_k[None, :]")),
]  # fmt: skip
HELPERS = [
    (edges_of_scales, Mutant("rounded up at the largest mantissa", "& 0x7FFFFF) > LARGEST", "& 0x7FFFFF) >= LARGEST")),
    (edges_of_scales, Mutant("even without rounding", "bits + (1 << (22 - MANTISSA))", "bits")),
    (edges_of_scales, Mutant("even with a bit too many", "1 << (22 - MANTISSA)", "1 << (23 - MANTISSA)")),
    (zeros_and_extremes, Mutant("an exponent below zero", "tl.minimum(tl.maximum(byte, 0), 254)", "tl.minimum(byte, 254) & 255")),
    (each_code_under_each_scale, Mutant("byte 0 is zero", "tl.maximum(byte.to(tl.int32) << 23, 0x00400000)", "byte.to(tl.int32) << 23")),
    (each_code_under_each_scale, Mutant("byte 255 is infinite", 'tl.where(byte == 255, float("nan"),', "tl.where(byte == 999, 0.0,")),
    (not_a_number_stays_in_its_group, Mutant("a code for NaN", "tl.where(v != v, 0, code | sign)", "code | sign")),
    (zeros_and_extremes, Mutant("negative zero", "tl.where(v != v, 0, code | sign)", "tl.where((v != v) | (v == 0), 0, code | sign)")),
    (edges_of_scales, Mutant("nothing saturates", "+ (bits & 7), 7)", "+ (bits & 7), 15)")),
]  # fmt: skip
test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(mx, HELPERS, within=lesson)


# ---------------------------------------------------------------- formats, shapes, errors


def test_what_each_rule_loses():
    """On normal numbers: relative RMS as the guide has it, and how many groups saturate under "floor"."""
    torch.manual_seed(0)
    x = torch.randn(2000, 320, device=DEVICE)
    lost = {}
    for dtype, scaling in EVERY:
        decoded = lesson.dequantize_mx_reference(
            *lesson.quantize_mx_reference(x, dtype, scaling=scaling), torch.float32
        )
        lost[dtype, scaling] = float((decoded - x).norm() / x.norm())
    decoded = lesson.dequantize_nvfp4_reference(*lesson.quantize_nvfp4_reference(x))
    lost["nvfp4"] = float((decoded - x).norm() / x.norm())
    wanted = {
        (E4M3, "rceil"): 0.0265, (E4M3, "floor"): 0.0293, (FP4, "floor"): 0.1150, (FP4, "rceil"): 0.1154,
        (FP4, "even"): 0.1119, "nvfp4": 0.095,
    }  # fmt: skip
    assert {name: lost[name] for name in wanted} == pytest.approx(wanted, rel=0.01)
    for dtype, largest, share in ((E4M3, 448, 0.169), (FP4, 6, 0.296)):
        byte = lesson.quantize_mx_reference(x, dtype, scaling="floor")[1].view(torch.uint8).int()
        landed = x.view(2000, 10, 32).abs().amax(-1) / 2.0 ** (byte - 127)
        assert float((landed > largest).float().mean()) == pytest.approx(share, abs=0.02)
        assert float(landed.max()) <= (512 if dtype == E4M3 else 8)


def test_pytorchs_cast_to_an_exponent_rounds_to_nearest():
    """Why no scale here is made by it."""
    assert torch.tensor([1.5]).to(E8M0).float().item() == 2.0


@pytest.mark.parametrize("shape", [(32,), (2, 3, 64), (0, 32), (5, 0), (1, 96)], ids=str)
def test_shapes(shape):
    x = randn(*shape)
    for dtype in lesson.FORMATS:
        q, scale = lesson.quantize_mx(x, dtype)
        width = shape[-1] // 2 if dtype == FP4 else shape[-1]
        assert q.shape == (*shape[:-1], width) and q.dtype == dtype
        assert scale.shape == (*shape[:-1], shape[-1] // 32) and scale.dtype == E8M0
        assert lesson.dequantize_mx(q, scale).shape == x.shape
        if x.numel():
            wanted = lesson.quantize_mx_reference(x, dtype)
            assert same(q, wanted[0]) and same(scale, wanted[1])
    q, block, per_tensor = lesson.quantize_nvfp4(x)
    assert block.shape == (*shape[:-1], shape[-1] // 16) and per_tensor.shape == ()
    assert lesson.dequantize_nvfp4(q, block, per_tensor).shape == x.shape


def test_bytes_are_taken_for_codes_and_scales():
    x = randn(3, 64)
    q, scale = lesson.quantize_mx(x, FP4)
    wanted = lesson.dequantize_mx(q, scale)
    assert wanted.dtype == torch.bfloat16
    assert torch.equal(lesson.dequantize_mx(q.view(torch.uint8), scale.view(torch.uint8)), wanted)
    q, block, per_tensor = lesson.quantize_nvfp4(x)
    wanted = lesson.dequantize_nvfp4(q, block, per_tensor)
    assert torch.equal(lesson.dequantize_nvfp4(q.view(torch.uint8), block, per_tensor), wanted)


FINE = dict(x=torch.ones(4, 32, device=DEVICE))


test_bad_arguments = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "x", dict(x=[1.0])),
        (TypeError, "x", dict(x=torch.ones(4, 32, dtype=torch.float64, device=DEVICE))),
        (ValueError, "x", dict(x=torch.ones((), device=DEVICE))),
        (ValueError, "x", dict(x=torch.ones(4, 40, device=DEVICE))),
        (ValueError, "x", dict(x=torch.ones(4, 32, device="meta"))),
        (ValueError, "elem_dtype", dict(elem_dtype=torch.float8_e4m3fnuz)),
        (ValueError, "elem_dtype", dict(elem_dtype=torch.uint8)),
        (ValueError, "scaling", dict(scaling="ceil")),
        (TypeError, "seed", dict(seed=1.0)),
        (ValueError, "seed", dict(seed=-1)),
    ],
    FINE,
    lesson.quantize_mx,
)


test_bad_arguments_of_nvfp4 = harness.refused_test(
    "error, name, change",
    [
        (ValueError, "x", dict(x=torch.ones(4, 24, device=DEVICE))),
        (TypeError, "per_tensor_scale", dict(per_tensor_scale=1.0)),
        (TypeError, "per_tensor_scale", dict(per_tensor_scale=torch.ones((), dtype=torch.float16, device=DEVICE))),
        (ValueError, "per_tensor_scale", dict(per_tensor_scale=torch.ones(1, device=DEVICE))),
        *[
            pytest.param(
                ValueError, "per_tensor_scale", dict(per_tensor_scale=torch.tensor(value, device=DEVICE)),
                marks=pytest.mark.skipif(not device.INTERPRET, reason="on a GPU values aren't looked at"),
            )
            for value in (0.0, -1.0, INF, NAN, 1e-37)
        ],
    ],
    FINE,
    lesson.quantize_nvfp4,
)  # fmt: skip


CODES = dict(
    q=torch.zeros(4, 16, dtype=torch.uint8, device=DEVICE), scale=torch.zeros(4, 1, dtype=torch.uint8, device=DEVICE)
)


test_bad_codes = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "q", dict(q=torch.zeros(4, 16, device=DEVICE))),
        (TypeError, "scale", dict(scale=torch.zeros(4, 1, device=DEVICE))),
        (ValueError, "scale", dict(scale=torch.zeros(4, 2, dtype=torch.uint8, device=DEVICE))),
        (ValueError, "q", dict(q=torch.zeros(4, 17, dtype=torch.uint8, device=DEVICE))),
        (ValueError, "dtype", dict(dtype=torch.float64)),
    ],
    CODES,
    lesson.dequantize_mx,
)


test_bad_codes_of_nvfp4 = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "q", dict(q=torch.zeros(4, 16, device=DEVICE).to(E4M3))),
        (TypeError, "block_scale", dict(block_scale=torch.zeros(4, 2, dtype=torch.uint8, device=DEVICE))),
        (ValueError, "block_scale", dict(block_scale=torch.zeros(4, 1, device=DEVICE).to(E4M3))),
        (ValueError, "per_tensor_scale", dict(per_tensor_scale=torch.ones(1, device=DEVICE))),
    ],
    dict(q=CODES["q"], block_scale=torch.zeros(4, 2).to(E4M3), per_tensor_scale=torch.ones(())),
    lesson.dequantize_nvfp4,
)
