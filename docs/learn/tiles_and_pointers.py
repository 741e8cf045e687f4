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
# # 3. Multiply matrices tile by tile
#
# Memory has one dimension and a matrix has two. How does a program find the addresses of a small square in the middle
# of one? With a matrix small enough to check by hand, you turn two ranges into a tile of pointers. Then you write a
# matrix product with such tiles, and see which dtype its sums need and what a float32 product really computes.

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
# ## Strides
#
# Memory has one dimension. A tensor's **strides** say how many elements further the next row and the next column are.
# Element (i, k) of `x` lies `i * stride_xm + k * stride_xk` elements after the first.
#
# [[figure: layout/strides]]
#
# In the matrix below each element equals its own offset, so every value that a kernel loads tells you where it came
# from.

# %%
x = torch.arange(64, dtype=torch.float32, device=device.DEVICE).reshape(8, 8)
print(x.int())
print("strides:               ", x.stride())
print("strides, transposed:   ", x.T.stride())
print("strides, every 2nd row:", x[::2].stride())

# %% [markdown]
# ## From two ranges to a tile of pointers
#
# A tile needs all its offsets at once. Say that it has rows 4 to 7 and columns 0 to 3. `offs_m[:, None]` stands the row
# numbers up as a column: a block of four becomes one of 4 x 1. `offs_k[None, :]` lays the column numbers down as a row,
# 1 x 4. Each is multiplied by its stride. When a column and a row are added, Triton repeats each along the dimension in
# which it has length one, as NumPy does, and the sum is a table of 4 x 4:
#
# ```text
#  offs_m[:, None] * 8      offs_k[None, :] * 1          their sum
#
#        32                                         32  33  34  35
#        40             +     0   1   2   3    =    40  41  42  43
#        48                                         48  49  50  51
#        56                                         56  57  58  59
# ```
#
# Added to a pointer, that is a block of pointers with two dimensions, and `tl.load` returns a block of the same shape. The
# matrix is small, so its offsets stay in 32 bits here.


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

# %% tags=["parameters", "live"]
row = 4  # 0 to 4
column = 0  # 0 to 4
strides = (1, 8)  # (8, 1), (1, 8), (8, 0), (9, 0)

# %%
read_tile(x, row, column, strides)

# %% [markdown]
# ## A product, tile by tile
#
# [[figure: products/k_loop]]
#
# Now multiply. `x` has M rows of K numbers, `y` has K rows of N numbers, and each element of the result is a sum over K:
#
# [[eq: MM-Z]]
#
# A program owns one tile of the result. For that it needs `BLOCK_M` whole rows of `x` and `BLOCK_N` whole columns of
# `y`. Both are too long for one block, so it walks along K: load a tile of `x` and a tile of `y`, multiply them, add
# the product to the sum so far, go on. The walk is a `range` that ends at the argument `K`. New are:
#
# - `tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)` makes a block of zeros, here with two dimensions: the sums start
#   there. `dtype` says what its numbers are.
# - The grid has two dimensions, one program for each tile of the result. `tl.program_id(0)` counts along the first,
#   `tl.program_id(1)` along the second.
# - `&` joins two masks: a lane is on where both are true. An element of a tile exists if its row does and its column does.
# - `tl.dot(x, y, acc)` multiplies two tiles as matrices and adds the product to `acc`. On a GPU the tensor cores do it
#   for 16-bit and 8-bit numbers. `BLOCK_K` must be at least 16, and 32 for 8-bit numbers. (From Triton 3.8 on 8 are
#   enough for float32.) `BLOCK_M` and `BLOCK_N` may be smaller: such tiles are padded. `input_precision="ieee"` asks
#   for full float32 products. Tensor cores don't have those, so they are computed by ordinary multiply-adds, at a
#   fifteenth of the speed of bfloat16 on an H200. What you get otherwise is explained further down.


# %%
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Which tile of the result is mine?
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        # The next tile of x to the right, the next tile of y down. What lies outside counts as zero and adds nothing.
        # int64: these numbers are multiplied by a stride below, and the product may not fit in 32 bits.
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        y_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk, mask=x_mask, other=0.0)
        y = tl.load(y_ptr + offs_k[:, None] * stride_yk + offs_n[None, :] * stride_yn, mask=y_mask, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    z_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn, acc, mask=z_mask)


