"""classics/rope: both kinds of pairs, partial rotation, tables, layouts, gradients, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.classics import rope as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

MUTANTS = [
    Mutant("strides of a table ignored", "cos.contiguous(), sin.contiguous()", "cos, sin"),
    Mutant("angles in the dtype of q", "sin = tl.load(sin_ptr + angles, mask=offs_r < R // 2, other=0.0).to(tl.float32)", "sin = tl.load(sin_ptr + angles, mask=offs_r < R // 2, other=0.0).to(q[0].dtype.element_ty).to(tl.float32)"),
    Mutant("products in the dtype of q", "turned_b = b * cos + a * sin", "turned_b = (b * cos).to(x_ptr.dtype.element_ty).to(tl.float32) + a * sin"),
    Mutant("every sequence at the positions of the first", "T * R // 2 if cos.dim() == 3 else 0", "0"),
]  # fmt: skip


def tables(T, R, B=None, dtype=torch.float32, first=0):
    """Cosine and sine for `T` tokens from position `first` on; with `B`, each sequence stands somewhere else."""
    positions = torch.arange(first, first + T, device=DEVICE, dtype=torch.float32)
    if B is not None:
        positions = positions + 7 * torch.arange(B, device=DEVICE)[:, None]
    angles = positions[..., None] / 100 ** (torch.arange(R // 2, device=DEVICE) / max(R // 2, 1))
    return dict(cos=angles.cos().to(dtype), sin=angles.sin().to(dtype))


def heads(B, H, Hk, T, D, dtype=torch.float32):
    return dict(q=randn(B, H, T, D, dtype=dtype), k=randn(B, Hk, T, D, dtype=dtype))


def both(function, interleaved=False, **angles):
    """`function` of q and k alone, with its results side by side, so that one upstream gradient serves both."""
    return lambda q, k: torch.cat(function(q, k, **angles, interleaved=interleaved), dim=1)


def assert_right(module, inputs, angles, interleaved=False, upstream=None):
    pair = (both(function, interleaved, **angles) for function in (module.rope, lesson.rope_reference))
    with harness.unchanged(**angles):
        harness.assert_right(*pair, inputs, upstream)


def tokens_first(x):
    """The same values as the view of a (B, T, H, D) tensor."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def rounded_once(module):
    """bfloat16 hides a lot below its 8 bits. With angles in float32 nearly every result must be the bfloat16 number
    nearest to the right one."""
    inputs, angles = heads(1, 16, 8, 3, 64, dtype=torch.bfloat16), tables(3, 64, first=1000)
    for interleaved in (False, True):
        results = module.rope(**inputs, **angles, interleaved=interleaved)
        exact = lesson.rope_reference(**{n: v.double() for n, v in (inputs | angles).items()}, interleaved=interleaved)
        for y, right in zip(results, exact):
            assert (y == right.to(torch.bfloat16)).float().mean() > 0.99


def check(module):
    """Everything a mutant has to get past."""
    B, H, Hk, T, D, R = 2, 5, 3, 3, 14, 10
    inputs = {n: harness.nan_fenced(v) for n, v in heads(B, H, Hk, T, D).items()}
    for interleaved in (False, True):
        assert_right(module, inputs, tables(T, R), interleaved, randn(B, H + Hk, T, D))
        first = dict(inputs, q=tokens_first(inputs["q"]))
        assert_right(module, first, tables(T, D, B), interleaved, harness.sliced(randn(B, H + Hk, T, D)))
    assert_right(
        module,
        {n: harness.strided(v) for n, v in inputs.items()},
        {n: harness.strided(v) for n, v in tables(T, R).items()},
    )
    rounded_once(module)


def test_check_passes():
    check(lesson)


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, check)


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float16)], ids=str)
def test_tables_of_another_dtype(dtypes):
    dtype, of_tables = dtypes
    assert_right(lesson, heads(2, 2, 2, 3, 8, dtype=dtype), tables(3, 8, dtype=of_tables))


def test_q_and_k_of_different_dtypes():
    q, k, angles = randn(1, 2, 3, 8, dtype=torch.bfloat16), randn(1, 1, 3, 8), tables(3, 8)
    results = lesson.rope(q, k, **angles)
    for y, x in zip(results, (q, k)):
        exact = lesson.turned_reference(x.double(), *angles.values(), False)
        accuracy.check("turned", y, lesson.turned_reference(x, *angles.values(), False), exact)


def test_features_that_are_not_turned_keep_their_bits():
    q = randn(1, 2, 3, 8, dtype=torch.bfloat16)
    q[0, 0, 0, 5:] = torch.tensor([float("nan"), float("inf"), -0.0])
    for R in (0, 4):
        y, _ = lesson.rope(q, q, **tables(3, R))
        assert torch.equal(y[..., R:].contiguous().view(torch.int16), q[..., R:].contiguous().view(torch.int16))


