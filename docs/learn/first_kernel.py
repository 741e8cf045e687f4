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
# # 1. Write your first kernel
#
# How do you divide one long vector among programs, many of which run at once, and what happens at its end, where a
# whole piece no longer fits? You write a kernel of three lines and launch it. Then you break it on purpose and watch
# which elements go wrong.
#
# You need Python and a little PyTorch. You don't need a GPU: without one, Triton's interpreter runs the same kernels on
# the CPU, slowly and one program after another. Output below a cell is what a real run printed. To run the cells yourself,
# [open the chapter as a notebook](index.md#how-to-run-the-chapters). If you don't want to install anything: the cell under
# [Change it](first_kernel.py#change-it) runs in the browser, and so do the exercises.

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
from annotated_examples.tutorials import vector_add as lesson

import torch
import triton
import triton.language as tl

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## One program, one block of elements
#
# [[figure: hardware/launch]]
#
# A **kernel** is a function that runs on the GPU. You write what one **program** does, and a **launch** starts as many
# programs as you ask for. All of them run the same lines. They differ in one thing only: each knows its own number. From
# that number a program works out which elements are its own. Those elements are its **block**, and one place in a block
# is called a **lane**. Ten elements in blocks of four take three programs, and the last one has two lanes too many:
#
# ```text
# element    0  1  2  3   4  5  6  7   8  9  -  -
# program    0            1            2
# lane       0  1  2  3   0  1  2  3   0  1  2  3
# ```
#
# The first kernel shows which program owns which elements: each program writes its own number into its elements. These
# are its parts:
#
# - `@triton.jit` compiles the function for the GPU when it is first launched. Its body is Triton, which looks like Python
#   but isn't: you have arithmetic, `if`, `for` and the functions of `triton.language`, which everybody calls `tl`. There
#   are no lists in it, and nothing of PyTorch.
# - A tensor that you pass to a kernel arrives as a **pointer**, the address of its first element. It has no shape and no
#   length, so the length is passed as well: `out_ptr` and `n`.
# - `tl.constexpr` marks an argument whose value is compiled into the kernel, as if you had typed the number there. The
#   size of a block is such a constant, because the compiler has to know how many lanes there are. Each new value makes
#   Triton compile the kernel again. That is why `n` is an ordinary argument: vectors may have any length.
# - `tl.program_id(0)` returns the number of this program, counted from zero.
# - `tl.arange(0, BLOCK)` makes a block of whole numbers: 0, 1, 2 and so on, up to `BLOCK` - 1. Arithmetic with a block
#   happens in every lane at once, as in NumPy. (`BLOCK` has to be a power of two: `tl.arange` accepts nothing else.) So
#   with blocks of four, program 2 gets `2 * 4 + [0, 1, 2, 3]`: the elements 8, 9, 10, 11.
# - A pointer plus a number points that many elements further on. So `out_ptr + offsets` is a **block of pointers**, one
#   for each lane.
# - `tl.store(pointers, value, mask=…)` writes a value through each of the pointers. Here the value is one number, `pid`,
#   which all lanes write. A store converts the value to the dtype of the tensor: `pid` is an int32, and `out` below
#   holds int64. The `mask` is a block of true and false, and lanes in which it is false write nothing.


# %%
@triton.jit
def owner_kernel(out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, pid, mask=offsets < n)


# %% [markdown]
# A launch has two pairs of brackets: `kernel[grid](arguments)`. The square ones hold the **grid**, which says how many
# programs to start. It is a tuple, because programs may be numbered in up to three dimensions; `(3,)` starts three in
# one dimension. The round ones hold the arguments. A kernel returns nothing: its results are what it stored.
#
# How many programs do `n` elements need? Enough to cover them, so the division is rounded **up**. `triton.cdiv(n, BLOCK)`
# does that: `triton.cdiv(10, 4)` is 3. And where do the tensors live? Where the kernel runs: `device.DEVICE` is the GPU, or
# the CPU where there is none.


# %%
def owners(n, BLOCK, programs=None):
    """For each of n elements the program that wrote it, -1 where none did."""
    out = torch.full((n,), -1, device=device.DEVICE)
    grid = (programs or triton.cdiv(n, BLOCK),)
    owner_kernel[grid](out, n, BLOCK=BLOCK)
    return out.tolist()


owners(n=10, BLOCK=4)

# %% [markdown]
# Three programs: two with four elements and one with the two that are left.
#
# The work is done by **threads**: each executes one instruction after another and keeps a few numbers of its own. 32
# threads that execute the same instruction together are a **warp**. A program runs on four warps, 128 threads, and the
# compiler deals the lanes out to them: with 1024 lanes each thread gets eight. In a launch, `num_warps=8` gives each
# program twice as many threads. That pays for large blocks: each thread then holds fewer lanes. Four warps are right to
# begin with.
#
# If you know CUDA, note that the words mean different things. There you write what one thread does, and a block is a
# group of threads. Here a block is a piece of data, and no thread is ever named.
#
# ## The tail
#
# Round down instead, as `n // BLOCK` does, and the last elements belong to nobody. Nothing complains.

