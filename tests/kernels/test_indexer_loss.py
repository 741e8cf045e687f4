"""indexer_loss: lists with gaps, repeats and ties, targets of any sum, the order of sums, errors, mutants.

The traps of losses that train indexers, and the check or mutant ("…") that holds each:

1. The log-sum-exp of other scores: the backward pass calls the forward's `scores`; `check` holds it to PyTorch's error.
2. A teacher over another set, floors, a mean for the sum: "zero times minus infinity", `queries_are_summed`, "what is missing
    counts in the sum".
3. Atomics into memory that nobody has cleared: "a key's rows begin anew with each launch", `test_the_same_bits_each_time`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.runtime import device
from academy.judge.fences import far_apart
from annotated_examples.attention import indexer_loss as module
from annotated_examples.common import selected
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import unchecked

MUTANTS = [
    Mutant("no ReLU in the scores", "logits = tl.sum(tl.where(z <= 0.0, 0.0, z) * weights[None, :], axis=1)", "logits = tl.sum(z * weights[None, :], axis=1)"),
    Mutant("what is missing counts in the sum", "tl.where(chosen, logits, tl.where(j == -1", "tl.where(chosen, logits, tl.where(j == -2"),
    Mutant("an index that can't be is missing", 'tl.where(j == -1, -float("inf"), float("nan"))', 'tl.where(j < 1000, -float("inf"), -float("inf"))'),
    Mutant("the first key for what is missing", "mask=offs_k < K, other=-1)", "mask=offs_k < K, other=0)"),
    Mutant("a target where nothing is chosen", "mask=chosen, other=0.0)\n    k = load_rows", "mask=offs_k < K, other=0.0)\n    k = load_rows"),
    Mutant("the sum of exponentials isn't rescaled", "row_sum = row_sum * exp(row_max - new_max)", "row_sum = row_sum"),
    Mutant("the terms don't follow the largest score", "cross += mass * (new_max - row_max) + tl.sum", "cross += tl.sum"),
    Mutant("a target that adds up to 1", "mass += tl.sum(p, axis=0)", "mass = tl.sum(p, axis=0) * 0.0 + 1.0"),
    Mutant("a query without keys is NaN", "tl.log(tl.where(row_sum == 0.0, 1.0, row_sum))", "tl.log(row_sum)"),
    Mutant("the entropy of the target dropped", "(tl.log(tl.where(p == 0.0, 1.0, p)) - (logits - new_max))", "(0.0 - (logits - new_max))"),
    Mutant("zero times minus infinity", "tl.where(p == 0.0, 0.0, p * (tl.log(tl.where(p == 0.0, 1.0, p))", "tl.where(p < 0.0, 0.0, p * (tl.log(p)"),
    Mutant("p dropped from the gradient", "/ row_sum * mass - p)", "/ row_sum * mass)"),
    Mutant("the target's sum dropped from the gradient", "/ row_sum * mass - p)", "/ row_sum - p)"),
    Mutant("the upstream gradient dropped", "* tl.load(dloss_ptr)", "* 1.0"),
    Mutant("the key's gradient passes the ReLU", "dz = tl.where(z <= 0.0, 0.0, weights[None, :] * dlogits[:, None])", "dz = weights[None, :] * dlogits[:, None] + 0.0 * z"),
    Mutant("the query's gradient passes the ReLU", "dz = tl.where(z <= 0.0, 0.0, weights[:, None] * dlogits[None, :])", "dz = weights[:, None] * dlogits[None, :] + 0.0 * z"),
    Mutant("the weight's gradient passes the ReLU", "dweights += tl.sum(tl.where(z <= 0.0, 0.0, z)", "dweights += tl.sum(z"),
    Mutant("the last tile alone", "dq = multiply_add(dz.to(k.dtype), k, dq, INPUT_PRECISION)", "dq = multiply_add(dz.to(k.dtype), k, dq * 0.0, INPUT_PRECISION)"),
    Mutant("rows of the whole, in each launch", "(rows_ptr + tl.program_id(0).to(tl.int64) * K * D, D, 1)", "(rows_ptr + tl.program_id(0).to(tl.int64) * D, D, 1)"),
    Mutant("a launch forgets which query it begins with", "row = first + tl.program_id(0)", "row = tl.program_id(0) + first * 0"),
    Mutant("strides of the target ignored", "(target, *target.stride())", "(target, target.shape[1], 1)"),
]  # fmt: skip

#: Of what it shares with attention to selected keys: the sum of a key.
SHARED = [
    Mutant("a key's rows begin anew with each launch", "acc = tl.load(dk_ptrs, mask=offs_d < D, other=0.0)", "acc = tl.zeros((BLOCK_D,), tl.float64)"),
    Mutant("a row of another pair", "tl.load(rows_ptr + at * D + offs_d", "tl.load(rows_ptr + place * D + offs_d"),
    Mutant("the queries of the first launch", "lists[first : first + queries]) for", "lists[:queries]) for"),
]  # fmt: skip


def inputs(M=5, S=23, K=19, H=3, D=10, dtype=torch.float32, gaps=True):
    """Lists without order; with `gaps` some are missing anywhere, one query has none, another one twice the same."""
    q, k, weights = randn(M, H, D).to(dtype), randn(S, D).to(dtype), randn(M, H) / H
    indices = torch.stack([torch.randperm(max(S, K))[:K] % S for _ in range(M)]).int()
    if gaps:
        indices[0, ::3], indices[1], indices[2, 1] = -1, -1, indices[2, 0]
    target = torch.rand(M, K) * 0.3
    target[3:4, 4:9] = 0.0
    target[4:] *= 0 if gaps else 1
    return dict(q=q, k=k, weights=weights, indices=indices.to(DEVICE), target=target.to(DEVICE))


def small(module):
    """The loss in tiles of 16 keys, three queries in a launch of the backward pass."""

    class Small(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            loss, sums = module.indexer_loss_forward(*inputs, BLOCK_N=16)
            ctx.save_for_backward(*inputs, sums)
            return loss

        @staticmethod
        def backward(ctx, dloss):
            return *module.indexer_loss_backward(dloss, *ctx.saved_tensors, BLOCK_N=16, queries=3), None, None

    return lambda **given: Small.apply(*given.values())


def right(function, reference, given, factor=1.0):
    """The loss, times a factor, and the gradients of what learns."""
    __tracebackhide__ = True
    learns = {name: given[name] for name in ("q", "k", "weights")}

    def of(function):
        def call(**tensors):
            others = {
                name: given[name].to(tensors["weights"].dtype) if name == "target" else given[name]
                for name in ("indices", "target")
            }
            return function(**tensors, **others) * factor

        return call

    harness.assert_right(of(function), of(reference), learns)


def impossible(function):
    """An index that is none of the keys: the loss is NaN, and nothing outside is read."""
    given = inputs(gaps=False)
    for index in (23, -2, 2**31 - 1):
        indices = given["indices"].clone()
        indices[2, 5] = index
        assert unchecked(lambda **tensors: function(**tensors), given | dict(indices=indices)).isnan()


def unseen(module):
    """Keys in no list and targets of what is missing may be NaN; keys in no list get a gradient of 0."""
    given = inputs(M=4, S=9, K=5)
    given["indices"] = torch.tensor(
        [[1, 3, -1, 5, 3], [-1] * 5, [5, -1, -1, 1, 7], [7, 3, 1, 5, -1]], dtype=torch.int32, device=DEVICE
    )
    given["target"][given["indices"] < 0] = math.nan
    k = given["k"].clone()
    k[::2] = math.nan
    leaves = {
        name: x.detach().requires_grad_() for name, x in dict(q=given["q"], k=k, weights=given["weights"]).items()
    }
    loss = small(module)(**leaves, indices=given["indices"], target=given["target"])
    loss.backward()
    assert loss.isfinite() and all(x.grad.isfinite().all() for x in leaves.values())
    assert not leaves["k"].grad[::2].any() and not leaves["q"].grad[1].any() and not leaves["weights"].grad[1].any()


def check(module):
    function, reference = small(module), module.indexer_loss_reference
    right(function, reference, inputs(), factor=-0.75)
    right(function, reference, inputs(M=7, K=40, gaps=False))
    strided = inputs(M=4)
    right(
        function,
        reference,
        strided | dict(target=strided["target"].T.contiguous().T, indices=strided["indices"].T.contiguous().T),
    )
    impossible(function)
    unseen(module)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(selected, SHARED, check, within=module)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("H", "D"), [(1, 1), (5, 40), (64, 128), (128, 16)])
def test_widths(H, D, dtype):
    right(module.indexer_loss, module.indexer_loss_reference, inputs(H=H, D=D, dtype=dtype, S=50, K=30))


def test_the_gradient_of_a_score():
    """With one head, weights of 1 and keys that are rows of an identity: softmax less target."""
    q, target = torch.rand(3, 1, 6, device=DEVICE) + 0.1, torch.softmax(randn(3, 6), -1)
    given = dict(q=q.requires_grad_(), k=torch.eye(6, device=DEVICE), weights=torch.ones(3, 1, device=DEVICE))
    indices = torch.arange(6, dtype=torch.int32, device=DEVICE).expand(3, 6)
    module.indexer_loss(**given, indices=indices, target=target).backward()
    torch.testing.assert_close(q.grad[:, 0], torch.softmax(q[:, 0].detach(), -1) - target, rtol=1e-5, atol=1e-6)


def test_zero_where_both_agree():
    """The target is the indexer's own distribution: no loss, and next to no gradient."""
    given = inputs(gaps=False, M=3)
    z = torch.einsum("mhd,nd->mhn", given["q"], given["k"]).relu()
    scores = (z * given["weights"][..., None]).sum(1).gather(1, given["indices"].long())
    given["target"] = torch.softmax(scores, 1)
    loss = module.indexer_loss(**given | dict(q=given["q"].requires_grad_()))
    loss.backward()
    assert abs(loss.item()) < 1e-5 and given["q"].grad.abs().max() < 1e-5


