"""append_, quantize_key_pages_: codes bit for bit, steps, slots, strides, bad rows, rotation, channels, errors, mutants.

The traps of quantized caches in use that writing can fall into, and the check or mutant ("…") that holds each. (Those
of reading are in test_quantized_decode.py.)

1. Scales addressed by shapes, not strides, or of another width: `odd_strides`.
2. Scales that are filled after the first write: codes and scales are compared after every one of `several_calls`.
3. Padding among the lowest and highest numbers: `positive_rows`, "padding is the highest".
4. A zero point clamped to 0 … 15: `rows_far_from_zero`.
5. Another bit width, or halves of a byte exchanged: the formulas.
6. Ties: the formulas.
7. A NaN that min and max lose: `bad_rows`; "a NaN is lost".
8. int32 offsets: `far_apart_pages`; "slots times a stride in 32 bits".
9. Slots of −1, which fill a CUDA graph up, and slots outside: `slots_beside_the_cache`.
10. Another head's place: the formulas.
11. A page of one token is exact, and no saving: `test_a_page_of_one_token_is_exact`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import far_apart
from annotated_examples.attention import quantized_cache as module
from annotated_examples.common import codes as shared
from annotated_examples.fp8.quantize import quantize_fp8
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.test_decode import unchecked

E4M3 = torch.float8_e4m3fn
FORMATS = [torch.int8, E4M3, torch.uint8]
names = {"ids": lambda dtype: str(dtype).removeprefix("torch.")}


def new_cache(dtype, pages=8, page_size=7, heads=3, D=40):
    """Codes and scales that nobody has written: 85, and NaN."""
    four = dtype == torch.uint8
    codes = torch.full((pages, page_size, heads, D // (1 + four)), 85, dtype=torch.uint8, device=DEVICE).view(dtype)
    return codes, torch.full((pages, page_size, heads, 1 + four), math.nan, device=DEVICE)


def hostile_rows(tokens=21, heads=3, D=40, dtype=torch.float32):
    """Rows of zeros, of equal numbers, tiny and large ones, with an outlier, on one side of 0."""
    x = randn(tokens, heads, D)
    x[0], x[1], x[2, 0, 1] = 0, 1.5, 300
    x[3:6] += 3
    x[6:9] -= 4
    x[9] *= 1e-3
    if dtype == torch.float32:
        x[10], x[11] = x[10] * 1e-42, x[11] * 1e30
    x[12] = torch.arange(heads * D).view(heads, D).to(DEVICE) % 31 / 2  # ties: halves of whole steps
    return x.to(dtype)


def bits(x):
    return x.contiguous().view(torch.uint8)


def same_bits(actual, expected):
    __tracebackhide__ = True
    assert torch.equal(bits(actual), bits(expected))


def slots_of(tokens, room):
    """Some slots in any order, and −1 for two tokens."""
    slots = torch.randperm(room)[:tokens]
    slots[tokens // 3 : tokens // 3 + 2] = -1
    return slots.to(DEVICE)


def compared(module, cache, scale, x, slots, signs=None, write=None, reference=None):
    """What is written is what the reference writes, bit for bit, and the rest is as it was."""
    __tracebackhide__ = True
    write, reference = write or module.append_, reference or module.append_reference
    expected, expected_scale = cache.clone(), scale.clone()
    options = {} if signs is None else dict(signs=signs)
    with harness.unchanged(x=x, slots=slots):
        write(cache, scale, x, slots, **options)
    reference(expected, expected_scale, x, slots, **options)
    same_bits(cache, expected)
    torch.testing.assert_close(scale, expected_scale, rtol=0, atol=0, equal_nan=True)


def several_calls(module):
    """Of a few tokens each, as decoding makes them; heads and tokens that fill no tile."""
    for dtype in FORMATS:
        cache, scale = new_cache(dtype)
        x, slots = hostile_rows(), slots_of(21, 56)
        for start in range(0, 21, 8):
            part = slice(start, start + 8)
            compared(module, cache, scale, x[part], slots[part].to(torch.int32 if start else torch.int64))


def positive_rows(module):
    """Rows of 40 numbers in a block of 64, on either side of 0."""
    for shift in (3.0, -3.0):
        compared(module, *new_cache(torch.uint8), randn(9, 3, 40) + shift, slots_of(9, 56))


def rows_far_from_zero(module):
    """10 ± 0.1 is wrong by half a step of 0.2 / 15, and not by 95 %."""
    x = 10 + randn(9, 3, 40).clamp(-1, 1) / 10
    cache, scale = new_cache(torch.uint8)
    module.append_(cache, scale, x, torch.arange(9, device=DEVICE))
    found = shared.decoded(cache, scale, "token", torch.float32).flatten(0, 1)[:9]
    assert (found - x).abs().max() <= 0.51 * 0.2 / 15


def bad_rows(module):
    """A NaN or an infinity makes its own token and head NaN, and no other one. So does a range that overflows."""
    for dtype in FORMATS:
        x = randn(6, 2, 16)
        x[1, 0, 3], x[2, 1, 4], x[3, 0, 2] = math.nan, math.inf, -math.inf
        x[4, 1, :2] = torch.tensor([3e38, -3e38])
        cache, scale = new_cache(dtype, 2, 3, 2, 16)
        compared(module, cache, scale, x, torch.arange(6, device=DEVICE))
        bad = shared.decoded(cache, scale, "token", torch.float32).flatten(0, 1).isnan()
        expected = torch.zeros(6, 2, dtype=torch.bool)
        expected[1, 0] = expected[2, 1] = expected[3, 0] = True
        expected[4, 1] = dtype == torch.uint8
        assert torch.equal(bad.all(-1).cpu(), expected) and torch.equal(bad.any(-1).cpu(), expected)


def odd_strides(module):
    """Views into a larger pool, with gaps everywhere; keys and scales side by side, and pages in another order."""
    for dtype in FORMATS:
        four, x = dtype == torch.uint8, torch.stack([hostile_rows(), randn(21, 3, 40)], -1)[..., 0]
        pool = torch.full((3, 16, 7, 85), 85, dtype=torch.uint8, device=DEVICE).view(dtype)
        cache = pool.permute(1, 2, 0, 3)[::2, :, :, 3 : 3 + 40 // (1 + four)]
        scale = torch.full((8, 3, 5, 7), math.nan, device=DEVICE)[..., 2 : 3 + four, :].permute(0, 3, 1, 2)
        slots = torch.stack([slots_of(21, 56), torch.full((21,), 9, device=DEVICE)], -1)[:, 0]
        before = bits(pool).clone()
        compared(module, cache, scale, x, slots)
        bits(cache)[:] = 85
        outside = torch.ones(pool.shape, dtype=torch.bool, device=DEVICE)
        outside.permute(1, 2, 0, 3)[::2, :, :, 3 : 3 + 40 // (1 + four)] = False
        assert torch.equal(bits(pool)[outside], before[outside])


def slots_beside_the_cache(module):
    """On a card nobody looks at slots before the launch."""
    for dtype in FORMATS:
        cache, scale = new_cache(dtype, 2, 3, 2, 16)
        whole, whole_scale = torch.cat([cache] * 3), torch.cat([scale] * 3)
        cache, scale, before = whole[2:4], whole_scale[2:4], bits(whole).clone()
        slots = torch.tensor([6, -2, 10**9, -1], device=DEVICE)
        unchecked(
            lambda **given: module.append_(**given), dict(cache=cache, scale=scale, x=randn(4, 2, 16), slots=slots)
        )
        assert torch.equal(bits(whole), before) and whole_scale.isnan().all()


def far_apart_pages(module):
    """Page 2 lies 2³¹ bytes behind page 0."""
    if not device.INTERPRET:
        return
    x, slots = randn(4, 2, 16), torch.tensor([6, 0, 8, 4], device=DEVICE)
    for dtype in FORMATS:
        cache, scale = new_cache(dtype, 3, 3, 2, 16)
        far, far_scale = far_apart(bits(cache)).view(dtype), far_apart(scale)
        module.append_(cache, scale, x, slots)
        module.append_(far, far_scale, x, slots)
        same_bits(far, cache)
        assert torch.equal(far_scale.nan_to_num(7), scale.nan_to_num(7))


def alternating(D):
    return 1.0 - torch.arange(D, device=DEVICE) % 3 // 2 * 2


def rotated_rows(module):
    """Decoded and turned back, a row is within half a step of what it was (of a code's distance, for floats)."""
    for dtype in FORMATS:
        for D in (64, 8, 2):
            x, signs = hostile_rows(D=D), alternating(D)
            x = torch.cat([x[:10], x[12:]])
            cache, scale = new_cache(dtype, D=D)
            slots = slots_of(len(x), 56)
            module.append_(cache, scale, x, slots, signs=signs)
            kept, exact = slots >= 0, x.double() @ shared.rotation(signs, torch.float64)
            found = shared.decoded(cache, scale, "token", torch.float64).flatten(0, 1)[slots[kept]]
            step, exact = scale.flatten(0, 1)[slots[kept]][..., :1].double(), exact[kept]
            allowed = 0.51 * step if dtype != E4M3 else 0.0626 * exact.abs() + 0.002 * step
            assert ((found - exact).abs() <= allowed + 1e-5 * exact.abs().amax(-1, keepdim=True)).all()
            back = module.dequantize_cache(cache, scale, signs=signs, dtype=torch.float64).flatten(0, 1)[slots[kept]]
            torch.testing.assert_close(back, found @ shared.rotation(signs, torch.float64).T)


def pages_by_channel(module):
    """Pages in any order, one of them not stored; 40 channels are less than a tile, 72 more than one."""
    for page_size, D in ((7, 40), (16, 72), (1, 2)):
        x = randn(4, page_size, 3, D) * (1 + 20 * (torch.arange(D, device=DEVICE) % 8 == 3)) + 2
        x[1, :, 2, 1] = 5
        if page_size > 1:
            x[2, 1, 0, 0], x[0, 0, 1, 1] = math.nan, math.inf
        cache = new_cache(torch.uint8, 6, page_size, 3, D)[0]
        scale = torch.full((6, 3, D, 2), math.nan, device=DEVICE)
        pages = torch.tensor([5, 0, -1, 3], device=DEVICE)
        given = module, cache, scale, torch.stack([x, x + 1], -1)[..., 0], pages
        compared(*given, write=module.quantize_key_pages_, reference=module.quantize_key_pages_reference)


def pages_beside_the_cache(module):
    cache, scale = new_cache(torch.uint8, 2, 3, 2, 16)[0], torch.full((2, 2, 16, 2), math.nan, device=DEVICE)
    whole, whole_scale = torch.cat([cache] * 3), torch.cat([scale] * 3)
    given = dict(cache=whole[2:4], scale=whole_scale[2:4], x=randn(4, 3, 2, 16))
    pages = torch.tensor([2, -2, 10**9, -1], device=DEVICE)
    unchecked(lambda **given: module.quantize_key_pages_(**given), given | dict(pages=pages))
    assert (whole == 85).all() and whole_scale.isnan().all()


CHECKS = [
    several_calls, positive_rows, rows_far_from_zero, bad_rows, odd_strides, slots_beside_the_cache, far_apart_pages,
    rotated_rows, pages_by_channel, pages_beside_the_cache,
]  # fmt: skip

MUTANTS = [
    (positive_rows, Mutant("padding is the highest", 'tl.max(tl.where(mask, x, -float("inf"))', "tl.max(tl.where(mask, x, x)")),
    (bad_rows, Mutant("a NaN is lost", 'tl.where(bits < 0x7F800000, highest - lowest, float("nan"))', "highest - lowest")),
    (bad_rows, Mutant("a NaN is lost, eight bits", "largest = tl.max(magnitude_bits(x), axis=1, keep_dims=True).to(tl.float32, bitcast=True)", "largest = tl.max(tl.abs(x), axis=1, keep_dims=True)")),
    (bad_rows, Mutant("codes of bad rows", "tl.where(y == y, y, 0.0)", "y")),
    (slots_beside_the_cache, Mutant("slots behind the cache are stored", "(slot >= 0) & (slot < tl.cast(num_pages, tl.int64) * page_size)", "(slot >= 0) & (slot < tl.cast(num_pages, tl.int64) * page_size + 1)")),
    (far_apart_pages, Mutant("slots times a stride in 32 bits", "page * stride_p + slot * stride_s", "(page.to(tl.int32) * tl.cast(stride_p, tl.int32)).to(tl.int64) + slot * stride_s", interpreted=True)),
    (pages_beside_the_cache, Mutant("pages behind the pool are stored", "live = (page >= 0) & (page < num_pages)", "live = (page >= 0) & (page < num_pages + 1)")),
    (pages_beside_the_cache, Mutant("pages before the pool are stored", "live = (page >= 0) & (page < num_pages)", "live = page < num_pages")),
]  # fmt: skip

SHARED = [
    (bad_rows, Mutant("a code of NaN", "return tl.where(x == x, whole, 0.0)", "return tl.where(x == x, whole, 1.0)")),
    (several_calls, Mutant("tiny steps", "1.1754943508222875e-38", "0.0")),
    (bad_rows, Mutant("an infinite step", 'tl.where(span < float("inf"), step, float("nan"))', "step + 0.0")),
    (rotated_rows, Mutant("parity of four bits", "common ^= common >> 4", "common ^= common >> 5")),
    (rotated_rows, Mutant("signs of the first columns", "tl.load(signs_ptr + offs_k, mask=offs_k < D, other=0.0)", "tl.load(signs_ptr + offs_k % 32 % D, mask=offs_k < D, other=0.0)")),
    (rotated_rows, Mutant("rows grow", "acc *= D**-0.5", "acc *= 1.0")),
]  # fmt: skip

test_check_passes = harness.check_test(module, CHECKS)
test_mutant_is_caught = harness.mutant_test(module, MUTANTS)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(shared, SHARED, within=module)


@pytest.mark.parametrize("dtype", FORMATS, **names)
@pytest.mark.parametrize("x_dtype", harness.DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("heads", "D"), [(1, 2), (1, 64), (8, 128), (2, 256)])
def test_widths(heads, D, x_dtype, dtype):
    """One head and 64 numbers, too."""
    x = hostile_rows(13, heads, D, x_dtype)
    compared(module, *new_cache(dtype, 4, 16, heads, D), x, slots_of(13, 64))


def test_floats_have_the_codes_of_quantize():
    x, (cache, scale) = randn(9, 3, 40), new_cache(E4M3)
    module.append_(cache, scale, x, torch.arange(9, device=DEVICE))
    codes, expected = quantize_fp8(x, "row")
    same_bits(cache.flatten(0, 1)[:9], codes)
    assert torch.equal(scale.flatten(0, 1)[:9], expected)


def test_a_page_of_one_token_is_exact():
    """A channel's range is 0 then: codes say nothing, and eight bytes hold what were two."""
    x = randn(2, 1, 2, 16)
    cache, scale = new_cache(torch.uint8, 2, 1, 2, 16)[0], torch.zeros(2, 2, 16, 2, device=DEVICE)
    module.quantize_key_pages_(cache, scale, x, torch.arange(2, device=DEVICE))
    assert not cache.any() and torch.equal(module.dequantize_cache(cache, scale, granularity="channel"), x)
    assert scale.element_size() * scale.numel() == 4 * x.half().numel() * 2


@pytest.mark.parametrize("dtype", FORMATS, **names)
def test_decoded_in_every_dtype(dtype):
    x, (cache, scale) = randn(56, 3, 40), new_cache(dtype)
    module.append_(cache, scale, x, torch.arange(56, device=DEVICE))
    exact = module.dequantize_cache(cache, scale, dtype=torch.float64)
    for wanted in harness.DTYPES:
        found = module.dequantize_cache(cache, scale, dtype=wanted)
        torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(wanted).eps, atol=1e-6)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 3), (2, 0)])