# %%
owners(n=10, BLOCK=4, programs=10 // 4)

# %% [markdown]
# Here the lost elements show as `-1`. In a real kernel they would be whatever the memory held before. Often that is the
# right result of the previous call, so this mistake can go unnoticed for months.
#
# ## The mask
#
# Rounding up has a price: the last program has more lanes than there are elements. The mask switches the surplus off. To
# see what it prevents, take it away. The vector below has ten elements, but it lies in a longer piece of memory, whose
# last six belong to somebody else.
#
# One kernel can have both versions. `MASKED` is a `tl.constexpr`, so its `if` is decided when the kernel is compiled, and
# the branch that isn't taken leaves no code behind.


# %%
@triton.jit
def ones_kernel(out_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        tl.store(out_ptr + offsets, 1.0, mask=offsets < n)
    else:
        tl.store(out_ptr + offsets, 1.0)


memory = torch.full((16,), 7.0, device=device.DEVICE)
vector = memory[:10]
ones_kernel[(triton.cdiv(10, 4),)](vector, 10, BLOCK=4, MASKED=False)
print("the vector:          ", vector.tolist())
print("its neighbour's data:", memory[10:].tolist())

# %% [markdown]
# The vector is right, so every test of the result passes. Two elements of the neighbour are gone. A load without a mask is
# less visible still: it reads numbers that aren't yours, and crashes when the memory behind them doesn't exist.
#
# ## Change it
#
# Set `n` to anything you like, `BLOCK` to a power of two, and run the cell. With `masked` set to `False` you get the mistake
# back.

# %% tags=["parameters", "live"]
n = 23  # 1 to 64
BLOCK = 8  # 1, 2, 4, 8, 16, 32
masked = True

# %%
programs = triton.cdiv(n, BLOCK)
memory = torch.zeros(programs * BLOCK, device=device.DEVICE)
ones_kernel[(programs,)](memory[:n], n, BLOCK=BLOCK, MASKED=masked)
print(f"{programs} programs of {BLOCK} lanes for {n} elements")
print(f"{programs * BLOCK - n} lanes too many; written past the end: {int(memory[n:].sum())}")

# %% [markdown]
# ## The real kernel
#
# [The lesson's kernel](../kernels/tutorials/vector_add.md) is these few lines with two loads and a sum. Press
# **Watch** on its page to watch it: choose a program, then step through its lines with the arrow keys. It computes [[tag: VA]]
# for any length, and two things in it are new.
#
# `tl.load(pointers, mask=…, other=…)` reads a value through each of the pointers and returns them as a block. Lanes that
# the mask switches off read nothing; they get the value of `other` instead.
#
# And there is `tl.program_id(0).to(tl.int64)`. The number of a program is a 32-bit integer. An integer argument is one
# too, unless its value needs 64 bits. The product of two 32-bit integers has 32 bits again: from 2³¹ on, a bit more
# than two billion, an offset wraps around to a negative number and points to memory before the start of the tensor.
# `.to(tl.int64)` converts the number to 64 bits before it is multiplied. `tl.int64` is one of Triton's dtypes, which
# have PyTorch's names: `tl.float32` is what PyTorch calls `torch.float32`.

# %%
x = torch.randn(1000, device=device.DEVICE)
y = torch.randn(1000, device=device.DEVICE)
torch.equal(lesson.vector_add(x, y), x + y)

# %% [markdown]
# ## How fast it is
#
# For each float32 sum 12 bytes move: two numbers are read, one is written. The arithmetic is one addition. So memory
# sets the pace, and the limit is the time that the card needs to copy the same number of bytes. A share above 100 % isn't
# a mistake: the limit is a copy that was measured, not a law of physics. Half of what a copy moves is written, here only a
# third is, and a kernel that reads more than it writes can be a little faster.

# %%
notebook.speed("vector_add", live=[(1 << 24,), (1 << 28,)])

# %% [markdown]
# There is next to nothing to gain here, and that is the first thing to learn about speed. One addition can't be faster than
# its bytes, and PyTorch's own kernel is there already. The gain begins when several operations share one pass over memory.
# A chain of two additions, `x + y + z`, moves 24 bytes an element when it runs as two kernels and 16 as one.
#
# ## Exercises
#
# [[exercises]]
#
# Next comes the file of [the lesson's kernel](../kernels/tutorials/vector_add.md), with launcher, gradient and a run to
# watch. The guide on [how a GPU runs a Triton program](../guides/how-a-gpu-runs-triton.md) says more about programs,
# warps and memory. How a kernel gets a gradient, and how you test that, comes later on the path, in [Build an operation of
# your own](own_operation.py).
