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
# # 4. Reuse what is in the L2 cache
#
# A product of 9 x 9 tiles is computed by 81 programs, whatever their order. So why does the order decide how much they
# load? The programs of a launch share a cache. You change nothing but the order in which they take their tiles of the
# result, and count the loads. Then you turn to the backward pass, where every gradient has a transposed matrix in it,
# and see how a kernel that ignores strides passes a careless test.

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
from academy.site import l2_picture
from annotated_examples.fast import matmul as fast
from annotated_examples.ladders.matmul_backward import rung_1_gate_in_the_loads as gated
from annotated_examples.tutorials import matmul_grouped as lesson

import torch


class Picture:
    """An SVG that a notebook shows."""

    def __init__(self, svg):
        self.svg = svg

    def _repr_html_(self):
        return self.svg


torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## Who runs at the same time
#
# An H200 has 132 SMs. With a program on each, 132 tiles of the result are computed at a time. All their loads
# go through one cache, the L2, which is faster than the memory behind it. What one program has loaded, another one finds
# there.
#
# Each tile of the result needs one row of tiles of `x` and one column of tiles of `y`. Programs that share rows and
# columns share loads. So which tiles run at the same time decides how much comes from memory.
#
# ## Row by row, or in groups
#
# Take a result of 9 x 9 tiles, nine tiles along K, and nine programs at a time. Going along a row, the first nine share
# their row of `x`, but each needs a column of `y` for itself. The pictures are drawn from `program_order`, a kernel that
# stores where each program of the real kernel would be.


# %%
def picture(rows, columns, GROUP_M, programs, tiles_k):
    order = lesson.program_order(rows, columns, GROUP_M)
    title = f"Groups of {GROUP_M} rows" if GROUP_M > 1 else "Row by row"
    return Picture(l2_picture.draw(order, programs, tiles_k, title))


picture(9, 9, GROUP_M=1, programs=9, tiles_k=9)

# %% [markdown]
# Now the programs are numbered in groups of three rows: first down, then to the right. The first nine make a square.

# %%
picture(9, 9, GROUP_M=3, programs=9, tiles_k=9)

# %% [markdown]
# Now the nine programs need 27 different tiles of `x` and 27 of `y`, instead of 9 and 81. They load as often as before,
# and the result is the same. But 40 % fewer tiles have to come from memory; the others are in the cache.
#
# ## Why `pid % GROUP_M` is not enough
#
# Down a group of rows first, then to the right: that sounds like row `pid % GROUP_M` and column `pid // GROUP_M`. It is right
# for the first group and wrong from then on. The remainder says which row *inside* a group a program takes, and nothing
# says which group. So no program ever leaves the first rows, and the columns run past the right edge.
#
# The second try adds the group: `pid // (GROUP_M * columns)`, because that many programs come before the next one. Now
# all is well as long as `GROUP_M` divides the number of rows. If it doesn't, the last group has fewer rows, and the
# remainder by `GROUP_M` can point to a row that doesn't exist. `grouped_order`, the [function that the lesson's kernel
# calls](../kernels/tutorials/matmul_grouped.md#a-better-order), divides by the height that the group really has.


# %%
def remainder_alone(pid, rows, columns, GROUP_M):
    return pid % GROUP_M, pid // GROUP_M


def with_groups(pid, rows, columns, GROUP_M):
    first_row = pid // (GROUP_M * columns) * GROUP_M
    in_group = pid % (GROUP_M * columns)
    return first_row + in_group % GROUP_M, in_group // GROUP_M


def faults(order, rows, columns):
    """How many programs take a tile that doesn't exist, and how many tiles no program takes."""
    wanted = {(row, column) for row in range(rows) for column in range(columns)}
    return len([tile for tile in order if tile not in wanted]), len(wanted - set(order))


for rows in (8, 7):
    orders = {
        "the remainder alone": [remainder_alone(pid, rows, 6, 4) for pid in range(rows * 6)],
        "with groups": [with_groups(pid, rows, 6, 4) for pid in range(rows * 6)],
        "grouped_order": lesson.program_order(rows, 6, 4),
    }
    for name, order in orders.items():
        outside, missing = faults(order, rows, 6)
        print(f"{rows} x 6 tiles, {name}: {outside} outside, {missing} missing")

# %% [markdown]
# With masks nothing crashes: programs outside store nothing, and tiles that are missing keep whatever was in memory. Test
# a number of rows that `GROUP_M` doesn't divide.
#
# ## Change it
#
# Any grid will do. Here the last group has three rows. Try `GROUP_M` equal to `rows`.
#
# [[figure: products/l2_order]]

# %% tags=["parameters"]
rows, columns = 7, 6
GROUP_M = 4
programs = 12
tiles_k = 5  # tiles along K

# %%
picture(rows, columns, GROUP_M, programs, tiles_k)

# %% [markdown]
# ## At the size of a GPU
#
# 8192 x 8192 in tiles of 128 x 256 makes 64 x 32 tiles. Of those, 132 run at a time. How much do they load?

