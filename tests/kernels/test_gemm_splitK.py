"""gemlite/gemm_splitK: parts of the sum, planes, the form with descriptors, the choice by shape, mutants."""

import inspect
import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from academy import device
from annotated_examples.gemlite import gemm as plain
from annotated_examples.gemlite import gemm_splitK as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, LAYOUTS, Mutant
from tests.kernels.test_gemm import (
    BF16,
    FP16,
    FP32,
    assert_right,
    assert_right_together,
    assert_rule,
    configurations,
    on_device,
    problem,
)

SMALL = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_KW=16)
PARTS = "last = (pid_k + 1) * blocks // SPLIT_K"

MUTANTS = [
    Mutant(
        "garbage in C survives",
        'make = torch.empty if atomic_mode == "none" else torch.zeros',
        "make = torch.empty",
    ),
    Mutant("SPLIT_K that doesn't divide the blocks", PARTS, "last = first + blocks // SPLIT_K"),
    Mutant("a part is one block short", PARTS, "last = (pid_k + 1) * blocks // SPLIT_K - 1"),
    Mutant(
        "fp16 atomics round each part",
        "tl.atomic_add(c_ptr + c_offsets, tl.trans(acc),",
        "tl.atomic_add(c_ptr + c_offsets, tl.trans(acc.to(tl.float16).to(tl.float32)),",
    ),
    Mutant("parts stored over each other", "c_ptr + pid_k.to(tl.int64) * M * N + c_offsets", "c_ptr + c_offsets"),
    Mutant(
        "stored, not added",
        "tl.atomic_add(c_ptr + c_offsets, tl.trans(acc), mask=c_mask, sem=ATOMIC)",
        "tl.store(c_ptr + c_offsets, tl.trans(acc), mask=c_mask)",
    ),
    Mutant("comparing before the kernel ran", "gemm_splitK_kernel[grid](", "(lambda *_, **__: None)("),
    Mutant("planes of A in the wrong order", "if (j >> bit) % 2 == 0:", "if (j >> bit) % 2 == 1:"),
    Mutant("planes of the words in the wrong order", "a, j + PER_WORD // 2, PER_WORD,", "a, j, PER_WORD,"),
    Mutant("even blocks assumed", "EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0", "EVEN=True"),
    Mutant(
        "pointers don't walk",
        "        words_ptrs += BLOCK_KW * stride_wk\n        a_ptrs +=",
        "        a_ptrs +=",
    ),
    Mutant("zeros never used", "sums = sums - zeros * a_sums", "sums = sums"),
    Mutant("scales never used", "        sums = sums * scales\n", "        sums = sums\n"),
    Mutant("mode 4 forgets its zero", "sums = sums + zeros * a_sums", "sums = sums"),
    Mutant(
        "group index of the block",
        "groups = (word_rows // group_words)",
        "groups = (word_rows * 0 + tl.min(word_rows, axis=0) // group_words)",
    ),
    Mutant(
        "group counted in rows, not words",
        "    group_words = group_size // PER_WORD\n",
        "    group_words = group_size\n",
        count=2,
    ),
    Mutant("column scales forgotten", "c *= tl.load(scales_ptr", "c *= 1 + 0 * tl.load(scales_ptr"),
    Mutant("row scales forgotten", "c *= tl.load(scales_a_ptr", "c *= 1 + 0 * tl.load(scales_a_ptr"),
    Mutant("last part forgotten", "mask=(parts[:, None] < PARTS)", "mask=(parts[:, None] < PARTS - 1)"),
    Mutant(
        "dequantized rows in the order of words",
        "offs_k = word_rows.to(tl.int64) * PER_WORD + j",
        "offs_k = word_rows.to(tl.int64) + j * K_WORDS",
    ),
    Mutant("library rounds before the scale", "if channel_scale_mode == 0 and out_dtype == a.dtype:", "if True:"),
    Mutant(
        "-1 read as 15: the mask too wide",
        "(((1 << W_NBITS) - 1) * 0x00010001)",
        "(((2 << W_NBITS) - 1) * 0x00010001)",
    ),
    Mutant("unit of float16 forgotten", "sums * UNIT, a_sums", "sums, a_sums"),
    Mutant(
        "last blocks dropped",
        "(pid_k + 1) * blocks // split_k, num_stages",
        "(pid_k + 1) * (blocks // split_k), num_stages",
    ),
    Mutant(
        "last blocks of arranged rows dropped",
        "last = (pid_k + 1) * blocks // split_k",
        "last = (pid_k + 1) * (blocks // split_k)",
    ),
    Mutant("group of the block before", "group = block // GROUP_BLOCKS", "group = (block - 1) // GROUP_BLOCKS"),
    Mutant(
        "even and odd planes swapped",
        "even, odd = tl.split(tl.reshape(a, (BLOCK_M, HALF",
        "odd, even = tl.split(tl.reshape(a, (BLOCK_M, HALF",
    ),
    Mutant("planes one place off", "tl.dot(even_planes, even) +", "tl.dot(odd_planes, even) +"),
    Mutant("numbers further up counted as if at the bottom", "* (1.0 / (1 << LIFT))", "* 1.0"),
    Mutant("shift of one number, not two", "(FIRST + STEP * tl.arange", "(FIRST + tl.arange"),
    Mutant(
        "mask left at the bottom",
        "(((1 << W_NBITS) - 1) << LIFT) * 0x00010001",
        "((1 << W_NBITS) - 1) * 0x00010001",
    ),
    Mutant("128 of bfloat16 kept", "- BIAS * a_sums", "- 0 * a_sums"),
    Mutant("units of the sums of A", "sums_of_columns(even, odd, 1.0 / UNIT,", "sums_of_columns(even, odd, 1.0,"),
    Mutant("units of the result", "tl.trans(acc * UNIT)", "tl.trans(acc)", count=2),
    Mutant("ones for the even columns only", "tl.dot(ones, odd, tl.dot(ones, even))", "tl.dot(ones, even)"),
    Mutant(
        "A arranged as it lies",
        "(BLOCK_M, BLOCK_K // PLANES, PLANES)), (0, 2, 1))",
        "(BLOCK_M, PLANES, BLOCK_K // PLANES)), (0, 1, 2))",
    ),
    Mutant(
        "sums of A of another block",
        "a_sums_ptr + chunk * stride_sums",
        "a_sums_ptr + (chunk - first) * stride_sums",
    ),
    Mutant("sums of A stored over each other", "a_sums_ptr + block * stride_sums", "a_sums_ptr"),
    Mutant("unit that forgets the lift", "(1 << (24 - LIFT))", "(1 << 24)"),
    Mutant("zero points of the whole sum in the first chunk", "inside = (chunk < last)", "inside = (chunk >= 0)"),
    Mutant("zero points with the wrong sign", "scales * -(zeros + BIAS)", "scales * (zeros + BIAS)"),
    Mutant("128 of bfloat16 kept where there are no zeros", "factor = scales * -BIAS", "factor = scales * 0"),
    Mutant("128 of bfloat16 kept beside a zero that is added", "zeros - scales * BIAS", "zeros"),
    Mutant("units of the zero points", "tl.trans(factor * (1.0 / UNIT))", "tl.trans(factor)"),
    Mutant("scales of the group before", "[block // GROUP_BLOCKS, start_n]", "[block // GROUP_BLOCKS - 1, start_n]"),
    Mutant(
        "zero points of one block for a whole chunk",
        "groups = (chunk // GROUP_BLOCKS)",
        "groups = (chunk * 0 + start // GROUP_BLOCKS)",
    ),
    Mutant(
        "a chunk that runs into the next part",
        "tl.minimum(start + CHUNK, last)",
        "start + CHUNK",
    ),
    Mutant("scales described that have one row for all groups", "scales.shape[0] * group_size == K and ", ""),
    Mutant("rows that are no multiple of 16 bytes described", "return aligned and", "return True and"),
    Mutant("rows of parts taken for describable", " or words.shape[1] % 4:", ":"),
]  # fmt: skip


