"""causal_attention: values and all gradients, hostile inputs, errors, the size of its signatures, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from annotated_examples.attention import causal_attention as module
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

MUTANTS = [
    Mutant("fp32 products in tf32", "INPUT_PRECISION=input_precision()", 'INPUT_PRECISION="tf32"', gpu=True),
    Mutant("zero times the NaN of a hidden query", "ds = tl.where(mask, p * (dp - delta[None, :]), 0.0)", "ds = p * (dp - delta[None, :])"),
    Mutant("queries past the end count", " & (offs_m < T)[None, :]", ""),
]  # fmt: skip


def qkv(B=1, H=2, T=70, D=16, dtype=torch.float32, layout=lambda values: values):
    return {name: layout(randn(B, H, T, D, dtype=dtype)) for name in "qkv"}


def right(module, inputs, upstream=None, **options):
    call = lambda f: lambda **tensors: f(**tensors, **options)  # noqa: E731
    harness.assert_right(call(module.causal_attention), call(module.causal_attention_reference), inputs, upstream)


def gradients_in_tiles(module, inputs, do, BLOCK_M, BLOCK_N):
    """`o, lse, dq, dk, dv` of the launchers."""
    tiles = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    o, lse = module.causal_attention_forward(**inputs, scale=0.3, **tiles)
    return o, lse, *module.causal_attention_backward(do, **inputs, o=o, lse=lse, scale=0.3, **tiles)


def check(module):
    inputs = qkv(B=2, layout=harness.strided)
    right(module, inputs, harness.transposed(randn(2, 2, 70, 16)), scale=0.7)
    nan_after_a_token(module)
    infinite_key(module)


def nan_after_a_token(module):
    """A NaN in the last value stays in its tile of queries; one that flows back to query 0 reaches the key 0 it sees."""
    inputs, do = qkv(H=1), randn(1, 1, 70, 16)
    values = gradients_in_tiles(module, inputs, do, 16, 16)
    inputs["v"][..., 69, :] = float("nan")
    for name, mine, clean in zip(("o", "lse", "dq"), gradients_in_tiles(module, inputs, do, 16, 16), values):
        assert torch.equal(mine[:, :, :64], clean[:, :, :64]), name
    assert gradients_in_tiles(module, inputs, do, 16, 16)[2][0, 0, 69].isnan().all()
    do[..., 0, :] = float("nan")
    dk = gradients_in_tiles(module, qkv(H=1), do, 16, 16)[3]
    assert dk[0, 0, 0].isnan().all() and dk[:, :, 1:].isfinite().all()


def infinite_key(module):
    """Its scores are −∞, so its value has no gradient. Rows past the last query are zeros, and zero times it is NaN."""
    inputs = qkv(H=1, T=20)
    inputs["q"].abs_()
    inputs["k"][..., 5, :] = -float("inf")
    dv = gradients_in_tiles(module, inputs, randn(1, 1, 20, 16), 16, 16)[4]
    assert dv.isfinite().all() and not dv[0, 0, 5].any()


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


@pytest.mark.parametrize("D", [16, 128])
@pytest.mark.parametrize("T", [2, 3, 5])
def test_few_keys(T, D):
    """dP - delta cancels where a query sees few keys: for the first query it is zero. PyTorch sums delta from dP itself,
    so its rounding cancels too. Here delta comes from the output (that is what makes flash attention possible), so the
    error is a few roundings of the terms, not of their difference."""
    inputs, do = qkv(T=T, D=D, H=1), randn(1, 1, T, D)
    mine = harness.gradients(module.causal_attention, inputs, do)
    exact = harness.gradients(
        module.causal_attention_reference, {n: x.double() for n, x in inputs.items()}, do.double()
    )
    q, k, v = (inputs[name].double() for name in "qkv")
    hidden = torch.ones(T, T, dtype=torch.bool, device=DEVICE).triu(1)
    p = (q @ k.mT / D**0.5).masked_fill(hidden, -float("inf")).softmax(-1)
    products = do.double().abs() @ v.mT.abs()
    terms = p * (products + (p * products).sum(-1, keepdim=True)) / D**0.5
    for name, largest in dict(dq=terms @ k.abs(), dk=terms.mT @ q.abs()).items():
        allowed = 16 * torch.finfo(torch.float32).eps * largest.norm()
        assert (mine[name].double() - exact[name]).norm() <= allowed, name
    assert (mine["dq"][0, 0, 0].abs() <= 64 * torch.finfo(torch.float32).eps * terms[0, 0, 0, 0]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("D", module.HEAD_DIMENSIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_lengths_of_a_real_call(dtype, D):
    right(module, qkv(B=2, H=4, T=1000, D=D, dtype=dtype))