# %%
for size in (8192, 4096):
    print(f"{size} x {size}:")
    for GROUP_M in (1, 4, 8, 16, 32):
        order = lesson.program_order(size // 128, size // 256, GROUP_M)
        loads = l2_picture.count(order, 132, size // 64)
        mebibytes = (loads.left * 128 * 64 + loads.right * 64 * 256) * 2 / 2**20
        print(f"  GROUP_M = {GROUP_M:2}: {loads.left:5} tiles of x, {loads.right:5} of y, {mebibytes:4.0f} MiB")

# %% [markdown]
# The best group makes the running tiles about as tall as they are wide, counted in elements. At 4096 a row of the result
# has only 16 tiles, so going along the rows, 132 programs cover nine of them: not a square, but not a thin strip either.
# Groups of 16 still load less. Groups of 4 or 8 load more than no groups at all. There is less to gain, and something
# to lose.
#
# ## While the programs run
#
# The count is of the first 132 programs only, and it assumes that all of them are at about the same step along K. A tile
# that one program has loaded helps another only while it is still in the cache. So what later programs find depends on
# how much the cache holds, and on how far the programs drift apart. Here is a cache, followed through a whole product:
#
# [[figure: products/l2]]
#
# ## What it gains
#
# Counting tells you how much the first programs bring into an empty cache. What later programs find there depends on what
# has been evicted since. Only a measurement tells you whether the
# kernel was waiting for them. These are products of 4096 x 4096 matrices, computed by the [fast
# version](../kernels/fast/matmul.md) of the product in tiles of 128 x 256.


# %%
def product(GROUP_M, size=4096):
    """A call to time: one product of square matrices."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device.DEVICE) for _ in range(2))
    tiles = dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_warps=8)
    return lambda: fast.matmul_forward(a, b, GROUP_M=GROUP_M, **tiles)


live = {f"groups of {GROUP_M}": lambda GROUP_M=GROUP_M: product(GROUP_M) for GROUP_M in (1, 8, 16)}
notebook.ladder("matmul_autotuned", live=live)

# %% [markdown]
# From [[bench: matmul_autotuned/ladder/no groups/forward_ms]] to
# [[bench: matmul_autotuned/ladder/groups of 16/forward_ms]]: a small gain, as the count for this size predicted.
# Besides, each matrix takes 34 MB and the cache of an H200 holds 62.9 MB, so in any order much of what is loaded again is
# still in the cache. (It has two halves, each for the SMs near it, and what SMs of both sides read may be in both.) The order costs nothing, and it matters more where the cache is smaller or the matrices are
# larger. On a GPU of your own, try `product(1, size=8192)` and larger groups.
#
# ## Backwards
#
# The gradients of a product are two more products:
#
# [[eq: MM-X]]
#
# [[eq: MM-Y]]
#
# A transposed matrix is the same memory with its strides exchanged. A kernel that takes strides needs no second version
# for it. A kernel that ignores them, because its author assumed rows of length K, reads the wrong numbers. Nothing
# crashes, since the transposed matrix has just as many numbers. `lesson.matmul_backward(dz, x, y)`, whose kernel comes
# two pages on, returns both gradients.

# %%
x = 0.01 * torch.randn(32, 48, device=device.DEVICE)
y = 0.01 * torch.randn(48, 16, device=device.DEVICE)
dz = 0.01 * torch.randn(32, 16, device=device.DEVICE)
expected = dz.double() @ y.double().T

dx, dy = lesson.matmul_backward(dz, x, y)
ignores_strides = dz @ y.reshape(16, 48)  # the memory of y, taken for its transpose

for name, value in (("with strides", dx), ("without", ignores_strides)):
    passes = torch.allclose(value.double(), expected, atol=1e-2, rtol=0)
    error = float((value - expected).norm() / expected.norm())
    print(f"{name:12}: relative error {error:7.1e}, torch.allclose with atol=1e-2: {passes}")

# %% [markdown]
# The second one is wrong from end to end, and the test passes. Its tolerance is larger than every gradient. Compare
# relative to the size of the values, and use inputs with realistic values.
#
# ## A fusion that doesn't pay
#
# With a ReLU after the product, the upstream gradient has to be **gated** before it is multiplied: set to zero wherever
# the result is zero. Doing that inside the loads saves a kernel and a matrix that it writes; in return each product loads
# two tiles for one factor, the gradient's and the gate's. `gated`, the first rung of the [ladder of the backward
# pass](../kernels/fast/matmul.md#matmul_backward-gate_apart), does that. It is slower:


# %%
def gradients(in_the_loads, size=4096):
    """A call to time: both gradients of a product with a ReLU, gated in the loads or ahead of them."""
    x, y, dz, z = (torch.randn(size, size, dtype=torch.bfloat16, device=device.DEVICE) for _ in range(4))
    if in_the_loads:
        return lambda: gated.matmul_backward(dz, x, y, z, "relu")
    return lambda: lesson.matmul_backward(torch.where(z > 0, dz, 0), x, y)


live = {"gated in the loads": lambda: gradients(True), "gated ahead": lambda: gradients(False)}
notebook.ladder("matmul_grouped", live=live)

# %% [markdown]
# Usually the loads put a tile straight into shared memory, and the tensor cores fetch it from there. A tile that has to
# be changed makes a detour through registers, and it is changed again by every program that loads it. Predict, change,
# measure, and be ready to undo the change.
#
# ## Exercises
#
# [[exercises]]
#
# Next comes the [derivation](../derivations/matmul.md) of the two gradients, and then
# [the lesson's kernel](../kernels/tutorials/matmul_grouped.md), whose tiles you have numbered here.
