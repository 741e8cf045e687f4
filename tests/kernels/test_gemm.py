"""gemlite/gemm: packing, quantization, every mode of the product, rules of the format, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from academy.judge import accuracy
from annotated_examples.gemlite import gemm as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32
SMALL = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2)

MUTANTS = [
    Mutant("comparing before the kernel ran", "if c.numel():", "if False:"),
    Mutant("zeros never used", "weight = (weight - zeros) * scales", "weight = weight * scales"),
    Mutant("-1 read as 15: sign copies kept", "(words >> shifts[:, None]) & ((1 << W_NBITS) - 1)", "words >> shifts[:, None]"),
    Mutant("big end first", "shifts = (offs_k % (32 // W_NBITS)) * W_NBITS", "shifts = 32 - W_NBITS - (offs_k % (32 // W_NBITS)) * W_NBITS"),
    Mutant("always four bits", "word_rows = offs_k // (32 // W_NBITS)", "word_rows = offs_k // 8"),
    Mutant("group of the first row for all", "META_ROWS=1 if group_size % BLOCK_K == 0 else BLOCK_K", "META_ROWS=1"),
    Mutant("group index is the row in the group", "(rows // group_size)", "(rows % group_size)"),
    Mutant("K not masked in A", "(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)", "offs_m[:, None] < M, other=0.0)"),
    Mutant("N not masked in the store", "acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))", "acc.to(c_ptr.dtype.element_ty), mask=offs_m[:, None] < M)"),
    Mutant("last K block dropped", "range(0, K, BLOCK_K)", "range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)"),
    Mutant("column scales forgotten", "acc = acc * columns.to(tl.float32)[None, :]", "acc = acc"),
    Mutant("fp16 sum", "tl.dot(a_tile, weight, acc)", "tl.dot(a_tile, weight, acc).to(tl.float16).to(tl.float32)"),
    Mutant("scale rounded down", "scales = torch.where(scales.double() < exact, next_up, scales)", "scales = scales"),
    Mutant("signed packing not refused", "if q.numel() and not (0", "if False and not (0"),
]  # fmt: skip


def problem(W_nbits, mode, M=5, N=21, K=64, group_size=32, dtype=FP16, metadata=None, channel=0, per_column=False):
    """Hostile inputs: scales and zeros that are neither one nor whole, every integer of the format."""
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    assert group_size % per_word == 0 and K % group_size == 0
    if W_nbits == 16:
        words = randn(K, N, dtype=dtype)
    else:
        words = lesson.pack(torch.randint(0, 2**W_nbits, (K, N), device=DEVICE), W_nbits)
    metadata = metadata or dtype
    groups = 1 if per_column else K // group_size
    scales = ((torch.rand(groups if channel not in (1, 3) else 1, N, device=DEVICE) + 0.5) / 2**W_nbits).to(metadata)
    zeros = ((torch.rand(groups, N, device=DEVICE) + 0.1) * min(2**W_nbits, 256) * 0.7).to(metadata)
    if W_nbits == 16:
        scales, zeros = (torch.rand_like(scales.float()) + 0.5).to(metadata), randn(groups, N, dtype=metadata)
    scales_a = torch.rand(M, device=DEVICE) + 0.5 if channel >= 2 else None
    modes = dict(W_group_mode=mode, channel_scale_mode=channel)
    options = dict(W_nbits=W_nbits, group_size=group_size, scales_a=scales_a, **modes)
    return (harness.nan_fenced(randn(M, K, dtype=dtype)), words, scales, zeros), options


def compared(function, arguments, options, **more):
    """(ours, PyTorch's, float64) of one call; inputs unchanged, nothing written outside."""
    tensors = {f"argument{i}": v for i, v in enumerate(arguments) if isinstance(v, torch.Tensor)}
    out_dtype = more.get("out_dtype") or arguments[0].dtype
    with harness.unchanged(**tensors), harness.fenced_allocations():
        actual = function(*arguments, **options, **more)
    pytorch = lesson.gemm_reference(*arguments, **options).to(out_dtype)
    exact = lesson.gemm_reference(*arguments, **options, dtype=torch.float64)
    assert actual.dtype == out_dtype and actual.is_contiguous()
    return actual, pytorch, exact


def assert_right(function, arguments, options, **more):
    """The 2x rule against the dequantized product in float64, and what `compared` asserts."""
    accuracy.check("C", *compared(function, arguments, options, **more))


#: Of two elements one is more than twice as far off as PyTorch's by chance, in 5 of 60 draws; of 40, in none.
FEWEST = 32


def assert_right_together(function, draw, **more):
    """`assert_right` on so many draws of a problem that their results have enough elements to be judged."""
    results = [compared(function, *draw(), **more)]
    for _ in range(1, -(-FEWEST // results[0][0].numel())):
        results.append(compared(function, *draw(), **more))
    accuracy.check("C", *(torch.cat([values.flatten() for values in each]) for each in zip(*results)))


def assert_scaled_before_rounding(function):
    """The product overflows float16, the scaled product does not."""
    (a, words, scales, zeros), options = problem(8, 0, channel=3)
    a, options["scales_a"] = a.abs() * 1000, options["scales_a"] * 1e-3
    assert function(a, words, None, None, **options | dict(channel_scale_mode=0)).isinf().any()
    exact = lesson.gemm_reference(a, words, scales, zeros, **options, dtype=torch.float64)
    accuracy.check("C", function(a, words, scales, zeros, **options), exact.half(), exact)


def check(module):
    """Everything a mutant has to get past."""
    torch.manual_seed(0)
    try:
        words = module.pack(torch.full((8, 1), -1, device=DEVICE), 4)
    except ValueError:
        pass
    else:
        raise AssertionError(f"-1 was packed as {module.unpack(words, 4)[0].item()}")
    assert_within_half_a_step(module, 1e-4 * randn(64, 7, dtype=FP16), 8)
    run = lambda *a, **o: module.gemm_forward(*a, **o, **SMALL)  # noqa: E731
    assert_right(run, *problem(4, 3, M=19, N=19, K=72, group_size=24))
    assert_right(run, *problem(2, 3, N=17, K=96, group_size=16))
    # One group over several blocks of K, sums beyond what float16 can hold, scaled down in float32.
    assert_right(run, *problem(4, 3), out_dtype=FP32, tile_order="linear")
    assert_right(run, *problem(4, 1, channel=3))
    assert_scaled_before_rounding(run)


def test_check_passes():
    check(lesson)


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, check)


# ---------------------------------------------------------------- packing and quantizing


@pytest.mark.parametrize("W_nbits", [8, 4, 2, 1])
def test_pack_and_unpack(W_nbits):
    for q in (
        torch.randint(0, 2**W_nbits, (64, 5), device=DEVICE),
        torch.full((32, 3), 2**W_nbits - 1, device=DEVICE),  # all bits set: int32 -1
        torch.zeros(32, 1, device=DEVICE, dtype=torch.uint8),
        torch.zeros(0, 4, device=DEVICE, dtype=torch.int16),
    ):
        words = lesson.pack(q, W_nbits)
        assert words.dtype == torch.int32 and words.shape == (q.shape[0] * W_nbits // 32, q.shape[1])
        assert torch.equal(lesson.unpack(words, W_nbits).long(), q.long())


def test_little_end_first():
    q = torch.arange(8, device=DEVICE).view(8, 1)
    assert lesson.pack(q, 4).item() == 0x76543210
    assert lesson.unpack(torch.full((1, 1), -1, dtype=torch.int32, device=DEVICE), 4).flatten().tolist() == [15] * 8


def test_signed_integers_are_stored_with_an_offset():
    """-1 must not come back as 15: signed values go in with 2**(bits - 1) added, and that is their zero."""
    signed = torch.randint(-8, 8, (32, 6), device=DEVICE)
    with pytest.raises(ValueError, match="add 8 to signed values and pass that as zeros"):
        lesson.pack(signed, 4)
    a = randn(3, 32, dtype=FP16)
    c = lesson.gemm(a, lesson.pack(signed + 8, 4), None, 8, W_nbits=4, group_size=32, W_group_mode=1, out_dtype=FP32)
    torch.testing.assert_close(c.double(), a.double() @ signed.double(), rtol=1e-5, atol=1e-4)


def assert_within_half_a_step(module, w, W_nbits):
    """Half a step from rounding, and at the ends of the range up to another half from the zero point's rounding."""
    words, scales, zeros = module.quantize(w, W_nbits, 32)
    assert scales.dtype == zeros.dtype == w.dtype and scales.shape == zeros.shape == (2, w.shape[1])
    assert torch.equal(zeros, zeros.round())
    back = module.dequantize_reference(words, scales, zeros, W_nbits=W_nbits, group_size=32, dtype=torch.float64)
    steps = (back - w.double()).abs() / scales.double().repeat_interleave(32, 0)
    assert (steps <= 1.0001).all() and steps.mean() < 0.3


@pytest.mark.parametrize("deviation", [1.0, 1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize(("W_nbits", "dtype"), list(itertools.product([8, 4, 2, 1], [FP32, FP16, BF16])), ids=str)
def test_quantize_moves_nothing_by_more_than_a_step(W_nbits, dtype, deviation):
    """Down to weights that float16 can hold with a bit or two only."""
    assert_within_half_a_step(lesson, (deviation * randn(64, 7)).to(dtype), W_nbits)


def test_quantize_a_range_without_a_scale():
    w = torch.full((32, 3), 60000.0, dtype=FP16, device=DEVICE)
    w[0] = -60000.0
    with pytest.raises(
        ValueError, match=r"w must have a smaller range .* 1.2e\+05, makes a scale for W_nbits=1 .*float16"
    ):
        lesson.quantize(w, 1, 32)
    words, scales, zeros = lesson.quantize(3e38 * torch.sign(randn(64, 2)), 8, 64)
    assert scales.isfinite().all()


def test_quantize_a_parameter():
    """The weight of a layer, as it is: nothing that comes back asks for a gradient."""
    layer = torch.nn.Linear(64, 16, dtype=FP16, device=DEVICE)
    words, scales, zeros = lesson.quantize(layer.weight.T, 4, 32)
    assert not scales.requires_grad and not zeros.requires_grad
    lesson.gemm(randn(3, 64, dtype=FP16), words, scales, zeros, W_nbits=4, group_size=32)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_unpack_nothing(shape):
    assert lesson.unpack(torch.zeros(shape, dtype=torch.int32, device=DEVICE), 4).shape == (8 * shape[0], shape[1])


def far_apart(values):
    """The same values, columns so far apart that offsets need more than 32 bits."""
    rows, columns = values.shape
    stride = 2**31 // (columns - 1) + 1
    torch.utils.deterministic.fill_uninitialized_memory = False  # 8 GB, of which a few pages are needed
    memory = torch.empty((columns - 1) * stride + rows, dtype=values.dtype, device=values.device)
    return memory.as_strided(values.shape, (1, stride)).copy_(values)


@pytest.mark.parametrize("which", ["a", "words"])
def test_offsets_beyond_32_bits(which):
    (a, words, scales, zeros), options = problem(16, 3, M=3, N=40, K=48, group_size=24)
    inputs = dict(a=a, words=words, scales=scales, zeros=zeros)
    expected = lesson.gemm(**inputs, **options)
    inputs[which] = far_apart(inputs[which])
    assert torch.equal(lesson.gemm(**inputs, **options), expected)


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-7])
def test_quantize_constant_groups(value):
    w = torch.full((32, 2), value, device=DEVICE)
    words, scales, zeros = lesson.quantize(w, 4, 32)
    assert scales.isfinite().all() and zeros.isfinite().all() and (scales > 0).all()
    back = lesson.dequantize_reference(words, scales, zeros, W_nbits=4, group_size=32)
    torch.testing.assert_close(back, w.double(), rtol=1e-6, atol=1e-12)


# ---------------------------------------------------------------- the product


def test_channel_scales_are_applied_before_rounding():
    assert_scaled_before_rounding(lesson.gemm)


@pytest.mark.parametrize("A_load_order", range(4))
@pytest.mark.parametrize("tile_order", ["swizzled", "linear"])
def test_orders(A_load_order, tile_order):
    assert_right(
        lambda *a, **o: lesson.gemm_forward(*a, **o, **SMALL), *problem(4, 3, M=20, N=40),
        A_load_order=A_load_order, tile_order=tile_order,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["", "evict_first", "evict_last"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_hints(policy, contiguous):
    assert_right(lesson.gemm, *problem(4, 3), meta_evict_policy=policy, data_contiguous=contiguous)


@pytest.mark.parametrize("mode", [1, 3, 4])
@pytest.mark.parametrize("zero", [8, 7.25])
def test_zero_is_a_number(mode, zero):
    (a, words, scales, _), options = problem(4, mode)
    assert_right(lesson.gemm, (a, words, scales, zero), options)


def test_unused_metadata_is_ignored():
    (a, words, scales, zeros), options = problem(4, 0)
    nan = torch.full((7, 7), float("nan"))
    expected = lesson.gemm(a, words, None, None, **options)
    assert torch.equal(lesson.gemm(a, words, nan, "nothing", **options), expected)
    options["W_group_mode"] = 2
    assert lesson.gemm(a, words, scales, nan, **options).isfinite().all()
    options["W_group_mode"] = 1
    assert lesson.gemm(a, words, nan, zeros, **options).isfinite().all()


@st.composite
def configurations(draw):
    W_nbits = draw(st.sampled_from(lesson.W_NBITS))
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    channel = draw(st.integers(0, 3))
    mode = draw(st.integers(0, 1 if channel in (1, 3) else 4))
    group_size = per_word * draw(st.sampled_from([1, 2, 3, 8]))
    return dict(
        W_nbits=W_nbits, mode=mode, channel=channel, group_size=group_size,
        M=draw(st.integers(1, 20)), N=draw(st.integers(1, 40)), K=group_size * draw(st.integers(1, 4)),
        dtype=draw(st.sampled_from([FP16, BF16])), metadata=draw(st.sampled_from([None, FP16, BF16, FP32])),
        per_column=draw(st.booleans()),
    ), draw(st.sampled_from([None, FP16, BF16, FP32]))  # fmt: skip


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations())
def test_random_configurations(configuration):
    keywords, out_dtype = configuration
    torch.manual_seed(keywords["M"] * 100 + keywords["N"])
    assert_right_together(lesson.gemm, lambda: problem(**keywords), out_dtype=out_dtype)


# ---------------------------------------------------------------- errors


RULES = [
    (r"scales must have shape \(2, 21\).*got \(32, 21\)", dict(scales=torch.ones(32, 21))),  # (group_size, N)
    (r"zeros must have shape \(2, 21\).*got \(32, 21\)", dict(zeros=torch.ones(32, 21))),
    ("group_size must be a multiple of the 8 values in a word and divide K = 64, got 12", dict(group_size=12)),
    ("group_size must .* got 48", dict(group_size=48)),
    ("group_size must .* got 0", dict(group_size=0)),
    ("W_nbits must be one of 16, 8, 4, 2, 1, got 3", dict(W_nbits=3)),
    ("W_group_mode must be one of", dict(W_group_mode=5)),
    ("channel_scale_mode must be one of", dict(channel_scale_mode=4)),
    ("out_dtype must be one of", dict(out_dtype=torch.float64)),
    ("tile_order must be one of", dict(tile_order="random")),
    ("A_load_order must be one of", dict(A_load_order=4)),
    ("meta_evict_policy must be one of", dict(meta_evict_policy="keep")),
    (r"words must have shape \(8, 21\)", dict(words=torch.zeros(16, 21, dtype=torch.int32))),
    ("a must have a multiple of 8 columns", dict(a=torch.zeros(5, 60).half())),
    ("W_group_mode must be 0 or 1 when channel_scale_mode=1", dict(channel_scale_mode=1)),
    (
        r"scales must have shape \(1, 21\) \(one per column, for channel_scale_mode=1\), got \(2, 21\)",
        dict(W_group_mode=1, channel_scale_mode=1),
    ),
    (r"a must have 2 dimensions \(M, K\), got shape \(5, 1, 64\)", dict(a=torch.zeros(5, 1, 64).half())),
    ("zeros must be finite", dict(zeros=float("nan"))),
    ("zeros must fit into float32", dict(zeros=1e300)),
    ("zeros must fit into float32", dict(zeros=10**400)),
    ("W_nbits must be one of 16, 8, 4, 2, 1, got 4.0", dict(W_nbits=4.0)),
    ("W_group_mode must be one of 0, 1, 2, 3, 4, got True", dict(W_group_mode=True)),
    ("a requires a gradient", dict(a=torch.zeros(5, 64).half().requires_grad_())),
    ("scales requires a gradient", dict(scales=torch.zeros(2, 21).requires_grad_())),
    (r"scales_a must have shape \(5,\)", dict(scales_a=torch.ones(4), channel_scale_mode=2)),
    ("zeros requires a gradient", dict(zeros=torch.zeros(2, 21).requires_grad_())),
]
TYPES = [
    ("group_size must be an int", dict(group_size=32.0)),
    ("a must be a torch.Tensor", dict(a=[1.0])),
    ("words must be one of int32, got int64", dict(words=torch.zeros(8, 21, dtype=torch.int64))),
    ("a must be one of float16, bfloat16, got float32", dict(a=torch.zeros(5, 64))),
    ("scales must be a tensor in this mode, got None", dict(scales=None)),
    ("zeros must be a number, got NoneType", dict(zeros=None)),
    ("scales must be one of float16, bfloat16, float32, got int32", dict(scales=torch.ones(2, 21, dtype=torch.int32))),
    ("scales_a must be a torch.Tensor, got NoneType", dict(W_group_mode=1, channel_scale_mode=2)),
]


def given_call(mode=3):
    """A call that is right, by name."""
    arguments, options = problem(4, mode)
    return dict(zip(("a", "words", "scales", "zeros"), arguments)) | options


def rules(function, **expected):
    """A test: a function keeps the rules of the format. expected: by argument, what it says instead."""
    rows = [
        (error, words, change) for error, each in ((ValueError, RULES), (TypeError, TYPES)) for words, change in each
    ]
    rows = [
        next(((*expected[n], change) for n in change if n in expected), (error, words, change))
        for error, words, change in rows
    ]
    return harness.refused_test("error, words, change", rows, given_call(), function)


test_rules_of_the_format = rules(lesson.gemm)
TILES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
test_tiles_are_powers_of_two = harness.refused_test(
    "error, words, change",
    [(ValueError, f"{name} must be a power of two, got {size}", {name: size}) for name in TILES for size in (12, -1)],
    given_call(),
    lesson.gemm_forward,
)


def test_no_grad_is_allowed():
    arguments, options = problem(4, 3)
    with torch.no_grad():
        assert lesson.gemm(arguments[0].requires_grad_(), *arguments[1:], **options).isfinite().all()


Q = torch.zeros(8, 2, device=DEVICE, dtype=torch.int32)
test_bad_calls_of_the_helpers = harness.raises_test(
    [
        (lambda: lesson.pack(Q, 16), ValueError, "W_nbits must be one of 8, 4, 2, 1, got 16"),
        (lambda: lesson.pack(Q, 1), ValueError, "q must have a multiple of 32 rows"),
        (lambda: lesson.pack(Q + 16, 4), ValueError, r"q must lie in \[0, 16\)"),
        (lambda: lesson.pack(Q[0], 4), ValueError, "q must have 2 dimensions"),
        (lambda: lesson.pack(Q, True), ValueError, "W_nbits must be one of 8, 4, 2, 1, got True"),
        (lambda: lesson.pack(Q.float(), 4), TypeError, "q must be one of"),
        (lambda: lesson.unpack(Q, 3), ValueError, "W_nbits must be one of"),
        (lambda: lesson.unpack(Q, 4.0), ValueError, "W_nbits must be one of 8, 4, 2, 1, got 4.0"),
        (lambda: lesson.unpack(Q.long(), 4), TypeError, "words must be one of int32"),
        (
            lambda: lesson.quantize(torch.full((8, 1), float("inf"), device=DEVICE), 4, 8),
            ValueError,
            "w must be finite",
        ),
        (lambda: lesson.quantize(randn(8, 1), 4, 4), ValueError, "group_size must"),
    ]
)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 16, 200])
def test_large_shapes(M):
    assert_right(lesson.gemm, *problem(4, 3, M=M, N=1000, K=4096, group_size=128))
