"""# A gradient for each input

`gate(a, b)` is `a · b²`, and both kernels are there: the backward one gives the gradients of both inputs. What is
missing is the `Function` between them. What has to be saved, and in which order does `backward` return the gradients?

[[figure: work/joined]]
"""

# %% solution
from academy.runtime import autograd, device

import torch
import triton
import triton.language as tl


@triton.jit
def gate_forward_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, a * b * b, mask=mask)


@triton.jit
def gate_backward_kernel(dy_ptr, a_ptr, b_ptr, da_ptr, db_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0)
    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(da_ptr + offsets, dy * (b * b), mask=mask)
    tl.store(db_ptr + offsets, dy * (2 * a * b), mask=mask)


def gate_forward(a, b):
    y = torch.empty_like(a)
    gate_forward_kernel[(triton.cdiv(a.numel(), 16),)](a, b, y, a.numel(), BLOCK=16)
    return y


def gate_backward(dy, a, b):
    """The gradients of a and of b."""
    da, db = torch.empty_like(a), torch.empty_like(b)
    gate_backward_kernel[(triton.cdiv(a.numel(), 16),)](dy.contiguous(), a, b, da, db, a.numel(), BLOCK=16)
    return da, db


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        # <<<
        ctx.save_for_backward(a, b)
        return gate_forward(a, b)
        # >>>

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        # <<<
        a, b = ctx.saved_tensors
        return gate_backward(dy, a, b)
        # >>>


def value_and_gradients(a, b, dy):
    """The result, and what autograd finds for a and b when dy arrives."""
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    y = Gate.apply(a, b)
    if not isinstance(y, torch.Tensor):
        return y
    da, db = torch.autograd.grad(y, (a, b), dy)
    return y.detach(), da, db


# %% checks
PAGE = "learn/own_operation.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "`ctx.save_for_backward(…)` keeps tensors; `ctx.saved_tensors` gives them back, as a tuple.",
    "Which tensors does `gate_backward` take besides `dy`?",
    "`backward` returns one gradient for each argument of `forward`, in that order: first that of `a`, then "
    "that of `b`.",
)
WHY = """`y` isn't saved: neither gradient needs it. `a` and `b` are, and since they are inputs, saving them copies
nothing."""


def check(t):
    def want(a, b, dy):
        return a * b * b, dy * (b * b), dy * (2 * a * b)

    for n in (1, 16, 33, *t.sizes(16)[:-1]):
        inputs = t.values(n), t.values(n), t.values(n)
        run = t.compare(f"n = {n}", "value_and_gradients", want, *inputs, name="y, da, db")
        t.saved(f"n = {n}", run, a="argument 1", b="argument 2")
    upstream = t.values(1).expand(5)
    given = (t.values(5), t.values(5), upstream)
    t.compare(
        "one number, shown 5 times, arrives", "value_and_gradients", want, *given, name="y, da, db", host=("copies",)
    )


WRONG = (
    ("n = 1: value_and_gradients launches no kernel",),
    (
        "n = 1: da[0] is",
        "        a, b = ctx.saved_tensors",
        "        b, a = ctx.saved_tensors",
    ),
    (
        "n = 1: da[0] is",
        "return gate_backward(dy, a, b)",
        "return gate_backward(dy, a, b)[::-1]",
    ),
    (
        "n = 1: da[0] is",
        "return gate_backward(dy, a, b)",
        "return gate_backward(torch.ones_like(dy), a, b)",
    ),
    (
        "n = 1: da[0] is",
        "ctx.save_for_backward(a, b)\n        return gate_forward(a, b)",
        "y = gate_forward(a, b)\n        ctx.save_for_backward(a, y)\n        return y",
    ),
    ("save_for_backward", "save_for_backward(a, b)", "a, ctx.b = a, b", "saved_tensors", "a, ctx.b"),
)
RIGHT = (
    (
        "ctx.save_for_backward(a, b)\n        return gate_forward(a, b)",
        "y = gate_forward(a, b)\n        ctx.save_for_backward(b, a)\n        return y",
        "a, b = ctx.saved_tensors",
        "b, a = ctx.saved_tensors",
    ),
    (
        "a, b = ctx.saved_tensors\n        return gate_backward(dy, a, b)",
        "da, db = gate_backward(dy, *ctx.saved_tensors)\n        return da, db",
    ),
)
