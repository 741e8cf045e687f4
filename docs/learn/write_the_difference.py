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
# # The delta rule, a chunk at a time
#
# A state that only adds answers with the sum of everything its key was ever given. The delta rule asks first, and writes
# the difference. But then each token has to wait for all earlier ones. How can a chunk of them be computed at once? You
# work through four tokens by hand, turn them into a small system of equations, and put that into a kernel of one head.
# The lesson after this chapter has the same steps, with packed sequences, a stored state, and gradients.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import math
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.runtime import device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook
from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
torch.set_printoptions(precision=4, sci_mode=False)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## Four tokens
#
# The state has two rows, one for each number of a key, and two columns, one for each number of a value. It begins at 0.
# Token 2 asks in between the first two keys, and token 3 has the key of token 0 again. Before token 2 the state fades to
# a half. Of token 3's difference only a half is written.

# %%
keys = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0]]
values = [[8.0, 0.0], [0.0, 4.0], [5.0, 5.0], [0.0, 8.0]]
kept = [1.0, 1.0, 0.5, 1.0]  # what is left of the state before each token: the exponential of its gate
share = [1.0, 1.0, 1.0, 0.5]  # β: how much of the difference is written

# %% [markdown]
# Each token does three things: the state fades, it is asked at the token's key, and the difference to the value is added
# to its rows, to each as much as the key says.
#
# [[eq: GD-S]]


# %%
def walk(keys, values, kept, share):
    """Token by token: what the state answers, what is written, and the state afterwards."""
    state, steps = [[0.0, 0.0], [0.0, 0.0]], []
    for k, v, a, beta in zip(keys, values, kept, share):
        state = [[a * number for number in row] for row in state]
        answer = [k[0] * x + k[1] * y for x, y in zip(*state)]
        u = [beta * (wanted - found) for wanted, found in zip(v, answer)]
        state = [[number + part * each for number, each in zip(row, u)] for row, part in zip(state, k)]
        steps.append((answer, u, state))
    return steps


steps = walk(keys, values, kept, share)
for t, (answer, u, _) in enumerate(steps):
    print(f"token {t}: value {values[t]}, answer {[round(x, 4) for x in answer]}, written {[round(x, 4) for x in u]}")

# %% [markdown]
# The first two tokens find an empty row. Token 2 finds 0.6 of one row and 0.8 of the other, both half faded. Token 3 asks
# row 0 and finds what tokens 0 and 2 have left there.


# %%
class Picture:
    """An SVG that a notebook shows: the state after each token, and below it what was written."""

    def __init__(self, steps, side=38):
        self.steps, drawn = steps, []
        largest = max(max(map(abs, [*state[0], *state[1], *u])) for _, u, state in steps)

        def cell(x, y, value, hue):
            depth = 0.1 + 0.5 * abs(value) / largest if value else 0
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{side}" height="26" stroke="currentColor" stroke-opacity="0.5" '
                f'fill="{hue}" fill-opacity="{depth:.2f}"/><text x="{x + side / 2}" y="{y + 18}" font-size="12" '
                f'text-anchor="middle" fill="currentColor">{value:.3g}</text>'
            )

        def words(x, y, text):
            drawn.append(f'<text x="{x}" y="{y}" font-size="12" fill="currentColor">{text}</text>')

        for t, (_, u, state) in enumerate(steps):
            left = 4 + t * (2 * side + 14)
            words(left, 14, f"after token {t}")
            words(left, 104, "written")
            for column in range(2):
                for row in range(2):
                    cell(left + column * side, 22 + row * 26, state[row][column], "#1f77b4")
                cell(left + column * side, 112, u[column], "#ff7f0e")
        width = 4 + len(steps) * (2 * side + 14)
        told = "; ".join(f"after token {t} {state}" for t, (_, _, state) in enumerate(steps))
        self.svg = (
            f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 142" role="img" '
            f'style="max-width: {1.4 * width:.0f}px; width: 100%"><title>The state {told}</title>{"".join(drawn)}</svg>'
            "<figcaption>The state after each token, blue, and the difference that it wrote, orange.</figcaption></figure>"
        )

    def _repr_html_(self):
        return self.svg


Picture(steps)

# %% [markdown]
# ## What can be known beforehand
#
# The differences need each other: token 3 can't write before it knows what token 2 wrote. But *how much* of token j's
# difference token i will find is known from the start. It is the product of their keys, times what the gates between
# them leave. Times $\beta_i$ that is $A_{ij}$, and it is 0 unless j comes before i:

