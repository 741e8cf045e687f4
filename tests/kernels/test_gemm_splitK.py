"""gemlite/gemm_splitK: parts of the sum, atomic additions, what C holds before, mutants. See test_low_bit.py, too."""

import inspect

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotated_examples.gemlite import gemm as plain
from annotated_examples.gemlite import gemm_splitK as lesson
from tests.kernels import harness
from tests.kernels.harness import Mutant
from tests.kernels.test_gemm import (
    FP16,
    FP32,
    assert_right,
    assert_right_together,
    assert_scaled_before_rounding,
    configurations,
    given_call,
    problem,
)

SMALL = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
LAST = "last = (pid_k + 1) * blocks // SPLIT_K"
ADD = "tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N), sem=ATOMIC)"

MUTANTS = [
    Mutant("garbage in C survives", "c = torch.zeros(M, N", "c = torch.empty(M, N"),
    Mutant("SPLIT_K that doesn't divide the blocks", LAST, "last = first + blocks // SPLIT_K"),
    Mutant("a part is one block short", LAST, "last = (pid_k + 1) * blocks // SPLIT_K - 1"),
    Mutant("fp16 atomics round each part", ADD, ADD.replace("acc,", "acc.to(tl.float16).to(tl.float32),")),
    Mutant("stored, not added", ADD, ADD.replace("atomic_add", "store").replace(", sem=ATOMIC", "")),
    Mutant("last blocks dropped", "blocks = tl.cdiv(K, BLOCK_K)", "blocks = K // BLOCK_K"),
    Mutant("comparing before the kernel ran", "if c.numel():", "if False:"),
    Mutant("rounded before the scale", "c = c * scales\n", "c = c.to(a.dtype) * scales\n"),
    Mutant("row scales forgotten", "c = c * scales_a[:, None]", "c = c"),
]


def splitK(module=lesson, **more):
    return lambda *arguments, **options: module.gemm_splitK_forward(*arguments, **{**SMALL, **more, **options})


def check(module):
    """Everything a mutant has to get past."""
    torch.manual_seed(0)
    # Five blocks in two parts, the last of them half empty; rows with groups of their own.
    assert_right(splitK(module, split_k=2), *problem(4, 3, N=19, K=72, group_size=24), out_dtype=FP32)
    assert_right(splitK(module, split_k=3), *problem(8, 1, K=64, group_size=32, channel=3))
    assert_scaled_before_rounding(splitK(module, split_k=2))
    # Eight equal parts that cancel in pairs: rounding each to float16 would be most of what is left.
    (a, words, scales, zeros), options = problem(4, 3, M=3, K=512, group_size=128)
    a[:, 256:] = -a[:, :256]
    a[:, 0] += 0.5
    words[32:], scales[2:], zeros[2:] = words[:32].clone(), scales[:2].clone(), zeros[:2].clone()
    weight = plain.dequantize_reference(words, scales, zeros, W_nbits=4, group_size=128, dtype=FP16).double()
    c = splitK(module, split_k=4, BLOCK_K=128)(a, words, scales, zeros, **options, out_dtype=FP32)
    assert ((c.double() - a.double() @ weight).abs() < 2e-4).all(), "a part was rounded to sixteen bits"


def test_check_passes():
    check(lesson)


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, check)


@pytest.mark.parametrize("split_k", [1, 2, 3, 7, 50])
def test_any_number_of_parts(split_k):
    """50 parts for three blocks: most programs have nothing to add."""
    assert_right(lesson.gemm_splitK, *problem(4, 3, M=18, K=192, group_size=64), split_k=split_k)


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
    assert_right(lesson.gemm_splitK, *problem(4, 3), split_k=2, **options)


def test_searched_configuration():
    """No split_k: the configuration is searched for (without a GPU: the first), and C is zeroed before each run."""
    assert lesson.gemm_splitK_tuned.reset_to_zero == ["c_ptr"]
    assert_right(lesson.gemm_splitK, *problem(4, 3, M=3, N=40, K=256, group_size=128))


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations(), st.sampled_from([1, 2, 5]))
def test_random_configurations(configuration, split_k):
    keywords, out_dtype = configuration
    torch.manual_seed(keywords["M"] * 100 + keywords["N"])
    assert_right_together(splitK(split_k=split_k), lambda: problem(**keywords), out_dtype=out_dtype)


def test_same_arguments_as_gemm():
    names = lambda function: list(inspect.signature(function).parameters)  # noqa: E731
    assert names(lesson.low_bit_matmul) == names(plain.gemm)
    assert names(lesson.gemm_splitK) == [*names(plain.gemm), "split_k", "atomic_mode"]


test_bad_calls = harness.refused_test(
    "words, change, error",
    [
        ("split_k must be at least 1, got 0", dict(split_k=0), ValueError),
        ("atomic_mode must be one of 'relaxed', 'release', got 'none'", dict(atomic_mode="none"), ValueError),
        ("tile_order must be one of", dict(tile_order="random"), ValueError),
        ("A_load_order must be one of", dict(A_load_order=4), ValueError),
        ("meta_evict_policy must be one of", dict(meta_evict_policy="keep"), ValueError),
        (r"scales must have shape \(2, 21\).*got \(32, 21\)", dict(scales=torch.ones(32, 21)), ValueError),
        ("a requires a gradient", dict(a=torch.zeros(5, 64).half().requires_grad_()), ValueError),
    ],
    given_call(),
    lesson.gemm_splitK,
)
test_bad_tile = harness.refused_test(
    "words, change, error",
    [("BLOCK_K must be a power of two, got 12", dict(BLOCK_K=12), ValueError)],
    given_call(),
    lesson.gemm_splitK_forward,
)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 16, 40, 200])
def test_large_shapes(M):
    assert_right(lesson.gemm_splitK, *problem(4, 3, M=M, N=1000, K=4096, group_size=128))


@pytest.mark.gpu
@pytest.mark.parametrize("config", lesson.CONFIGS, ids=str)
def test_each_configuration(config):
    """As the search would run it, on one shape with all options."""
    arguments = problem(4, 1, M=40, N=300, K=1024, group_size=128, channel=3)
    tiles = dict(split_k=config.kwargs["SPLIT_K"], BLOCK_N=config.kwargs["BLOCK_N"])
    assert_right(lambda *a, **o: lesson.gemm_splitK_forward(*a, **o, **tiles), *arguments, atomic_mode="release")
