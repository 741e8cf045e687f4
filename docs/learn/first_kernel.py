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
# # 1. The first kernel
#
# You take vector addition apart: what a **program** is, why there is a mask, and what becomes of the last few elements of a
# vector. Then you break the kernel on purpose and watch which elements go wrong.
#
# You need Python and a little PyTorch. You don't need a GPU: without one, Triton's interpreter runs the same kernels on the
# CPU, slowly and one program after another. Every cell below is a real run.

# %%
# In the repository this does nothing. Elsewhere, in Colab for example, it installs the kernels.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    packages = ["git+{{ repo_url }}", "matplotlib"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)

# %%
from academy import device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook
from annotated_examples.tutorials import vector_add as lesson

import torch
import triton
import triton.language as tl

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## One program, one block of elements
#
# In CUDA you write what one **thread** does, usually to one element. You also say how many threads make a **block**, and the
# threads of a block may share memory and wait for each other.
#
# In Triton you write what one **program** does to a whole block of elements. There are no threads in the source. The
# compiler deals the elements of a block out to the threads of one CUDA thread block, by default 128 of them: four
# **warps** of 32, the threads that a GPU runs in step. So the word block means two things: a CUDA block is a group of
# threads, a Triton block is a piece of data. A program with 1024 elements and 128 threads gives each thread eight of
# them.
#
# The launch says how many programs there are. Each asks for its number and works out which elements are its own. This
# kernel does nothing else: every element of the output gets the number of the program that owns it.


# %%
@triton.jit
def owner_kernel(out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, pid, mask=offsets < n)


def owners(n, BLOCK, programs=None):
    """For each of n elements the program that wrote it, -1 where none did."""
    out = torch.full((n,), -1, device=device.DEVICE)
    owner_kernel[(programs or triton.cdiv(n, BLOCK),)](out, n, BLOCK=BLOCK)
    return out.tolist()


owners(n=10, BLOCK=4)

# %% [markdown]
# Three programs: two with four elements and one with the two that are left. `triton.cdiv` divides and rounds **up**.
#
# ## The tail
#
# Round down instead, as `n // BLOCK` does, and the last elements belong to nobody. Nothing complains.

# %%
owners(n=10, BLOCK=4, programs=10 // 4)

# %% [markdown]
# Here the lost elements show as `-1`. In a real kernel they would be whatever the memory held before. Often that is the
# right result of the call before, and so this mistake can live for months.
#
# ## The mask
#
# Rounding up has a price: the last program has more lanes than there are elements. The mask switches the surplus off. To
# see what it prevents, take it away. The vector below has ten elements, but it lies in a longer piece of memory, whose
# last six belong to somebody else.


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
# Set `n` and `BLOCK` to anything you like and run the cell. `BLOCK` has to be a power of two, because `tl.arange` allows
# nothing else. With `masked` set to `False` you get the mistake back.

# %% tags=["parameters"]
n = 23
BLOCK = 8
masked = True

# %%
programs = triton.cdiv(n, BLOCK)
memory = torch.zeros(programs * BLOCK, device=device.DEVICE)
ones_kernel[(programs,)](memory[:n], n, BLOCK=BLOCK, MASKED=masked)
print(f"{programs} programs of {BLOCK} lanes for {n} elements")
print(f"{programs * BLOCK - n} lanes too many; written behind the end: {int(memory[n:].sum())}")

# %% [markdown]
# ## The real kernel
#
# [The lesson's kernel](../kernels/tutorials/vector_add.md) is these few lines with two loads and a sum. You can watch it
# there, program by program. It computes [[tag: VA]] for any length, and it knows two more things.
#
# `n` is an ordinary argument. As a `tl.constexpr` it would be part of the compiled code, and every new length would compile
# the kernel again. And the program's number becomes a 64-bit integer before it is multiplied: with more than two billion
# elements a 32-bit offset would wrap around and point in front of the tensor.

# %%
x = torch.randn(1000, device=device.DEVICE)
y = torch.randn(1000, device=device.DEVICE)
torch.equal(lesson.vector_add(x, y), x + y)

# %% [markdown]
# ## How fast it is
#
# For each float32 sum 12 bytes move: two numbers are read, one is written. The arithmetic is one addition. So memory
# decides, and the limit is the time that the card needs to copy as many bytes.

# %%
notebook.speed("vector_add", live=[(1 << 24,), (1 << 28,)])

# %% [markdown]
# There is next to nothing to gain here, and that is the first thing to learn about speed. One addition can't be faster than
# its bytes, and PyTorch's own kernel is there already. The gain begins when several operations share one trip to memory.
# A chain of two additions, `x + y + z`, moves 24 bytes an element when it runs as two kernels and 16 as one.
#
# ## Exercises
#
# **1.** Write `scale_and_add(alpha, x, y)`, which computes `alpha * x + y` in one kernel. `alpha` is a Python float.
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# @triton.jit
# def scale_and_add_kernel(alpha, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
#     y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, alpha * x + y, mask=mask)
#
#
# def scale_and_add(alpha, x, y, BLOCK=128):
#     out = torch.empty_like(x)
#     scale_and_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](alpha, x, y, out, x.numel(), BLOCK=BLOCK)
#     return out
# ```
#
# A float is passed like any other argument. It isn't a `tl.constexpr`, so a new `alpha` compiles nothing.
#
# </details>
#
# **2.** Write `reverse(x)`, which returns the vector backwards. Which of the two offsets changes, and which mask do you need?
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# @triton.jit
# def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     x = tl.load(x_ptr + (n - 1 - offsets), mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, x, mask=mask)
#
#
# def reverse(x, BLOCK=128):
#     out = torch.empty_like(x)
#     reverse_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
#     return out
# ```
#
# The load runs backwards from `n - 1`. The mask stays: lanes behind the end would load from in front of the vector.
#
# </details>
#
# **3.** Write `add_three(x, y, z)` as one kernel, and `bytes_saved(n)`: how many bytes fewer it moves than two calls of
# `vector_add`, for float32 vectors of `n` elements.
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# @triton.jit
# def add_three_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
#     y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
#     z = tl.load(z_ptr + offsets, mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, x + y + z, mask=mask)
#
#
# def add_three(x, y, z, BLOCK=128):
#     out = torch.empty_like(x)
#     add_three_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, z, out, x.numel(), BLOCK=BLOCK)
#     return out
#
#
# def bytes_saved(n):
#     two_calls = 2 * 3 * 4 * n  # each reads two vectors and writes one
#     fused = 4 * 4 * n  # reads three, writes one
#     return two_calls - fused
# ```
#
# The intermediate sum is neither written nor read again: 8 bytes of 24. Bytes are time here, so a third of it is saved.
#
# </details>
#
# More about programs, warps and memory is in [how a GPU runs a Triton program](../guides/how-a-gpu-runs-triton.md).
# The next chapter is [softmax](softmax.py), where a program has to look at a whole row before it can write anything.
