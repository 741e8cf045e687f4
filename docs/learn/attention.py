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
# # 8. Compute attention without its matrix
#
# Attention computes a score for every pair of a query and a key, and uses each score once. Does the whole matrix of
# scores ever have to exist? You start with it and take it apart: first a few queries at a time, then a few keys at a
# time. At the end no more than one small tile of it exists, and the result is the same.

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
from annotated_examples.attention.flash_attention import flash_attention, keys_seen

import math
import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## The whole matrix
#
# One head, 200 tokens of 16 numbers each. A score says how well a key fits a query, a softmax turns each row of scores into
# weights, and the output is the weighted mean of the values ([[tag: AT-O]]).

# %%
N, D = 200, 16
q, k, v = (torch.randn(N, D, device=device.DEVICE) for _ in range(3))


def naive(q, k, v):
    scores = q @ k.T / math.sqrt(D)
    return torch.softmax(scores, dim=-1) @ v


expected = naive(q, k, v)
print(f"scores held at once: {N * N}")

# %% [markdown]
# The inputs and the result have `N * D` elements, the matrix has `N * N`. At the lengths that models use, the matrix
# takes far more memory than everything else. Here are the sizes in bfloat16, for 16 heads:

# %%
for tokens in (1024, 4096, 16384, 131072):
    inputs, matrix = 3 * 16 * tokens * 128 * 2, 16 * tokens * tokens * 2
    print(f"{tokens:7} tokens: q, k and v {inputs / 2**20:6.0f} MiB, scores {matrix / 2**20:9.0f} MiB")

# %% [markdown]
# ## A few queries at a time
#
# A row of the result needs its own row of scores and no other one. So the rows can be computed in blocks. That is how a
# kernel divides the work: one program for each block of queries.


# %%
def in_blocks_of_queries(q, k, v, BLOCK_M):
    return torch.cat([naive(block, k, v) for block in q.split(BLOCK_M)])


print(f"scores held at once: {32 * N}")
print(f"largest difference:  {(in_blocks_of_queries(q, k, v, 32) - expected).abs().max():.1e}")

# %% [markdown]
# Better, but a program would still have to hold whole rows, and rows are as long as the text.
#
# ## A few keys at a time, in two passes
#
# The softmax is what stands in the way: it needs the largest score of a row and the sum of the row's exponentials
# before it can give the first weight. The softmax lesson had the same problem with long rows, and made two passes. The
# first one collects both numbers, in the online form. The second one computes the scores **again**, and sums the values
# with their weights.


# %%
def in_two_passes(q, k, v, BLOCK_M, BLOCK_N):
    outputs = []
    for rows in q.split(BLOCK_M):
        row_max, row_sum = torch.full((len(rows), 1), -math.inf).to(q), torch.zeros(len(rows), 1).to(q)
        for keys in k.split(BLOCK_N):
            s = rows @ keys.T / math.sqrt(D)
            new_max = torch.maximum(row_max, s.amax(1, keepdim=True))
            row_sum = row_sum * torch.exp(row_max - new_max) + torch.exp(s - new_max).sum(1, keepdim=True)
            row_max = new_max
        acc = torch.zeros_like(rows)
        for keys, values in zip(k.split(BLOCK_N), v.split(BLOCK_N)):
            s = rows @ keys.T / math.sqrt(D)
            acc += torch.exp(s - row_max) @ values
        outputs.append(acc / row_sum)
    return torch.cat(outputs)


print(f"scores held at once: {32 * 16}")
print(f"largest difference:  {(in_two_passes(q, k, v, 32, 16) - expected).abs().max():.1e}")

# %% [markdown]
# Now the number of scores that are held at once no longer depends on the length. But each score is computed twice.
#
# ## One pass
#
# Why wait for the final maximum? The weighted sum of the values is a sum over exponentials, just like the denominator.
# When a larger score turns up, both can be scaled down by the same factor ([[tag: AT-merge]]):
#
# [[eq: AT-merge]]
#
# That is the whole of flash attention's forward pass.


# %%
def in_one_pass(q, k, v, BLOCK_M, BLOCK_N):
    outputs = []
    for rows in q.split(BLOCK_M):
        row_max, row_sum = torch.full((len(rows), 1), -math.inf).to(q), torch.zeros(len(rows), 1).to(q)
        acc = torch.zeros_like(rows)
        for keys, values in zip(k.split(BLOCK_N), v.split(BLOCK_N)):
            s = rows @ keys.T / math.sqrt(D)
            new_max = torch.maximum(row_max, s.amax(1, keepdim=True))
            p, alpha = torch.exp(s - new_max), torch.exp(row_max - new_max)
            row_sum = row_sum * alpha + p.sum(1, keepdim=True)
            acc = acc * alpha + p @ values
            row_max = new_max
        outputs.append(acc / row_sum)
    return torch.cat(outputs)


print(f"largest difference:  {(in_one_pass(q, k, v, 32, 16) - expected).abs().max():.1e}")

# %% [markdown]
# Here is the same loop, a tile at a time, with what one query carries along. It also has the masks that come below.
#
# [[figure: attention/walk]]
#
# In a kernel only the inner loop is left, because the outer one becomes the grid. `tl.dot` multiplies two tiles,
# `tl.trans` transposes one. `tl.full` makes a block of one value. Masked keys have to end up with a weight of zero: their scores are set to minus infinity.


