"""low_bit_matmul, of the split-K lesson and the fast one; the fast one's five kernels, its choice by shape, mutants."""

import inspect
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotated_examples.fast import low_bit as fast
from annotated_examples.fast.low_bit import descriptors, many_rows, planes
from annotated_examples.gemlite import gemm as plain
from annotated_examples.gemlite import gemm_splitK as lesson
from tests.kernels import harness
from tests.kernels.harness import LAYOUTS, Mutant
from tests.kernels.test_gemm import (
    BF16,
    FP16,
    FP32,
    assert_right,
    assert_right_together,
    configurations,
    problem,
    rules,
)

module = harness.modules(lesson, fast)

#: The file in which each stands.
MUTANTS = {
    planes: [
        Mutant(
            "SPLIT_K that doesn't divide the blocks",
            "last = (pid_k + 1) * blocks // SPLIT_K",
            "last = first + blocks // SPLIT_K",
        ),
        Mutant(
            "-1 read as 15: the mask too wide",
            "(((1 << W_NBITS) - 1) * 0x00010001)",
            "(((2 << W_NBITS) - 1) * 0x00010001)",
        ),
        Mutant(
            "even blocks assumed",
            "EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0, SPLIT_K",
            "EVEN=True, SPLIT_K",
        ),
        Mutant("last part forgotten", "mask=(parts[:, None] < PARTS)", "mask=(parts[:, None] < PARTS - 1)"),
    ],
    descriptors: [
        Mutant(
            "last blocks dropped",
            "(pid_k + 1) * blocks // split_k, num_stages",
            "(pid_k + 1) * (blocks // split_k), num_stages",
        ),
        Mutant("numbers further up counted as if at the bottom", "* (1.0 / (1 << LIFT))", "* 1.0"),
    ],
    many_rows: [
        Mutant(
            "dequantized rows in the order of words",
            "word_rows.to(tl.int64) * PER_WORD + j",
            "word_rows.to(tl.int64) + j * K_WORDS",
        ),
        Mutant(
            "A ordered as it lies",
            "(BLOCK_M, BLOCK_K // PLANES, PLANES)), (0, 2, 1))",
            "(BLOCK_M, PLANES, BLOCK_K // PLANES)), (0, 1, 2))",
        ),
        Mutant(
            "sums of A of another block",
            "a_sums_ptr + chunk * stride_sums",
            "a_sums_ptr + (chunk - first) * stride_sums",
        ),
        Mutant(
            "zero points of one block for a whole chunk",
            "groups = (chunk // GROUP_BLOCKS)",
            "groups = (chunk * 0 + start // GROUP_BLOCKS)",
        ),
        Mutant("a chunk that runs into the next part", "tl.minimum(start + CHUNK, last)", "start + CHUNK"),
    ],
    fast: [
        Mutant(
            "library rounds before the scale",
            "channel_scale_mode == 0 and out_dtype in (None, a.dtype) else",
            "True else",
        ),
        Mutant("scales described that have one row for all groups", "scales.shape[0] * group_size == K and ", ""),
        Mutant("rows that are no multiple of 16 bytes described", "return aligned and", "return True and"),
    ],
}


def check(module):
    """Everything a mutant has to get past."""
    torch.manual_seed(0)
    run = module.low_bit_matmul
    # Planes: blocks inside one group, then rows with groups of their own.
    assert_right(run, *problem(4, 3, M=3, N=19, K=384, group_size=128), out_dtype=FP32)
    assert_right(run, *problem(4, 3, M=3, N=19, K=120, group_size=24))
    # With descriptors: N that fills no tile, blocks that no number of parts divides, as A lies and in plane order.
    for M in (1, 18):
        assert_right(run, *problem(4, 3, M=M, N=24, K=11 * 128, group_size=128), out_dtype=FP32)
    assert_right(run, *problem(4, 3, M=3, N=20, K=256, group_size=128, dtype=BF16))
    # More than one chunk of blocks to a part; one row of metadata for all groups.
    assert_right(run, *problem(4, 3, M=18, N=8, K=70 * 64, group_size=64), out_dtype=FP32)
    (a, words, scales, zeros), options = problem(4, 3, M=18, N=24, K=256, group_size=128)
    assert_right(run, (a, words, scales[:1], zeros[:1]), options)
    # Rows that begin off 16 bytes.
    wide = torch.cat([a[:, :1], a], dim=1)
    assert_right(run, (wide[:, 1:], words, scales, zeros), options)
    for M, mode, channel in ((5, 1, 3), (70, 3, 0), (70, 0, 3)):
        assert_right(run, *problem(4, mode, M=M, K=192, group_size=64, channel=channel))
    assert not module.describable(wide[:, 1:]), "rows that are not aligned to 16 bytes"


# ---------------------------------------------------------------- both


