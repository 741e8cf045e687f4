"""# What was kept

`sigmoid(x)` is right, but its gradient isn't: for large scores it explodes, although the slope of a sigmoid is never
above a quarter. The backward kernel is right, too: it computes `dy · y · (1 - y)`. Find the bug.
"""

# %% solution
from academy.runtime import autograd, device

import torch
import triton
import triton.language as tl


@triton.jit
def sigmoid_forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)), mask=mask)


@triton.jit
def sigmoid_backward_kernel(dy_ptr, y_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offsets, dy * y * (1.0 - y), mask=mask)


def sigmoid_forward(x):
    y = torch.empty_like(x)
    sigmoid_forward_kernel[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), BLOCK=16)
    return y


def sigmoid_backward(dy, y):
    dx = torch.empty_like(y)
    sigmoid_backward_kernel[(triton.cdiv(y.numel(), 16),)](dy.contiguous(), y, dx, y.numel(), BLOCK=16)
    return dx


class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = sigmoid_forward(x)
        # <<<
        ctx.save_for_backward(y)
        # ===
        # ctx.save_for_backward(x)
        # >>>
        return y

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return sigmoid_backward(dy, y)


def value_and_gradient(x, dy):
    x = x.detach().requires_grad_()
    y = Sigmoid.apply(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    return y.detach(), dx


# %% checks
PAGE = "learn/own_operation.py"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "What does `backward` call `y`, and what did `forward` put there?",
    "The kernel's formula is written with the result, not with the scores.",
)
WHY = """A `Function` doesn't know names: `saved_tensors` gives back what was saved, in the same order, and a tensor
of the right shape is as good as another. Only a comparison of the gradient finds this."""


def check(t):
    def want(x, dy):
        y = x.sigmoid()
        return y, dy * y * (1 - y)

    for n, scale in (
        (1, 1.0),
        (16, 1.0),
        (33, 3.0),
        (t.random.randint(17, 40), 2.0),
        *((n, 30.0) for n in t.sizes(16)[:-1]),
    ):
        inputs = t.values(n, scale=scale), t.values(n)
        run = t.compare(f"n = {n}", "value_and_gradient", want, *inputs, name="y, dx")
        t.saved(f"n = {n}", run)


WRONG = (
    ("n = 1: dx[0] is",),
    (
        "n = 1: dx[0] is",
        "        ctx.save_for_backward(y)",
        "        ctx.save_for_backward(1.0 / (1.0 + torch.exp(y)))",
    ),
    (
        "n = 1: dx[0] is",
        "dy * y * (1.0 - y)",
        "dy * y",
    ),
    (
        "not enough values to unpack",
        "        ctx.save_for_backward(y)\n",
        "        ctx.y = y\n",
    ),
)
RIGHT = (
    (
        "        ctx.save_for_backward(y)",
        "        ctx.save_for_backward(x, y)",
        "(y,) = ctx.saved_tensors",
        "x, y = ctx.saved_tensors",
    ),
    (
        "        ctx.save_for_backward(y)",
        "        ctx.save_for_backward(x)",
        "(y,) = ctx.saved_tensors",
        "y = sigmoid_forward(*ctx.saved_tensors)",
    ),
)
