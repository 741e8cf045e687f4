"""# Milestone: an operation of your own

Nearly every language model ends with `y = log_softmax(x)`: the logarithms of the probabilities of a row.

$$y_i = x_i - m - \\log \\sum_j e^{x_j - m}, \\qquad m = \\max_j x_j$$

Write all of it: the forward kernel, the backward kernel, and the `Function` that joins them. The launchers are there.
Each row fits into one block. For the gradient you need one line of calculus: with the upstream gradient `dy`, it is
`dx = dy - exp(y) · sum(dy)`, with the sum over the row. (Where does it come from? An element of `x` changes its own
`y` at rate one, and through the sum every `y` of its row at rate minus its probability.)

The checker takes the three parts one after the other, with odd widths, views, large scores and the upstream gradients
that autograd really brings.
"""

# %% solution
from academy.runtime import autograd, device

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, y_ptr, N, stride_xm, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    # <<<
    x = tl.load(x_ptr + row * stride_xm + columns, mask=mask, other=-float("inf")).to(tl.float32)
    shifted = x - tl.max(x, axis=0)
    y = shifted - tl.log(tl.sum(tl.exp(shifted), axis=0))
    tl.store(y_ptr + row * N + columns, y, mask=mask)
    # >>>


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, N, stride_dym, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    # <<<
    dy = tl.load(dy_ptr + row * stride_dym + columns, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    dx = dy - tl.exp(y) * tl.sum(dy, axis=0)
    tl.store(dx_ptr + row * N + columns, dx, mask=mask)
    # >>>


def as_rows(x):
    """The kernels need a column stride of 1. A slice of wider rows has it; a transposed matrix is copied."""
    return x if x.stride(1) == 1 else x.contiguous()


def log_softmax_forward(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    x = as_rows(x)
    forward_kernel[(M,)](x, y, N, x.stride(0), BLOCK_N=triton.next_power_of_2(N))
    return y


def log_softmax_backward(dy, y):
    M, N = y.shape
    dx = torch.empty(M, N, dtype=y.dtype, device=y.device)
    dy = as_rows(dy)
    backward_kernel[(M,)](dy, y, dx, N, dy.stride(0), BLOCK_N=triton.next_power_of_2(N))
    return dx


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        # <<<
        y = log_softmax_forward(x)
        ctx.save_for_backward(y)
        return y
        # >>>

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        # <<<
        (y,) = ctx.saved_tensors
        return log_softmax_backward(dy, y)
        # >>>


def log_softmax(x):
    return LogSoftmax.apply(x)


def value_and_gradient(x, dy):
    """The operation as a model uses it: what autograd finds for x when dy arrives."""
    x = x.detach().requires_grad_()
    y = log_softmax(x)
    if not isinstance(y, torch.Tensor):
        return y
    (dx,) = torch.autograd.grad(y, x, dy)
    return y.detach(), dx


# %% checks
PAGE = "learn/own_operation.py"
KIND = "fill in"
ORDER = 6
HINTS = (
    "Forward: the maximum and the sum run over all lanes, so masked lanes must read minus infinity. Its "
    "exponential is zero.",
    "Backward: `tl.sum(dy, axis=0)` runs over all lanes, so masked lanes must read zero.",
    "`dy` has a row stride of its own; `y`, which forward has allocated, has rows of N.",
    "The `Function`: forward calls its launcher, saves `y` with `ctx.save_for_backward(y)` and returns it. "
    "Backward takes it from `ctx.saved_tensors`, a tuple, and returns one gradient.",
)
WHY = """The whole operation is 13 lines of yours. What makes it trustworthy isn't in them: widths that aren't a
power of two, views, an upstream gradient with stride zero, scores of a thousand. Run [`academy
judge`](../../docs/guides/test-your-own-kernel.md) on a file of your own to have the same tried there."""


def check(t):
    def forward(x):
        return torch.log_softmax(x, -1)

    def backward(dy, y):
        return dy - torch.exp(y) * dy.sum(1, keepdim=True)

    def both(x, dy):
        return forward(x), backward(dy, forward(x))

    M, N = t.random.randint(2, 4), t.random.randint(5, 12)
    first, second, third = "1 of 3, forward", "2 of 3, backward", "3 of 3, autograd"
    for case, x in (
        ("2 x 3", t.values(2, 3)),
        ("1 x 1", t.values(1, 1)),
        ("negative scores, 2 x 5", t.positive(2, 5).neg()),
        ("scores around 1000, 2 x 6", t.values(2, 6) + 1000),
        ("rows cut out of wider ones", t.cut(M, N)),
        ("transposed, 3 x 2", t.turned(3, 2)),
        ("bfloat16, 2 x 7", t.values(2, 7, dtype=torch.bfloat16)),
        *((f"2 x {columns}", t.cut(2, columns, scale=9.0)) for columns in (16, 17, 33, 300)),
        ("40 x 3", t.values(40, 3)),
    ):
        t.compare(f"{first}, {case}", "log_softmax_forward", forward, x, name="y", host=("copies",))
    for case, dy, x in (
        ("2 x 3", t.values(2, 3), t.values(2, 3)),
        ("2 x 300", t.values(2, 300), t.values(2, 300)),
        ("40 x 3", t.values(40, 3), t.values(40, 3)),
        ("zeros arrive", t.values(2, 5) * 0.0, t.values(2, 5)),
        ("rows of dy cut out of wider ones", t.cut(M, N), t.values(M, N)),
        ("one number, shown everywhere", t.values(1, 1).expand(2, 5), t.values(2, 5)),
        ("one row, shown three times", t.values(1, 6).expand(3, 6), t.values(3, 6)),
    ):
        y = forward(x)
        t.compare(f"{second}, {case}", "log_softmax_backward", backward, dy, y, name="dx", host=("copies", "loads"))
    for case, x, dy in (
        ("2 x 3", t.values(2, 3), t.values(2, 3)),
        (f"{M} x {N}, a view", t.turned(M, N), t.cut(M, N)),
        ("upstream gradient of .sum()", t.values(2, 5), torch.ones(1, 1, device=device.DEVICE).expand(2, 5)),
    ):
        run = t.compare(
            f"{third}, {case}", "value_and_gradient", both, x, dy, name="y, dx", host=("copies",), spare=("*",)
        )
        t.saved(f"{third}, {case}", run)


WRONG = (
    ("1 of 3, forward, 2 x 3: forward_kernel stores nothing yet",),
    (
        "1 of 3, forward, 2 x 3: y[0, 0] is",
        'other=-float("inf")',
        "other=0.0",
        "shifted = x - tl.max(x, axis=0)",
        "shifted = tl.where(mask, x - tl.max(x, axis=0), 0.0)",
    ),
    (
        "1 of 3, forward, scores around 1000, 2 x 6: y[0, 0] is -inf",
        "shifted = x - tl.max(x, axis=0)",
        "shifted = x",
    ),
    (
        "1 of 3, forward, 2 x 3: y[0, 0] is",
        "shifted - tl.log(tl.sum(tl.exp(shifted), axis=0))",
        "tl.exp(shifted) / tl.sum(tl.exp(shifted), axis=0)",
    ),
    (
        "2 of 3, backward, 2 x 3: dx[0, 0] is",
        "dy - tl.exp(y) * tl.sum(dy, axis=0)",
        "dy - y * tl.sum(dy, axis=0)",
    ),
    (
        "2 of 3, backward, ",
        "dy_ptr + row * stride_dym + columns",
        "dy_ptr + row * N + columns",
    ),
    (
        "2 of 3, backward, 2 x 3: dx[0, 0] is",
        "columns, mask=mask, other=0.0).to(tl.float32)\n    y =",
        "columns, mask=mask, other=1.0).to(tl.float32)\n    y =",
    ),
    (
        "3 of 3, autograd, 2 x 3: dx[0, 0] is",
        "ctx.save_for_backward(y)",
        "ctx.save_for_backward(x)",
    ),
    (
        "3 of 3, autograd, 2 x 3: dx[0, 0] is",
        "return log_softmax_backward(dy, y)",
        "return log_softmax_backward(torch.ones_like(dy), y)",
    ),
    (
        "3 of 3, autograd, 2 x 3: PyTorch computes what the kernel loads as y_ptr",
        "        y = log_softmax_forward(x)\n        ctx",
        "        y = torch.log_softmax(x, -1)\n        ctx",
    ),
)
RIGHT = (
    (
        "shifted = x - tl.max(x, axis=0)\n    y = shifted - tl.log(tl.sum(tl.exp(shifted), axis=0))",
        "largest = tl.max(x, axis=0)\n    y = x - largest - tl.log(tl.sum(tl.exp(x - largest), axis=0))",
    ),
    (
        "        y = log_softmax_forward(x)\n        ctx.save_for_backward(y)\n        return y",
        "        ctx.save_for_backward(x)\n        return log_softmax_forward(x)",
        "(y,) = ctx.saved_tensors",
        "y = log_softmax_forward(*ctx.saved_tensors)",
    ),
)
