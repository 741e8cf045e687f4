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
# # 3. Tiles and pointers
#
# You multiply matrices block by block. First you see how a program turns two small ranges into the addresses of a
# two-dimensional tile, on a matrix small enough to check by hand. Then what the sum must be kept in, and what a float32
# product really computes.

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
from annotated_examples.tutorials import matmul_blocked as lesson

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## Strides
#
# Memory has one dimension. A tensor's **strides** say how many elements further the next row and the next column are. Element
# (i, k) of `x` lies `i * stride_xm + k * stride_xk` elements behind the first.
#
# In the matrix below each element is its own offset, so what a kernel loads tells where it loaded it.

# %%
x = torch.arange(64, dtype=torch.float32, device=device.DEVICE).reshape(8, 8)
print(x.int())
print("strides:               ", x.stride())
print("strides, transposed:   ", x.T.stride())
print("strides, every 2nd row:", x[::2].stride())

# %% [markdown]
# ## From two ranges to a tile of pointers
#
# A tile needs all its offsets at once. `offs_m[:, None]` makes a column of row numbers, `offs_k[None, :]` a row of column
# numbers. Each is multiplied by its stride, and adding a column and a row fills a table: Triton repeats each along the
# dimension that it lacks, as NumPy does.


# %%
@triton.jit
def read_tile_kernel(x_ptr, out_ptr, row, column, stride_xm, stride_xk, BLOCK: tl.constexpr):
    offs_m = row + tl.arange(0, BLOCK)
    offs_k = column + tl.arange(0, BLOCK)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    tile = tl.load(x_ptrs)
    inside = tl.arange(0, BLOCK)
    tl.store(out_ptr + inside[:, None] * BLOCK + inside[None, :], tile)


def read_tile(x, row, column, strides=None, BLOCK=4):
    """The tile of x whose upper left corner is (row, column), read with the given strides (default: its own)."""
    out = torch.empty(BLOCK, BLOCK, device=device.DEVICE)
    read_tile_kernel[(1,)](x, out, row, column, *(strides or x.stride()), BLOCK=BLOCK)
    return out.int()


read_tile(x, row=4, column=0)

# %% [markdown]
# ## Change it
#
# Move the tile, and try the strides `(1, 8)`. The same lines then read the transposed matrix, and nothing was copied. What
# would `(8, 0)` give? And `(9, 0)`? Stay inside the matrix: this little kernel has no mask.

# %% tags=["parameters"]
row, column = 4, 0
strides = (1, 8)

# %%
read_tile(x, row, column, strides)

# %% [markdown]
# ## A product, tile by tile
#
# [The lesson's kernel](../kernels/tutorials/matmul_blocked.md) computes [[tag: MM-Z]]. A program owns one tile of the result.
# It walks along K with a tile of `x` and a tile of `y`, multiplies them with `tl.dot` and adds the product to `acc`. At the
# edges it needs masks, for all three dimensions. Here no size is a multiple of the tile.

# %%
M, N, K = 40, 24, 36
a = torch.randn(M, K, device=device.DEVICE)
b = torch.randn(K, N, device=device.DEVICE)
tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
product = lesson.matmul_forward(a, b, **tiles)
exact = a.double() @ b.double()
print(f"{triton.cdiv(M, 16)} x {triton.cdiv(N, 16)} programs, {triton.cdiv(K, 16)} steps along K")
print(f"largest error: {(product - exact).abs().max():.1e}")

# A transposed view has other strides and needs no copy.
turned = lesson.matmul_forward(b.T, a.T, **tiles).T
print(f"the same from transposed views: {torch.allclose(turned, product, atol=1e-4)}")

# %% [markdown]
# ## What the sum is kept in
#
# float16 has eleven bits for the digits of a number. From 2048 on its neighbours are two apart: 2049 lies halfway
# between two of them and is rounded back to 2048. A sum of many small terms simply stops growing. This kernel adds
# twenty ones to 2040, in the type it is told.


# %%
@triton.jit
def add_ones_kernel(out_ptr, start, count, ACC: tl.constexpr):
    lane = tl.arange(0, 16)
    acc = (tl.zeros((16,), dtype=tl.float32) + start).to(ACC)
    one = (tl.zeros((16,), dtype=tl.float32) + 1).to(ACC)
    for _ in range(count):
        acc = (acc + one).to(ACC)
    tl.store(out_ptr + lane, acc.to(tl.float32))


for name, ACC in (("float16", tl.float16), ("float32", tl.float32)):
    out = torch.empty(16, device=device.DEVICE)
    add_ones_kernel[(1,)](out, 2040, 20, ACC=ACC)
    print(f"2040 + 20 ones, kept in {name}: {out[0]:.0f}")