# %%
k, v, a, beta = (torch.tensor(x, dtype=torch.float64) for x in (keys, values, kept, share))
G = a.log().cumsum(0)
left = torch.exp(G[:, None] - G[None, :])  # of token j (column) at token i (row), where j is not later than i
A = torch.tril(beta[:, None] * left * (k @ k.T), diagonal=-1)
print(A)

# %% [markdown]
# Row 2: token 2 finds 0.6 · ½ of what token 0 wrote, and 0.8 · ½ of what token 1 wrote. Row 3 asks with the key of token
# 0, so nothing of token 1 is in it, and everything is halved, as only half of the difference will be written.
#
# So the difference of token i is what it would be if the chunk's earlier tokens had written nothing, $R_i$, less
# $A_{ij}$ of each earlier difference:
#
# [[eq: GD-U]]
#
# Read from the top, each row gives one more difference. This is *forward substitution*, the way to solve a triangular
# system $(I + A)\,U = R$. Before the chunk the state was 0 here, so $R$ is just $\beta_i$ times the value:

# %%
R = beta[:, None] * v
U = R.clone()
for i in range(1, 4):
    U[i] -= A[i] @ U  # the rows from i on have no weight: A is 0 there
    terms = " + ".join(f"{A[i, j]:.2g} · {U[j, 0]:.4g}" for j in range(i) if A[i, j]) or "nothing"
    print(f"token {i}, column 0: {R[i, 0]:g} - ({terms}) = {U[i, 0]:.4g}")
print(f"as token by token: {torch.allclose(U, torch.tensor([u for _, u, _ in steps], dtype=torch.float64))}")

# %% [markdown]
# ## Without knowing the state
#
# In the second chunk, $R$ also contains what the state before it answers. Does a chunk have to wait for it? Only with its
# last step. The inverse $T = (I + A)^{-1}$ is made of keys, gates and $\beta$:

# %%
T = torch.linalg.inv(torch.eye(4, dtype=torch.float64) + A)
print(T)
print(f"T @ R is U: {torch.allclose(T @ R, U)}")

# %% [markdown]
# Row 3 of `T` is what token 3 owes to each right side. Of token 0 it takes back the 0.25 that it finds itself. But token 2
# has taken back 0.3 of token 0 already, and token 3 finds 0.3 of token 2: 0.3 · 0.3 less, so -0.16 is left.
#
# In a larger chunk with keys at right angles, all that is left is who overwrites whom:
#
# [[figure: chunks/corrections]]
#
# $R$ is linear in the state $S$ before the chunk, so $U$ is, too: $U = U^0 - W S$. Two products with $T$ give both parts,
# for all chunks of a text at the same time. Only then comes the walk from chunk to chunk: one product with
# $W$, and one for the next state. The first:

# %%
U0 = T @ (beta[:, None] * v)
W = T @ (beta[:, None] * torch.exp(G)[:, None] * k)
S = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)
asked = beta[:, None] * (v - torch.exp(G)[:, None] * (k @ S))
print(f"the same: {torch.allclose(U0 - W @ S, T @ asked)}")

# %% [markdown]
# ## A chunk at once
#
# Once the differences are known, the rest is linear attention with differences for values, as in [the chapter before
# this one](without_a_cache.py):
#
# [[eq: GD-chunk]]
#
# [[eq: GD-next]]
#
# ## In a kernel
#
# A program has one head and keeps its state, `D` by `D` numbers, in registers. New against the kernel of linear attention
# are the lines from `a = …` to the end of the inner loop: the triangle, what the state leaves to be written, and the
# substitution, a row of the chunk at a time. A block can't be indexed, so `tl.sum` picks a row: all others are set to 0.


