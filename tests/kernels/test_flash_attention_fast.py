"""The kernels of fast.flash_attention, which 16-bit tensors that a descriptor fits are for: options, layouts, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools
import sys
import types

import pytest
import torch

from academy.runtime import device, launch
from annotated_examples.attention import flash_attention as lesson
from annotated_examples.common import attention_tiles as tiles
from annotated_examples.fast import flash_attention as fast
from annotated_examples.fast import flash_attention_backward as backward
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn
from tests.kernels.test_flash_attention import (
    DEFAULTS,
    ONE_OF_A_KIND,
    OPTIONS,
    beside_nan,
    judge,
    judge_varlen,
    varlen_with_tiles,
    with_tiles,
)  # fmt: skip

MUTANTS = [
    Mutant("-inf minus -inf in rows that see nothing", "row_max = tl.full((ROWS,), LOWEST, tl.float32)", 'row_max = tl.full((ROWS,), -float("inf"), tl.float32)'),
    Mutant("mask aligned top-left, first half", "keys_seen(start_m + tl.arange(0, ROWS), T, S, window)", "keys_seen(start_m + tl.arange(0, ROWS) - (S - T), T, S, window)"),
    Mutant("mask aligned top-left, second half", "keys_seen(start_m + ROWS + tl.arange(0, ROWS), T, S, window)", "keys_seen(start_m + ROWS + tl.arange(0, ROWS) - (S - T), T, S, window)"),
    Mutant("second half has the mask of the first", "seen(columns, (first1 - start)[:, None], (last1 - start)[:, None], WINDOW)", "seen(columns, (first0 - start)[:, None], (last0 - start)[:, None], WINDOW)"),
    Mutant("ends of the rows not counted from the tile", "(last0 - start)[:, None]", "last0[:, None]"),
    Mutant("first keys not counted from the tile", "(first0 - start)[:, None]", "first0[:, None]"),
    Mutant("lse in base 2", "(row_max + tl.log2(row_sum)) * LN2", "(row_max + tl.log2(row_sum))"),
    Mutant("cap in base 2", "        s, _ = scale_and_cap(s, scale, softcap)\n        factor = LOG2E", "        s, _ = scale_and_cap(s, scale, softcap)\n        factor = 1.0"),
    Mutant("sink in base e", "tl.load(sinks_ptr + h).to(tl.float32) * LOG2E", "tl.load(sinks_ptr + h).to(tl.float32)"),
    Mutant("heads of keys counted as heads of queries", "h // group", "h % (H // group)"),
]  # fmt: skip

BACKWARD_MUTANTS = [
    Mutant("heads of keys counted as heads of queries", "h // group", "h % (H // group)"),
    Mutant("log-sum-exp in base e", "tl.exp2(s * factor - lse * LOG2E)", "tl.exp2(s * factor - lse)"),
    Mutant("probabilities not masked", "        p = tl.where(mask, p, 0.0)", "        p = p + 0.0"),
    Mutant("no slope of the cap", "        s, slope = scale_and_cap(s, scale, softcap)", "        s, _ = scale_and_cap(s, scale, softcap)"),
    Mutant("gradient through lse dropped", "do.to(tl.float32), axis=1) - dlse", "do.to(tl.float32), axis=1) - 0.0 * dlse"),
    Mutant("not summed over the group", "range(hk * group, hk * group + group)", "range(hk * group, hk * group + 1)"),
    Mutant("window not turned round for the keys", "key_ranges(low, high, T, (right, left), BLOCK_M)", "key_ranges(low, high, T, (left, right), BLOCK_M)"),
    Mutant("window not turned round in the mask of the keys", "keys_seen(offs_n, S, T, (right, left))", "keys_seen(offs_n, S, T, (left, right))"),
    Mutant("numbers of the next head past the last query", "ds = tl.where(mask, ds, 0.0)", "ds = ds + 0.0"),
    Mutant("numbers of the first sequence", "row = (entry * Hk * group + h) * total + start_q", "row = (entry * Hk * group + h) * total"),
    Mutant("scale left out of dq", "dq * scale, offs_m", "dq, offs_m"),
    Mutant("scale left out of dk", "dk * scale, offs_n", "dk, offs_n"),
    Mutant("upstream gradient with strides of its own goes to the descriptor", "else fitting(do)", "else do", error="AssertionError: base must be 16-byte aligned"),
]  # fmt: skip

SHARED_MUTANTS = [
    Mutant("one tile too many without a mask", "tl.maximum(tl.minimum(low + right + 1, S), 0) // BLOCK_N * BLOCK_N", "tl.cdiv(tl.maximum(tl.minimum(low + right + 1, S), 0), BLOCK_N) * BLOCK_N"),
    Mutant("one tile too few", "end = tl.maximum(tl.minimum(high + right + 1, S), begin)", "end = tl.maximum(tl.minimum(low + right + 1, S), begin)"),
    Mutant("left edge of the window without a mask", "full_begin = tl.minimum(tl.cdiv(tl.maximum(high - left, 0), BLOCK_N) * BLOCK_N, end)", "full_begin = begin"),
    Mutant("rows of the next sequence are not cleared", "tile = tl.where((row + tl.arange(0, ROWS) < length)[:, None], tile, 0.0)", "tile = tile"),
    Mutant("first key of the window not compared", "mask &= offs_n >= first", "mask &= offs_n >= 0"),
    Mutant("negative scale", "options.scale > 0 and all", "all"),
]  # fmt: skip

ONE_PASS_MUTANTS = [
    Mutant("keys past the end count in dq", "tl.where(start_n + BLOCK_N > S, full_begin, full_end)", "full_end"),
    Mutant("keys of the next sequence count in dq", "CLEAR: tl.constexpr = VARLEN and dq_ptr is not None", "CLEAR: tl.constexpr = False"),
    Mutant("dq is added to what was there", "tl.zeros((BLOCK_M, BLOCK_D), tl.float32), start_m + tl.arange(0, BLOCK_M), T,", "tl.zeros((BLOCK_M, BLOCK_D), tl.float32), start_m + tl.arange(0, BLOCK_M), 0 * T,"),
    Mutant("scale left out of dq in one pass", "torch.mul(sums, options.scale, out=dq)", "torch.mul(sums, 1.0, out=dq)"),
]  # fmt: skip


def by_position(values):
    """Token before head in memory, with NaN between them."""
    if values.dim() < 4:
        return values
    B, H, T, D = values.shape
    memory = values.new_full((B, T + 3, H, 2 * D), float("nan"))
    memory[:, :T, :, :D] = values.transpose(1, 2)
    return memory[:, :T, :, :D].transpose(1, 2)


def check(module):
    small = with_tiles(module)
    for D, HALVES in (8, 1), (72, 2):
        judge(
            with_tiles(module, HALVES=HALVES),
            dict(B=2, H=4, Hk=2, T=21, S=37, D=D),
            torch.float16,
            layout=by_position,
            causal=True,
            sinks=True,
            scale=2.0,
        )
    judge(
        small,
        dict(H=2, Hk=1, T=40, S=67, D=8),
        torch.float16,
        window=(20, 3),
        softcap=1.0,
        scale=3.0,
        upstream=harness.strided,
    )
    judge(with_tiles(module, HALVES=2), dict(H=1, Hk=1, T=37, S=21, D=72), torch.float16, causal=True)
    negative_scale(module)
    beside_nan(module, torch.float16)
    heads_beside_nan(module)
    judge_varlen(varlen_with_tiles(module), [3, 0, 20], [10, 4, 7], dtype=torch.float16, causal=True, sinks=True)


def heads_beside_nan(module):
    """Past the last query lie the numbers of the next head."""
    leaves = [harness.leaf(randn(1, 2, 20, 8, dtype=torch.float16)) for _ in range(3)]
    for leaf in leaves:
        leaf.data[:, 1] = float("nan")
    o = with_tiles(module)(*leaves, causal=True)
    gradients = torch.autograd.grad(o, leaves, randn(*o.shape, dtype=o.dtype))
    assert all(x[:, 0].isfinite().all() for x in (o, *gradients))


def check_one_pass(module):
    """What the mutants of the pass with atomics have to get past."""
    at_once = with_tiles(in_one_pass(module))
    judge(at_once, dict(H=4, Hk=2, T=20, S=37, D=8), torch.float16, window=(20, 3), sinks=True, scale=4.0)
    beside_nan(in_one_pass(module), torch.float16)
    far_below_zero(in_one_pass(module))


def far_below_zero(module):
    """The rows past the last key are zeros, but with a log-sum-exp of −177 their probability would be infinite."""
    numbers = (
        torch.full((1, 1, 32, 8), 8.0),
        torch.full((1, 1, 37, 8), -8.0),
        torch.linspace(-1, 1, 296).view(1, 1, 37, 8),
    )
    leaves = [harness.leaf(x.to(device.DEVICE, torch.float16)) for x in numbers]
    o = with_tiles(module)(*leaves)
    assert all(x.isfinite().all() for x in (o, *torch.autograd.grad(o, leaves, randn(*o.shape, dtype=o.dtype))))


def in_one_pass(module):
    """The module with the backward pass whose dQ is summed up by atomics."""
    at_once = functools.partial(module.attention_backward, deterministic=False)
    return types.SimpleNamespace(**vars(module) | dict(attention_backward=at_once))


def negative_scale(module):
    """The largest score is the smallest product then: the lesson's kernels take it."""
    q, k, v = (randn(1, 1, 9, 8, dtype=torch.float16) for _ in range(3))
    options = dict(scale=-30.0, causal=True)
    expected = lesson.flash_attention_reference(*(x.double() for x in (q, k, v)), **options)
    torch.testing.assert_close(with_tiles(module)(q, k, v, **options).double(), expected, rtol=1e-2, atol=1e-2)


