"""What the tests of flash attention and of decode share: random inputs, and the rule by which results are judged."""

from __future__ import annotations

from collections.abc import Callable

import torch

from academy.judge import accuracy
from annotated_examples.attention.flash_attention import flash_attention_reference
from tests.kernels import harness
from tests.kernels.harness import randn


def tensors(B=1, H=2, Hk=1, T=5, S=7, D=8, *, dtype=torch.float32, sinks=False, scale=1.0):
    """`q`, `k`, `v`, and `sinks` if they are asked for."""
    made = dict(
        q=randn(B, H, T, D, dtype=dtype, scale=scale),
        k=randn(B, Hk, S, D, dtype=dtype),
        v=randn(B, Hk, S, D, dtype=dtype),
    )
    return made | (dict(sinks=randn(H, dtype=dtype)) if sinks else {})


def upstreams(o, lse, layout: Callable = lambda values: values):
    """Upstream gradients of both results; none for a row that sees nothing: its log-sum-exp doesn't move.

    Those of the log-sum-exp are positive. A sink's gradient is one sum over all rows. With random signs its terms
    cancel to as little as a four-hundredth, and what is left is their rounding: PyTorch's own error then lies anywhere
    between 2e-7 and 2e-6, from one draw of numbers to the next, and says nothing.
    """
    return layout(randn(*o.shape, dtype=o.dtype)), layout(
        randn(*lse.shape).abs().where(lse.isfinite(), torch.zeros_like(lse))
    )


def results(function, inputs, do=None, dlse=None):
    """Everything that a call returns, and the gradients; `do` or `dlse` None: nothing depends on that result."""
    leaves = {name: harness.leaf(value) if value.is_floating_point() else value for name, value in inputs.items()}
    o, lse = function(**leaves, return_lse=True)
    wanted = {name: value for name, value in leaves.items() if value.requires_grad}
    pairs = [(out, up) for out, up in ((o, do), (lse, dlse)) if up is not None]
    outs, ups = zip(*pairs)
    grads = torch.autograd.grad(outs, list(wanted.values()), ups, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted.values(), grads)]
    return dict(o=o.detach(), lse=lse.detach()) | {f"d{name}": grad for name, grad in zip(wanted, grads)}


def converted(inputs, dtype):
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def assert_right(function, inputs, do, dlse, *, reference=flash_attention_reference, softcap=0.0, **options):
    """`function`, its log-sum-exp and all gradients obey the 2x rule, with soft-capped scores the 3x rule.

    PyTorch's math attention computes 16-bit inputs in float32 and rounds the results: so does the reference here.
    """
    __tracebackhide__ = True
    watched = {**inputs, **{name: value for name, value in dict(do=do, dlse=dlse).items() if value is not None}}
    options = dict(options, softcap=softcap)
    call = lambda f: lambda **tensors: f(**tensors, **options)  # noqa: E731
    with harness.unchanged(**watched), harness.fenced_allocations():
        actual = results(call(function), inputs, do, dlse)
    ups = lambda dtype: [up if up is None else up.to(dtype) for up in (do, dlse)]  # noqa: E731
    pytorch = results(call(reference), converted(inputs, torch.float32), *ups(torch.float32))
    exact = results(call(reference), converted(inputs, torch.float64), *ups(torch.float64))
    for name, value in actual.items():
        source = inputs.get(name.removeprefix("d"), inputs["q"])
        if name == "dsinks":  # a sum over o, which was rounded to q's dtype, whatever the dtype of the sinks
            value, source = value.to(inputs["q"].dtype), inputs["q"]
        theirs = pytorch[name] if name == "lse" else pytorch[name].to(source.dtype)
        accuracy.check(name, value, theirs, exact[name], factor=3 if softcap else 2)
