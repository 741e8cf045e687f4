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
# # The same function, or nearly?
#
# Your kernel agrees with PyTorch to six digits. Is it the same function? Every comparison of floats has a tolerance,
# because a sum in another order rounds differently. Whatever is smaller than the tolerance passes: an eps that was left
# out, one term of 100,000, a constant with a wrong digit. In this chapter you plant such a mistake, see the tolerance
# miss it, and then build the arithmetic that finds it. It takes twenty lines.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

import math

import numpy as np

from academy.runtime import device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook
from academy.judge import accuracy

import torch
import triton
import triton.language as tl

if device.INTERPRET:
    from academy.exact import without_rounding

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## A mistake that no tolerance sees
#
# This is a softmax with a mistake that you can turn up and down. With `stretch = 1` it is right.


# %%
@triton.jit
def softmax_kernel(x_ptr, y_ptr, N, stretch, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    row = tl.program_id(0).to(tl.int64) * N
    x = tl.load(x_ptr + row + offs, mask=mask, other=-float("inf"))
    e = tl.exp((x - tl.max(x, 0)) * stretch)
    tl.store(y_ptr + row + offs, e / tl.sum(e, 0), mask=mask)


def softmax(x, stretch=1.0):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], stretch, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


torch.manual_seed(0)
x = torch.randn(6, 37, device=device.DEVICE)
exact = torch.softmax(x.double(), -1)
for stretch in (1.0, 1.01, 1.0000001):
    problem = accuracy.problem(softmax(x, stretch).cpu(), torch.softmax(x, -1).cpu(), exact.cpu())
    print(f"stretch = {stretch}: {'too far off' if problem else 'as accurate as PyTorch'}")

# %% [markdown]
# The rule here is a fair one: at most [twice PyTorch's own error](../guides/numerics.md#how-wrong-is-too-wrong), or a
# few eps. It sees the mistake of one percent. Exponents that are too large by 1e-7 move the results by about one eps, as
# rounding may, so no rule of this kind can see them.
#
# ## Numbers that don't round
#
# What we want is a number that stays *exact* through `+`, `-`, `·` and `/`, however long the kernel is, and that fits into
# a machine word. Fractions are exact, but they grow with every step. Remainders don't grow. On a clock with 23 hours,
# 20 + 5 is 2. Division works, too, because 23 is a prime: one half is the number that gives 1 when it is doubled.

# %%
print("20 + 5 =", (20 + 5) % 23)
print("1/2    =", pow(2, -1, 23), "because 2 · 12 =", 2 * 12 % 23)

# %% [markdown]
# A float is a fraction: a whole number times a power of two. So every float has a remainder, its **residue**. A larger
# modulus keeps more of the number. We take 23⁷, about 3.4 billion.

# %%
P, M = 23, 23**7


def residue_of(value):
    over, under = float(value).as_integer_ratio()
    return over * pow(under, -1, M) % M


values = [0.1, 1e8, -1e8, 0.2]
print("floats:  ", sum(values), "and in another order", sum(sorted(values)))
print("residues:", sum(map(residue_of, values)) % M, "and", sum(map(residue_of, sorted(values))) % M)

# %% [markdown]
# The floats depend on the order. The residues don't, because nothing was rounded.
#
# ## An exponential
#
# A softmax needs more than four operations. What does it need of `exp`? Subtracting the maximum doesn't change the result
# because $e^{x - m} = e^x / e^m$. An online softmax may rescale because sums become products. So any function will do that
# turns sums into products. For residues that is a power: `exp(x) := (1 + p) ** x`.


# %%
class Both:
    """A float, and beside it what it is modulo 23⁷."""

    def __init__(self, value, residue=None):
        self.value = np.float32(value)
        self.residue = residue_of(value) if residue is None else residue % M

    def __add__(self, other):
        return Both(self.value + other.value, self.residue + other.residue)

    def __sub__(self, other):
        return Both(self.value - other.value, self.residue - other.residue)

    def __mul__(self, other):
        return Both(self.value * other.value, self.residue * other.residue)

    def __truediv__(self, other):
        return Both(self.value / other.value, self.residue * pow(other.residue, -1, M))


def exp(x):
    return Both(np.exp(x.value), pow(1 + P, x.residue, M))


def largest(numbers):
    """What is chosen by comparing follows the floats: residues have no order."""
    return max(numbers, key=lambda number: number.value)


a, b = Both(0.3), Both(-1.7)
print("exp(a + b) is exp(a) · exp(b):", exp(a + b).residue == (exp(a) * exp(b)).residue)

# %% [markdown]
# Now two programs that shouldn't differ: softmax as the formula has it, and **online**, where the maximum grows on the way
# and everything before it is rescaled.


# %%
def plain(row):
    e = [exp(x) for x in row]
    total = sum(e[1:], e[0])
    return [each / total for each in e]


def online(row, error=0.0):
    m, total = row[0], Both(1.0)
    for x in row[1:]:
        new = largest([m, x])
        total, m = total * exp(m - new) + exp(x - new), new
    return [exp((x - m) * Both(1.0 + error)) / total for x in row]


