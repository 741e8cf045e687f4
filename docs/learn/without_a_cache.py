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
# # Attention without a cache
#
# A model that writes text keeps the key and the value of every token so far, and each new token looks at all of them.
# Can a fixed number of numbers stand in for all of that? You start from the matrix of all pairs, leave out the softmax,
# move a pair of brackets, and arrive at the layers that Mamba-2, Qwen3-Next and Kimi Linear are built from.

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
from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule
from annotated_examples.recurrences.linear_attention import linear_attention

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## What a cache costs
#
# In bfloat16 a head of 128 numbers needs 512 bytes for each token, half for the key and half for the value. A matrix of
# 128 by 128 numbers in float32 would need 64 KiB, whatever the length of the text:

# %%
for tokens in (128, 4096, 131072):
    print(
        f"{tokens:7} tokens: cache of a head {512 * tokens / 2**10:7.0f} KiB, a matrix {4 * 128 * 128 / 2**10:.0f} KiB"
    )

# %% [markdown]
# ## Without the softmax
#
# Take causal attention and leave out the softmax. The weight of a value is then the score itself. Everything is a
# product of matrices, with a mask in the middle:

# %%
T, D = 48, 16
q, k, v = (torch.randn(T, D, device=device.DEVICE) / D**0.5 for _ in range(3))


def with_all_pairs(q, k, v):
    return torch.tril(q @ k.T) @ v


expected = with_all_pairs(q, k, v)

# %% [markdown]
# Without the mask, the brackets could be moved: `(q @ k.T) @ v` is `q @ (k.T @ v)`, and `k.T @ v` is a matrix of 16 by
# 16 numbers that doesn't know how many tokens there are. With the mask, each token may use only the part of that sum
# that comes from the tokens up to its own. So the sum becomes a running sum. It is called the **state**:


# %%
def token_by_token(q, k, v):
    state, outputs = torch.zeros(D, D, device=q.device), []
    for t in range(len(q)):
        state = state + torch.outer(k[t], v[t])  # write
        outputs.append(q[t] @ state)  # read
    return torch.stack(outputs)


print(f"largest difference: {(token_by_token(q, k, v) - expected).abs().max():.0e}")
print(f"numbers kept: {D * D}, for any length; a cache of {T} tokens has {2 * D * T}")

# %% [markdown]
# ## What is lost
#
# A state is a memory with a fixed size, so it can't hold everything. Store some pairs of a key and a value, then ask for
# the first one. What comes back is its value, plus a bit of every other value, because random keys are never quite at
# right angles. Softmax attention picks out the right key instead, of 512, too.


# %%
def asked_for_the_first(pairs, D=64):
    keys, values = torch.randn(pairs, D, dtype=torch.float64), torch.randn(pairs, D, dtype=torch.float64)
    keys = keys / keys.norm(dim=1, keepdim=True)
    from_state = keys[0] @ (keys.T @ values)
    from_all = torch.softmax(50 * (keys @ keys[0]), 0) @ values
    return [((answer - values[0]).norm() / values[0].norm()).item() for answer in (from_state, from_all)]


for pairs in (1, 8, 64, 512):
    state_error, softmax_error = asked_for_the_first(pairs)
    print(f"{pairs:4} pairs: error of the state {state_error:5.2f}, of softmax attention {softmax_error:5.2f}")

# %% [markdown]
# With as many pairs as the state has rows the error is about as large as the value itself. That is why many models with such
# layers keep a few layers of ordinary attention among them, and why the rest of this chapter is about making room.
#
# ## Forgetting
#
# The simplest way is to let the state fade before each token, by $e^{g_t}$ with a **gate** $g_t$ of at most 0:
#
# [[eq: LA-S]]
#
# In the matrix of all pairs, a score is then multiplied by what is left of token `j` at token `i`: all gates after `j`,
# up to that of `i`. Adding gates up multiplies what they leave.

# %%
g = -torch.rand(T, device=device.DEVICE)


