"""flash_attention and flash_attention_varlen: values, log-sum-exp, all gradients, options, hostile inputs, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools
import math

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import far_apart
from annotated_examples.attention import flash_attention as lesson
from annotated_examples.common import attention as common
from annotated_examples.fast import flash_attention as fast
from tests.kernels import harness
from tests.kernels.attention_cases import assert_right, results, tensors, upstreams
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

module = harness.modules(lesson, fast)

DEFAULTS = dict(causal=False, scale=None, window=None, softcap=0.0)
#: name -> options of a call; with "sinks" the inputs have them.
OPTIONS = {
    "full": dict(),
    "causal": dict(causal=True),
    "window": dict(causal=True, window=9),
    "both sides": dict(window=(11, 4)),
    "open left": dict(window=(-1, 6)),
    "open right": dict(window=(6, -1)),
    "softcap": dict(causal=True, softcap=1.5),
    "sinks": dict(causal=True, sinks=True),
    "all": dict(causal=True, window=19, softcap=2.0, sinks=True, scale=0.7),
}
#: In `make test` one of each kind of mask.
ONE_OF_A_KIND = [
    pytest.param(OPTIONS[n], id=n, marks=[] if n in ("full", "window", "all") else [pytest.mark.nightly])
    for n in OPTIONS
]

MUTANTS = [
    Mutant("-inf minus -inf in rows that see nothing", "row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)", 'row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)'),
    Mutant("backward's first tile aligned top-left", "start_n - (S - T) - right", "start_n - right"),
    Mutant("backward's last tile aligned top-left", "tl.minimum(start_n + BLOCK_N, S) - (S - T) + left", "tl.minimum(start_n + BLOCK_N, S) + left"),
    Mutant("fp32 products in tf32", "INPUT_PRECISION=input_precision()", 'INPUT_PRECISION="tf32"', gpu=True),
    Mutant("mask before the exponential only, keys", "p = tl.where(mask, weights(s, lse[None, :]), 0.0)", 'p = weights(tl.where(mask, s, -float("inf")), lse[None, :])'),
    Mutant("dk rows that nobody sees are not written", "dk * scale, offs_n, S,", "dk * scale, offs_n, tl.where(first_m < last_m, S, 0),"),
    Mutant("strides of the sinks ignored", "None if sinks is None else sinks.contiguous()", "sinks"),
]  # fmt: skip

COMMON_MUTANTS = [
    Mutant("gradient of the sink over one sequence", "(p * delta).sum((0, 2)).neg()", "(p * delta)[:1].sum((0, 2)).neg()"),
    Mutant("offsets of 32 bits", "rows.to(tl.int64)[:, None] * stride_t", "(rows[:, None] * tl.cast(stride_t, tl.int32)).to(tl.int64)", interpreted=True),
]  # fmt: skip


def small_launchers(module, BLOCK_M, BLOCK_N, **of_forward):
    tiles = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    forward = functools.partial(module.attention_forward, **tiles, **of_forward)
    return forward, functools.partial(module.attention_backward, **tiles)


def with_tiles(module, BLOCK_M=16, BLOCK_N=16, **of_forward):
    """`flash_attention` in tiles so small that a short sequence takes several."""
    forward, backward = small_launchers(module, BLOCK_M, BLOCK_N, **of_forward)
    frame = getattr(module, "attention", lesson.attention)

    def flash_attention(q, k, v, *, return_lse=False, sinks=None, **options):
        options = module.contract(q, k, v, **DEFAULTS | options, sinks=sinks, return_lse=return_lse)
        o, lse = frame(q, k, v, sinks, None, None, options, forward, backward)
        return (o, lse) if return_lse else o

    return flash_attention


def judge(function, shape, dtype=torch.float32, layout=lambda values: values, scale=1.0, upstream=None, **options):
    """Random inputs of this shape, in this layout, judged with all gradients."""
    sinks = options.pop("sinks", False)
    inputs = {name: layout(value) for name, value in tensors(**shape, dtype=dtype, sinks=sinks, scale=scale).items()}
    _, lse = lesson.flash_attention_reference(**inputs, **options, return_lse=True)
    ups = upstreams(inputs["q"], lse, upstream or layout)
    assert_right(function, inputs, *ups, **options)


SMALL = dict(B=2, H=2, Hk=1, T=21, S=37, D=5)


def packed(lengths_q, lengths_k, H=2, Hk=1, D=8, dtype=torch.float32, sinks=False):
    """Inputs of `flash_attention_varlen`, with NaN before and after them in memory."""
    made = tensors(B=1, H=H, Hk=Hk, T=sum(lengths_q), S=sum(lengths_k), D=D, dtype=dtype, sinks=sinks)
    inputs = {name: harness.nan_fenced(made[name][0].transpose(0, 1)) for name in "qkv"}
    for name, lengths in ("q", lengths_q), ("k", lengths_k):
        ends = torch.tensor([0, *lengths]).cumsum(0)
        inputs[f"cu_seqlens_{name}"] = ends.to(DEVICE, torch.int32)
    return inputs | ({"sinks": made["sinks"]} if sinks else {})


def varlen_reference(
    q, k, v, cu_seqlens_q, cu_seqlens_k, *, return_lse=False, max_seqlen_q=None, max_seqlen_k=None, **options
):
    """One sequence after the other."""
    outs, lses = [], []
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for a, b, c, d in zip(ends_q, ends_q[1:], ends_k, ends_k[1:]):
        alone = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
        o, lse = lesson.flash_attention_reference(*alone, return_lse=True, **options)
        outs.append(o[0].transpose(0, 1))
        lses.append(lse[0])
    o = torch.cat([*outs, q[:0]])
    lse = torch.cat([*lses, q.new_zeros((q.shape[1], 0), dtype=torch.promote_types(q.dtype, torch.float32))], dim=1)
    return (o, lse) if return_lse else o


def judge_varlen(function, lengths_q, lengths_k, *, sinks=False, dtype=torch.float32, H=2, Hk=1, D=8, **options):
    inputs = packed(lengths_q, lengths_k, H, Hk, D, dtype, sinks)
    _, lse = varlen_reference(**inputs, **options, return_lse=True)
    assert_right(function, inputs, *upstreams(inputs["q"], lse, harness.strided), reference=varlen_reference, **options)


def varlen_with_tiles(module, BLOCK_M=16, BLOCK_N=16):
    """The same of `flash_attention_varlen`."""
    forward, backward = small_launchers(module, BLOCK_M, BLOCK_N)
    frame = getattr(module, "attention_varlen", lesson.attention_varlen)

    def flash_attention_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, *, return_lse=False, sinks=None, max_seqlen_q=None, max_seqlen_k=None, **options
    ):  # fmt: skip
        options = module.contract(
            q, k, v, **DEFAULTS | options, sinks=sinks, return_lse=return_lse, layout="total, H, D"
        )
        options = module.varlen_contract(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options)
        o, lse = frame(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, forward, backward)
        return (o, lse) if return_lse else o

    return flash_attention_varlen


def check(module):
    """Everything a mutant has to get past."""
    small = with_tiles(module)
    judge(
        small,
        SMALL | dict(H=4, Hk=2),
        layout=harness.nan_fenced,
        upstream=harness.strided,
        causal=True,
        sinks=True,
        scale=2.0,
    )
    judge(small, dict(B=1, H=2, Hk=1, T=37, S=21, D=5), layout=harness.strided, causal=True, window=7, sinks=True)
    judge(
        small, dict(B=1, H=2, Hk=2, T=37, S=35, D=16), layout=harness.nan_fenced, window=(3, 18), softcap=1.0, scale=3.0
    )
    judge_varlen(varlen_with_tiles(module), [3, 0, 20], [10, 4, 7], causal=True)
    harness.assert_gradient_penalty_raises(small, tensors(T=2, S=3))
    if device.INTERPRET:
        far_rows(module)


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, MUTANTS, check)
test_mutant_of_a_shared_function_is_caught = harness.mutant_test(common, COMMON_MUTANTS, check, within=lesson)


# ---------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("D", [1, 8, 24, 80, 128, 192, 256])
def test_head_dimensions(module, D):
    """With the tiles that a user gets."""
    for dtype in DTYPES if D in (24, 256) else DTYPES[:1]:
        judge(module.flash_attention, dict(H=1, Hk=1, T=18, S=35, D=D), dtype, causal=True)


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_that_see_nothing(module, sinks):
    inputs = tensors(H=2, T=40, S=20, sinks=sinks)
    values = results(functools.partial(with_tiles(module), causal=True), inputs, randn(1, 2, 40, 8))
    assert not values["o"][:, :, :20].any() and values["o"][:, :, 20:].all()
    assert not values["dq"][:, :, :20].any() and all(
        value.isfinite().all() for n, value in values.items() if n != "lse"
    )
    expected = inputs["sinks"].expand(1, 20, 2).mT if sinks else torch.full((1, 2, 20), -math.inf, device=DEVICE)
    torch.testing.assert_close(values["lse"][:, :, :20], expected, rtol=1e-6, atol=0)


def test_a_window_that_hides_everything(module):
    """All keys lie before the window of the first query."""
    judge(with_tiles(module), dict(H=1, Hk=1, T=3, S=40, D=8), window=(0, -1))
    judge(with_tiles(module), dict(H=1, Hk=1, T=40, S=3, D=8), window=(1, 0))


def test_window_as_an_int_counts_the_own_key(module):
    q, k, v = tensors(H=1, T=6, S=6).values()
    pairs = [dict(causal=True, window=3), dict(causal=True, window=(2, 5)), dict(window=(2, 0))]
    first, *others = (module.flash_attention(q, k, v, **options) for options in pairs)
    assert all(torch.equal(first, other) for other in others)


def test_an_infinite_sink(module):
    """A sink of −∞ is none; one of +∞ leaves nothing for the values."""
    inputs = tensors(H=2, T=5, S=6)
    none = torch.full((2,), -math.inf, device=DEVICE)
    torch.testing.assert_close(module.flash_attention(**inputs, sinks=none), module.flash_attention(**inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=harness.dtype_name)
def test_sinks_in_float32(module, dtype):
    inputs = tensors(H=4, Hk=2, T=9, S=11, dtype=dtype) | dict(sinks=randn(4))
    _, lse = lesson.flash_attention_reference(**inputs, return_lse=True)
    values = results(module.flash_attention, inputs, *upstreams(inputs["q"], lse))
    assert values["dsinks"].dtype == torch.float32
    assert_right(module.flash_attention, inputs, *upstreams(inputs["q"], lse))


# ---------------------------------------------------------------- layouts and bits


def test_heads_and_tokens_exchanged(module):
    """(B, T, H, D) in memory, as a linear layer leaves it: the result lies there in the same way."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors(H=2).values())
    assert module.flash_attention(q, k, v).transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("which", ["o", "lse"])