# %%
@triton.jit
def delta_kernel(q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, o_ptr, T, D: tl.constexpr, C: tl.constexpr):
    row, offs_d = tl.arange(0, C), tl.arange(0, D)
    first = tl.program_id(0).to(tl.int64) * T  # of this head, (heads, T, D) and (heads, T), contiguous
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, T, C):
        offs_t = start + row
        mask, at = offs_t[:, None] < T, (first + offs_t)[:, None] * D + offs_d[None, :]
        q, k = tl.load(q_ptr + at, mask=mask, other=0.0), tl.load(k_ptr + at, mask=mask, other=0.0)
        v, g = tl.load(v_ptr + at, mask=mask, other=0.0), tl.load(g_ptr + first + offs_t, mask=offs_t < T, other=0.0)
        beta = tl.load(beta_ptr + first + offs_t, mask=offs_t < T, other=0.0)
        G, whole = tl.cumsum(g, axis=0), tl.sum(g, axis=0)
        left = tl.exp(tl.where(row[:, None] >= row[None, :], G[:, None] - G[None, :], -float("inf")))
        a = tl.dot(k, tl.trans(k), input_precision="ieee") * left * beta[:, None]
        a = tl.where(row[:, None] > row[None, :], a, 0.0)
        u = beta[:, None] * (v - tl.dot(k, state, input_precision="ieee") * tl.exp(G)[:, None])
        for i in range(1, C):
            weights = tl.sum(tl.where(row[:, None] == i, a, 0.0), axis=0)
            taken = tl.sum(weights[:, None] * u, axis=0)
            u -= tl.where(row[:, None] == i, taken[None, :], 0.0)
        p = tl.dot(q, tl.trans(k), input_precision="ieee") * left
        o = tl.dot(q, state, input_precision="ieee") * tl.exp(G)[:, None] + tl.dot(p, u, input_precision="ieee")
        to_end = k * tl.exp(whole - G)[:, None]
        state = state * tl.exp(whole) + tl.dot(tl.trans(to_end), u, input_precision="ieee")
        tl.store(o_ptr + at, o, mask=mask)


def delta_rule(q, k, v, g, beta, C=16):
    o = torch.empty_like(v)
    delta_kernel[(q.shape[0],)](q, k, v, g, beta, o, q.shape[1], D=q.shape[2], C=C)
    return o


heads, tokens, D = 2, 40, 16
q, k, v = (torch.randn(heads, tokens, D, device=device.DEVICE) for _ in range(3))
k = k / k.norm(dim=-1, keepdim=True)
g, beta = -torch.rand(heads, tokens, device=device.DEVICE), torch.rand(heads, tokens, device=device.DEVICE)
o = delta_rule(q, k, v, g, beta)
swap = lambda x: x.transpose(0, 1)[None]  # noqa: E731  (the lesson's shapes: batch, tokens, heads, width)
ours = gated_delta_rule(*map(swap, (q, k, v, g, beta)), scale=1.0)
print(f"largest difference from the lesson: {(swap(o) - ours).abs().max():.0e}")

# %% [markdown]
# 40 tokens are two chunks of 16 and one of 8. A lane behind the end has the gate 0, the key 0 and $\beta = 0$. The gate
# means exp(0) = 1, so nothing fades; a key of 0 finds nothing and writes to no row; and with $\beta = 0$ there is nothing
# to write.
#
# Two things are missing. The substitution takes as many steps as the chunk has tokens, and a head's chunks come one after
# the other, so with few heads most of the card waits. [The lesson](../kernels/recurrences/gated_delta_rule.md) computes
# $T$ for all chunks at once, in $\log_2 C$ rounds. Then the walk has one product with $W$ and one for the next state.
#
# ## Change it
#
# Token 3's key is turned by some degrees against token 0's. At 0 they are the same, at 90 token 3 asks row 1 only. At
# which angle does it find the most of what token 2 wrote? And which rows does it change then?

# %% tags=["parameters", "live"]
angle = 0  # 0 to 90
beta_of_last = 0.5  # 0.0, 0.5, 1.0, 1.5, 2.0
fading = 0.5  # 0.0, 0.25, 0.5, 1.0

# %%
turned = [math.cos(math.radians(angle)), math.sin(math.radians(angle))]
Picture(walk([*keys[:3], turned], values, [1.0, 1.0, fading, 1.0], [1.0, 1.0, 1.0, beta_of_last]))

# %% [markdown]
# At 53 degrees both have the same key, (0.6, 0.8), and token 3 finds all of it. It changes each row as much as its key
# says: both there, only row 0 at 0 degrees. With $\beta = 1$ the last state reads exactly the last value at the last key. With $\beta = 2$ the difference keeps its
# size and changes its sign. Beyond 2 it would grow with each write.
#
# ## How fast it is
#
# The numbers of a shape are the batch size, tokens, heads and the size of a head.

# %%
notebook.speed("gated_delta_rule", live=[(1, 4096, 16, 128)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next is the derivation of [the gated delta rule and its gradients](../derivations/gated_delta_rule.md), and then the
# lesson.