def test_nothing_to_do(tokens, pages):
    cache, scale = new_cache(torch.int8, pages, 3, 2, 16)
    module.append_(cache, scale, randn(tokens, 2, 16), torch.full((tokens,), -1, device=DEVICE))
    assert (bits(cache) == 85).all() and scale.isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FORMATS, **names)
def test_a_real_call(dtype):
    """With more than 2³¹ bytes, and the slots of a CUDA graph that is filled up."""
    pages = 9000 if dtype != torch.uint8 else 18000
    cache, scale = new_cache(dtype, pages, 256, 8, 128)
    slots = torch.randperm(pages * 256, device=DEVICE)[:4096]
    slots[::7] = -1
    slots[1] = pages * 256 - 1
    x = randn(4096, 8, 128, dtype=torch.bfloat16)
    module.append_(cache, scale, x, slots)
    kept = slots >= 0
    codes, steps = module.quantized_reference(x[kept], dtype)
    same_bits(cache.flatten(0, 1)[slots[kept]], module.packed_reference(codes))
    assert torch.equal(scale.flatten(0, 1)[slots[kept]], steps.squeeze(-2))


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "x must be a torch.Tensor, got list", dict(x=[1.0])),
        (ValueError, "x must have 3 dimensions (tokens, Hk, D)", dict(x=torch.ones(2, 3))),
        (TypeError, "x must be one of float32, float16, bfloat16", dict(x=torch.ones(2, 3, 16).double())),
        (ValueError, "x must have the heads of cache, 3, got shape (2, 2, 16)", dict(x=torch.ones(2, 2, 16))),
        (ValueError, "cache must have 4 dimensions (num_pages, page_size, Hk, D)", dict(cache=torch.ones(2, 3, 16).char())),
        (ValueError, "cache must have shape (4, 5, 3, 16) (the width of a head)", dict(cache=torch.ones(4, 5, 3, 8).char())),
        (TypeError, "cache must be one of int8, float8_e4m3fn, uint8, got float32", dict(cache=torch.ones(4, 5, 3, 16))),
        (ValueError, "scale must have shape (4, 5, 3, 1) (a step a row)", dict(scale=torch.ones(4, 5, 3, 2))),
        (ValueError, "scale must have shape (4, 5, 3, 2) (a step and a lowest value a row)", dict(cache=torch.ones(4, 5, 3, 8).byte())),
        (TypeError, "scale must be one of float32, got float16", dict(scale=torch.ones(4, 5, 3, 1).half())),
        (ValueError, "slots must have shape (2,) (one for each of x)", dict(slots=torch.ones(3).int())),
        (TypeError, "slots must be one of int32, int64, got float32", dict(slots=torch.ones(2))),
        (ValueError, "slots must be in [-1, 20), got [0, 20]", dict(slots=torch.tensor([0, 20]))),
        (ValueError, "slots must be in [-1, 20), got [-2, 0]", dict(slots=torch.tensor([-2, 0]))),
        (ValueError, "signs must have shape (16,) (one for each column)", dict(signs=torch.ones(8))),
        (ValueError, "signs must be 1 or -1", dict(signs=torch.zeros(16))),
        (ValueError, "x requires a gradient, but append_ has no backward pass", dict(x=torch.ones(2, 3, 16).requires_grad_())),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(
        cache=torch.ones(4, 5, 3, 16).char(),
        scale=torch.ones(4, 5, 3, 1),
        x=torch.ones(2, 3, 16),
        slots=torch.arange(2),
    )
    harness.assert_refused(error, message, module.append_, **given | change)


