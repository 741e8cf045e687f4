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
# # 6. Reduce down the columns
#
# A bias is added to every row of a batch, so its gradient is the sum of all rows. But each program has only a few of them.
# Who adds up what the programs have found? You try the obvious answer, see why its result may change from run to run, and
# write the one that LayerNorm's backward pass uses: partial sums.

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

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## Two directions
#
# A tile has two dimensions, so it can be summed in two directions. `tl.sum(tile, axis=1)` runs along the rows and leaves
# one number for each row. `tl.sum(tile, axis=0)` runs down the columns and leaves one number for each column. The axis that
# you name is the one that disappears, as in PyTorch.
#
# [[figure: rows/directions]]


# %%
@triton.jit
def both_sums_kernel(x_ptr, rows_ptr, columns_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + offs[:, None] * BLOCK + offs[None, :])
    tl.store(rows_ptr + offs, tl.sum(tile, axis=1))
    tl.store(columns_ptr + offs, tl.sum(tile, axis=0))


tile = torch.arange(16, dtype=torch.float32, device=device.DEVICE).reshape(4, 4)
rows, columns = torch.empty(4, device=device.DEVICE), torch.empty(4, device=device.DEVICE)
both_sums_kernel[(1,)](tile, rows, columns, BLOCK=4)
print(tile.int())
print("of each row:   ", rows.tolist())
print("of each column:", columns.tolist())

# %% [markdown]
# As long as everything fits into one tile, the two are alike. In a large matrix they are not.
#
# A **row sum** belongs to one row. A program that walks along its row, as in [softmax](softmax.py), sees all of it.
#
# A **column sum** needs something from every row. With 32,768 tokens and 4096 features, one program that walks down its
# columns has 32,768 rows to go. A block of 128 columns makes only 32 such programs, and an H200 has 132 SMs:
# three quarters of the card would have nothing to do. So several programs must share the rows of each column, and then
# each of them knows only a part of the sum.
#
# ## The obvious answer: add to the same place
#
# Let every program add what it has to one vector in memory. A load, an addition and a store won't do: between the load
# and the store another program may store, and its number is lost. `tl.atomic_add(pointers, values, mask=…)` does all three
# in one step that nothing can interrupt. The vector has to be zero before the launch.


# %%
@triton.jit
def atomic_sums_kernel(x_ptr, out_ptr, M, N, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + offs_n, tl.sum(x, axis=0), mask=offs_n < N)


