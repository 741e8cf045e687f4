"""selected_probabilities: sums of the target, lists with gaps and repeats, addresses, errors, mutants.

Of the traps that test_sparse_mla.py numbers, 15, a target with sinks, is `test_sums`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.attention import selected_probabilities as module
from annotated_examples.attention.indexer_loss import indexer_loss
from annotated_examples.attention.sparse_mla import sparse_attention
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import unchecked
from tests.kernels.test_sparse_mla import inputs as of_attention

MUTANTS = [
    Mutant("what is none counts", "counts = (offs_h < H)[None, :] & (j != -1)[:, None]", "counts = (offs_h < H)[None, :] & (j != -2)[:, None]"),
    Mutant("the rest of a wide row left out", "H, K, W, one_page(kv)", "H, K, min(W, 16), one_page(kv)"),
]  # fmt: skip


def inputs(scale=0.3, rank=12, **sizes):
    """Arguments of attention, and its log-sum-exps as PyTorch computes them in float64."""
    given = of_attention(rank=rank, **sizes)
    lists, sinks = given["indices"], given.pop("sinks", None)
    rows = given["kv"].double()[lists.clamp(min=0).long()]
    s = scale * torch.einsum("thw,tkw->thk", given["q"].double(), rows).masked_fill((lists < 0)[:, None], -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double()[None, :, None].expand(len(s), -1, 1)], -1)
    return given | dict(lse=torch.logsumexp(s, -1))


def right(module, function, given, scale=0.3):
    __tracebackhide__ = True
    as_called = given | dict(lse=given["lse"].float())
    with harness.unchanged(**as_called), harness.fenced_allocations():
        mine = function(**as_called, scale=scale)
    exact = {name: x.double() if x.is_floating_point() else x for name, x in given.items()}
    pytorch = module.selected_probabilities_reference(**as_called, scale=scale)
    accuracy.check("p", mine, pytorch, module.selected_probabilities_reference(**exact, scale=scale))


def small(module):
    return lambda q, kv, indices, lse, *, scale: module.selected_probabilities_forward(
        q, kv, indices, lse, scale, BLOCK_M=16, BLOCK_N=16
    )


def check(module):
    right(module, small(module), inputs(H=18))
    right(module, small(module), inputs(sinks=True, K=33, E=0))
    given = inputs(S=9)
    right(module, small(module), given | {name: given[name].T.contiguous().T for name in ("kv", "indices", "lse")})
    right(module, small(module), inputs(T=2, H=2, K=10, rank=512, E=64), scale=0.05)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("rank", "E"), [(1, 0), (40, 64), (512, 0), (512, 64)])
def test_widths(rank, E, dtype):
    given = inputs(T=3, H=2, S=25, K=20, E=E, rank=rank, dtype=dtype, scale=0.05)
    right(module, module.selected_probabilities, given, scale=0.05)


@pytest.mark.parametrize("H", [1, 5, 17, 128])
def test_numbers_of_heads(H):
    right(module, module.selected_probabilities, inputs(T=3, H=H, S=9, K=18))


@pytest.mark.parametrize("sinks", [False, True])
def test_sums(sinks):
    """With the log-sum-exp that attention returns a row adds up to 1; with sinks to what they leave; to 0 without keys."""
    given, options = of_attention(sinks=sinks), dict(rank=12, scale=0.3, return_lse=True)
    _, lse = sparse_attention(**given, **options)
    sink = given.pop("sinks", None)
    found = module.selected_probabilities(**given, lse=lse, scale=0.3).sum(1)
    left = 1 - torch.exp(sink - lse).mean(1) if sinks else (given["indices"] >= 0).any(1).float()
    torch.testing.assert_close(found, left, rtol=1e-5, atol=1e-6)
    assert found[2] == 0 and (not sinks or (found < 0.999).all())


def test_it_is_the_target_of_the_loss():
    """An indexer that says what attention does has no loss: its scores are the logarithms of the target."""
    given = of_attention(T=4, H=3, S=30, K=9, gaps=False)
    given["indices"] = torch.stack([torch.randperm(30)[:9] for _ in range(4)]).int().to(DEVICE)
    _, lse = sparse_attention(**given, rank=12, scale=0.3, return_lse=True)
    target = module.selected_probabilities(**given, lse=lse, scale=0.3)
    # Keys that are rows of an identity, and a query of logarithms, which a constant makes positive.
    logits = torch.zeros(4, 1, 30, device=DEVICE).scatter(
        2, given["indices"][:, None].long(), target[:, None].log() + 50
    )
    keys, weights = torch.eye(30, device=DEVICE), torch.ones(4, 1, device=DEVICE)
    assert abs(indexer_loss(logits, keys, weights, given["indices"], target).item()) < 1e-4


def test_a_mistake_is_nan():
    given = inputs(gaps=False)
    given = given | dict(lse=given["lse"].float())
    for index in (31, -2, 2**31 - 1):
        indices = given["indices"].clone()
        indices[2, 5] = index
        call = lambda **tensors: module.selected_probabilities(**tensors, scale=0.3)  # noqa: E731
        p = unchecked(call, given | dict(indices=indices))
        assert p[2, 5].isnan() and p.isnan().sum() == 1


@pytest.mark.parametrize(("T", "S", "K"), [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_nothing_to_do(T, S, K):
    indices = torch.full((T, K), -1, dtype=torch.int32, device=DEVICE)
    p = module.selected_probabilities(randn(T, 2, 8), randn(S, 8), indices, torch.zeros(T, 2, device=DEVICE), scale=1.0)
    assert p.shape == (T, K) and not p.any()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("H", [16, 128])
def test_a_real_call(H, dtype):
    given = inputs(T=100, H=H, S=3000, K=1000, E=64, rank=512, dtype=dtype, scale=192**-0.5)
    right(module, module.selected_probabilities, given, scale=192**-0.5)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "lse must be a torch.Tensor, got NoneType", dict(lse=None)),
        (TypeError, "lse must be one of float32, got float16", dict(lse=torch.ones(2, 3).half())),
        (ValueError, "lse must have shape (2, 3) (the queries and heads of q)", dict(lse=torch.ones(3, 2))),
        (ValueError, "kv must have shape (5, 16) (the width of q)", dict(kv=torch.ones(5, 15))),
        (ValueError, "indices must have shape (2, 2) (a list for each query)", dict(indices=torch.ones(3, 2).int())),
        (ValueError, "indices must be in [-1, 5), got -2 to 1", dict(indices=torch.tensor([[-2, 1]] * 2).int())),
        (ValueError, "q must have a head and 1 to 576 columns", dict(q=torch.ones(2, 3, 577), kv=torch.ones(5, 577))),
        (ValueError, "q must have a head and 1 to 576 columns", dict(q=torch.ones(2, 0, 16), lse=torch.ones(2, 0))),
        (TypeError, "scale must be a number, got NoneType", dict(scale=None)),
        (ValueError, "kv requires a gradient, but selected_probabilities has no backward", dict(kv=torch.ones(5, 16).requires_grad_())),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(
        q=torch.ones(2, 3, 16), kv=torch.ones(5, 16), indices=torch.ones(2, 2).int(), lse=torch.ones(2, 3), scale=1.0
    )
    harness.assert_refused(error, message, module.selected_probabilities, **given | change)