@pytest.mark.parametrize(
    ("message", "cache", "scale", "D"),
    [
        ("cache has two numbers a byte (uint8), so D must be even, got 3", torch.ones(4, 5, 3, 1).byte(), torch.ones(4, 5, 3, 2), 3),
        ("cache must have heads of 1 to 256 numbers, got 257", torch.ones(4, 5, 3, 257).char(), torch.ones(4, 5, 3, 1), 257),
        ("signs need a width that is a power of two, got 40", torch.ones(4, 5, 3, 40).char(), torch.ones(4, 5, 3, 1), 40),
    ],
    ids=["odd", "wide", "signs"],
)  # fmt: skip
def test_errors_of_widths(message, cache, scale, D):
    given = dict(cache=cache, scale=scale, x=torch.ones(2, 3, D), slots=torch.arange(2))
    harness.assert_refused(ValueError, message, module.append_, **given, signs=torch.ones(D))


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "cache must be one of uint8, got int8", dict(cache=torch.ones(4, 5, 3, 8).char())),
        (ValueError, "scale must have shape (4, 3, 16, 2) (pages, heads, columns, a step and a lowest value)", dict(scale=torch.ones(4, 5, 3, 2))),
        (ValueError, "x must have the page size of cache, 5, from 1 to 256, got shape (2, 4, 3, 16)", dict(x=torch.ones(2, 4, 3, 16))),
        (ValueError, "pages must be in [-1, 4), got [0, 4]", dict(pages=torch.tensor([0, 4]))),
    ],
    ids=["format", "scale", "page", "pages"],
)  # fmt: skip
def test_errors_of_pages(error, message, change):
    given = dict(
        cache=torch.ones(4, 5, 3, 8).byte(),
        scale=torch.ones(4, 3, 16, 2),
        x=torch.ones(2, 5, 3, 16),
        pages=torch.arange(2),
    )
    harness.assert_refused(error, message, module.quantize_key_pages_, **given | change)


def test_errors_of_decoding():
    given = dict(codes=torch.ones(4, 5, 3, 8).char(), scale=torch.ones(4, 5, 3, 1))
    message = "granularity must be one of 'token', 'channel', got 'row'"
    harness.assert_refused(ValueError, message, module.dequantize_cache, **given, granularity="row")
    message = "codes must be one of uint8, got int8"
    harness.assert_refused(TypeError, message, module.dequantize_cache, **given, granularity="channel")