row = [Both(value) for value in (1.25, -0.5, 2.0, 0.1, 3.5, -1.75)]
same_bits = sum(a.value == b.value for a, b in zip(plain(row), online(row)))
same_residues = sum(a.residue == b.residue for a, b in zip(plain(row), online(row)))
print(f"of {len(row)} results, floats with the same bits: {same_bits}, equal residues: {same_residues}")

# %% [markdown]
# Different bits, equal residues: the same function, rounded differently.
#
# ## Change it
#
# Plant a mistake: in the last line of `online`, the exponents are too large by a factor of 1 + `ERROR`. The sum that they
# are divided by is right. How small can the mistake be before the floats miss it? And the residues? (The floats are
# judged by their largest error here: twice that of the formula in float32, or 8 eps.)

# %% tags=["parameters", "live"]
ERROR = 1e-7  # 0.0, 1e-2, 1e-5, 1e-7, 1e-9

# %%
row = [Both(value) for value in (1.25, -0.5, 2.0, 0.1, 3.5, -1.75)]
powers = [math.exp(float(x.value)) for x in row]
exact_row = [each / sum(powers) for each in powers]


def furthest(numbers):
    return max(abs(float(number.value) - value) for number, value in zip(numbers, exact_row))


ours, formula = online(row, ERROR), plain(row)
limit = max(2 * furthest(formula), 8 * 2**-23 * max(exact_row))
differing = sum(a.residue != b.residue for a, b in zip(ours, formula))
print(f"largest error {furthest(ours):.1e}, allowed {limit:.1e}")
print("as accurate as the formula in float32:", "yes" if furthest(ours) <= limit else "NO")
print("the same function:                    ", f"NO, {differing} of 6 differ" if differing else "yes")

# %% [markdown]
# Each of these mistakes makes 5 of the 6 results differ. The sixth belongs to the largest number of the row: its exponent is
# 0, and 0 times any factor is 0.
#
# With 1e-9 the factor is 1 in float32, and the floats are *equal*. The residues know better, because `Both` kept the
# factor as it was written. A kernel can't: to it, 1.000000001 is the float32 nearest to that, which is 1.
#
# [[figure: exact/planted]]
#
# ## In a kernel
#
# Nothing of the kernel has to change for this. In Triton's interpreter each operation of a kernel passes one place.
# `without_rounding` puts the residues beside the floats there, and in PyTorch beside each operation of the reference. It
# uses four moduli, 3²⁰, 7¹¹, 11⁹ and 23⁷, and knows `log`, `√`, `sin` and reductions as well. On a GPU kernels are
# compiled and don't pass there; then the two cells with `without_rounding` only say that they need the interpreter.
#
# **Before you run it:** which of these three factors are found?

# %%
if device.INTERPRET:
    for stretch in (1.0, 1.0000001, 1.000000001):
        with without_rounding() as session:
            print(f"stretch = {stretch}:", session.compare(softmax(x, stretch), torch.softmax(x.double(), -1)))
else:
    print("not run: it needs the interpreter (set TRITON_INTERPRET=1 before you start Python)")

# %% [markdown]
# The last one is called the same function, and it is: the kernel was handed a 1. Residues compare what the kernel holds,
# not what was meant.
#
# Kernels of this site are compared with their formulas like this, but for
# [a few](../guides/without-a-tolerance.md#what-isnt-decided), and each `=` of the derivations, both sides.
# `academy judge my_kernel.py --only exact` does it for yours, against your reference.
#
# ## Two questions, two verdicts
#
# *The same function* says nothing about accuracy. Take softmax without subtracting the maximum, here in PyTorch. As a
# function it is the same, and it overflows from 89 on:


# %%
def careless(x):
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


if device.INTERPRET:
    with without_rounding() as session:
        print(session.compare(careless(x), torch.softmax(x.double(), -1)))
else:
    print("not run: it needs the interpreter")
large = 100 + x
print(
    "at 100:",
    accuracy.problem(careless(large).cpu(), torch.softmax(large, -1).cpu(), torch.softmax(large.double(), -1).cpu()),
)

# %% [markdown]
# So a kernel needs both, and each is blind where the other sees:
#
# | | floats, within twice PyTorch's error | residues |
# |---|---|---|
# | a term, an eps, a digit that is too small to see | pass | **refused** |
# | overflow, cancellation, too few bits | **refused** | equal |
# | a threshold at which no input lies | pass | equal |
#
# The last row is a warning. A residue has no order, so what a kernel *chooses*, by `max`, a mask or a branch, follows the
# floats. [What equal residues mean](../guides/without-a-tolerance.md) has the rest: how likely a wrong kernel passes,
# what can't be decided, and the proof as far as there is one.
#
# ## What it is good for
#
# An optimisation should change the time and not the function. These are steps on the way to the
# [fast softmax](../kernels/fast/softmax.md), each compared with the one before it, without a tolerance:

# %%
notebook.ladder("softmax")

# %% [markdown]
# ## Exercises
#
# A kernel that is the right function and overflows: here you mend one.
#
# [[exercises]]
#
# Next you take a kernel of your own from its formula to a benchmark.