def splitK(module=lesson, **more):
    return lambda *arguments, **options: module.gemm_splitK(*arguments, **options, **{**SMALL, **more})


def count_calls(monkeypatch, name):
    """A list that gets `name` at each call of the lesson's function of that name."""
    calls, real = [], getattr(lesson, name)
    monkeypatch.setattr(lesson, name, lambda *a, **o: calls.append(name) or real(*a, **o))
    return calls


def check(module):
    """Everything a mutant has to get past."""
    torch.manual_seed(0)
    # Three blocks in two parts: blocks inside one group, then rows with groups of their own.
    assert_right(splitK(module, split_k=2), *problem(4, 3, N=19, K=384, group_size=128), out_dtype=FP32)
    assert_right(splitK(module, split_k=2), *problem(4, 3, N=19, K=384, group_size=24))
    assert_right(splitK(module, split_k=3), *problem(8, 4, K=192, group_size=64))
    # Eight equal parts that cancel in pairs: rounding each to float16 would be most of what is left.
    (a, words, scales, zeros), options = problem(4, 3, M=3, K=512, group_size=128)
    a[:, 256:] = -a[:, :256]
    a[:, 0] += 0.5
    words[32:], scales[2:], zeros[2:] = words[:32].clone(), scales[:2].clone(), zeros[:2].clone()
    exact = plain.gemm_reference(a, words, scales, zeros, **options, dtype=torch.float64)
    c = splitK(module, split_k=4)(a, words, scales, zeros, **options, out_dtype=FP32)
    assert ((c.double() - exact).abs() < 2e-4).all(), "a part was rounded to sixteen bits"
    # With descriptors: N that fills no tile, blocks that no number of parts divides, as A lies and arranged ahead.
    for M in (1, 18):
        assert_right(module.low_bit_matmul, *problem(4, 3, M=M, N=24, K=11 * 128, group_size=128), out_dtype=FP32)
    assert_right(module.low_bit_matmul, *problem(2, 4, M=18, N=24, K=512, group_size=256, dtype=BF16))
    assert_right(module.low_bit_matmul, *problem(1, 2, M=18, N=24, K=1024, group_size=512, dtype=BF16))
    # More than one chunk of blocks to a part; one row of metadata for all groups.
    assert_right(module.low_bit_matmul, *problem(4, 3, M=18, N=8, K=70 * 64, group_size=64), out_dtype=FP32)
    (a, words, scales, zeros), options = problem(4, 3, M=18, N=24, K=256, group_size=128)
    assert_right(module.low_bit_matmul, (a, words, scales[:1], zeros[:1]), options)
    assert_right(module.low_bit_matmul, *problem(2, 4, M=3, N=20, K=512, group_size=256))
    assert_right(module.low_bit_matmul, *problem(8, 1, M=3, N=20, K=256, group_size=128))
    assert_right(module.low_bit_matmul, *problem(4, 3, M=3, N=20, K=256, group_size=128, dtype=BF16))
    # Columns of wider tensors, whose rows are aligned while those of the parts are not, and the other way round.
    (a, words, scales, zeros), options = problem(4, 3, M=3, N=24, K=256, group_size=128)
    assert_right(module.low_bit_matmul, (a, words[:, :21], scales[:, :21], zeros[:, :21]), options)
    wide = torch.cat([a[:, :1], a], dim=1)
    assert_right(module.low_bit_matmul, (wide[:, 1:], words, scales, zeros), options)
    for M, mode, channel in ((1, 1, 3), (5, 1, 3), (70, 3, 0), (70, 0, 3)):
        assert_right(module.low_bit_matmul, *problem(4, mode, M=M, K=384, group_size=128, channel=channel))