def atomic_sums(x, BLOCK_M=32, BLOCK_N=128):
    M, N = x.shape
    out = torch.zeros(N, device=x.device)
    grid = (triton.cdiv(N, BLOCK_N), triton.cdiv(M, BLOCK_M))
    atomic_sums_kernel[grid](x, out, M, N, x.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    return out


x = torch.randn(100, 70, device=device.DEVICE)
exact = x.double().sum(0)
print(f"largest error: {(atomic_sums(x) - exact).abs().max():.1e}")

# %% [markdown]
# The sums are right. Their last bits are a matter of luck, though. Floating-point addition rounds after every step, so
# the result depends on the order, and programs reach the addition in whatever order the GPU ran them. The interpreter
# runs them one after the other, so it can't show that. But any sum shows the effect. Here are the same hundred numbers,
# added in ten orders.

# %%
numbers = torch.randn(100) * 1000
results = set()
for _ in range(10):
    total = torch.tensor(0.0)
    for number in numbers[torch.randperm(100)]:
        total = total + number
    results.add(total.item())
print(f"{len(results)} different results: from {min(results):.4f} to {max(results):.4f}")

# %% [markdown]
# Each of these results is as good as the others. But a training run that can't be repeated can't be debugged either:
# after a few thousand steps the last bits have grown into visible differences. Atomics have two more drawbacks. All
# programs of a column add to the same addresses, and the additions to one address are done one after another. And in
# bfloat16 every single addition would round to 8 bits.
#
# ## Partial sums
#
# So no two programs may write to one place. Let `P` programs share the rows of each block of columns. Each adds up its own
# rows in float32 and writes the result into a row of its own in a small matrix of **partial sums**, `P` by `N`. A second
# step adds up the `P` rows. Both steps have a fixed order, so the same call gives the same bits.
#
# How are the rows shared? Program `p` takes tile `p`, then tile `p + P`, then `p + 2 * P`, until there are no more. This is
# called a *grid-stride loop*, because the step is the size of the grid. `tl.num_programs(1)` returns that size: how many
# programs the launch started in dimension 1.
#
# In the loop a tile is added to a tile, lane by lane, without any exchange between threads. The rows of the tile are summed
# only once, at the end.


# %%
@triton.jit
def partial_sums_kernel(x_ptr, partial_ptr, M, N, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.program_id(1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(p * BLOCK_M, M, tl.num_programs(1) * BLOCK_M):
        offs_m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
        acc += tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    # My own row of the partial sums: nobody else writes there.
    tl.store(partial_ptr + p * N + offs_n, tl.sum(acc, axis=0), mask=offs_n < N)


def partial_sums(x, P=64, BLOCK_M=32, BLOCK_N=128):
    """A (P, N) matrix whose rows add up to the column sums of x."""
    M, N = x.shape
    P = min(P, triton.cdiv(M, BLOCK_M))  # no program without a tile
    partial = torch.empty(P, N, device=x.device)
    grid = (triton.cdiv(N, BLOCK_N), P)
    partial_sums_kernel[grid](x, partial, M, N, x.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    return partial


def column_sums(x, **tiles):
    return partial_sums(x, **tiles).sum(0).to(x.dtype)


print(f"largest error: {(column_sums(x) - exact).abs().max():.1e}")
print(f"the same bits twice: {torch.equal(column_sums(x), column_sums(x))}")

# %% [markdown]
# The check should be as harsh as real inputs can be: sizes that no tile divides, a slice of a wider matrix, and NaN in
# the part that the kernel must not read:

# %%
for M, N in ((1, 1), (33, 129), (100, 70)):
    wide = torch.full((M, N + 5), float("nan"), device=device.DEVICE)
    wide[:, :N] = torch.randn(M, N, device=device.DEVICE)
    part = wide[:, :N]
    torch.testing.assert_close(column_sums(part), part.double().sum(0).float())
    print(f"{M} x {N}, cut out of rows of {N + 5}: right")

# %% [markdown]
# ## Change it
#
# How many programs should share the rows? More programs fill the card better, but they also make more partial sums,
# which have to be written, read and added up. Try `P = 1`, 8, 64, 1024 with the 4096 columns of a language model, then
# with 128 columns.

# %% tags=["parameters", "live"]
M, N = 32768, 4096
P = 8  # 1, 8, 64, 1024

# %%
programs = triton.cdiv(N, 128) * min(P, triton.cdiv(M, 32))
extra = 2 * 4 * min(P, triton.cdiv(M, 32)) * N  # float32, written and read
print(f"{programs} programs for 132 SMs, {triton.cdiv(M, 32 * P)} tiles for each program")
print(f"partial sums: {extra / (2 * M * N):.2%} of the bytes of a bfloat16 matrix on top")

# %% [markdown]
# With `P = 8` there are 256 programs, not even two for each SM. With 64 there are 2048, and the partial sums
# cost less than one percent. That is what [LayerNorm](../kernels/classics/layernorm.md) does for the gradients of its weight
# and its bias.
#
# ## Which way to walk
#
# Could a program take a single column? It would load numbers that lie `stride_xm` apart. Memory comes in sectors of 32
# bytes, and in bfloat16 each would bring one number that is wanted and fifteen that aren't. A tile of 128 columns uses all
# of what it fetches. So walk in whichever direction you need, but let the lanes lie side by side in memory.
#
# ## What it costs
#
# LayerNorm's backward pass has both kinds of reduction: two sums along each row for the gradient of the input, two sums
# down the columns for its parameters. `lesson` runs a kernel for each and reads the matrices twice. The
# [fast version](../kernels/fast/layernorm.md) does both in one pass, with partial sums that stay in registers.

# %%
notebook.speed("layernorm", "backward", live=[(8192, 4096)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next comes the [derivation](../derivations/layernorm.md) of LayerNorm, and then [its
# kernel](../kernels/classics/layernorm.md), where these sums are half of the backward pass.
