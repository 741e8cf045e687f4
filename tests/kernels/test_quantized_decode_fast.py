"""The kernels of fast.quantized_decode, which bfloat16 and caches in units of 16 bits are for: every code, formats, pages,
strides, steps that aren't finite, and what is left to the lesson."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from annotated_examples.attention import quantized_decode as lesson
from annotated_examples.fast import quantized_decode as fast
from tests.kernels import harness
from tests.kernels import test_quantized_decode as of_lesson
from tests.kernels.harness import DEVICE, Mutant
from tests.kernels.test_quantized_decode import E4M3, alternating, channels_of, in_rows, inputs, right, whole

FORMATS = [torch.uint8, torch.int8]


def bf16(*formats, **changes):
    """Rows of a whole number of 16-bit units."""
    return inputs(*formats, **dict(dtype=torch.bfloat16, D=8) | changes)


def small(module):
    """In tiles of 16 keys."""

    def call(
        q, k_cache, v_cache, k_scale, v_scale, lengths, *, granularity="token", block_table=None, signs=None,
        recent=None, scale=None, num_splits=3,
    ):  # fmt: skip
        options = granularity, block_table, signs, recent
        caches = k_cache, v_cache, k_scale, v_scale, lengths
        scale = module.contract(q, *caches, *options, scale, num_splits)
        return module.quantized_forward(q, *caches, *options, scale, num_splits, BLOCK_N=16)

    return call


def formats(module):
    """All pairs; pages with as many slots as there are heads, and whole rows; a scale that turns the order round."""
    for k in FORMATS:
        for v in FORMATS:
            given = bf16(k, v, H=9, Hk=3, lengths=(20, 0, 33))
            right(small(module), given, num_splits=2, scale=-0.3)
            right(small(module), in_rows(given))


def every_code(module):
    """Each byte in each place of a unit, in a key and a value beside another."""
    for kind in FORMATS:
        given = bf16(kind, kind, B=64, H=1, Hk=1, D=16, lengths=(2,) * 64, page_size=2)
        units = torch.arange(given["k_cache"].shape[-1], device=DEVICE) // 2
        at = torch.arange(64, device=DEVICE)[:, None] + 64 * units
        for name in ("k_cache", "v_cache"):
            given[name].view(torch.uint8)[given["block_table"][:, 0].long(), 0, 0] = (at % 256).to(torch.uint8)
        right(small(module), given, num_splits=1, scale=0.1)


def strides(module):
    """Keys and values side by side in one pool; steps, lengths and table with gaps."""
    given = bf16(torch.int8, torch.uint8, page_size=5)
    k, v = given["k_cache"], given["v_cache"]
    pool = torch.cat([k.view(torch.uint8), v], -1)
    split = dict(k_cache=pool[..., : k.shape[-1]].view(torch.int8), v_cache=pool[..., k.shape[-1] :])
    gaps = {name: torch.stack([given[name]] * 2, -1)[..., 0] for name in ("q", "k_scale", "v_scale", "block_table")}
    right(small(module), given | split | gaps | dict(lengths=of_lesson.odd_integers(given["lengths"])))


def not_finite(module):
    """A NaN or an infinity among the steps or lowest values makes its own sequence and head NaN, wherever it stands."""
    given = bf16(torch.uint8, torch.uint8, B=2, lengths=(12, 12))
    for name in ("k_scale", "v_scale"):
        for column in (0, 1):
            for value in (math.nan, math.inf, -math.inf):
                scale = given[name].clone()
                scale[given["block_table"][1, 1].long(), 0, 1, column] = value
                o = of_lesson.unchecked(small(module), given | {name: scale})
                assert o[0].isfinite().all() and o[1, :2].isfinite().all() and o[1, 2:].isnan().all()


def beside_the_cache(module):
    given = bf16(torch.uint8, torch.int8, B=2, lengths=(12, 12))
    table = given["block_table"].clone()
    for length in (13, -1):
        inside, outside = of_lesson.unchecked(small(module), given | dict(lengths=whole(12, length)))
        assert inside.isfinite().all() and outside.isnan().all()
    for page in (len(given["k_cache"]), -1):
        table[1, 2] = page
        inside, outside = of_lesson.unchecked(small(module), given | dict(block_table=table))
        assert inside.isfinite().all() and outside.isnan().all()


def rotated(module):
    given = bf16(torch.int8, torch.uint8, D=64)
    right(small(module), given, signs=torch.stack([alternating(64), 7 + alternating(64)], -1)[:, 0], scale=0.2)


CHECKS = [formats, every_code, strides, not_finite, beside_the_cache, rotated]

MUTANTS = [
    (not_finite, Mutant("a step that isn't finite weighs nothing", "tl.fma(k_offset, 0.0, tl.fma(v_offset, 0.0, v_step))", "v_step")),
    (beside_the_cache, Mutant("a page of NaN is zero", 's = tl.where(inside[:, None], s, float("nan"))', "s = s + 0.0")),
    (beside_the_cache, Mutant("a length that isn't there", 'lse = tl.where(possible, lse, float("nan"))', "lse = lse + 0.0")),
    (every_code, Mutant("the places of a unit in another order", "(units << 8) if i >= 2 else units", "(units << 8) if i < 2 else units")),
    (strides, Mutant("strides of the first head", "step = tl.load(at, mask", "step = tl.load(at - tl.cast(hk, tl.int64) * stride_h, mask")),
    (rotated, Mutant("signs with gaps", "signs = signs.contiguous()", "signs = signs[:]")),
]  # fmt: skip


@pytest.fixture
def only_fast(monkeypatch):
    """Fails if a call is left to the lesson's kernels."""
    monkeypatch.setattr(fast.lesson, "quantized_forward", None)