def test_check_passes():
    check(lesson)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
def test_mutant_is_caught(mutant, tmp_path):
    harness.assert_caught(lesson, mutant, check, tmp_path)


FORMS = {
    "splitK": (splitK(split_k=2), 3),
    "stored parts": (lesson.low_bit_matmul, 3),
    "dequantized": (lesson.low_bit_matmul, 65),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("W_nbits", "mode"), list(itertools.product(plain.W_NBITS, range(5))))
def test_bits_and_group_modes(W_nbits, mode, form):
    function, M = FORMS[form]
    dtype = BF16 if (W_nbits + mode) % 2 else FP16
    assert_right(function, *problem(W_nbits, mode, M=M, N=11, dtype=dtype, group_size=32))


@pytest.mark.parametrize("M", [1, 9, 18, 35])
@pytest.mark.parametrize("dtype", [FP16, BF16], ids=harness.dtype_name)
@pytest.mark.parametrize(("W_nbits", "mode"), list(itertools.product((8, 4, 2, 1), range(5))))
def test_descriptors(W_nbits, mode, dtype, M, monkeypatch):
    """Two groups of the fewest words, a tile of columns that is not full."""
    called = count_calls(monkeypatch, "arrange" if M > 16 else "descriptor_forward")
    group_size = (16 if mode == 3 else 8) * 32 // W_nbits
    arguments = problem(W_nbits, mode, M=M, N=24, K=2 * group_size, group_size=group_size, dtype=dtype)
    assert_right(lesson.low_bit_matmul, *arguments)
    assert bool(called) == (not (W_nbits == 8 and dtype == BF16))  # bfloat16 has seven bits for the integer


