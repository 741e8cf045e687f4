"""The kernels of fast.decode, which 16-bit numbers are for: options, pages, parts, and what is left to the lesson."""

import functools

import pytest
import torch

from annotated_examples.attention import decode as lesson
from annotated_examples.fast import decode as fast
from tests.kernels import harness
from tests.kernels.harness import Mutant
from tests.kernels.test_decode import assert_right, caches, check, paged, with_tiles

check16 = functools.partial(check, dtype=torch.float16)
SIXTEEN_BITS = [torch.float16, torch.bfloat16]

MUTANTS = [
    Mutant("a page outside of the pool is zero", 's = tl.where(inside[None, :], s, float("nan"))', "s = s + 0.0"),
    Mutant("a length past the capacity", 'lse = tl.where(possible, lse, float("nan"))', "lse = lse + 0.0"),
    Mutant("strides of v taken from k", "*v_cache.stride()", "*k_cache.stride()"),
    Mutant("stride of the lengths ignored", "b.to(tl.int64) * stride_l", "b.to(tl.int64)"),
    Mutant("heads of another group", "queries_of_group(q_tensor, b, hk * group)", "queries_of_group(q_tensor, b, hk)"),
    Mutant("strides of the sinks ignored", "None if sinks is None else sinks.contiguous()", "sinks"),
]  # fmt: skip


@pytest.fixture
def only_fast(monkeypatch):
    """Fails if a call is left to the lesson's kernels."""
    monkeypatch.setattr(fast.lesson, "decode_forward", None)


def test_check_passes():
    check16(fast)


test_mutant_is_caught = harness.mutant_test(fast, MUTANTS, check16)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=harness.dtype_name)
@pytest.mark.parametrize("D", [1, 80, 256])
def test_head_dimensions(D, dtype, only_fast):
    """With the tiles and the number of splits that a user gets."""
    assert_right(fast.decode_attention, caches(B=2, S=300, H=2, Hk=1, D=D, lengths=[300, 77], dtype=dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("options", [dict(), dict(window=500, softcap=5.0), dict(sinks=True)], ids=str)
@pytest.mark.parametrize("page_size", [None, 16, 100])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_all_combinations(D, page_size, options, only_fast):
    options = dict(options)
    inputs = caches(
        B=3, S=3000, H=8, Hk=2, D=D, lengths=[3000, 0, 1777], dtype=torch.bfloat16, sinks=options.pop("sinks", False)
    )
    assert_right(fast.decode_attention, inputs if page_size is None else paged(inputs, page_size), **options)


@pytest.mark.parametrize("num_splits", [1, 50])
def test_numbers_of_splits(num_splits, only_fast):
    inputs = caches(B=4, S=70, lengths=[70, 1, 0, 33], sinks=True, dtype=torch.bfloat16)
    assert_right(with_tiles(fast), inputs, num_splits=num_splits)


@pytest.mark.parametrize("H, Hk", [(1, 1), (6, 2), (150, 2)])
def test_groups(H, Hk, only_fast):
    """Groups of one, of a number that is no power of two, and of more heads than a tile has rows."""
    assert_right(with_tiles(fast), caches(B=2, H=H, Hk=Hk, lengths=[37, 12], sinks=True, dtype=torch.float16))


@pytest.mark.parametrize("options", [dict(scale=-30.0), dict(scale=0.0), dict(num_splits=300)], ids=str)
def test_left_to_the_lesson(options):
    assert_right(fast.decode_attention, caches(dtype=torch.float16), **options)


def test_float32_gives_the_lessons_bits():
    inputs = caches(lengths=[37, 12])
    assert torch.equal(fast.decode_attention(**inputs, num_splits=3), lesson.decode_attention(**inputs, num_splits=3))


@pytest.mark.parametrize(
    "programs, capacity, expected",
    [(8, 32768, 32), (128, 8192, 2), (512, 4096, 2), (3, 300, 2), (256, 9000, 1), (0, 0, 1)],
)
def test_default_number_of_splits(programs, capacity, expected):
    """All parts at once, or so many rounds that the last one matters little."""
    assert fast.default_splits(programs, capacity) == expected