def test_queries_are_summed():
    """In one call or one by one."""
    given = inputs(gaps=False)
    one = lambda row: {name: x if name == "k" else x[row : row + 1] for name, x in given.items()}  # noqa: E731
    parts = sum(module.indexer_loss(**one(row)) for row in range(5))
    torch.testing.assert_close(module.indexer_loss(**given), parts, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("queries", [1, 2, 5, 9])
def test_any_number_of_queries_in_a_launch(queries):
    """The same bits: a key's rows are added one by one."""
    given = inputs(M=9, gaps=False)
    loss, sums = module.indexer_loss_forward(**given)
    whole = module.indexer_loss_backward(torch.ones_like(loss), **given, sums=sums)
    parts = module.indexer_loss_backward(torch.ones_like(loss), **given, sums=sums, queries=queries)
    assert all(torch.equal(one, other) for one, other in zip(whole, parts))


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    given = inputs(M=6, S=4, K=16, dtype=torch.bfloat16, gaps=False)  # each key is in each list, several times
    fixed = {name: given.pop(name) for name in ("indices", "target")}
    harness.assert_bitwise_repeatable(lambda **tensors: module.indexer_loss(**tensors, **fixed), given, None, times)


@pytest.mark.parametrize(("M", "S", "K"), [(0, 3, 2), (3, 0, 2), (3, 4, 0)])
def test_nothing_to_do(M, S, K):
    learns = dict(q=randn(M, 2, 4), k=randn(S, 4), weights=randn(M, 2))
    learns = {name: x.requires_grad_() for name, x in learns.items()}
    none = torch.full((M, K), -1, dtype=torch.int32, device=DEVICE)
    loss = module.indexer_loss(**learns, indices=none, target=torch.ones(M, K, device=DEVICE))
    loss.backward()
    assert loss.item() == 0 and not any(x.grad.any() for x in learns.values())


@pytest.mark.skipif(not device.INTERPRET, reason="a card reads what isn't there")
def test_far_away():
    """Neighbours lie 2³¹ elements apart."""
    given = inputs(M=3, dtype=torch.float16)
    expected = module.indexer_loss(**given)
    for name in ("q", "k", "indices", "target"):
        assert torch.equal(module.indexer_loss(**given | {name: far_apart(given[name])}), expected), name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_a_real_call(dtype):
    given = inputs(M=200, S=3000, K=1000, H=64, D=128, dtype=dtype)
    right(module.indexer_loss, module.indexer_loss_reference, given)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "q must be a torch.Tensor, got list", dict(q=[1.0])),
        (TypeError, "q must be one of float32, float16, bfloat16", dict(q=torch.ones(2, 3, 4).double())),
        (ValueError, "q must have 3 dimensions (M, H, D)", dict(q=torch.ones(2, 3))),
        (TypeError, "k must have the dtype of q", dict(k=torch.ones(5, 4).half())),
        (ValueError, "k must have shape (5, 4)", dict(k=torch.ones(5, 3))),
        (ValueError, "weights must have shape (2, 3)", dict(weights=torch.ones(3, 2))),
        (TypeError, "weights must be one of float32", dict(weights=torch.ones(2, 3).half())),
        (TypeError, "indices must be one of int32", dict(indices=torch.ones(2, 2, dtype=torch.int64))),
        (ValueError, "indices must have shape (2, 2)", dict(indices=torch.ones(3, 2, dtype=torch.int32), target=torch.ones(3, 2))),
        (ValueError, "target must have shape (2, 2)", dict(target=torch.ones(2, 3))),
        (ValueError, "indices must be in [-1, 5), got -2 to 1", dict(indices=torch.tensor([[-2, 1]] * 2, dtype=torch.int32))),
        (ValueError, "q must have 1 to 128 heads of 1 to 128 numbers", dict(q=torch.ones(2, 3, 129), k=torch.ones(5, 129))),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(
        q=torch.ones(2, 3, 4),
        k=torch.ones(5, 4),
        weights=torch.ones(2, 3),
        indices=torch.ones(2, 2, dtype=torch.int32),
        target=torch.ones(2, 2),
    )
    harness.assert_refused(error, message, module.indexer_loss, **given | change)