@pytest.mark.parametrize("M", [1, 18])
@pytest.mark.parametrize("channel", range(4))
def test_descriptors_and_channel_scales(channel, M):
    arguments = problem(4, 1, M=M, N=24, K=256, group_size=128, channel=channel)
    assert_right(lesson.low_bit_matmul, *arguments, out_dtype=FP32)


@pytest.mark.parametrize("M", [1, 18])
def test_descriptors_and_metadata(M):
    """A number as zero, one row of metadata, metadata in float32 with strides, A of any strides."""
    keywords = dict(M=M, N=24, K=256, group_size=128)
    (a, words, scales, zeros), options = problem(4, 3, **keywords)
    assert_right(lesson.low_bit_matmul, (a, words, scales, 7.25), options)
    assert_right(lesson.low_bit_matmul, (a, words, scales[:1], zeros[:1]), options)
    assert_right(lesson.low_bit_matmul, *problem(4, 4, per_column=True, **keywords))
    strided = [x.float().t().contiguous().t() for x in (scales, zeros)]
    assert_right(lesson.low_bit_matmul, (a, words, *strided), options)
    for layout in LAYOUTS.values():
        assert_right(lesson.low_bit_matmul, (layout(a), words, scales, zeros), options)


@pytest.mark.parametrize("W_nbits", [8, 4, 2, 1, 16])
@pytest.mark.parametrize("dtype", [FP16, BF16], ids=harness.dtype_name)
@pytest.mark.parametrize("M", [1, 3])
def test_blocks_inside_one_group(W_nbits, dtype, M):
    """Zeros are no whole numbers: taken off in sixteen bits they would be rounded."""
    K = 1024 if W_nbits == 1 else 512
    arguments = problem(W_nbits, 3, M=M, N=7, K=K, group_size=K // 2, dtype=dtype, metadata=FP32)
    assert_right(lesson.low_bit_matmul, *arguments)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("channel", range(4))
@pytest.mark.parametrize("out_dtype", [FP16, FP32], ids=harness.dtype_name)
def test_channel_scales(channel, out_dtype, form):
    function, M = FORMS[form]
    assert_right(function, *problem(4, 1, M=M, channel=channel), out_dtype=out_dtype)


@pytest.mark.parametrize("split_k", [1, 2, 3, 7, 50])
def test_any_number_of_parts(split_k):
    """50 parts for three blocks: most programs have nothing to add."""
    assert_right(splitK(split_k=split_k), *problem(4, 3, M=18, K=384, group_size=64))


@pytest.mark.parametrize("BLOCK_KW", [1, 2, 4, 8])
@pytest.mark.parametrize(("W_nbits", "mode", "group_size"), [(4, 3, 16), (4, 3, 64), (8, 1, 16), (16, 2, 8)])
def test_blocks_thinner_than_a_tensor_core(W_nbits, mode, group_size, BLOCK_KW):
    """Tensor cores take sixteen word rows at a time; compiled, `tl.dot` refuses fewer."""
    dtype = BF16 if BLOCK_KW == 2 else FP16
    arguments = problem(W_nbits, mode, M=18, K=64, group_size=group_size, dtype=dtype)
    assert_right(lambda *a, **o: lesson.gemm_splitK(*a, split_k=2, BLOCK_KW=BLOCK_KW, **o), *arguments)


@pytest.mark.parametrize("M", [1, 5, 37])
@pytest.mark.parametrize("function", [lesson.gemm_splitK, lesson.low_bit_matmul])
@pytest.mark.parametrize(("W_nbits", "group_size"), [(8, 4), (4, 8), (4, 16), (2, 16), (1, 32), (16, 1)])
def test_smallest_groups(W_nbits, group_size, function, M):
    """A group of one word, and no tile asked for."""
    assert_right(function, *problem(W_nbits, 3, M=M, N=19, K=96, group_size=group_size))


def test_garbage_in_C_does_not_survive():
    """`assert_right` fills what `torch.empty` returns with NaN; what `torch.zeros` returns has to be zero."""
    with harness.fenced_allocations():
        assert torch.empty(3).isnan().all()
    arguments, options = problem(4, 3)
    for _ in range(3):
        assert_right(splitK(split_k=4), arguments, options)


@pytest.mark.parametrize("atomic_mode", ["relaxed", "release"])
@pytest.mark.parametrize("tile_order", ["swizzled", "linear"])
def test_atomic_modes_and_tile_orders(atomic_mode, tile_order):
    arguments = problem(4, 3, M=20, N=40)
    assert_right(splitK(split_k=2), *arguments, atomic_mode=atomic_mode, tile_order=tile_order)


@pytest.mark.parametrize("A_load_order", range(4))
@pytest.mark.parametrize("policy", ["", "evict_first", "evict_last"])
def test_load_orders_and_hints(A_load_order, policy):
    options = dict(A_load_order=A_load_order, meta_evict_policy=policy, data_contiguous=A_load_order % 2 == 0)
    assert_right(splitK(split_k=2), *problem(4, 3), **options)


def test_searched_configuration():
    """No split_k: the configuration is searched for (without a GPU: the first), and C is zeroed before each run."""
    assert lesson.gemm_splitK_tuned.reset_to_zero == ["c_ptr"]
    assert_right(lesson.gemm_splitK, *problem(4, 3, M=3, N=40, K=256, group_size=128))


@pytest.mark.parametrize("M", [1, 3, 65])
def test_number_as_zero_and_one_row_of_metadata(M):
    (a, words, scales, _), options = problem(4, 3, M=M)
    assert_right(lesson.low_bit_matmul, (a, words, scales, 7.25), options)
    assert_right(lesson.low_bit_matmul, *problem(4, 4, M=M, per_column=True))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("M", [1, 3, 65])
def test_layouts(layout, M):
    (a, words, scales, zeros), options = problem(4, 3, M=M, N=16)
    wide = torch.randint(-(2**31), 2**31, (words.shape[0], 3 * words.shape[1]), dtype=torch.int32, device=DEVICE)
    wide[:, 1::3] = words
    assert_right(lesson.low_bit_matmul, (layout(a), wide[:, 1::3], layout(scales), layout(zeros)), options)


@pytest.mark.parametrize("M", [1, 18, 70, 300])
@pytest.mark.parametrize("N", [20, 21, 22, 23])
def test_columns_of_wider_words(M, N):
    """Rows of the words stay aligned, but those of a result with 21 columns are not."""
    (a, words, scales, zeros), options = problem(4, 3, M=M, N=24, K=128, group_size=64)
    arguments = (a, words[:, :N], scales[:, :N].contiguous(), zeros[:, :N].contiguous())
    assert_right(lesson.low_bit_matmul, arguments, options)


@pytest.mark.parametrize("function", [lesson.gemm_splitK, lesson.low_bit_matmul])
@pytest.mark.parametrize(("M", "N", "K"), [(0, 5, 32), (3, 0, 32), (3, 5, 0), (1, 5, 0), (65, 5, 0), (0, 0, 0)])
def test_empty(M, N, K, function):
    arguments, options = problem(4, 3, M=M, N=N, K=K)
    c = function(*arguments, **options)
    assert c.shape == (M, N) and (c == 0).all()


# The forms are tests of their own, because compiling takes its time.
@pytest.mark.parametrize("form", ["split-K", "chosen by shape", "one row", "arranged"])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations(), st.sampled_from([1, 2, 5]))
def test_random_configurations(form, configuration, split_k):
    keywords, out_dtype = configuration
    torch.manual_seed(keywords["M"] * 100 + keywords["N"])
    if form == "arranged":  # more rows, and sizes that a descriptor can describe
        bits = min(keywords["W_nbits"], 8)
        groups, group_size = keywords["K"] // keywords["group_size"], (8 + 8 * (split_k > 1)) * 32 // bits
        sizes = dict(M=keywords["M"] + 16, N=-(-keywords["N"] // 8) * 8, K=groups * group_size)
        columns, keywords = keywords["N"], keywords | sizes | dict(W_nbits=bits, group_size=group_size)
    if form == "one row":
        keywords = keywords | dict(M=1)

    def draw():
        (a, *others), options = problem(**keywords)
        if form == "arranged" and split_k == 5:  # columns of wider tensors: any N, and rows that stay aligned
            others = [x[:, :columns] for x in others]
        return (a, *others), options

    function = splitK(split_k=split_k) if form == "split-K" else lesson.low_bit_matmul
    assert_right_together(function, draw, out_dtype=out_dtype)


@pytest.mark.parametrize("M", [1, 3, 65, 257])
def test_low_bit_matmul_is_repeatable(M):
    arguments, options = problem(4, 3, M=M, N=40, K=512, group_size=128)
    assert torch.equal(lesson.low_bit_matmul(*arguments, **options), lesson.low_bit_matmul(*arguments, **options))


@pytest.mark.parametrize(
    ("M", "N", "group_size", "expected"),
    [
        (1, 20, 128, ["descriptor_forward"]),
        (17, 24, 64, ["arrange", "descriptor_forward"]),
        (64, 24, 64, ["arrange", "descriptor_forward"]),
        (64, 20, 64, ["descriptor_forward"]),  # rows of scales that are no multiple of 16 bytes
        (1, 21, 128, ["split_forward"]),  # rows of words that are no multiple of 16 bytes
        (64, 20, 32, ["split_forward"]),  # a group of four words
        (65, 24, 64, ["arrange", "descriptor_forward"]),
        (65, 20, 128, ["dequantize_forward"]),
        (257, 24, 64, ["dequantize_forward"]),
    ],
)
def test_which_kernel(M, N, group_size, expected, monkeypatch):
    names = ("arrange", "descriptor_forward", "split_forward", "dequantize_forward")
    calls = [count_calls(monkeypatch, name) for name in names]
    assert_right(lesson.low_bit_matmul, *problem(4, 3, M=M, N=N, K=128, group_size=group_size))
    assert sum(calls, []) == expected


def test_without_a_tma(monkeypatch):
    called = count_calls(monkeypatch, "split_forward")
    monkeypatch.setattr(lesson, "has_tma", lambda device_index: False)
    assert_right(lesson.low_bit_matmul, *problem(4, 3, M=2, N=20, K=128, group_size=128))
    assert called == ["split_forward"]


def test_scaled_rows_of_many_are_left_to_gemm(monkeypatch):
    called = []
    monkeypatch.setattr(lesson, "gemm", lambda *a, **o: called.append(1) or plain.gemm(*a, **o))
    assert_right(lesson.low_bit_matmul, *problem(4, 3, M=65, channel=2))
    assert_right(lesson.low_bit_matmul, *problem(4, 3, M=65), out_dtype=FP32)
    assert called == [1, 1]


@pytest.mark.skipif(not device.INTERPRET, reason="tiles of 2 x 4 run in the interpreter only")
def test_example_runs():
    assert lesson.EXAMPLE() == dict(shape=(2, 8, 40), dtype=FP16, W_nbits=4, group_size=8)


def test_same_arguments_as_gemm():
    names = lambda function: list(inspect.signature(function).parameters)  # noqa: E731
    tiles = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
    common = [name for name in names(plain.gemm) if name not in tiles]
    assert names(lesson.low_bit_matmul) == common
    assert names(lesson.gemm_splitK)[: len(common) + 2] == [*common, "split_k", "atomic_mode"]


def test_measured_by_replay_with_what_is_right_in_float64():
    """Compiling and searching happen before the capture, so no time includes them."""
    bench = SimpleNamespace(**lesson.BENCH)
    assert bench.timing == "graph" and bench.eager_name == "cuBLAS"
    inputs = bench.inputs((2, 16, 128), FP16, DEVICE)
    exact = bench.reference(**inputs)
    assert exact.dtype == torch.float64
    for function in (bench.ours, bench.eager):
        torch.testing.assert_close(function(**inputs).double(), exact, rtol=1e-2, atol=2e-2)


BOTH = [lesson.gemm_splitK, lesson.low_bit_matmul]
RULES = [
    (r"scales must have shape \(2, 21\).*got \(32, 21\)", dict(scales=torch.ones(32, 21))),  # (group_size, N)
    ("group_size must be a multiple of the 8 values in a word and divide K = 64, got 12", dict(group_size=12)),
    ("W_nbits must be one of", dict(W_nbits=3)),
    ("tile_order must be one of", dict(tile_order="random")),
    ("A_load_order must be one of", dict(A_load_order=4)),
    ("meta_evict_policy must be one of", dict(meta_evict_policy="keep")),
    ("a requires a gradient", dict(a=torch.zeros(5, 64).half().requires_grad_())),
]


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize(("message", "changes"), RULES, ids=[m for m, _ in RULES])
def test_rules_of_the_format(message, changes, function):
    assert_rule(message, function=function, **on_device(changes))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("split_k must be a whole number of parts", dict(split_k=0)),
        ("split_k must be a whole number of parts", dict(split_k=2.0)),
        ("atomic_mode must be one of 'relaxed', 'release', got 'none'", dict(atomic_mode="none")),
        ("BLOCK_KW must be a power of two, got 12", dict(BLOCK_KW=12)),
    ],
)
def test_bad_options(message, changes):
    assert_rule(message, function=lesson.gemm_splitK, **changes)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 16, 40, 200])
def test_large_shapes(M):
    arguments, options = problem(4, 3, M=M, N=1000, K=4096, group_size=128)
    assert_right(lesson.low_bit_matmul, arguments, options)
    assert_right(lesson.gemm_splitK, arguments, options)
