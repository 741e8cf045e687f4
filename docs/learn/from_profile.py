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
# # 10. Find the kernel worth writing
#
# You have a model in plain PyTorch, and it trains too slowly. Which kernel do you write first, and what will it gain? Here
# the answer is predicted from bytes and operations, before anything is measured. Then a profile says whether that was
# right, and one operation after the other is replaced.

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
from annotated_examples.capstone.gpt import GPT_124M, PLAIN

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# The model is the [capstone](../kernels/capstone/gpt.md): 125 million parameters in 12 layers. A step takes 16
# sequences of 1024 tokens. Its plain version is the starting point: PyTorch's own attention, PyTorch's own products,
# and everything between them written in the usual way.
#
# ## Count before you measure
#
# An operation between two products does little arithmetic. It takes as long as its bytes take to move. And bytes can be
# counted without a GPU: every call that reaches PyTorch's dispatcher passes through a **dispatch mode**, which may look
# at its tensors. On the device `meta` a tensor has a shape and no memory, so that a model of any size can be counted.


# %%
class Moved(TorchDispatchMode):
    """Counts calls and the bytes of their tensors. A view moves nothing, and an empty tensor isn't written yet."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        view = any(each.alias_info and not each.alias_info.is_write for each in function._schema.returns)
        if not view and "empty" not in function.name():
            self.calls += 1
            self.bytes += size(tree_leaves((args, kwargs, out)))
        return out


def size(tensors):
    """Bytes of these tensors, each counted once."""
    found = {id(each): each for each in tensors if isinstance(each, torch.Tensor)}
    return sum(each.numel() * each.element_size() for each in found.values())


def x(*shape):
    return torch.empty(shape, dtype=torch.bfloat16, device="meta", requires_grad=True)


y, moved = x(1024, 768), Moved()
with moved:
    (y * y + y).sum()
print(f"{moved.calls} calls, {moved.bytes / size([y]):.0f} times the bytes of y")

# %% [markdown]
# The sum of a product takes three calls. The first reads `y` twice, but it is one tensor and the second read is served
# by the cache, so it counts once. One kernel for all of it would read `y` once, and write a single number. The picture
# counts in the same way for softmax, with the times measured on an H200:
#
# [[figure: work/fusion]]
#
# ## The operations of a step
#
# Here each operation of a layer is run by itself, forward and backward. The table shows what plain PyTorch moves, and
# beside it what **must** move: inputs are read once and results written once, and so are their gradients. The
# difference is what a fused kernel can save.


# %%
def counted(operation, *inputs):
    """Calls and bytes of both passes, and the bytes that must move."""
    forward, backward = Moved(), Moved()
    with forward:
        out = operation(*inputs)
    results = out if isinstance(out, tuple) else (out,)
    upstream = [torch.empty_like(each) for each in results]
    with backward:
        gradients = torch.autograd.grad(results, inputs, upstream)
    needed = size([*inputs, *results]) + size([*inputs, *upstream, *gradients])
    return forward.calls + backward.calls, forward.bytes + backward.bytes, needed


# On a GPU, `F.rms_norm` and `F.dropout` are single kernels, on `meta` they are not. A LayerNorm stands in for the norm: it
# has the same tensors. `native_dropout` is what runs on a GPU.
def add_norm(x, residual, weight):
    total = x + residual
    return torch.nn.functional.layer_norm(total, weight.shape, weight), total


def between_products(B, T, config=GPT_124M):
    """Operation -> how often it comes in a step, its function, and its inputs."""
    tokens, width, head = B * T, config.width, config.width // config.heads
    tables = [torch.empty(T, head // 2, device="meta") for _ in range(2)]
    q, k = x(B, config.heads, T, head), x(B, config.key_heads, T, head)
    return {
        "add and norm": (2 * config.layers + 1, add_norm, (x(tokens, width), x(tokens, width), x(width))),
        "rotary embedding": (config.layers, lambda q, k: PLAIN.rotate(q, k, *tables), (q, k)),
        "gated unit": (config.layers, PLAIN.gate, (x(tokens, 2 * config.hidden),)),
        "dropout": (2 * config.layers + 1, lambda x: torch.native_dropout(x, 0.1, True)[0], (x(tokens, width),)),
    }


# %% [markdown]
# The loss consists of a product and an operation on its result, the logits. None of the logits have to move, because
# they are an intermediate result. Products and attention are counted in arithmetic operations instead: two for each
# multiply-add, and backward has twice as many products as forward. Half of the scores are masked in causal attention,
# and its backward pass makes the scores a second time.


# %%
def operations(B, T, config=GPT_124M):
    """Of products and attention, forward and backward."""
    tokens, width, head = B * T, config.width, config.width // config.heads
    layer = (config.heads + 2 * config.key_heads) * head * width + width * width + 3 * config.hidden * width
    scores = B * config.heads * T * T * head
    return {
        "products": 6 * tokens * config.layers * layer,
        "attention": 3.5 * 2 * scores * config.layers,
        "loss": 6 * tokens * config.vocabulary * width,
    }


# %% [markdown]
# ## Change it
#
# `copy` and `rate` are what the card reached when it copied memory and multiplied matrices. These are the values of an
# H200. Try a batch of 1, a context of 4096, or a card with a tenth of the bandwidth. When do products stop taking most
# of the time?

# %% tags=["parameters"]
B, T = 16, 1024
copy, rate = 4.25e12, 715e12

# %%
prediction = {}
print(f"{'':18}{'calls':>6}{'moved':>10}{'must move':>11}{'plain':>9}{'at best':>9}")
for name, (times, operation, inputs) in between_products(B, T).items():
    calls, moved, needed = (times * each for each in counted(operation, *inputs))
    prediction[name] = moved / copy * 1e3, needed / copy * 1e3
    plain, best = prediction[name]
    print(f"{name:18}{calls:6}{moved / 1e9:7.1f} GB{needed / 1e9:8.1f} GB{plain:6.1f} ms{best:6.1f} ms")
labels = torch.zeros(B * T, dtype=torch.int64, device="meta")
calls, moved, needed = counted(
    lambda x, weight: PLAIN.loss(x, weight, labels), x(B * T, GPT_124M.width), x(GPT_124M.vocabulary, GPT_124M.width)
)
for name, count in operations(B, T).items():
    best = count / rate * 1e3
    prediction[name] = best + (moved / copy * 1e3 if name == "loss" else 0), best
    print(f"{name:18}{count / 1e12:34.1f} Tflop{prediction[name][0]:4.1f} ms{best:6.1f} ms")
plain, best = (sum(each) for each in zip(*prediction.values()))
print(f"{'all of it':18}{plain:42.1f} ms{best:6.1f} ms")

# %% [markdown]
# The table shows three things, and no card was needed:
#
# - **The loss comes first.** Its logits are 16384 times 65536 numbers. Plain PyTorch writes them in bfloat16, once more
#   in float32, and again as logarithms, reads them each time, and does the same with their gradients. It has more to
#   gain than anything else.
# - **The rotary embedding is next**, although it has hardly any arithmetic. Written in PyTorch it is dozens of calls, each
#   with a pass through memory.
# - **Gates, norms and dropout** each have less to gain. Products have nothing to gain, if the library is as good as we
#   think.
#
# The optimizer isn't in the table. It reads each weight, its gradient and two averages, and writes all but the
# gradient, in both models alike.
#
# ## Measure it
#
# The profiler records every kernel, and the call that launched it. A scope around each operation,
# `torch.profiler.record_function`, says which one a call in the forward pass belongs to. The backward pass has no
# scopes. But each node of autograd has the number of the forward call that created it, so its kernels can be assigned
# to the same operation. `by_operation` in `benchmarks/capstone.py` does this. On an H200 the plain model's step takes
# [[bench: capstone/profile/total]] of kernel time:
#
# | operation | forward | backward | share |
# |---|---|---|---|
# | loss | [[bench: capstone/profile/loss/forward]] | [[bench: capstone/profile/loss/backward]] | [[bench: capstone/profile/loss/share]] |
# | products | [[bench: capstone/profile/linear/forward]] | [[bench: capstone/profile/linear/backward]] | [[bench: capstone/profile/linear/share]] |
# | rotary embedding | [[bench: capstone/profile/rotate/forward]] | [[bench: capstone/profile/rotate/backward]] | [[bench: capstone/profile/rotate/share]] |
# | attention | [[bench: capstone/profile/attend/forward]] | [[bench: capstone/profile/attend/backward]] | [[bench: capstone/profile/attend/share]] |
# | add and norm | [[bench: capstone/profile/add_norm/forward]] | [[bench: capstone/profile/add_norm/backward]] | [[bench: capstone/profile/add_norm/share]] |
# | gated unit | [[bench: capstone/profile/gate/forward]] | [[bench: capstone/profile/gate/backward]] | [[bench: capstone/profile/gate/share]] |
# | dropout | [[bench: capstone/profile/drop/forward]] | [[bench: capstone/profile/drop/backward]] | [[bench: capstone/profile/drop/share]] |
#
# The optimizer takes [[bench: capstone/profile/optimizer/share]], and what lies between the operations, such as the lookup
# of the embedding, [[bench: capstone/profile/rest/share]].
#
# ## One operation after the other
#
# Now replace them, the one with the most to gain first. Each rung is the time of a whole training step, run as a CUDA
# graph so that Python's time isn't included.

# %%
notebook.ladder("capstone")

# %% [markdown]
# The loss and the rotary embedding come first, as predicted. The rotary embedding and the gated unit gain about twice
# what their bytes promised, the norms still more: the count assumes that PyTorch's kernels run at the speed of a
# copy, and some don't. The two halves of the gate's input aren't next to each other in memory, and the gradient of a
# norm's weight is a sum down the columns.
#
# The last two rungs gain nothing: with our attention a step takes as long as before, and with our products a little longer.
# PyTorch takes both from libraries that are close to the limit. We replaced them only so that every operation is ours.
# The capstone's page says where our products lose time.
#
# Two rules are worth keeping. **Predict first**: if a rung gains less than predicted, its kernel isn't at its limit
# yet, and you know which kernel to look at. And **stop in time**: what a library does well is the last thing to write.
#
# A compiler can climb the first four rungs, too. `torch.compile` by itself brings the plain model to
# [[bench: capstone/torch.compile/step]]. Try it before you write a kernel, and look at what remains in its profile.
#
# To repeat all these measurements, run `python benchmarks/capstone.py`.
#
# ## Exercises
#
# [[exercises]]
#
# Next comes the model itself, with its loss curves: the [capstone](../kernels/capstone/gpt.md).
