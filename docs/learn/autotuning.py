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
# # 5. Autotune a kernel, and know what can go wrong
#
# Tile sizes, warps and stages decide how fast a product is, and no formula gives the best ones. Who chooses?
# `triton.autotune` tries a list and keeps the fastest. You build a small autotuner yourself, to see what it does, and
# then run into each of its hazards once.

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
from annotated_examples.tutorials import matmul_autotuned as lesson

import random
import torch
import triton
import triton.language as tl

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## What there is to choose
#
# [[figure: hardware/tiles]]
#
# A configuration fixes the tile (`BLOCK_M`, `BLOCK_N`, `BLOCK_K`), the order (`GROUP_M`), how many warps share the
# work, and in how many **stages** the loop is pipelined. `num_stages=3` means that the tiles of the next two steps are
# already on their way while this one is multiplied. On Hopper and the B200 the tiles of all stages have to fit into
# shared memory (elsewhere of one stage fewer, because the tile in use is in registers by then), and the sums into
# registers, so you can't have both large tiles and many stages. `triton.Config` holds one configuration: the constexprs
# by name, and the number of warps and stages beside them, as in
# `triton.Config({"BLOCK_M": 128, "BLOCK_N": 256}, num_warps=8, num_stages=3)`. These are the ones that [the lesson's
# kernel](../kernels/tutorials/matmul_autotuned.md) tries:


# %%
def shared_memory(config, element_size=2):
    """Bytes of shared memory that the pipelined tiles of both inputs take on a Hopper card."""
    tiles = config.kwargs
    one_stage = (tiles["BLOCK_M"] + tiles["BLOCK_N"]) * tiles["BLOCK_K"] * element_size
    return config.num_stages * one_stage


for config in lesson.CONFIGURATIONS:
    tile = "{BLOCK_M:3} x {BLOCK_N:3} x {BLOCK_K:2}".format(**config.kwargs)
    kib = shared_memory(config) / 1024
    print(f"{tile}, {config.num_warps} warps, {config.num_stages} stages: {kib:3.0f} KiB of shared memory")

# %% [markdown]
# How many stages are enough? That depends on how long a load takes, and how long a tile keeps the tensor cores busy:
#
# [[figure: choices/pipeline]]
#
# ## An autotuner in twenty lines
#
# At the first call for a **key** an autotuner runs the kernel with each configuration, takes the time and remembers the
# fastest. Later calls with that key look it up. This autotuner takes its clock as an argument, so that
# you can watch it work without a GPU: here the clock is a fake, a formula for what a call might cost.


# %%
class Autotuner:
    """Tries every configuration for a new key, then keeps to the fastest."""

    def __init__(self, kernel, configurations, key, clock):
        self.kernel, self.configurations, self.key, self.clock = kernel, configurations, key, clock
        self.best = {}
        self.trials = 0

    def __call__(self, **arguments):
        key = self.key(arguments)
        if key not in self.best:
            times = []
            for configuration in self.configurations:
                self.kernel(**arguments, **configuration)  # a trial is a real run
                times.append(self.clock(arguments, configuration))
                self.trials += 1
            self.best[key] = self.configurations[times.index(min(times))]
        return self.kernel(**arguments, **self.best[key])


def pretended_time(arguments, configuration):
    """132 programs run at a time. Each takes time for what it loads and for what it multiplies."""
    M, N, K = arguments["M"], arguments["N"], arguments["K"]
    rows, columns = configuration["BLOCK_M"], configuration["BLOCK_N"]
    rounds = triton.cdiv(triton.cdiv(M, rows) * triton.cdiv(N, columns), 132)
    return rounds * (rows + columns + rows * columns / 100) * K


CONFIGURATIONS = [dict(BLOCK_M=m, BLOCK_N=n) for m, n in ((16, 16), (64, 64), (128, 32), (128, 256))]


def pretend_kernel(**arguments):
    pass


tuner = Autotuner(pretend_kernel, CONFIGURATIONS, lambda a: (a["M"], a["N"], a["K"]), pretended_time)
for M, N, K in ((4096, 4096, 4096), (16, 4096, 4096), (512, 512, 4096), (4096, 4096, 4096)):
    tuner(M=M, N=N, K=K)
    print(f"{M} x {N} x {K}: {tuner.best[M, N, K]}, {tuner.trials} trials so far")

# %% [markdown]
# A large square product is fastest with large tiles, which load less for each sum. A thin or small product needs small
# tiles: large ones would leave most of the SMs without work. For the fourth call, the choice was found in
# the cache.
#
# ## Hazard: the key
#
# The key decides what counts as the same problem. The lesson's key has M, N and K in it (Triton adds the dtypes), one stride
# of each input, which tells whether it is stored transposed, and the precision of float32 products. What if M is the length
# of a text, different in every call? Then every call is a search. What if M is left out? Then the first text decides for all
# that follow.
#
# Choose how keys are made, and look at the number of trials and at how far the choices are from the best.

# %% tags=["parameters"]
key = "exact"  # or "none", or "power of two"
lengths = [17, 900, 33, 4000, 520, 61, 2048, 19, 700, 1500]