test_check_passes = harness.check_test(fast, CHECKS)
test_mutant_is_caught = harness.mutant_test(fast, MUTANTS)


@pytest.mark.parametrize("kind", FORMATS, ids=str)
@pytest.mark.parametrize(("H", "Hk", "D"), [(1, 1, 4), (70, 1, 8), (5, 1, 40), (8, 2, 128), (2, 1, 256)])
def test_widths(H, Hk, D, kind, only_fast):
    """With the tiles and the number of parts that a user gets."""
    given = bf16(kind, kind, B=2, H=H, Hk=Hk, D=D, page_size=16, lengths=(300, 77))
    right(fast.decode_quantized, given)


LEFT = dict(
    e4m3=lambda: (bf16(torch.int8, E4M3), {}),
    channels=lambda: (channels_of(bf16(), 3), dict(granularity="channel")),
    float16=lambda: (inputs(dtype=torch.float16), {}),
    half_a_unit=lambda: (bf16(D=6), {}),
    odd_address=lambda: (
        {n: torch.cat([x[..., :1], x, x[..., :1]], -1)[..., 1:-1] if "cache" in n else x for n, x in bf16().items()},
        {},
    ),
    gaps=lambda: ({n: torch.stack([x, x], -1)[..., 0] if "cache" in n else x for n, x in bf16().items()}, {}),
)


@pytest.mark.parametrize("what", LEFT)
def test_left_to_the_lesson(what):
    given, options = LEFT[what]()
    options |= dict(num_splits=2)
    assert torch.equal(fast.decode_quantized(**given, **options), lesson.decode_quantized(**given, **options))


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [None, 16, 100])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_lengths_of_a_real_call(kind, D, page_size, only_fast):
    given = bf16(kind, kind, H=32, Hk=8, D=D, page_size=page_size or 50, lengths=(3000, 0, 1777))
    right(fast.decode_quantized, given if page_size else in_rows(given))
    right(fast.decode_quantized, given, signs=alternating(D), num_splits=3)