@pytest.fixture
def only_fast(monkeypatch):
    """Fails if a call is left to the lesson's kernels."""
    monkeypatch.setattr(lesson, "attention_forward", None)
    monkeypatch.setattr(lesson, "attention_backward", None)


def test_check_passes():
    check(fast)


test_mutant_is_caught = harness.mutant_test(fast, MUTANTS, check)


def on_backward(check, folder):
    """`check` of the fast file, imported once more upon another backward half."""
    return lambda broken: check(harness.upon(backward, broken, fast, folder))


@pytest.mark.parametrize("mutant", harness.mutant_parameters(BACKWARD_MUTANTS))
def test_mutant_of_backward_is_caught(mutant, tmp_path):
    harness.assert_caught(backward, mutant, on_backward(check, tmp_path), tmp_path)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(SHARED_MUTANTS))
def test_mutant_of_what_both_halves_share_is_caught(mutant, tmp_path):
    def check_upon(broken):
        with pytest.MonkeyPatch.context() as patch:
            half = harness.upon(tiles, broken, backward, tmp_path)
            patch.setitem(sys.modules, backward.__name__, half)
            check(harness.upon(tiles, broken, fast, tmp_path))

    harness.assert_caught(tiles, mutant, check_upon, tmp_path)


def test_check_of_one_pass_passes():
    check_one_pass(fast)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(ONE_PASS_MUTANTS))