# %% [markdown]
# That is why `acc` is float32 whatever the inputs are. The inputs stay float16, which is what makes the tensor cores fast;
# only the sum is wider. The result is rounded once, by the store.
#
# ## What a float32 product computes
#
# Tensor cores have a format for float32 inputs called TF32. It keeps 10 of the 23 bits behind the point. Triton uses it for
# `tl.dot` of float32 tiles unless you ask for `input_precision="ieee"`. PyTorch doesn't, unless
# `torch.backends.cuda.matmul.allow_tf32` is set. The lesson's kernel follows PyTorch, so two results can be compared.
#
# The interpreter always multiplies in full float32. To see the difference anywhere, round the inputs by hand:


# %%
def to_tf32(x):
    """Round float32 numbers to TF32's 10 bits behind the point."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


a, b = torch.randn(64, 512), torch.randn(512, 64)
exact = a.double() @ b.double()


def relative_error(z):
    return float((z - exact).norm() / exact.norm())


print(f"float32: {relative_error(a @ b):.1e}")
print(f"TF32:    {relative_error(to_tf32(a).double() @ to_tf32(b).double()):.1e}")

# %% [markdown]
# Enough for most training, and a surprise in a test that expects float32. The guide on [numerics](../guides/numerics.md) has
# more.
#
# ## Why tiles
#
# A tile of `x` that is loaded once is used for `BLOCK_N` columns of the result, a tile of `y` for `BLOCK_M` rows. So for
# each byte that a program loads it does more operations, the larger its tile is:

# %%
for BLOCK_M, BLOCK_N in ((1, 1), (16, 16), (64, 64), (128, 128), (128, 256)):
    operations = 2 * BLOCK_M * BLOCK_N  # for one step of K
    loaded = 2 * (BLOCK_M + BLOCK_N)  # bytes of bfloat16
    print(f"{BLOCK_M:3} x {BLOCK_N:3}: {operations / loaded:5.1f} operations for each byte loaded")

# %% [markdown]
# ## How fast it is

# %%
notebook.speed("matmul_blocked", live=[(1024, 1024, 1024), (4096, 4096, 4096)])

# %% [markdown]
# The kernel is right for every size, and it isn't fast yet. Its peer is cuBLAS, which has been tuned for twenty years. The
# next two chapters narrow the gap, and [the fast version of the product](../kernels/fast/matmul.md) goes on from there.
#
# ## Exercises
#
# **1.** Write `offset(i, k, strides)`, the place of element (i, k) behind a tensor's first. Then say, without running it,
# where element (1, 2) of `x[::2].T` lies.
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# def offset(i, k, strides):
#     return i * strides[0] + k * strides[1]
#
#
# place = offset(1, 2, (1, 16))
# ```
#
# Every second row doubles the row stride: `(16, 1)`. Transposing exchanges the two: `(1, 16)`. One times 1 and two times 16
# make 33.
#
# </details>
#
# **2.** Write `diagonal(x)`, which copies the diagonal of a square matrix with one block of pointers. It should work for any
# strides.
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# @triton.jit
# def diagonal_kernel(x_ptr, out_ptr, n, stride_m, stride_k, BLOCK: tl.constexpr):
#     i = tl.arange(0, BLOCK)
#     values = tl.load(x_ptr + i * (stride_m + stride_k), mask=i < n, other=0.0)
#     tl.store(out_ptr + i, values, mask=i < n)
#
#
# def diagonal(x):
#     n = x.shape[0]
#     out = torch.empty(n, dtype=x.dtype, device=x.device)
#     diagonal_kernel[(1,)](x, out, n, *x.stride(), BLOCK=triton.next_power_of_2(n))
#     return out
# ```
#
# One step down and one to the right is one step of the sum of both strides.
#
# </details>
#
# **3.** In bfloat16 an H200 does about 206 operations in the time in which it moves one byte from memory. How large must a
# square tile be, so that loading doesn't take longer than computing? Write `smallest_square_tile(operations_per_byte)`, which
# returns a power of two.
#
# <details class="success" markdown="1"><summary>Answer</summary>
#
# ```python
# def smallest_square_tile(operations_per_byte):
#     BLOCK = 1
#     while 2 * BLOCK * BLOCK / (2 * (BLOCK + BLOCK)) < operations_per_byte:
#         BLOCK *= 2
#     return BLOCK
# ```
#
# A square tile does `BLOCK / 2` operations for each byte, so it takes 512. The sums of such a tile fill a megabyte; all the
# registers of a multiprocessor hold a quarter of that. So tiles alone can't do it. Loads must be answered by something
# faster than memory, and that is the next chapter.
#
# </details>
#
# The next chapter is [reuse in the L2 cache](l2_reuse.py).