def test_the_package_has_the_names_of_the_lesson():
    """Who makes a weight with them needs no other module."""
    assert fast.pack is plain.pack and fast.quantize is plain.quantize
    assert fast.low_bit_matmul.__module__ == "annotated_examples.fast.low_bit"


def test_same_arguments():
    names = lambda function: list(inspect.signature(function).parameters)  # noqa: E731
    hints = ["tile_order", "A_load_order", "meta_evict_policy", "data_contiguous"]
    assert names(fast.low_bit_matmul) == [name for name in names(plain.gemm) if name not in hints]


@pytest.mark.parametrize(("W_nbits", "mode"), list(itertools.product(plain.W_NBITS, range(5))))
def test_bits_and_group_modes(W_nbits, mode):
    """More rows than test_random_configurations draws."""
    dtype = BF16 if (W_nbits + mode) % 2 else FP16
    assert_right(fast.low_bit_matmul, *problem(W_nbits, mode, M=65, N=11, dtype=dtype))


@pytest.mark.parametrize("M", [1, 65])
def test_number_as_zero_and_one_row_of_metadata(M, module):
    (a, words, scales, _), options = problem(4, 3, M=M)
    assert_right(module.low_bit_matmul, (a, words, scales, 7.25), options)
    assert_right(module.low_bit_matmul, *problem(4, 4, M=M, per_column=True))


def test_unused_metadata_is_ignored(module):
    (a, words, _, _), options = problem(4, 0)
    expected = module.low_bit_matmul(a, words, None, None, **options)
    nan = torch.full((7, 7), float("nan"))
    assert torch.equal(module.low_bit_matmul(a, words, nan, "nothing", **options), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 16, 40, 200])
def test_large_shapes(M, module):
    assert_right(module.low_bit_matmul, *problem(4, 3, M=M, N=1000, K=4096, group_size=128))


HINTS = dict.fromkeys(("tile_order", "A_load_order", "meta_evict_policy"), (TypeError, "unexpected keyword"))
test_rules_of_the_format, test_rules_of_the_fast_version = (
    rules(lesson.low_bit_matmul),
    rules(fast.low_bit_matmul, **HINTS),
)


# ---------------------------------------------------------------- the fast one


def test_check_passes():
    check(fast)


@pytest.mark.parametrize("mutant", harness.mutant_parameters([each for found in MUTANTS.values() for each in found]))
def test_mutant_is_caught(mutant, tmp_path):
    """Of the file itself, or of a part of the package: then the function is imported once more, upon that part."""
    file = next(file for file, mutants in MUTANTS.items() if mutant in mutants)
    whole = lambda broken: broken if file is fast else harness.upon(file, broken, fast, tmp_path)  # noqa: E731
    harness.assert_caught(file, mutant, lambda broken: check(whole(broken)), tmp_path)


@pytest.mark.parametrize(("M", "dtype"), [(1, FP16), (18, BF16)], ids=str)
@pytest.mark.parametrize(("W_nbits", "mode"), list(itertools.product((8, 4, 2, 1), range(5))))
def test_descriptors(W_nbits, mode, dtype, M):
    """Two groups of the fewest words, a tile of columns that is not full."""
    group_size = (16 if mode == 3 else 8) * 32 // W_nbits
    arguments = problem(W_nbits, mode, M=M, N=24, K=2 * group_size, group_size=group_size, dtype=dtype)
    assert_right(fast.low_bit_matmul, *arguments)


@pytest.mark.parametrize("M", [1, 18])
@pytest.mark.parametrize("channel", range(4))
def test_descriptors_and_channel_scales(channel, M):
    arguments = problem(4, 1, M=M, N=24, K=256, group_size=128, channel=channel)
    assert_right(fast.low_bit_matmul, *arguments, out_dtype=FP32)


@pytest.mark.parametrize("M", [1, 18])
def test_descriptors_and_metadata(M):
    """A number as zero, one row of metadata, metadata in float32 with strides, A of any strides."""
    keywords = dict(M=M, N=24, K=256, group_size=128)
    (a, words, scales, zeros), options = problem(4, 3, **keywords)
    assert_right(fast.low_bit_matmul, (a, words, scales, 7.25), options)
    assert_right(fast.low_bit_matmul, *problem(4, 4, per_column=True, **keywords))
    strided = [x.float().t().contiguous().t() for x in (scales, zeros)]
    assert_right(fast.low_bit_matmul, (a, words, *strided), options)
    for layout in LAYOUTS.values():
        assert_right(fast.low_bit_matmul, (layout(a), words, scales, zeros), options)


@pytest.mark.parametrize("M", [65, 100])
def test_more_than_one_tile_of_rows(M):
    assert_right(fast.low_bit_matmul, *problem(4, 3, M=M, N=136, K=256, group_size=64))


