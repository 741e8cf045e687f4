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
# # 7. Draw random numbers that need no memory
#
# Dropout flips a coin for each element, and the backward pass needs the same coins again. Do they have to be stored? A
# mask has as many elements as the tensor. In this chapter a random number becomes something that you look up by its
# index, like an element of an array, except that there is no array.

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
from annotated_examples.classics.dropout import dropout, dropout_mask, random_words_reference

import torch
import triton
import triton.language as tl

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## A generator with a state
#
# An ordinary generator keeps a number, its **state**. Each call changes the state and returns a part of it. This is one
# of the oldest kind:


# %%
class Generator:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (1103515245 * self.state + 12345) % 2**31
        return self.state / 2**31


generator = Generator(1)
print([round(generator.next(), 3) for _ in range(4)])

# %% [markdown]
# The millionth number comes from the millionth call. On a GPU thousands of threads want a number at the same time. If
# they share one state, they have to queue. If each has its own, the states must be kept in memory and read and written
# by every kernel. And which thread draws which number depends on how the work was shared out, so a different block size
# gives a different mask.
#
# ## A number without a state
#
# What if the number were a **function** of the index? Element 5 gets `f(5)`, no matter which program asks, or when. The
# function only has to scramble its argument well enough. One multiplication is a first try. It keeps 32 bits of the
# product, and the sign of the result is the coin.


# %%
def one_multiplication(index):
    return index * 0x9E3779B9 & 0xFFFFFFFF


def coins(words):
    return words < 2**31


index = torch.arange(4096)
print(f"heads: {coins(one_multiplication(index)).float().mean():.3f}")

# %% [markdown]
# Half of them are heads, as they should be. But look at the pattern, with 64 coins in each row:


# %%
class Picture:
    """Coins as an SVG that a notebook shows: a square for each head."""

    def __init__(self, heads, title, side=4):
        rows, columns = heads.shape
        boxes = "".join(
            f'<rect x="{column * side}" y="{row * side}" width="{side}" height="{side}"/>'
            for row, column in heads.nonzero().tolist()
        )
        self.svg = (
            f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * side} {rows * side}" role="img" '
            f'fill="currentColor" style="max-width: {columns * side}px; width: 100%"><title>{title}</title>{boxes}</svg>'
            f"<figcaption>{title}</figcaption></figure>"
        )

    def _repr_html_(self):
        return self.svg


Picture(coins(one_multiplication(index)).view(64, 64), "One multiplication: 64 x 64 coins in stripes")

# %% [markdown]
# Neighbours are far from independent. A network that drops its features in stripes is no longer regularised, it is
# broken.
#
# ## Rounds
#
# One scrambling step isn't enough, but several in a row are. **Philox** scrambles four words of 32 bits: the *counter*,
# which is our index. A round multiplies two of them. The upper half of a product depends on all bits of the factor; it is
# mixed into another word by exclusive or, together with a *key*, which is the seed. Then the words change places.


# %%
def round_of_philox(words, key):
    first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
    low, high = (lambda x: x & 0xFFFFFFFF), (lambda x: x >> 32 & 0xFFFFFFFF)
    return [high(second) ^ words[1] ^ key[0], low(second), high(first) ^ words[3] ^ key[1], low(first)]


def philox(index, seed, rounds):
    """Four random words for each index, as int64."""
    zero = torch.zeros_like(index)
    words, key = [index & 0xFFFFFFFF, index >> 32, zero, zero], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        words = round_of_philox(words, key)
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return torch.stack(words, -1)


print(philox(torch.tensor([0, 1]), 7, 10).tolist())
print("as the lesson's:", torch.equal(philox(index, 7, 10), random_words_reference(torch.tensor(7), index)))

# %% [markdown]
# How many rounds does it take? A good test is to change a single bit of the counter, and to count how many of the 128
# bits of the result change. If the results are unrelated to each other, about half of the bits change.


# %%
def changed_bits(rounds):
    words = philox(index, 7, rounds) ^ philox(index ^ 1, 7, rounds)
    return sum((words >> bit & 1).sum(-1) for bit in range(32)).double().mean().item()


for rounds in (1, 2, 3, 4, 6, 10):
    print(f"{rounds:2} rounds: {changed_bits(rounds):5.1f} of 128 bits")

# %% [markdown]
# ## Change it
#
# Try 1, 2 and 3 rounds, and other seeds. When do you stop seeing a pattern? The eye is satisfied sooner than the test
# above, and there are stricter tests than that. cuRAND and PyTorch use ten rounds.