def with_all_pairs_fading(q, k, v, g):
    G = g.cumsum(0)
    left = torch.exp(torch.tril(G[:, None] - G[None, :]))  # the upper half is masked below
    return torch.tril(q @ k.T * left) @ v


def token_by_token_fading(q, k, v, g):
    state, outputs = torch.zeros(D, D, device=q.device), []
    for t in range(len(q)):
        state = torch.exp(g[t]) * state + torch.outer(k[t], v[t])
        outputs.append(q[t] @ state)
    return torch.stack(outputs)


fading = with_all_pairs_fading(q, k, v, g)
print(f"largest difference: {(token_by_token_fading(q, k, v, g) - fading).abs().max():.0e}")

# %% [markdown]
# A gate that is the same constant for all tokens is RetNet's. Mamba-2 computes it from the token, so that the text
# itself says when to forget.
#
# ## Between the matrix and the walk
#
# Both forms are bad for a GPU. The matrix takes time that grows with the square of the length. The walk takes as many
# steps as there are tokens, one after the other, and each is far too little work: an outer product and a row times a
# matrix, where tensor cores want tiles.
#
# So cut the sequence into **chunks**. Inside of a chunk, use the matrix. What came before the chunk is in a state, which
# all tokens of the chunk read at once, in a single product. Then the whole chunk is written at once:
#
# [[eq: LA-chunk]]
#
# [[eq: LA-next]]
#
# [[figure: chunks/pairs]]


# %%
def in_chunks(q, k, v, g, C):
    state, outputs = torch.zeros(D, D, device=q.device), []
    for start in range(0, len(q), C):
        rows = slice(start, start + C)
        G = g[rows].cumsum(0)
        from_before = torch.exp(G)[:, None] * (q[rows] @ state)
        outputs.append(from_before + with_all_pairs_fading(q[rows], k[rows], v[rows], g[rows]))
        kept = torch.exp(G[-1] - G)[:, None] * k[rows]
        state = torch.exp(G[-1]) * state + kept.T @ v[rows]
    return torch.cat(outputs)


for C in (1, 16, T):
    print(f"chunks of {C:2}: largest difference {(in_chunks(q, k, v, g, C) - fading).abs().max():.0e}")

# %% [markdown]
# With chunks of one token this is the walk, and with one chunk it is the matrix. In between there are fewer steps than
# in the walk and, for a text of more than $C + 2D$ tokens, fewer multiplications than in the matrix.
#
# ## Change it
#
# A square is a pair of tokens. Solid ones are computed as pairs, faint ones are read from a state. How few steps can you
# have without computing more than twice what the cheapest chunk costs? Try a smaller head, too.