def test_results_have_the_layout_of_their_inputs():
    q, k = tokens_first(randn(2, 3, 4, 8)), randn(2, 1, 4, 8)
    q_out, k_out = lesson.rope(q, k, **tables(4, 8))
    assert q_out.stride() == q.stride() and k_out.stride() == k.stride()


@pytest.mark.parametrize("used", [0, 1], ids=["q", "k"])
def test_only_one_result_used(used):
    """What the loss doesn't see has an upstream gradient of zero."""
    inputs, angles = heads(1, 2, 2, 3, 8), tables(3, 8)
    pair = (
        lambda q, k, f=f: f(q, k, **angles)[used] + (q.sum() + k.sum()) / 2
        for f in (lesson.rope, lesson.rope_reference)
    )
    harness.assert_right(*pair, inputs, randn(1, 2, 3, 8))


# ---------------------------------------------------------------- errors

FITTING = dict(q=torch.ones(2, 3, 4, 8), k=torch.ones(2, 1, 4, 8), cos=torch.ones(4, 4), sin=torch.ones(4, 4))


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(q=[1.0]), TypeError, "q must be a torch.Tensor, got list"),
        (dict(k=torch.ones(2, 1, 4, 8).long()), TypeError, "k must be one of float32, float16, bfloat16, got int64"),
        (dict(cos=torch.ones(4, 4).double()), TypeError, "cos must be one of float32, float16, bfloat16, got float64"),
        (dict(q=torch.ones(3, 4, 8)), ValueError, r"q must have 4 dimensions \(B, H, T, D\), got shape \(3, 4, 8\)"),
        (dict(k=torch.ones(2, 4, 8)), ValueError, r"k must have 4 dimensions \(B, Hk, T, D\)"),
        (dict(k=torch.ones(1, 1, 4, 8)), ValueError, r"k must have shape \(2, 1, 4, 8\) .*, got \(1, 1, 4, 8\)"),
        (dict(k=torch.ones(2, 1, 5, 8)), ValueError, r"k must have shape \(2, 1, 4, 8\)"),
        (dict(k=torch.ones(2, 1, 4, 6)), ValueError, r"k must have shape \(2, 1, 4, 8\)"),
        (dict(cos=torch.ones(4)), ValueError, "cos must have 2 or 3 dimensions"),
        (dict(cos=torch.ones(5, 4), sin=torch.ones(5, 4)), ValueError, r"cos must have shape \(4, 4\) .*, got \(5, 4\)"),
        (dict(cos=torch.ones(1, 4, 4)), ValueError, r"cos must have shape \(2, 4, 4\) .*, got \(1, 4, 4\)"),
        (dict(sin=torch.ones(4, 3)), ValueError, r"sin must have shape \(4, 4\) \(as cos\), got \(4, 3\)"),
        (dict(cos=torch.ones(4, 5), sin=torch.ones(4, 5)), ValueError, "cos must have a column for each pair of the 8 features of q, got 5 columns"),
        (dict(cos=torch.ones(4, 4, requires_grad=True)), ValueError, "cos requires a gradient"),
        (dict(sin=torch.ones(4, 4, requires_grad=True)), ValueError, "sin requires a gradient"),
        (dict(sin=torch.ones(4, 4, device="meta")), ValueError, "sin is on meta"),
        (dict(interleaved=1), ValueError, "interleaved must be one of False, True, got 1"),
    ],
    FITTING,
    lesson.rope,
)  # fmt: skip


test_bad_tile_size = harness.raises_test(
    [(lambda: lesson.rope_forward(*map(harness.on_device, FITTING.values()), BLOCK_H=3), ValueError,
      "BLOCK_H must be a power of two")]
)  # fmt: skip


# ---------------------------------------------------------------- on a GPU only


@pytest.mark.gpu
def test_offsets_past_32_bits():
    """More than 2^31 elements, so that the last head begins past them. There is no mutant for this: a wrapped offset
    ends the CUDA context."""
    H, T, D = 65, 2**19 + 8, 64
    q = torch.empty(1, H, T, D, device=DEVICE, dtype=torch.bfloat16).normal_()
    angles = tables(T, D)
    q_out, _ = lesson.rope(q, q[:, :1], **angles)
    last = q[:, -1:, -100:]
    cos, sin = angles["cos"][-100:], angles["sin"][-100:]
    references = (lesson.turned_reference(x, cos, sin, False) for x in (last, last.double()))
    accuracy.check("last head", q_out[:, -1:, -100:], *references)
