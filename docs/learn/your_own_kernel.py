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
# # 11. Take a kernel from formula to benchmark
#
# Somebody needs rows of length one, for cosine similarities, and asks you for a kernel. Where do you begin, and when
# are you done? Here you take every step yourself: formula, derivation, kernel, recorded run, tests, benchmark. Each step
# is run here with the tools that every operation of this site went through. (One of them is [this
# one](../kernels/recurrences/l2_normalize.md), for keys. Compare it with yours at the end.)

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.judge import accuracy
from academy.runtime import autograd, checks, device  # before triton: it may switch the interpreter on
from academy.book import syntax
from academy.bench import notebook
from academy.judge.mutants import import_source

import inspect
import math
import os
import re
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name).resolve()


def write(name, text):
    """Write a file in the folder."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, "utf-8")


def academy(*arguments):
    """Show what `academy …` prints when it is called in the folder."""
    repository = str(Path(device.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": repository, "COLUMNS": "100"}
    environment.pop("FORCE_COLOR", None)  # Jupyter sets it
    command = [sys.executable, "-m", "academy.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    print(re.sub(r" \([\d.]+ s\)", "", done.stdout + done.stderr).replace(f"{folder}/", "").rstrip())


def source(part):
    """The text of a function or of a class with a method `forward`, as it stands in its cell."""
    lines, _ = inspect.findsource(getattr(part, "forward", part))
    nodes = syntax.tree("".join(lines)).body
    node = next(node for node in nodes if getattr(node, "name", "") == part.__name__)
    return "".join(lines[syntax.first_line(node) - 1 : node.end_lineno])


torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## 1. The formula, in PyTorch first
#
# Divide each row by its length. A small number under the root keeps a row of zeros from being divided by zero. In
# PyTorch that takes one line, and the kernel will be compared with this line. In float64 it gives the right result; in
# the kernel's own dtype it shows how much rounding error is acceptable.
#
# [[figure: work/way]]


# %%
def l2_normalise_reference(x, eps=1e-12):
    return x / torch.sqrt(x.pow(2).sum(dim=-1, keepdim=True) + eps)


l2_normalise_reference(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))

# %% [markdown]
# Is a kernel worth it? The line reads `x` for the squares and writes them, reads them for the sum, reads `x` again for
# the quotient and writes that: five passes over memory. Two are needed, one to read and one to write. So a kernel can be
# up to 2.5 times as fast. If there were nothing to gain, this would be the place to stop.
#
# ## 2. The derivation
#
# Backward needs a formula too, and it is derived before it is coded. A derivation is a Markdown file. Its front matter names
# what is given and how large it is. `:=` defines, `=` claims, and a `\tag` names what the kernel is going to compute. (The
# guide on [writing derivations](../guides/writing-derivations.md) has all of the grammar.)
#
# Everything goes into a folder that is laid out like the repository: `write` makes a file there, and `academy` runs the
# command of that name in it, as you would in a terminal (both are in the set-up cell). A mistake has slipped in: the sign
# in the last line.

# %%
DERIVATION = r"""---
title: Rows of length one
math:
  dims: [m, n]
  index: {r: m, i: n, j: n}
  given: {X: "m, n", \nabla_Y: "m, n", \varepsilon: scalar > 0}
  loss: {name: '\mathcal{L}', of: Y, upstream: \nabla_Y}
---
# Rows of length one

The length of a row, and the row divided by it:

$$\ell_r := \sqrt{\sum_{i=1}^n X_{ri}^2 + \varepsilon} \tag{L2-length}$$

$$Y_{ri} := \frac{X_{ri}}{\ell_r} \tag{L2-Y}$$

An element changes the length of its row. By the chain rule:

$$\frac{\partial \ell_r}{\partial X_{rj}} = \frac{X_{rj}}{\ell_r} = Y_{rj}$$

So it changes every result of the row through the denominator, and its own through the numerator as well.
By the quotient rule:

$$\frac{\partial Y_{ri}}{\partial X_{rj}} = \frac{\delta_{ij} - Y_{ri} Y_{rj}}{\ell_r}$$

The upstream gradient weighs these changes, and they are summed over the row:

$$\frac{\partial \mathcal{L}}{\partial X_{rj}} = \frac{1}{\ell_r}
  \left(\frac{\partial \mathcal{L}}{\partial Y_{rj}} +
  Y_{rj} \sum_{i=1}^n \frac{\partial \mathcal{L}}{\partial Y_{ri}} Y_{ri}\right) \tag{L2-X}$$
"""

write("annotated_examples/__init__.py", "")
write("backprop_math/l2_normalise.md", DERIVATION)
academy("check", "backprop_math/l2_normalise.md")

# %% [markdown]
# Every line was evaluated with random numbers, and derivatives were compared with automatic differentiation. Lines that
# are right aren't mentioned; the wrong one is named. The sign should be a minus. The next cell corrects it, and step 6
# checks the page once more.

# %%
DERIVATION = DERIVATION.replace(r"{\partial Y_{rj}} +", r"{\partial Y_{rj}} -")
write("backprop_math/l2_normalise.md", DERIVATION)

# %% [markdown]
# ## 3. The kernels
#
# One program a row, and two passes over it, as in [softmax](../kernels/tutorials/softmax.md): the length needs the whole row.
# Rows may be any length, so they come in chunks. What should masked lanes read? Zero, whose square adds nothing.
#
# What does the backward kernel need, according to the derivation? The row of `Y`, the length, and one number for each
# row: the sum in the brackets. `Y` can be computed again from `x` and the length, in float32. If we kept the rounded
# `y` instead, bfloat16 would round twice.


# %%
@triton.jit
def l2_forward_kernel(x_ptr, y_ptr, length_ptr, N, stride_xm, eps, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N
    # First pass: the squares, added up lane by lane. The lanes themselves are added up once, at the end.
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        acc += x * x
    length = tl.sqrt(tl.sum(acc, axis=0) + eps)
    tl.store(length_ptr + row, length)
    # Second pass: the quotients.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        y = x / length
        tl.store(y_ptr + offs_n, y, mask=mask)


@triton.jit
def l2_backward_kernel(dy_ptr, x_ptr, length_ptr, dx_ptr, N, stride_dym, stride_xm, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    x_ptr += row * stride_xm
    dx_ptr += row * N
    length = tl.load(length_ptr + row)
    # First pass: the sum in the brackets.
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        acc += dy * (x / length)
    dot = tl.sum(acc, axis=0)
    # Second pass: the gradient.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        dx = (dy - x / length * dot) / length
        tl.store(dx_ptr + offs_n, dx, mask=mask)


# %% [markdown]
# Three things are built around the kernels: a **launcher** for each, which allocates the results and launches the
# kernel; the `autograd.Function`, which tells PyTorch that one kernel computes the gradient of the other; and the
# public function, which rejects inputs that the kernels can't handle.
#
# `once_differentiable` is this project's own. It makes a second derivative raise an error, since autograd can't look into
# a kernel.


# %%
def as_rows(x):
    """The kernels need a column stride of 1. A slice of wider rows has it; a transposed matrix is copied."""
    return x if x.stride(1) == 1 else x.contiguous()


def l2_normalise_forward(x, eps, *, BLOCK_N=1024):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    length = torch.empty(M, dtype=torch.float32, device=x.device)
    if M:
        x = as_rows(x)
        l2_forward_kernel[(M,)](x, y, length, N, x.stride(0), eps, BLOCK_N=BLOCK_N)
    return y, length


def l2_normalise_backward(dy, x, length, *, BLOCK_N=1024):
    M, N = x.shape
    dx = torch.empty(M, N, dtype=x.dtype, device=x.device)
    if M:
        dy, x = as_rows(dy), as_rows(x)
        l2_backward_kernel[(M,)](dy, x, length, dx, N, dy.stride(0), x.stride(0), BLOCK_N=BLOCK_N)
    return dx


class L2Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        y, length = l2_normalise_forward(x, eps)
        ctx.save_for_backward(x, length)
        return y

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return l2_normalise_backward(dy, *ctx.saved_tensors), None


def l2_normalise(x, eps=1e-12):
    """Each row of the matrix x divided by its length: float32, float16 or bfloat16, any strides."""
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, 2, "M, N")
    if not autograd.needs_frame(x):
        return l2_normalise_forward(x, eps)[0]
    return L2Normalise.apply(x, eps)


x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], device=device.DEVICE)
print(l2_normalise(x))

# %% [markdown]
# ## 4. Watch it run
#
# Two rows of five in chunks of four, with numbers that you can check in your head: the first row has length 5, the
# second length 2. A file of kernels can be recorded if it has a function `EXAMPLE`. Here the cells above are written
# into such a file.


# %%
def EXAMPLE():
    x = torch.tensor([[3.0, 0, 0, 0, 4], [1, 1, 1, 1, 0]], device=device.DEVICE)
    y, length = l2_normalise_forward(x, 0.0, BLOCK_N=4)
    l2_normalise_backward(torch.ones_like(x), x, length, BLOCK_N=4)


HEAD = """from academy.runtime import autograd, checks, device