# %%
def counted(tokens, D, C):
    """Multiplications for a head, and how many steps come one after the other."""
    chunks = [min(C, tokens - start) for start in range(0, tokens, C)]
    pairs = sum(size * (size + 1) // 2 for size in chunks)
    return 2 * D * pairs + 2 * D * D * tokens, len(chunks)


class Picture:
    """An SVG that a notebook shows."""

    def __init__(self, tokens, D, C, side=9):
        work, steps = counted(tokens, D, C)
        self.title = f"chunks of {C}: {steps} steps, {work} multiplications"
        boxes = [
            f'<rect x="{j * side}" y="{i * side}" width="{side - 1}" height="{side - 1}" '
            f'fill-opacity="{0.9 if i // C == j // C else 0.25}"/>'
            for i in range(tokens)
            for j in range(i + 1)
        ]
        width = tokens * side
        self.svg = (
            f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {width}" role="img" '
            f'fill="currentColor" style="max-width: {width}px; width: 100%"><title>{self.title}</title>'
            f"{''.join(boxes)}</svg><figcaption>{self.title}</figcaption></figure>"
        )

    def _repr_html_(self):
        return self.svg


# %% tags=["parameters", "live"]
tokens = 32  # 1 to 48
head = 16  # 4, 8, 16, 64
C = 8  # 1, 2, 4, 8, 16, 32

# %%
Picture(tokens, head, C)

# %% [markdown]
# Real chunks have 64 tokens or so: enough to fill the tiles of tensor cores. The multiplications of pairs grow with the
# chunk, those with the state don't.
#
# ## In a kernel
#
# A program walks over the chunks of its head and keeps the state in registers. What was an `exp` of a running sum above
# is one here, too. A lane behind the end has a gate of 0 and a key of 0, so it leaves the state as it is.


# %%
@triton.jit
def chunks_kernel(q_ptr, k_ptr, v_ptr, g_ptr, o_ptr, T, D: tl.constexpr, C: tl.constexpr):
    i, offs_d = tl.arange(0, C), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, T, C):
        offs_t = start + i
        mask, at = offs_t[:, None] < T, offs_t[:, None] * D + offs_d[None, :]
        q, k = tl.load(q_ptr + at, mask=mask, other=0.0), tl.load(k_ptr + at, mask=mask, other=0.0)
        v, g = tl.load(v_ptr + at, mask=mask, other=0.0), tl.load(g_ptr + offs_t, mask=offs_t < T, other=0.0)
        G, whole = tl.cumsum(g, axis=0), tl.sum(g, axis=0)
        between = tl.where(i[:, None] >= i[None, :], G[:, None] - G[None, :], -float("inf"))
        p = tl.dot(q, tl.trans(k), input_precision="ieee") * tl.exp(between)
        o = tl.dot(q, state, input_precision="ieee") * tl.exp(G)[:, None] + tl.dot(p, v, input_precision="ieee")
        kept = k * tl.exp(whole - G)[:, None]
        state = state * tl.exp(whole) + tl.dot(tl.trans(kept), v, input_precision="ieee")
        tl.store(o_ptr + at, o, mask=mask)


o = torch.empty_like(v)
chunks_kernel[(1,)](q, k, v, g, o, T, D=D, C=32)
print(f"largest difference: {(o - fading).abs().max():.0e}")

# %% [markdown]
# One program for a head is too few for a large card. [The lesson](../kernels/recurrences/linear_attention.md) walks over
# the states alone, stores one for each chunk, and then computes the outputs of all chunks at once. It has groups of heads,
# packed sequences and the backward pass, which is the same walk from the other end. And its decays don't come from
# differences of large sums.

# %%
as_heads = [x[None, :, None] for x in (q, k, v)]
ours = linear_attention(*as_heads, g[None, :, None], scale=1.0)[0, :, 0]
print(f"largest difference: {(ours - fading).abs().max():.0e}")

# %% [markdown]
# ## Replacing instead of adding
#
# Fading makes room everywhere. Often a text replaces one thing: "the meeting is at two", and later "it is at four". With
# the same key for both, a running sum answers with the sum of both values. The **delta rule** asks the state first, and
# writes only the difference to what it answers:
#
# [[eq: GD-S]]
#
# Here key 0 gets the value 2, key 1 gets 7, and then key 0 gets 4. Each token asks for its own key:

# %%
keys = torch.eye(2, device=device.DEVICE)[[0, 1, 0]][None, :, None]
values, ones = torch.tensor([2.0, 7, 4], device=device.DEVICE)[None, :, None, None], torch.ones(1, 3, 1).to(keys)
added = linear_attention(keys, keys, values, scale=1.0)
replaced = gated_delta_rule(keys, keys, values, None, ones, scale=1.0)
print("added:   ", added.flatten().tolist())
print("replaced:", replaced.flatten().tolist())

# %% [markdown]
# A difference depends on everything that was written before it, so at first sight chunks are of no use any more. They
# are: inside of a chunk the differences solve a triangular system of equations, and once they are known, the rest is
# linear attention with differences for values. That is [the lesson on the gated delta
# rule](../kernels/recurrences/gated_delta_rule.md).
#
# ## How fast it is
#
# The numbers of a shape are the batch size, tokens, heads and the size of a head.

# %%
notebook.speed("linear_attention", live=[(1, 4096, 16, 128)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next is the derivation of [linear attention and its gradients](../derivations/linear_attention.md), and then the kernel.