def test_mutant_of_one_pass_is_caught(mutant, tmp_path):
    harness.assert_caught(backward, mutant, on_backward(check_one_pass, tmp_path), tmp_path)


@pytest.mark.parametrize("options", ONE_OF_A_KIND)
def test_one_pass(options, only_fast):
    judge(with_tiles(in_one_pass(fast)), dict(B=2, H=4, Hk=2, T=20, S=37, D=8), torch.float16, **options)
    judge(with_tiles(in_one_pass(fast)), dict(H=2, Hk=1, T=41, S=18, D=8), torch.bfloat16, **options)


@pytest.mark.parametrize("options", [OPTIONS["causal"], OPTIONS["all"]], ids=str)
def test_one_pass_of_sequences(options, only_fast):
    judge_varlen(varlen_with_tiles(in_one_pass(fast)), [5, 0, 20], [9, 4, 33], dtype=torch.float16, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 96, 128])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_one_pass_with_the_usual_tiles(options, D):
    """Tiles of which a pair of programs may add to the same rows of dQ at the same time."""
    at_once = in_one_pass(fast)
    forward, backward = at_once.attention_forward, at_once.attention_backward

    def call(q, k, v, *, return_lse=False, sinks=None, **given):
        given = fast.contract(q, k, v, **DEFAULTS | given, sinks=sinks, return_lse=return_lse)
        o, lse = fast.attention(q, k, v, sinks, None, None, given, forward, backward)
        return (o, lse) if return_lse else o

    judge(call, dict(B=2, H=4, Hk=2, T=1000, S=1517, D=D), torch.bfloat16, **options)