# %% tags=["parameters", "live"]
ROUNDS = 1  # 1 to 10
SEED = 7  # 0 to 99

# %%
heads = coins(philox(torch.arange(1024), SEED, ROUNDS).flatten()).view(64, 64)
Picture(heads, f"Philox, rounds: {ROUNDS}")

# %% [markdown]
# ## In a kernel
#
# Triton has Philox built in. `tl.rand(seed, offs)` makes a number from 0 up to 1 for each offset, from ten rounds. So a
# dropout kernel is a copy kernel with one more line. Its backward pass calls `tl.rand` again with the same seed.


# %%
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    keep = tl.rand(seed, offs) >= p
    tl.store(y_ptr + offs, tl.where(keep, x / (1 - p), 0.0), mask=offs < n)


def drop(x, p, seed, kernel=dropout_kernel, BLOCK=64):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), p, seed, BLOCK=BLOCK)
    return y


x = torch.ones(1000, device=device.DEVICE)
print("kept:", int((drop(x, 0.25, seed=1) != 0).sum()), "of 1000, mean", round(float(drop(x, 0.25, seed=1).mean()), 2))
print("again:           the same", torch.equal(drop(x, 0.25, seed=1), drop(x, 0.25, seed=1)))
print("blocks of 16:    the same", torch.equal(drop(x, 0.25, seed=1), drop(x, 0.25, seed=1, BLOCK=16)))
print("another seed:    the same", torch.equal(drop(x, 0.25, seed=1), drop(x, 0.25, seed=2)))

# %% [markdown]
# ## Three mistakes
#
# Each of them gives a mask that looks random, and of which the right share is dropped.
#
# **The offset within the block.** Here every program drops the same lanes. A mask must depend on the element, not on
# the program that works on it:


# %%
@triton.jit
def repeating_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * BLOCK + lanes
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    keep = tl.rand(seed, lanes) >= p
    tl.store(y_ptr + offs, tl.where(keep, x / (1 - p), 0.0), mask=offs < n)


y = drop(x[:128], 0.5, 1, repeating_kernel)
print("the second block drops what the first drops:", torch.equal(y[:64], y[64:]))
y = drop(x[:128], 0.5, 1)
print("and in the right kernel:", torch.equal(y[:64], y[64:]))

# %% [markdown]
# **One seed for all layers and steps.** Then the same features are dropped everywhere and always, and the
# network learns to do without them. Each place and each step needs a seed of its own. Consecutive numbers will do,
# because the key takes part in every round:

# %%
first, second = (dropout_mask((100, 100), 0.5, seed) for seed in (1, 2))
print(f"elements in which masks of the seeds 1 and 2 agree: {(first == second).float().mean():.3f}")

# %% [markdown]
# **The address of the seed.** A seed that lives on the GPU comes as a pointer. It has to be loaded. Its address is a
# number, too, and random enough to look right, until the backward pass or the next run finds it somewhere else.
#
# The lesson's [dropout](../kernels/classics/dropout.md) takes a seed from the GPU, uses all four words that Philox makes,
# compares whole numbers instead of fractions, and has 64 bits for the index.
#
# [[figure: attention/dropout]]
#
# So its mask is a function of seed, probability and index, and of nothing else:

# %%
values = torch.randn(40, 30, device=device.DEVICE)
mask = dropout_mask(values.shape, 0.25, 3, device=device.DEVICE)
variants = values, values.bfloat16(), values.T.contiguous().T
print("dtype and layout don't matter:", all(torch.equal(dropout(x, 0.25, 3) != 0, mask) for x in variants))

# %% [markdown]
# ## What it costs
#
# Ten rounds of Philox make four words. In `tl.randint4x` they take about 75 instructions, roughly 20 a word. `tl.rand`
# keeps one word of the four, so the kernel of this chapter spends about 65 on each element. The lesson's kernel
# uses all four words, and gets by with about 20 for an element, everything included. None of this touches memory. PyTorch
# stores its mask in the forward
# pass, a byte for each element, and reads it in the backward pass.

# %%
elements = 8192 * 8192
print(f"a backward pass in bfloat16, with a mask: {5 * elements / 1e6:.0f} MB, without: {4 * elements / 1e6:.0f} MB")

# %%
notebook.speed("dropout", "backward", live=[(8192, 4096)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next is the derivation of [dropout](../derivations/dropout.md), and then its kernel.
