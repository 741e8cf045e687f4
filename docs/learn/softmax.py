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
# # 2. Reduce a row: softmax
#
# Every result of a softmax depends on its whole row, and a program holds the row as a block in which each lane sees one
# number. How do the lanes arrive at one sum? You meet the first **reduction**, and find out why the largest score is
# subtracted first, what a masked lane must read, and how much it saves to do several steps in one kernel.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.runtime import device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook
from annotated_examples.tutorials import softmax as lesson

import math
import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## Numbers that are too large
#
# Softmax turns scores into probabilities. The textbook's formula divides each exponential by their sum. In float32 that
# breaks early: `exp(89)` is infinite already.
#
# [[figure: rows/softmax]]

# %%
scores = torch.tensor([[88.0, 89.0, 90.0]])
exponentials = torch.exp(scores)
print("exponentials:", exponentials.tolist())
print("quotients:   ", (exponentials / exponentials.sum()).tolist())

# %% [markdown]
# A quotient doesn't change when numerator and denominator are divided by the same number. Divide by the exponential of the
# largest score:
#
# [[eq: SM]]
#
# Now the largest exponential is 1. The sum is at least 1, so it can't overflow and can't vanish. (But for a row of −∞
# only: ∞ − ∞ is NaN, in PyTorch, too.) The price is one more step: the row's maximum has to be found first.

# %%
shifted = torch.exp(scores - scores.max())
print((shifted / shifted.sum()).tolist())

# %% [markdown]
# ## A program for each row
#
# A kernel for short rows fits on a screen. Program 0 takes row 0, program 1 takes row 1, and each loads its row as one
# block. Two things in it are new.
#
# **A reduction** turns a block into one number. `tl.max(x, axis=0)` finds the largest of the lanes, `tl.sum(x, axis=0)`
# adds them up. `axis` says along which dimension, and this block has only one. To compute it, the threads of a program
# exchange numbers, though the source doesn't show that. `tl.exp(x)` takes the exponential in each lane, so it isn't a
# reduction. It needs float32, and so does `tl.log`, the logarithm: given 16-bit numbers they refuse to compile, with
# *Expected dtype ['fp32', 'fp64']*. Write `x.to(tl.float32)` first. And in `x - tl.max(x, axis=0)` the maximum, one
# number, is subtracted in every lane. (The kernel below compiles for 16-bit scores although it converts nothing:
# `tl.max` returns a float32, and 16 bits minus a float32 is a float32. Don't rely on that.)
#
# **The stride** says where a row begins. A matrix lies in memory row after row, and `x.stride(0)` is the number of elements
# from the start of one row to the start of the next. That is the row's length, or more if `x` was cut out of a wider
# matrix. So row 3 begins at `x_ptr + 3 * stride`.
#
# A block's length is a power of two, but a row's length can be anything: `triton.next_power_of_2(N)` returns the
# smallest power of two that holds it. What should the surplus lanes read? The argument `OTHER` decides, and you will
# get to choose.


# %%
@triton.jit
def row_softmax_kernel(x_ptr, y_ptr, N, stride, OTHER: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=OTHER)
    exponentials = tl.exp(x - tl.max(x, axis=0))
    y = exponentials / tl.sum(exponentials, axis=0)
    tl.store(y_ptr + row * N + columns, y, mask=mask)


def row_softmax(x, other):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    row_softmax_kernel[(M,)](x, y, N, x.stride(0), OTHER=other, BLOCK_N=triton.next_power_of_2(N))
    return y


# %% [markdown]
# ## Why the row's number has 64 bits
#
# `row * stride` is where offsets grow large. With 32,000 scores in a row, row 70,000 begins after 2.24 billion elements, and
# a signed 32-bit number ends at 2.147 billion. This kernel computes where that row begins, in 32 bits and in 64.


# %%
@triton.jit
def row_start_kernel(out_ptr, row, stride):
    tl.store(out_ptr, row * stride)
    tl.store(out_ptr + 1, row.to(tl.int64) * stride)


starts = torch.zeros(2, dtype=torch.int64, device=device.DEVICE)
row_start_kernel[(1,)](starts, 70_000, 32_000)
print("in 32 bits:", starts[0].item())
print("in 64 bits:", starts[1].item())

# %% [markdown]
# A load from there reads memory two billion elements before the start of the tensor. No small test can find this
# mistake: every product below 2³¹ is right. So the kernels here convert the number of a row to `tl.int64` at once,
# before anything is multiplied by it. Column numbers may stay in 32 bits if they are added without being multiplied and
# rows are shorter than 2³¹ elements. Where columns have a stride, their numbers are multiplied too, so they are
# converted as well.
#
# One trap: an integer argument that is 1, as a stride often is, gets compiled in as a plain number, and a plain number
# has no `.to`. `tl.cast(stride, tl.int64)` converts both. Above it is enough to convert `row`: a product of an int64 and
# an int32 is int64.

