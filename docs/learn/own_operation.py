# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Build an operation of your own
#
# You can write a kernel and find its mistakes. What is missing before a model can train with it, and how do you know that
# its gradient is right? In this chapter a small operation goes all the way: formula, two kernels, autograd, tests that can
# fail. Then it is your turn, with an operation that every language model needs. That is the first milestone of the path.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.judge import accuracy
from academy.runtime import autograd, checks, device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook

from functools import partial

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## The formula, and its derivative
#
# The *squared ReLU* is an activation: zero for negative numbers, the square for the others. In PyTorch it is one line, and
# this line is the reference, in float64.


# %%
def relu_squared_reference(x):
    return torch.relu(x).square()


relu_squared_reference(torch.tensor([-2.0, 1.0, 3.0]))

# %% [markdown]
# Each result depends on one number only, so the derivative is simple: 0 on the left, $2x$ on the right, which is $2
# \max(x, 0)$ in both cases. A backward pass doesn't compute derivatives, though. It gets the **upstream gradient** `dy`:
# how much the loss changes with each element of `y`. By the chain rule it returns `dx = dy * 2 * max(x, 0)`.
#
# What does it need, then? `dy` arrives. `x` has to be kept from the forward pass.
#
# [[figure: work/joined]]
#
# ## Two kernels
#
# Both are [vector addition](../kernels/tutorials/vector_add.md) with another line in the middle. They compute in float32,
# whatever they load, and the store rounds once. A NaN stays one, as in PyTorch: `tl.maximum(x, 0.0)` would make it 0.


# %%
@triton.jit
def forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    positive = tl.where(x < 0.0, 0.0, x)
    tl.store(y_ptr + offsets, positive * positive, mask=mask)


@triton.jit
def backward_kernel(dy_ptr, x_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offsets, tl.where(x <= 0.0, 0.0, dy * (2.0 * x)), mask=mask)


# %% [markdown]
# ## Two launchers
#
# A launcher allocates the result and starts the kernel. Whose layout may it assume? Neither that of `x`, which may be a
# view, nor that of `dy`, which the next operation has made. Both kernels count elements one by one, so both tensors have to
# be contiguous. `.contiguous()` copies a tensor only if it isn't. And the result is allocated as contiguous, too:
# `torch.empty_like` of a transposed matrix would be transposed.


# %%
def relu_squared_forward(x, *, BLOCK=1024):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        forward_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def relu_squared_backward(dy, x, *, BLOCK=1024):
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    if x.numel():
        backward_kernel[(triton.cdiv(x.numel(), BLOCK),)](dy, x, dx, x.numel(), BLOCK=BLOCK)
    return dx


# %% [markdown]
# ## The Function between them
#
# Autograd has seen nothing of this: a kernel writes behind its back. The
# [`Function`](../guides/from-pytorch.md#autograd-sees-nothing) tells it. `forward` keeps what the backward pass needs,
# `backward` returns a gradient for each argument of `forward`, in their order. The second argument here is a function, which
# has no gradient: `None`. (It is an argument so that you can put a wrong one there, below.)


# %%
class ReluSquared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, launch_backward):
        ctx.save_for_backward(x)
        ctx.launch_backward = launch_backward
        return relu_squared_forward(x)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return ctx.launch_backward(dy, x), None


def relu_squared(x, launch_backward=relu_squared_backward):
    """max(x, 0) squared, element by element: float32, float16 or bfloat16, any shape and strides."""
    checks.tensors(x=x)
    checks.dtypes(x=x)
    if not autograd.needs_frame(x):
        return relu_squared_forward(x)
    return ReluSquared.apply(x, launch_backward)


x = torch.tensor([-2.0, 1.0, 3.0], device=device.DEVICE, requires_grad=True)
y = relu_squared(x)
y.backward(torch.tensor([1.0, 0.5, 1.0], device=device.DEVICE))
print("y: ", y.tolist())
print("dx:", x.grad.tolist())

# %% [markdown]
# The two rows are those of the picture. Now a model can train with it. But three numbers prove little.
#
# ## Tests that can fail
#
# A test compares with the reference in float64. How large may the difference be? At most twice PyTorch's own in the same
# dtype, as [Numerics](../guides/numerics.md#how-wrong-is-too-wrong) says; `accuracy.problem` returns what is wrong, or
# `None`. The inputs matter more than the tolerance. Here are three tests of the gradient, from lazy to thorough:


# %%
def gradient_is_right(function, x, dy):
    results = []
    for call, dtype in (
        (function, x.dtype),
        (relu_squared_reference, x.dtype),
        (relu_squared_reference, torch.float64),
    ):
        leaf = x.detach().to(dtype).requires_grad_()
        results += torch.autograd.grad(call(leaf), leaf, dy.to(dtype))
    return accuracy.problem(*results) is None


def positive_numbers(function):
    x = torch.rand(8, 8, device=device.DEVICE)
    return gradient_is_right(function, x, torch.randn(8, 8, device=device.DEVICE))


def sum_backward(function):
    x = torch.randn(5, 7, device=device.DEVICE)
    return gradient_is_right(function, x, torch.ones((), device=device.DEVICE).expand(5, 7))


def views_and_odd_sizes(function):
    cases = []
    for M, N in ((1, 1), (5, 7), (33, 65)):
        x, dy = torch.randn(N, M, device=device.DEVICE).T, torch.randn(M, 2 * N, device=device.DEVICE)[:, ::2]
        cases += [gradient_is_right(function, x.to(dtype), dy.to(dtype)) for dtype in (torch.float32, torch.bfloat16)]
    return all(cases)


TESTS = [positive_numbers, sum_backward, views_and_odd_sizes]
print({test.__name__: test(relu_squared) for test in TESTS})

# %% [markdown]
# All three are passed. Do they prove anything? Try them on gradients that are wrong. Each of these four is a mistake that
# people make:

# %%
MISTAKES = {
    "the factor 2 is forgotten": lambda dy, x: relu_squared_backward(dy, x) / 2,
    "negative x counts, too": lambda dy, x: dy * (2 * x),
    "dy is ignored": lambda dy, x: relu_squared_backward(torch.ones_like(dy), x),
    "x is taken to be contiguous": lambda dy, x: relu_squared_backward(
        dy, x.as_strided(x.shape, dy.contiguous().stride())
    ),
}
for mistake, wrong in MISTAKES.items():
    caught = [test.__name__ for test in TESTS if not test(partial(relu_squared, launch_backward=wrong))]
    print(f"{mistake:28} caught by {', '.join(caught) or 'nobody'}")

# %% [markdown]
# Only the last test catches everything. The first sees no negative number and no view. The second, the popular
# `y.sum().backward()`, brings an upstream gradient of ones, and so can't tell whether `dy` is used at all. Keep it
# nevertheless: it is the one whose `dy` has stride zero.
#
# ## Change it
#
# Write a fifth mistake: what if the backward pass were given `y` instead of `x`? The derivative is $2 \sqrt{y}$, so that
# could even be made right. Is the `wrong` below right? Which test says so?

# %% tags=["parameters"]
wrong = lambda dy, x: dy * (2 * relu_squared_forward(x))  # noqa: E731

# %%
for test in TESTS:
    print(f"{test.__name__:20} {'passed' if test(partial(relu_squared, launch_backward=wrong)) else 'caught'}")

# %% [markdown]
# ## How fast it is
#
# In PyTorch's line, forward makes four passes over memory: the ReLU reads and writes, the square reads and writes. The
# kernel makes two. Nothing else costs time here. How near a kernel that only moves data comes to the limit has been measured
# for the vector addition, whose kernel is built in the same way:

# %%
notebook.speed("vector_add", live=[(1 << 24,), (1 << 28,)])

# %% [markdown]
# ## Now yours
#
# The last exercise below is the **milestone**: log-softmax, forward, backward and autograd, from a starter in which the
# interesting lines are missing. The exercises before it practise one step each. Write it here in the browser, or in your own
# editor:
#
# ```sh
# academy exercise start log_softmax     # writes log_softmax.py
# academy exercise check log_softmax.py
# ```
#
# For an operation that isn't an exercise, put two functions into a file of your own: `relu_squared` with its kernels, and
# beside it `relu_squared_reference`, in plain PyTorch. Then `academy judge my_file.py` tries both on inputs like the ones
# above and on many more, gradients included, and names the first wrong element. With more than one tensor it also tries
# shapes that don't fit: refuse them before the launch, with `checks.same_shape(x=x, y=y)` for example. ([Test your own
# kernel](../guides/test-your-own-kernel.md) shows its reports.)
#
# ## Exercises
#
# [[exercises]]
#
# From here the path goes on to [products of matrices](tiles_and_pointers.py). At its end stands [a kernel taken from the
# formula to a benchmark](your_own_kernel.py), with a derivation that is checked line by line.