@pytest.mark.parametrize("W_nbits", [8, 4, 2, 1, 16])
@pytest.mark.parametrize("dtype", [FP16, BF16], ids=harness.dtype_name)
def test_blocks_inside_one_group(W_nbits, dtype):
    """Zeros are no whole numbers: taken off in sixteen bits they would be rounded."""
    K = 1024 if W_nbits == 1 else 512
    arguments = problem(W_nbits, 3, M=3, N=7, K=K, group_size=K // 2, dtype=dtype, metadata=FP32)
    assert_right(fast.low_bit_matmul, *arguments)


@pytest.mark.parametrize("split_k", [1, 2, 3, 7, 50])
def test_any_number_of_parts(split_k):
    """50 parts for three blocks: most programs have nothing to add."""
    (a, words, scales, zeros), options = problem(4, 3, M=18, N=24, K=384, group_size=128)
    exact = plain.gemm_reference(a, words, scales, zeros, **options, dtype=torch.float64)
    for run in (planes.planes_forward, descriptors.descriptor_forward, many_rows.plane_order_forward):
        c = run(a, words, scales, zeros, **options, out_dtype=FP32, split_k=split_k)
        torch.testing.assert_close(c.double(), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("M", [1, 18, 70])
@pytest.mark.parametrize("N", [20, 21, 22, 23])
def test_columns_of_wider_words(M, N):
    """Rows of the words stay aligned, but those of a result with 21 columns are not."""
    (a, words, scales, zeros), options = problem(4, 3, M=M, N=24, K=128, group_size=64)
    arguments = (a, words[:, :N], scales[:, :N].contiguous(), zeros[:, :N].contiguous())
    assert_right(fast.low_bit_matmul, arguments, options)


# The forms are tests of their own, because compiling takes its time.
@pytest.mark.parametrize("form", ["few rows", "plane order"])
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations(), st.booleans())
def test_random_configurations(form, configuration, flag):
    keywords, out_dtype = configuration
    torch.manual_seed(keywords["M"] * 100 + keywords["N"])
    columns = keywords["N"]
    if form == "plane order":  # more rows, and sizes that a descriptor can describe
        bits = min(keywords["W_nbits"], 8)
        groups, group_size = keywords["K"] // keywords["group_size"], (8 + 8 * flag) * 32 // bits
        sizes = dict(M=keywords["M"] + 16, N=-(-columns // 8) * 8, K=groups * group_size)
        keywords = keywords | sizes | dict(W_nbits=bits, group_size=group_size)

    def draw():
        (a, *others), options = problem(**keywords)
        if form == "plane order" and flag:  # columns of wider tensors: any N, and rows that stay aligned
            others = [x[:, :columns] for x in others]
        return (a, *others), options

    assert_right_together(fast.low_bit_matmul, draw, out_dtype=out_dtype)


@pytest.mark.parametrize(
    ("M", "N", "group_size", "expected"),
    [
        (1, 20, 128, "descriptor_forward"),
        (17, 24, 64, "plane_order_forward"),
        (256, 24, 64, "plane_order_forward"),
        (64, 20, 64, "descriptor_forward"),  # rows of scales that are no multiple of 16 bytes
        (1, 21, 128, "planes_forward"),  # rows of words that are no multiple of 16 bytes
        (64, 20, 32, "planes_forward"),  # a group of four words
        (65, 20, 128, "dequantized_forward"),
        (257, 24, 64, "dequantized_forward"),
    ],
)
def test_which_kernel(M, N, group_size, expected):
    (a, words, scales, _), _ = problem(4, 3, M=M, N=N, K=128, group_size=group_size)
    assert fast.kernel_for(a, words, scales, 4, group_size, 3, 0, FP16) is getattr(fast, expected)
    if expected in ("descriptor_forward", "plane_order_forward"):
        without = fast.kernel_for(a, words, scales, 4, group_size, 3, 0, FP16, tma=False)
        assert without is (fast.planes_forward if M <= 64 else fast.dequantized_forward)


def test_which_kernel_for_other_formats():
    (a, words, scales, _), _ = problem(8, 3, M=5, N=24, K=128, group_size=64)
    assert fast.kernel_for(a, words, scales, 8, 64, 3, 0, FP16) is fast.descriptor_forward
    assert (
        fast.kernel_for(a.bfloat16(), words, scales, 8, 64, 3, 0, BF16) is fast.planes_forward
    )  # seven bits for the integer
    (a, words, scales, _), _ = problem(4, 3, M=300, N=24, K=128, group_size=64)
    assert (
        fast.kernel_for(a, words, scales, 4, 64, 3, 2, FP16) is fast.gemm_forward
    )  # the library would round before the scale
    assert fast.kernel_for(a, words, scales, 4, 64, 3, 0, FP32) is fast.gemm_forward