# %% [markdown]
# ## Change it
#
# `row` is any row of scores, `other` what masked lanes read. Try `other = -math.inf`, then `0.0` again with a row of six
# positive scores, then with eight scores of any sign. When does the mistake show?

# %% tags=["parameters", "live"]
row = [-3.0, -1.0, -2.0, -4.0, -1.0, -3.0]
other = 0.0  # 0.0, -1.0, -math.inf

# %%
x = torch.tensor([row], device=device.DEVICE)
y = row_softmax(x, other)
print("probabilities:", [round(p, 3) for p in y[0].tolist()])
print("their sum:    ", round(float(y.sum()), 3))

# %% [markdown]
# A row of six in a block of eight has two surplus lanes. If they read zero, each adds an exponential of its own to the sum,
# and the probabilities no longer add up to 1. With minus infinity they add nothing, and they are never the maximum.
#
# A row of eight has no surplus lanes, so a test that only tries powers of two can't see this mistake. Every masked load that
# feeds a reduction needs an `other` that is neutral: 0 for a sum, minus infinity for a maximum.
#
# ## One pass over memory
#
# Written with PyTorch's operations, softmax makes eight passes over the matrix: read for the maximum; read and write for the
# difference; read and write for the exponential; read for the sum; read and write for the quotient. A kernel that keeps the
# row in its registers makes two: read once, write once.

# %%
shape, dtype = (8192, 4096), torch.bfloat16
one_trip = math.prod(shape) * dtype.itemsize
print(f"step by step: {8 * one_trip / 2**20:.0f} MiB")
print(f"fused:        {2 * one_trip / 2**20:.0f} MiB")

# %% [markdown]
# ## A row that doesn't fit
#
# [[figure: rows/online]]
#
# A row of 128,256 scores, the vocabulary of a language model, is too long for the registers of one program. It has to come
# in chunks, and the maximum isn't known before the last one. The **online** form keeps a maximum and a sum relative to it.
# When a larger score turns up, the old sum is scaled down to the new maximum ([[tag: SM-online]]):

# %%
scores = torch.randn(20)
largest, total = -math.inf, 0.0
for chunk in scores.split(8):
    new = max(largest, float(chunk.max()))
    total = total * math.exp(largest - new) + float(torch.exp(chunk - new).sum())
    largest = new
    print(f"after this chunk: maximum {largest:.3f}, sum {total:.3f}")
print(f"all at once:      maximum {scores.max():.3f}, sum {torch.exp(scores - scores.max()).sum():.3f}")

# %% [markdown]
# Flash attention is built on this rescaling. [The lesson's kernel](../kernels/tutorials/softmax.md) makes two passes
# over its row: the first finds the maximum and the sum in this way, the second writes the probabilities.
#
# ## Backwards
#
# The gradient of a row needs one more reduction, the sum of the upstream gradient times the row's probabilities:
#
# [[eq: SM-x]]
#
# Only the probabilities are needed, so `x` need not be kept. Here is the kernel's gradient beside the one that PyTorch
# computes in float64.

# %%
x = torch.randn(5, 100, device=device.DEVICE, requires_grad=True)
upstream = torch.randn(5, 100, device=device.DEVICE)
(ours,) = torch.autograd.grad(lesson.softmax(x), x, upstream)
exact = x.detach().double().requires_grad_()
(expected,) = torch.autograd.grad(torch.softmax(exact, -1), exact, upstream.double())
print(f"largest gradient {expected.abs().max():.3f}, largest error {(ours - expected).abs().max():.1e}")

# %% [markdown]
# A warning about tests. `softmax(x).sum()` is the number of rows, whatever `x` is. Its gradient is zero, so a kernel that
# returns any small number passes such a test. Use a random upstream gradient, as above.
#
# ## How fast it is
#
# Softmax does little arithmetic, so memory sets the limit here, too. `lesson` is the [lesson's
# kernel](../kernels/tutorials/softmax.md), which comes two pages on, and `fast` its [fast
# version](../kernels/fast/softmax.md), which loads a row only once if it fits into the registers.

# %%
notebook.speed("softmax", live=[(8192, 4096), (4096, 32000)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next comes the [derivation](../derivations/softmax.md) of the gradient and of the online form, and then
# [the lesson's kernel](../kernels/tutorials/softmax.md), which has both.