# %%
KEYS = {
    "exact": lambda a: a["M"],
    "none": lambda a: None,
    "power of two": lambda a: triton.next_power_of_2(a["M"]),
}
tuner = Autotuner(pretend_kernel, CONFIGURATIONS, KEYS[key], pretended_time)
chosen, best = 0, 0
for M in lengths:
    arguments = dict(M=M, N=4096, K=4096)
    tuner(**arguments)
    chosen += pretended_time(arguments, tuner.best[KEYS[key](arguments)])
    best += min(pretended_time(arguments, configuration) for configuration in CONFIGURATIONS)
slower = 100 * (chosen / best - 1)
print(f"key {key!r}: {tuner.trials} trials, {slower:.0f} % slower than the best choices, by the fake clock")

# %% [markdown]
# ## Hazard: outputs that are changed while tuning
#
# A trial is a real run. A kernel that adds to its output adds once for every trial. The next kernel does what split-K
# kernels do; the tuner runs it four times to choose and once more for the actual result.


# %%
@triton.jit
def accumulate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + offsets, x, mask=mask)


def accumulate(x, out, BLOCK):
    accumulate_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)


BLOCKS = [dict(BLOCK=block) for block in (16, 32, 64, 128)]
x = torch.ones(100, device=device.DEVICE)
out = torch.zeros(100, device=device.DEVICE)
tuner = Autotuner(accumulate, BLOCKS, lambda a: a["x"].numel(), lambda a, c: -c["BLOCK"])
tuner(x=x, out=out)
print("first call: ", out[0].item())
out.zero_()
tuner(x=x, out=out)
print("second call:", out[0].item())

# %% [markdown]
# The first call is wrong, and every later one is right. Tests that call a kernel twice and look at the second result
# never see it. `triton.autotune` has two remedies: `reset_to_zero=["out_ptr"]` clears the output before each trial, and
# `restore_value=["x_ptr"]` puts back what was there. A kernel that overwrites its input has the same problem, and needs
# the second remedy.
#
# ## Hazard: noise
#
# Two configurations often differ by less than the clock does from run to run. The next cell simulates that, with numbers that
# you choose: the second configuration is slower by `difference`, and each timing is off by a random share of about `noise`.
# No kernel runs here.

# %% tags=["parameters"]
difference = 0.01
noise = 0.03

# %%
random.seed(0)


def timing(true_time):
    return true_time * (1 + abs(random.gauss(0, noise)))  # a disturbance only ever costs time


def wrong_choices(repeats, experiments=2000):
    """The share of searches that pick the slower configuration, by the median of some repeats."""
    wrong = 0
    for _ in range(experiments):
        fast, slow = (
            sorted(timing(true_time) for _ in range(repeats))[repeats // 2] for true_time in (1, 1 + difference)
        )
        wrong += slow < fast
    return wrong / experiments


for repeats in (1, 5, 25, 101):
    print(f"{repeats:3} repeats: wrong in {100 * wrong_choices(repeats):2.0f} % of the searches")

# %% [markdown]
# A wrong choice between such neighbours costs 1 %, which is nothing. What you do lose is repeatability: two runs of the
# same script may use two configurations, and their sums round differently. Where results must agree bit for bit, fix
# the configuration.
#
# ## Hazard: the cache
#
# `triton.autotune` remembers its choices in the process. A new process searches again, and so do eight processes on eight
# GPUs, which may choose differently. `cache_results=True` keeps them on disk, but not for configurations with a `pre_hook`.
# To see what was chosen, set `TRITON_PRINT_AUTOTUNING=1` or ask:

# %%
a = torch.randn(100, 60, device=device.DEVICE)
b = torch.randn(60, 80, device=device.DEVICE)
c = lesson.matmul(a, b, activation="relu")
print("right:", torch.allclose(c, torch.relu(a @ b), atol=1e-4))
if device.INTERPRET:
    print("Nothing can be timed here, so the first configuration is taken:")
    print(lesson.CONFIGURATIONS[0].kwargs)
else:
    print("chosen:", lesson.tuned_matmul_kernel.best_config)

# %% [markdown]
# ## An activation as an argument
#
# That call also applied a ReLU, to the float32 sums in registers. No activation is written into the kernel. It gets a
# jitted function as a `tl.constexpr` argument, `ACTIVATION`, and calls it; the compiler inlines the function's body.
# You can pass one of your own:


# %%
@triton.jit
def square(z):
    return z * z


c = torch.empty(100, 80, device=device.DEVICE)
tiles = dict(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP_M=8)
grid = (triton.cdiv(100, 32) * triton.cdiv(80, 32),)
strides = (*a.stride(), *b.stride(), *c.stride())
lesson.matmul_kernel[grid](
    a, b, c, c, 100, 80, 60, *strides, ACTIVATION=square, SAVE_Z=False, INPUT_PRECISION="ieee", **tiles
)
torch.allclose(c, (a @ b) ** 2, atol=1e-3)

# %% [markdown]
# ## What it gains
#
# Square products in bfloat16, from 128 to 4096 in steps of 128: the lesson, its [fast version](../kernels/fast/matmul.md) and
# cuBLAS. The activation here is leaky ReLU, for which cuBLAS needs a second kernel, which reads and writes the whole result
# once more. (cuBLASLt can add a bias and apply ReLU or GELU in the product itself.)

# %%
notebook.speed("matmul_autotuned", variants=("", "leaky_relu"), live=[(2048, 2048, 2048)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next comes the guide on [autotuning](../guides/autotuning.md), which says more about searches and caches. Much later,
# [the fast version of the product](../kernels/fast/matmul.md) climbs on to tensor descriptors and persistent programs.