def test_gradient_through_one_result(module, which):
    inputs = tensors(H=2, T=20, S=20, sinks=True)
    do, dlse = randn(1, 2, 20, 8), randn(1, 2, 20)
    assert_right(with_tiles(module), inputs, do if which == "o" else None, dlse if which == "lse" else None)


# ---------------------------------------------------------------- addresses


def far_rows(module):
    """Row 2 of the keys or the values begins 2³¹ elements behind row 0."""
    q, k, v = (x.half() for x in tensors(H=1, T=3, S=3).values())
    far = lambda x: far_apart(x[0, 0])[None, None]  # noqa: E731
    expected = with_tiles(module)(q, k, v)
    assert torch.equal(with_tiles(module)(q, far(k), v), expected)
    assert torch.equal(with_tiles(module)(q, k, far(v)), expected)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(module):
    q = torch.randn(1, 2, 64, 128, device=DEVICE, dtype=torch.bfloat16)
    k, v = (torch.randn(1, 2, 2**23 + 4096, 128, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    assert k.numel() > 2**31
    o, lse = module.flash_attention(q, k, v, causal=True, window=5000, return_lse=True)
    alone = [x[:, :, -5063:] for x in (k, v)]
    expected, expected_lse = module.flash_attention(q, *alone, causal=True, window=5000, return_lse=True)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(o, expected, rtol=2e-2, atol=2e-3)


@pytest.mark.gpu
def test_nothing_else_grows_with_the_length(module):
    """Forward keeps o and lse. Backward adds the gradients and a number a row; below Triton two, and float32 sums of dQ."""
    T, D = 8192, 64
    bytes_of_a_row = 2 * 4 * D + 4 * 2
    if module is fast and device.has("gluon"):
        bytes_of_a_row += 4 * D + 4
    inputs = [torch.randn(1, 4, T, D, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    o = module.flash_attention(*inputs, causal=True)
    assert torch.cuda.max_memory_allocated() - before <= (2 * D + 4) * 4 * T + 2**20
    torch.autograd.grad(o, inputs, o.detach())
    assert torch.cuda.max_memory_allocated() - before <= bytes_of_a_row * 4 * T + 2**20


# ---------------------------------------------------------------- varlen


@pytest.mark.parametrize("options", ONE_OF_A_KIND)
def test_varlen(module, options):
    judge_varlen(varlen_with_tiles(module), [17, 0, 1, 20, 3], [5, 4, 0, 40, 3], H=4, Hk=2, **options)


def beside_nan(module, dtype=torch.float32):
    """Neither a neighbour's keys nor its values may be touched: 0 times NaN is NaN."""
    inputs = packed([20, 20, 20], [20, 20, 20], dtype=dtype)
    for name in "qkv":
        inputs[name][20:40] = math.nan
    values = results(
        functools.partial(varlen_with_tiles(module), causal=True), inputs, randn(60, 2, 8, dtype=dtype), randn(2, 60)
    )
    for name in ("o", "dq", "dk", "dv"):
        bad = values[name].isnan().flatten(1).all(1)
        assert torch.equal(bad.nonzero().flatten(), torch.arange(20, 40, device=DEVICE)), name
        assert values[name][~bad].isfinite().all(), name


def test_a_sequence_of_nan_beside_others(module):
    beside_nan(module)


@pytest.mark.parametrize("offsets", [[0, 30, 10], [-5, 10, 20], [0, 5, 10**6], [3, 10, 15]], ids=str)
def test_offsets_that_make_no_sense(module, offsets):
    """They raise on the CPU. Where nobody looks they read nothing outside, and rows of no sequence are NaN."""
    inputs = packed([20], [20])
    wrong = torch.tensor(offsets, dtype=torch.int32, device=DEVICE)
    if device.INTERPRET:
        with pytest.raises(ValueError, match="cu_seqlens_q must rise from 0 to the number of rows, 20"):
            module.flash_attention_varlen(**inputs | dict(cu_seqlens_q=wrong, cu_seqlens_k=wrong))
    q, k, v = (inputs[name].transpose(0, 1).unsqueeze(0) for name in "qkv")
    options = module.contract(q, k, v, **DEFAULTS, sinks=None, return_lse=True)
    with harness.fenced_allocations():
        o, lse = module.attention_forward(q, k, v, None, wrong, wrong, options, BLOCK_M=16, BLOCK_N=16)
        module.attention_backward(o, lse, q, k, v, None, wrong, wrong, o, lse, options, BLOCK_M=16, BLOCK_N=16)
    covered = torch.zeros(20, dtype=torch.bool)
    for start, end in zip(offsets, offsets[1:]):
        covered[max(start, 0) : max(end, 0)] = True
    assert torch.equal(o[0, 0].isfinite().all(-1).cpu(), covered)


# ---------------------------------------------------------------- random configurations


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("D", [64, 96, 128, 256])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_all_combinations(module, options, D, dtype):
    judge(module.flash_attention, dict(B=2, H=4, Hk=2, T=300, S=517, D=D), dtype, **options)


# ---------------------------------------------------------------- errors


test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(k=torch.ones(1, 3, 3, 8), v=torch.ones(1, 3, 3, 8)), ValueError, "q must have a multiple of the heads of k and v, 3"),
        (dict(k=torch.ones(1, 0, 3, 8), v=torch.ones(1, 0, 3, 8)), ValueError, "q must have a multiple of the heads of k and v, 0"),
        (dict(zip("qkv", [torch.ones(1, 2, 3, 257)] * 3)), ValueError, "q must have a head dimension of 1 to 256"),
        (dict(zip("qkv", [torch.ones(1, 2, 3, 0)] * 3)), ValueError, "q must have a head dimension of 1 to 256"),
        (dict(scale=math.inf), ValueError, "scale must be finite"),
        (dict(window=4), ValueError, "window as an int needs causal=True"),
        (dict(window=(1, -2)), ValueError, "window must have sides of at least 0, or -1 for open"),
        (dict(window=(1, 2, 3)), TypeError, "window must be None, an int or a pair of ints"),
        (dict(window=True, causal=True), TypeError, "window must be None, an int or a pair of ints"),
        (dict(sinks=torch.ones(3)), ValueError, "sinks must have shape (2,) (one for each head of q), got (3,)"),
    ],
    dict.fromkeys("qkv", torch.ones(1, 2, 3, 8)),
    lesson.flash_attention, fast.flash_attention,
)  # fmt: skip


test_a_longest_sequence_that_is_longer = harness.refused_test(
    "change, error, message",
    [
        (dict(max_seqlen_q=19), ValueError, "max_seqlen_q must be at least the longest sequence, 20, got 19"),
        (dict(max_seqlen_k=3), ValueError, "max_seqlen_k must be at least the longest sequence, 20, got 3"),
    ],
    packed([5, 20], [5, 20]),
    *(each.flash_attention_varlen for each in (lesson, fast)),
)