import torch
import triton
import triton.language as tl
"""
kernels = [l2_forward_kernel.fn, l2_backward_kernel.fn]
others = [as_rows, l2_normalise_forward, l2_normalise_backward, L2Normalise, l2_normalise, EXAMPLE]
parts = [source(part) for part in (l2_normalise_reference, *kernels, *others)]
write("annotated_examples/own/__init__.py", "")
FILE = "\n\n".join([HEAD, *parts])
write("annotated_examples/own/l2_normalise.py", FILE)
academy("trace", "annotated_examples/own/l2_normalise.py", "--launch", "0", "--pid", "0")

# %% [markdown]
# Compare it with what you expected. After the first chunk `acc` is 9, 0, 0, 0; the second chunk adds 16 to lane 0,
# which makes 25; and `length` is 5. In the second chunk only one lane reads and writes. The line on bytes agrees with
# the prediction: the row is asked for twice, but fetched from memory only the first time. If a lane had left its
# tensor, or if two programs had written to the same element, the command would have named the line.
#
# ## 5. Tests
#
# A test is useful only if it fails on a broken kernel, so give it the inputs that break kernels: odd widths and one
# column; more than one chunk; slices with NaN between the rows, transposed and expanded inputs; large numbers and
# zeros; an upstream gradient with stride zero, which is what `.sum().backward()` makes.
#
# How large may an error be? At most twice that of PyTorch in the same dtype, both measured against float64, or [a few
# eps](../guides/numerics.md#how-wrong-is-too-wrong) where PyTorch is nearly exact. `accuracy.check` holds a result to that.


# %%
def check(name, x, function=l2_normalise, dtypes=(torch.float32, torch.float16, torch.bfloat16)):
    """A function and its gradient, in these dtypes, against float64."""
    for dtype in dtypes:
        inputs = x.detach().to(dtype)
        upstream = torch.randn(x.shape, device=x.device).to(dtype)
        expanded = torch.ones((), dtype=dtype, device=x.device).expand(x.shape)
        for dy in (upstream, expanded):
            results = []
            functions = ((function, dtype), (l2_normalise_reference, dtype), (l2_normalise_reference, torch.float64))
            for call, precision in functions:
                leaf = inputs.to(precision).requires_grad_()
                y = call(leaf)
                results.append((y, *torch.autograd.grad(y, leaf, dy.to(precision))))
            for what, ours, pytorch, exact in zip(("y", "dx"), *results):
                accuracy.check(f"{name}, {what}, {dtype}", ours, pytorch, exact)
    print(f"{name}: right")


def between_nan(M, N):
    wide = torch.full((M, N + 3), math.nan, device=device.DEVICE)
    wide[:, :N] = torch.randn(M, N, device=device.DEVICE)
    return wide[:, :N]


check("one column", torch.randn(4, 1, device=device.DEVICE))
check("three chunks", torch.randn(2, 2500, device=device.DEVICE))
check("cut out of wider rows", between_nan(5, 100))
check("transposed", torch.randn(70, 3, device=device.DEVICE).T)
check("expanded", torch.randn(1, 33, device=device.DEVICE).expand(4, 33))
check("large", 1e4 * torch.randn(3, 65, device=device.DEVICE) / 65)
check("zeros", torch.zeros(3, 65, device=device.DEVICE), dtypes=(torch.float32, torch.bfloat16))
check("no rows", torch.randn(0, 8, device=device.DEVICE))

# %% [markdown]
# Why are zeros not tried in float16? There `eps`, 10⁻¹², rounds to 0, so the line in PyTorch divides zero by zero. The
# kernel adds in float32 and returns zeros. Where the reference is wrong, a comparison can't decide.
#
# A test that can't fail proves nothing. So break the kernel once for each thing that you guard against, and see the test
# catch it. Here masked lanes read 1 instead of 0. (`import_source` makes a module of the changed text.)

# %%
right, wrong = "mask=offs_n < N, other=0.0", "mask=offs_n < N, other=1.0"
broken = import_source(FILE.replace(right, wrong), "broken")
try:
    check("with other=1.0", torch.randn(4, 5, device=device.DEVICE), broken.l2_normalise)
except AssertionError as error:
    print("caught:", str(error).split("\n")[0])

# %% [markdown]
# ## Change it
#
# At which scale does the kernel stop being right? Rows of random numbers are multiplied by `scale`, and the rows of the
# result should still have length one. Try `1e18`, `1e20` and `1e-8`. What happens to the squares?

# %% tags=["parameters"]
scale = 1e15

# %%
y = l2_normalise(scale * torch.randn(3, 100, device=device.DEVICE))
print("lengths:", [round(length, 3) for length in y.double().norm(dim=1).tolist()])

# %% [markdown]
# float32 ends at 3.4 · 10³⁸. Where the *sum* of the squares is more, it is infinite, and the row comes out as zeros: 100
# random numbers get there at a scale of about `1.8e18`. Below `1e-7`, `eps` is larger than the sum of the squares.
# In float32 and bfloat16 the line in PyTorch has the same limits, so the tests above don't notice them. (In float16 it
# gives up much earlier: a square is infinite from 256 on.) A public function should state such limits in its docstring,
# or remove them: it could first divide the row by its largest number, much as softmax first subtracts the largest.
#
# ## 6. Kernel and derivation, compared
#
# The reference in PyTorch and the formulas of the derivation were written by hand, separately. Do they agree? A
# **case** names a call of the kernel and the tags that it should give. `academy check` turns the printed formulas into
# functions and compares, on inputs of its own.

# %%
CASES = '''"""What is said of the operation: which calls are compared with which formulas."""

from academy.formulas.cases import case

DERIVATION = "l2_normalise"


@case(modules="own.l2_normalise", returns="L2-Y", gradients={"X": "L2-X"})
def l2_normalise(module, X, varepsilon):
    return module.l2_normalise(X, varepsilon)
'''
write("operations/l2_normalise.py", CASES)
academy("check")

# %% [markdown]
# Change a sign in the derivation or in the kernel, and one of the two checks fails.
#
# ## 7. How fast it is
#
# First say what you expect. At 32768 rows of 4096 in bfloat16 the kernel reads and writes 4 bytes for each element, and
# a copy on an H200 runs at [[bench: device/copy]]. That is the yardstick. A good version comes close to it, and
# one that writes less than it reads can even be a little faster:

# %%
elements = 32768 * 4096
print(
    f"two passes: {4 * elements / 2**20:.0f} MiB, the five passes of the line in PyTorch: {10 * elements / 2**20:.0f} MiB"
)


def timed(function, shape=(32768, 4096)):
    """A call to time, on a GPU."""
    x = torch.randn(shape, dtype=torch.bfloat16, device=device.DEVICE)
    return lambda: function(x)


live = {
    "the line in PyTorch": lambda: timed(l2_normalise_reference),
    "torch.nn.functional.normalize": lambda: timed(torch.nn.functional.normalize),
    "this kernel": lambda: timed(l2_normalise),
}
notebook.ladder("l2_normalise", live=live)

# %% [markdown]
# ## 8. Into the repository
#
# You have now written every part that an operation here consists of. In the repository each part has its place:
#
# | you wrote | it becomes |
# |---|---|
# | the derivation | `backprop_math/l2_normalise.md` |
# | reference, kernels, launchers, `EXAMPLE` | `annotated_examples/<group>/l2_normalise.py`, with notes that quote the run |
# | `check` and the broken kernel | `tests/kernels/test_l2_normalise.py` |
# | `CASES`, `timed` | `operations/l2_normalise.py`, with the bytes that it should move |
# | your explanation | two lines at the head of `docs/learn/index.md`: its step on the learning path |
#
# [Best practice](../guides/best-practice.md) lists what reviewers ask for.
#
# ## Exercises
#
# [[exercises]]
#
# You have come to the end of the path. The [list of kernels](../kernels/index.md) shows what exists; whatever is
# missing is yours to write.