# %%
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, N, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m, offs_d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d[None, :], mask=offs_m[:, None] < N, other=0.0)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d[None, :], mask=offs_n[:, None] < N, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d[None, :], mask=offs_n[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(offs_n[None, :] < N, s, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        row_max = new_max
    tl.store(o_ptr + offs_m[:, None] * D + offs_d[None, :], acc / row_sum[:, None], mask=offs_m[:, None] < N)


o = torch.empty_like(q)
attention_kernel[(triton.cdiv(N, 32),)](q, k, v, o, N, 1 / math.sqrt(D), D=D, BLOCK_M=32, BLOCK_N=16)
print(f"largest difference:  {(o - expected).abs().max():.1e}")

# %% [markdown]
# ## Tiles that nobody looks at
#
# A language model may not look ahead: query `i` sees no key after its own position. That mask is **causal**. A **window** also
# limits how far back a query looks. In either case what a query sees is one stretch of keys, from `first` to before `last`. The
# lesson's `keys_seen` computes both. Here is a kernel that does nothing but store them.
#
# [[figure: attention/tiles]]


# %%
@triton.jit
def bounds_kernel(first_ptr, last_ptr, T, S, left, right, BLOCK_M: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first, last = keys_seen(offs_m, T, S, (left, right))
    tl.store(first_ptr + offs_m, first)
    tl.store(last_ptr + offs_m, last)


def kinds_of_tiles(T, S, left, right, BLOCK_M, BLOCK_N):
    """A row of words for each tile of queries: full, masked or skipped."""
    rows = triton.cdiv(T, BLOCK_M)
    first, last = (torch.empty(rows * BLOCK_M, dtype=torch.int32, device=device.DEVICE) for _ in range(2))
    bounds_kernel[(rows,)](first, last, T, S, left, right, BLOCK_M=BLOCK_M)
    kinds = []
    for tile in range(rows):
        mine = slice(tile * BLOCK_M, min(tile * BLOCK_M + BLOCK_M, T))
        seen = [range(a, b) for a, b in zip(first[mine].tolist(), last[mine].tolist())]
        columns = [range(n, min(n + BLOCK_N, S)) for n in range(0, S, BLOCK_N)]
        counts = [sum(j in row for row in seen for j in column) for column in columns]
        whole = [len(seen) * len(column) for column in columns]
        kinds.append(["skipped" if not c else "full" if c == w else "masked" for c, w in zip(counts, whole)])
    return kinds


class Picture:
    """An SVG that a notebook shows."""

    COLOURS = dict(full="var(--fig-g, #3f9b6d)", masked="var(--fig-a, #d98a29)", skipped="none")

    def __init__(self, kinds, side=26):
        counts = {kind: sum(row.count(kind) for row in kinds) for kind in self.COLOURS}
        self.title = ", ".join(f"{count} tiles {kind}" for kind, count in counts.items())
        boxes = [
            f'<rect x="{4 + n * side}" y="{4 + m * side}" width="{side - 3}" height="{side - 3}" rx="3" '
            f'fill="{self.COLOURS[kind]}" stroke="currentColor" stroke-opacity="0.5"/>'
            for m, row in enumerate(kinds)
            for n, kind in enumerate(row)
        ]
        width, height = 8 + side * len(kinds[0]), 8 + side * len(kinds)
        self.svg = (
            f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'style="max-width: {width}px; width: 100%"><title>{self.title}</title>{"".join(boxes)}</svg>'
            f"<figcaption>{self.title}. Green: full, orange: masked, empty: skipped.</figcaption></figure>"
        )

    def _repr_html_(self):
        return self.svg


# %% [markdown]
# ## Change it
#
# Rows are tiles of queries, columns are tiles of keys. `left` and `right` say how many keys before and after its
# position a query sees; the last query is aligned with the last key. Try `right = 0` with `left = 20`, then a cache of
# older keys with `S = 100`, then smaller tiles. Which tiles need a mask at all?

# %% tags=["parameters", "live"]
T, S = 64, 64
left = 1000  # 4, 8, 20, 1000
right = 0  # 0 to 64
BLOCK_M = 8  # 4, 8, 16, 32
BLOCK_N = 8  # 4, 8, 16, 32

# %%
Picture(kinds_of_tiles(T, S, left, right, BLOCK_M, BLOCK_N))

# %% [markdown]
# With a causal mask nearly half of the tiles are skipped: the loop over keys ends where the last query of the tile
# does. Only the tiles that the diagonal crosses need a mask. In a long text these are few, and [the fast
# version](../kernels/fast/flash_attention.md) of the kernel treats them separately.
#
# The first lesson, [causal attention](../kernels/attention/causal_attention.md), is the kernel above with many heads, any
# strides, a causal mask and the backward pass. The second has the rest: windows, groups of heads that share keys, sequences
# of different lengths. Here it is beside PyTorch.

# %%
heads = [x.view(1, 1, N, D) for x in (q, k, v)]
ours = flash_attention(*heads, causal=True)
theirs = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
print(f"largest difference:  {(ours - theirs).abs().max():.1e}")

# %% [markdown]
# ## How fast it is
#
# The scores never leave the chip, so the limit is no longer memory but the rate of the tensor cores. Between two products
# they wait for a softmax, though. `lesson` is the kernel with all options, beside the attention that comes with PyTorch,
# causal and in bfloat16: with 4096 tokens of 128 numbers it reaches
# [[bench: flash_attention:causal/4x16x16x4096x128/forward/lesson.share]] of that limit. The numbers of a shape are the batch
# size, heads, key heads, tokens and the size of a head.

# %%
notebook.speed("flash_attention", variants=("causal",), live=[(4, 16, 16, 2048, 128)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next is the derivation of [attention and its gradients](../derivations/attention.md), and then the kernel.