def product(x, y, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16):
    (M, K), N = x.shape, y.shape[1]
    z = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
    tiles = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    product_kernel[grid](x, y, z, M, N, K, *x.stride(), *y.stride(), *z.stride(), **tiles)
    return z


# %% [markdown]
# Here no size is a multiple of the tile, so every mask has something to do.

# %%
M, N, K = 40, 24, 36
a = torch.randn(M, K, device=device.DEVICE)
b = torch.randn(K, N, device=device.DEVICE)
exact = a.double() @ b.double()
print(f"{triton.cdiv(M, 16)} x {triton.cdiv(N, 16)} programs, {triton.cdiv(K, 16)} steps along K")
print(f"largest error: {(product(a, b) - exact).abs().max():.1e}")

# A transposed view has other strides and needs no copy.
turned = product(b.T, a.T).T
print(f"the same from transposed views: {torch.allclose(turned, product(a, b), atol=1e-4)}")

# %% [markdown]
# [The lesson](../kernels/tutorials/matmul_blocked.md) has this kernel with a recorded run, so that you can watch the
# pointers move. It computes the pointers once and advances them in the loop, whereas the kernel above computes them
# again in every round.

# %% [markdown]
# ## What the sum is kept in
#
# In float16 a sum of many small terms [stops growing](../guides/numerics.md#a-sum-that-stops-growing). This kernel adds
# twenty ones to 2040, in the dtype that it is given.


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
# That is why `acc` is float32 however narrow the inputs are. The inputs stay float16, which is what makes the tensor cores fast;
# only the sum is wider. The result is rounded once, by the store.
#
# ## What a float32 product computes
#
# Tensor cores have a format for float32 inputs called TF32. It keeps 10 of float32's 23 fraction bits. Triton uses it
# for `tl.dot` of float32 tiles unless you ask for `input_precision="ieee"`. It hands over the float32 numbers as they
# are, and the tensor cores don't look at the other bits: they are cut off. PyTorch computes full float32 products, unless
# `torch.backends.cuda.matmul.fp32_precision` is "tf32". The lesson's kernel follows PyTorch, so two results can be
# compared.
#
# The interpreter always multiplies in full float32. To see the difference anywhere, cut the inputs by hand. Rounding
# them to the nearest TF32 number first is better, because errors of both signs cancel in a sum:


# %%
def cut(x):
    """Float32 numbers without the last 13 of their 23 fraction bits."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def rounded(x):
    """The nearest numbers with 10 fraction bits: half of the last one is added before the rest is cut off."""
    return cut((x.contiguous().view(torch.int32) + 0x1000).view(torch.float32))


a, b = torch.randn(64, 512), torch.randn(512, 64)
exact = a.double() @ b.double()


def relative_error(z):
    return float((z - exact).norm() / exact.norm())


print(f"float32:       {relative_error(a @ b):.1e}")
for way in (cut, rounded):
    print(f"TF32, {way.__name__ + ':':8} {relative_error(way(a).double() @ way(b).double()):.1e}")

# %% [markdown]
# That is accurate enough for most training, but a surprise in a test that expects float32. The guide on
# [numerics](../guides/numerics.md) has more.
#
# ## Why tiles
#
# A tile of `x` that is loaded once is used for `BLOCK_N` columns of the result, a tile of `y` for `BLOCK_M` rows. So
# the larger its tile, the more operations a program does for each byte that it loads. What the card makes of that is
# the purple line: up to its corner memory sets the pace, beyond it the tensor cores do.
#
# [[figure: products/tiled]]

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
# The kernel is right for every size, and it isn't fast yet. It is compared with cuBLAS, which has been tuned for twenty
# years. The next two chapters narrow the gap, and [the fast version of the product](../kernels/fast/matmul.md) goes on
# from there.
#
# ## Exercises
#
# [[exercises]]
#
# Next comes [the lesson](../kernels/tutorials/matmul_blocked.md): the same product, with its recorded run.
