"""The project's own kernels, unchanged, against PyTorch: forward and backward, in every element that has a residue."""

import importlib

import pytest
import torch
import torch.nn.functional as F

from academy.exact.compare import without_rounding

pytestmark = pytest.mark.interpreted


def drawn(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def softmax(module):
    x, g = drawn(3, 37, seed=0), drawn(3, 37, seed=1)
    return module.softmax, lambda x: torch.softmax(x, -1), [x], [g]


def layernorm(module):
    x, g = drawn(1, 37, seed=2), drawn(1, 37, seed=3)
    return (
        module.layernorm,
        lambda x, w, b: F.layer_norm(x, (37,), w, b),
        [x, drawn(37, seed=4), drawn(37, seed=5)],
        [g],
    )


def matmul(module):
    return module.matmul, torch.matmul, [drawn(20, 37, seed=6), drawn(37, 10, seed=7)], [drawn(20, 10, seed=8)]


def causal_attention(module):
    """19 tokens: a softmax of 23 would have a denominator that 23 divides, and the gradients add over all rows."""

    def launched(q, k, v):
        return _Launched.apply(module, q, k, v)

    def reference(q, k, v):
        scores = q @ k.mT / 4
        scores = scores.masked_fill(torch.ones(19, 19).triu(1) > 0, -torch.inf)
        return scores.softmax(-1) @ v, scores.logsumexp(-1)

    inputs = [drawn(1, 2, 19, 16, seed=seed) for seed in (9, 10, 11)]
    return launched, reference, inputs, [drawn(1, 2, 19, 16, seed=12), torch.zeros(1, 2, 19)]


class _Launched(torch.autograd.Function):
    """The launchers by themselves: the gradients go through the logarithms of sums that were stored."""

    @staticmethod
    def forward(ctx, module, q, k, v):
        o, lse = module.causal_attention_forward(q, k, v, 0.25, BLOCK_M=16, BLOCK_N=16)[:2]
        ctx.module = module
        ctx.save_for_backward(q, k, v, o, lse)
        return o, lse

    @staticmethod
    def backward(ctx, do, _):
        q, k, v, o, lse = ctx.saved_tensors
        return None, *ctx.module.causal_attention_backward(do, q, k, v, o, lse, 0.25, BLOCK_M=16, BLOCK_N=16)


LESSONS = {
    "tutorials.softmax": softmax,
    "fast.softmax": softmax,
    "classics.layernorm": layernorm,
    "fast.layernorm": layernorm,
    "classics.matmul": matmul,
    "tutorials.matmul_grouped": matmul,
    "attention.causal_attention": causal_attention,
}


def with_gradients(function, inputs, upstream):
    leaves = [x.detach().requires_grad_() for x in inputs]
    made = function(*leaves)
    made = made if isinstance(made, tuple) else (made,)
    return [*made, *torch.autograd.grad(made, leaves, [g.to(each.dtype) for g, each in zip(upstream, made)])]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LESSONS)
def test_lessons_are_the_same_function_as_pytorch_in_float64(name, dtype):
    function, reference, inputs, upstream = LESSONS[name](importlib.import_module(f"annotated_examples.{name}"))
    inputs, upstream = ([x.to(getattr(torch, dtype)) for x in each] for each in (inputs, upstream))
    with without_rounding() as session:
        ours = with_gradients(function, inputs, upstream)
        theirs = with_gradients(reference, [x.double() for x in inputs], upstream)
        for mine, other in zip(ours, theirs, strict=True):
            made = session.compare(mine, other)
            assert made.same is True and made.decided == made.elements, str(made)
    assert not session.lost