@pytest.mark.parametrize("lengths", [([5, 0, 20], [9, 4, 33]), ([40, 3], [7, 0])], ids=str)
@pytest.mark.parametrize("options", ONE_OF_A_KIND)
def test_varlen(options, lengths, only_fast):
    judge_varlen(varlen_with_tiles(fast), *lengths, dtype=torch.float16, **options)


def chosen(q, k=None, sinks=None, widths=fast.FORWARD_WIDTHS, **options):
    k = q if k is None else k
    options = fast.contract(q, k, k, **DEFAULTS | options, sinks=sinks, return_lse=False)
    return fast.goes_below_triton(q, k, k, sinks, None, options, widths)


def test_what_goes_below_triton(monkeypatch):
    """Large dense calls with heads of 128 numbers on a Hopper card, and nothing else. Each is asked anew."""
    monkeypatch.setattr(launch, "COMPILED", False)
    q = randn(1, 1, 1, 128, dtype=torch.float16).expand(1, 1, 2**14 + 8, 128).contiguous()
    assert chosen(q) == (not device.INTERPRET and device.has("gluon"))
    monkeypatch.setattr(device, "INTERPRET", False)
    monkeypatch.setattr(device, "has", lambda *feature: True)
    assert chosen(q) and chosen(q, causal=True) and chosen(q[:, :, :-1], q)
    assert not chosen(q[:, :, :-1], q, causal=True), "the last query sees the last key"
    assert chosen(q[..., :64], widths=fast.BACKWARD_WIDTHS) and not chosen(q[..., :32], widths=fast.BACKWARD_WIDTHS)
    assert not chosen(q[..., :64]) and not chosen(q.float()) and not chosen(q[:, :, :2000])
    assert not chosen(q, causal=True, window=100) and not chosen(q, softcap=5.0)
    assert not chosen(q, scale=-1.0) and not chosen(q, sinks=randn(1, dtype=torch.float16))
    monkeypatch.setattr(device, "has", lambda *feature: False)
    assert not chosen(q)


#: Heads of 128 numbers go there in both passes, of 64 in the backward pass alone.
BELOW = {"attention_forward": dict(B=1, H=32, Hk=8, T=3000, S=3000, D=128)}
BELOW["attention_backward"] = dict(B=2, H=16, Hk=16, T=3001, S=3001, D=64)


@pytest.mark.gpu
@pytest.mark.parametrize("first", BELOW)
@pytest.mark.parametrize("options", [{}, dict(causal=True)], ids=["full", "causal"])
def test_below_triton(options, first, monkeypatch):
    """Right, with gradients, and by those kernels: from the first of these passes on Triton's are gone."""
    if not device.has("gluon"):
        pytest.skip("needs a Hopper GPU")
    for name in list(BELOW)[list(BELOW).index(first) :]:
        monkeypatch.setattr(fast, name, None)
    judge(fast.flash_attention, BELOW[first], torch.bfloat16, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128])
def test_same_bits_twice_and_in_any_order(D):
    """Each tile is computed by one program, in one order: nothing depends on which of them comes first."""
    inputs = [randn(2, 4, 1000, D, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    runs = []
    for _ in range(3):
        o = fast.flash_attention(*inputs, causal=True)
        runs.append([o, *torch.autograd.grad(o, inputs, torch.ones_like(o))])
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run))


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("lengths", [(4096, 4096), (1000, 3000), (3000, 1000), (129, 8191)], ids=str)
@pytest.mark.parametrize("options", [OPTIONS["full"], OPTIONS["causal"], dict(causal=True, window=700)], ids=str)
def test_lengths_of_a_real_call(options, lengths, D):
    T, S = lengths
    judge(fast.flash_attention, dict(B=1, H=2, Hk=1, T=T, S=S, D=D), torch.bfloat16, **options)
