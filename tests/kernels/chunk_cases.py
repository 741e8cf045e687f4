"""What the tests of linear attention and of both delta rules share: inputs, results, and the rule that judges them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F

from academy.judge import accuracy
from academy.judge.elements import in_float64
from annotated_examples.recurrences import gated_delta_rule, kda, linear_attention
from tests.kernels import harness
from tests.kernels.harness import randn
from tests.kernels.references import recurrence_by_steps

#: Widths of keys and of values for which the launchers choose different tiles or warps.
WIDTHS = [(D, E) for D in (16, 32, 64, 128, 256) for E in (16, 32, 64, 256)] + [(128, 128), (100, 33), (192, 256)]


def tensors(B=1, T=40, Hk=1, H=2, D=5, E=6, *, dtype=torch.float32, decay=1.0, layout=lambda values: values):
    """`q`, `k`, `v`, `g` in float32, and `initial_state`; `decay` multiplies the gates."""
    return dict(
        q=layout(randn(B, T, Hk, D, dtype=dtype)),
        k=layout(randn(B, T, Hk, D, dtype=dtype)),
        v=layout(randn(B, T, H, E, dtype=dtype)),
        g=layout(F.logsigmoid(randn(B, T, H)) * decay),
        initial_state=layout(randn(B, H, D, E)),
    )


def with_beta(inputs: dict, most: float = 1.0) -> dict:
    """For the delta rule: keys of length 1, and `beta` from 0 to `most`."""
    k = inputs["k"]
    inputs["k"].copy_(F.normalize(k.float(), dim=-1))
    beta = torch.rand(inputs["v"].shape[:-1], device=k.device) * most
    return (
        {n: x for n, x in inputs.items() if n != "cu_seqlens"}
        | dict(beta=beta)
        | {n: x for n, x in inputs.items() if n == "cu_seqlens"}
    )


def with_sizes(attend, launchers, **sizes) -> Callable:
    """The public function with launchers that get these sizes of tiles, which it has no way to pass."""
    known = [inspect.signature(launcher).parameters for launcher in launchers]
    sized = [
        functools.partial(launcher, **{name: size for name, size in sizes.items() if name in taken})
        for launcher, taken in zip(launchers, known)
    ]

    def function(q, k, v, g=None, beta=None, *, initial_state=None, return_final_state=False, scale=None):
        given = [x.transpose(1, 2) for x in (q, k, v)] + [None if g is None else g.transpose(1, 2)]
        given += [] if beta is None else [beta.transpose(1, 2)]
        o, state = attend(*given, initial_state, None, scale or q.shape[-1] ** -0.5, *sized)
        return (o.transpose(1, 2), state) if return_final_state else o.transpose(1, 2)

    return function


def upstreams(inputs, layout: Callable = lambda values: values) -> dict:
    """Gradients of the output and of the final state."""
    v, state = inputs["v"], inputs["initial_state"]
    return dict(o=layout(randn(*v.shape, dtype=v.dtype)), state=layout(randn(*state.shape)))


def results(function, inputs, ups, **options) -> dict:
    """Output, final state, and the gradient of every input; an upstream of None: nothing depends on that result."""
    leaves = {n: harness.leaf(x) if torch.is_tensor(x) and x.is_floating_point() else x for n, x in inputs.items()}
    o, state = function(**leaves, return_final_state=True, **options)
    wanted = {n: x for n, x in leaves.items() if torch.is_tensor(x) and x.requires_grad}
    pairs = [(out, ups[name].to(out.dtype)) for name, out in (("o", o), ("state", state)) if ups[name] is not None]
    outs, upstream = zip(*pairs)
    grads = torch.autograd.grad(outs, list(wanted.values()), upstream, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted.values(), grads)]
    return dict(o=o.detach(), state=state.detach()) | {f"d{n}": g for n, g in zip(wanted, grads)}


def assert_right(function, reference, inputs, ups, *, truth=None, own: Callable | None = None, **options) -> dict:
    """Output, state and all gradients obey the 2x rule. `reference` in the inputs' dtype is PyTorch's own; `truth`, or
    else the same, is what it comes to in float64. `own` stands in for PyTorch's computation, where it is no measure.
    """
    __tracebackhide__ = True
    watched = {n: x for n, x in inputs.items() if torch.is_tensor(x)} | {
        f"d{n}": x for n, x in ups.items() if x is not None
    }
    with harness.unchanged(**watched), harness.fenced_allocations():
        mine = results(function, inputs, ups, **options)
    pytorch = results(own or reference, inputs, ups, **options)
    exact = results(truth or reference, in_float64(inputs), ups, **options)
    for name, value in mine.items():
        accuracy.check(name, value, pytorch[name], exact[name])
    return mine


def packed(lengths, behind=0, layout=lambda values: values, **shape) -> dict:
    """Inputs of a packed function; `behind`: rows that belong to no sequence."""
    made = tensors(B=1, T=sum(lengths) + behind, **shape)
    made = {n: x[0] for n, x in made.items() if n != "initial_state"}
    H, D, E = made["v"].shape[1], made["q"].shape[2], made["v"].shape[2]
    ends = torch.tensor([0, *lengths]).cumsum(0).to(made["q"].device, torch.int32)
    state = randn(len(lengths), H, D, E)
    return {n: layout(x) for n, x in made.items()} | dict(initial_state=layout(state), cu_seqlens=ends)


LESSONS = {"kda": kda, "gated_delta_rule": gated_delta_rule, "linear_attention": linear_attention}


class Operation:
    """Linear attention or a delta rule, of a file that may be a mutant. shape: of inputs, where nothing is said."""

    def __init__(self, module, **shape):
        self.module, self.shape = module, shape
        self.name, lesson = next((name, lesson) for name, lesson in LESSONS.items() if hasattr(module, name))
        self.delta, self.channels = self.name != "linear_attention", self.name == "kda"
        self.function, self.varlen = getattr(module, self.name), getattr(module, f"{self.name}_varlen")
        self.reference, self.lesson = getattr(lesson, f"{self.name}_reference"), getattr(lesson, self.name)
        self.launchers = [getattr(module, f"{self.name}_{way}") for way in ("forward", "backward")]

    def tensors(self, **shape):
        return self.completed(tensors(**self.shape | shape))

    def packed(self, lengths, behind=0, **shape):
        return self.completed(packed(lengths, behind, **self.shape | shape))

    def completed(self, made):
        """With what this operation has besides: a gate for each channel, and beta."""
        if self.channels:
            g, D = made["g"], made["q"].shape[-1]
            made["g"] = g[..., None] * (torch.rand(*g.shape, D, device=g.device) * 2)
        return with_beta(made) if self.delta else made

    def heads_first(self, inputs) -> list:
        """The inputs as the launchers take them."""
        names = ("q", "k", "v", "g", *(["beta"] if self.delta else []))
        return [*(inputs[name].transpose(1, 2) for name in names), inputs["initial_state"], None]

    def with_sizes(self, **sizes) -> Callable:
        return with_sizes(self.module.attend, self.launchers, **sizes)

    def right(self, inputs, ups=None, **options):
        return assert_right(self.function, self.reference, inputs, ups or upstreams(inputs), **options)

    def close_to_steps(self, inputs, ups=None, most=2e-6):
        """The results, compared with the recurrence in float64, where PyTorch's parallel form is no measure."""
        ups = ups or upstreams(inputs)
        mine = results(self.function, inputs, ups)
        exact = results(recurrence_by_steps, in_float64(inputs), ups)
        for name, value in mine.items():
            representable = exact[name].float().double()  # what is left may be too little for float32
            assert accuracy.errors(value, representable).rms < most, name
        return mine
