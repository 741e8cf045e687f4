r"""
# The GPT with our optimizers: AdamW, and a matrix as a matrix

[The GPT](gpt.py) was trained with PyTorch's AdamW. Here the [AdamW](../optimizers/adamw.py) and the
[Muon](../optimizers/muon.py) of this book take its place:

| option | who gets the matrices of the blocks | who gets everything else |
|---|---|---|
| `optimizer="adamw"` | AdamW | AdamW |
| `optimizer="muon"` | Muon | AdamW |
| `optimizer="muon_parts"` | Muon, each head of queries, keys and values by itself | AdamW |

Do they train as PyTorch's do? Each pair below has the same weights at the start, the same batches, and the same
operations in the model, so that nothing differs but the optimizer. Here the small model was trained, with PyTorch's
operations, and our optimizers in Triton's interpreter: with attention, with
[a gate for each channel](options.py) in its place, `kda`, and with four streams:

[[training: capstone_optimizers]]

Mostly one line of a pair hides the other. How far they are apart needs another scale:

[[figure: training/apart]]

**AdamW: rounding, and what becomes of it.** For some forty steps both losses have the same digits, but for the last.
Then they come apart. Both optimizers are right, and both round, only not at the same places. Is that enough? PyTorch's
AdamW was run once more, from weights that are each one float higher, a change of a ten millionth. These two runs come
apart at about the same time, and by about as much. So training magnifies a rounding error, whoever makes it. A step
divides a gradient by its own size, so where one is nearly zero, rounding may turn its sign around, and a weight moves
up in one model and down in the other. Over the last 20 steps the losses of both optimizers differ by
[[bench: capstone_optimizers/attention: adamw/apart]], with gates by
[[bench: capstone_optimizers/kda: adamw/apart]], and with streams by
[[bench: capstone_optimizers/streams: adamw/apart]]; those of the two runs of PyTorch's, without and with gates, by
[[bench: capstone_optimizers/attention: adamw of PyTorch, nudged/apart]] and
[[bench: capstone_optimizers/kda: adamw of PyTorch, nudged/apart]]. From seed to seed it is
[[bench: capstone_optimizers/attention: adamw/loss_spread]] and
[[bench: capstone_optimizers/kda: adamw/loss_spread]].

**Muon: sixteen bits from the first step on.** Both compute five rounds in bfloat16, which has two or three digits.
PyTorch's rounds the update to that before it takes its norm, and divides by a rounded norm; ours [takes the
norm](../common/frobenius.py) in float64, divides, and only then rounds to that. So the very first updates of a matrix
differ by some hundredths of their size, those of small ones by up to a fifth. That looks worse than it is. Each round
multiplies a small singular value by 3.4, five of them by nearly 500, and a rounding error of its size, too. But in a
direction in which the gradient is that small, a step hardly changes the loss. Over the last 20 steps the losses differ
by [[bench: capstone_optimizers/attention: muon/apart]], with gates by
[[bench: capstone_optimizers/kda: muon/apart]], and with streams by
[[bench: capstone_optimizers/streams: muon/apart]].

**Which of them is better?** So small a model can't say. It has 16 bytes of context, its matrices have 32 rows or 32
columns, and 100 steps are a beginning. The learning rate is the same for all, which is what Muon's `match_rms_adamw` is
for. The loss ends at [[bench: capstone_optimizers/attention: adamw/loss]] with AdamW, at
[[bench: capstone_optimizers/attention: muon/loss]] with Muon, and at
[[bench: capstone_optimizers/attention: muon_parts/loss]] if each part is a matrix of its own.

`python benchmarks/capstone_optimizers.py` measures all of it again. On a card it trains the model of 125 million
parameters with our operations, and times a step. It isn't recorded as a CUDA graph there: our AdamW makes a table of
addresses on the host in each step.
"""

from academy.runtime import checks, script  # missing? Run make in the clone, then .venv/bin/python

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from annotated_examples.capstone import gpt, options
from annotated_examples.classics.dropout import dropout_reference
from annotated_examples.optimizers.adamw import AdamW
from annotated_examples.optimizers.muon import Muon


# ## Whose optimizers
#
# Both sets are used in the same way. PyTorch's Muon has no parts.
@dataclass(frozen=True)
class Optimizers:
    adamw: Callable
    muon: Callable


OURS = Optimizers(AdamW, Muon)
PYTORCH = Optimizers(torch.optim.AdamW, torch.optim.Muon)

OPTIONS = ("adamw", "muon", "muon_parts")


# ## Which weights are matrices?
#
# Muon is for a weight that multiplies a vector and makes another vector of it. A table with two dimensions may be
# something else, and nothing in its shape says so:
#
# - The embedding is a list of rows. A step sees a few of them, and an orthogonal matrix would move all.
# - A filter of [a convolution](../recurrences/causal_conv1d.py) has four numbers for each channel, and channels don't
#   mix. The gates of [Kimi delta attention](../recurrences/kda.py) have a number for each channel of each head.
# - A router's rows are eight directions, which needn't be orthogonal: two experts may well be alike at first. Of
#   [streams](../model/stream_coefficients.py), too, each row makes a coefficient by itself.
#
# So the matrices are listed. Experts have three dimensions. They stay with AdamW, since PyTorch's Muon takes two.
#
# **One weight, several matrices.** The weights of queries, keys and values are one parameter, because one product is
# faster than three. Taken as one matrix, all of its singular values would be made alike together, so a head's step
# would depend on the other heads' gradients, and that of queries on keys. Each head is a matrix of its own, and so are
# the halves of a gated unit, and what makes a head's keys and values of latents. The table says how many of them lie
# below each other in a weight.
MATRICES = {
    "qkv": lambda c: c.heads + 2 * c.key_heads,
    "project": lambda c: 1,
    "up": lambda c: 2 * c.heads,
    "out": lambda c: 1,
    "gate_up": lambda c: 2,
    "down": lambda c: 1,
}


def matrices(model):
    """(weight, how many matrices it is), of the blocks alone."""
    named = [(name.rsplit(".", 1)[1], weight) for name, weight in model.blocks.named_parameters()]
    return [(weight, MATRICES[name](model.config)) for name, weight in named if name in MATRICES and weight.dim() == 2]


# Weights of as many parts each are a group of parameters.
def groups(model, by_parts):
    """`matrices` as an optimizer takes them. by_parts: whether it is told how many matrices each weight is."""
    if not by_parts:
        return [dict(params=[weight for weight, _ in matrices(model)])]
    found = {}
    for weight, parts in matrices(model):
        found.setdefault(parts, []).append(weight)
    return [dict(params=weights, heads=parts) for parts, weights in found.items()]


# ## Two optimizers as one
#
# `match_rms_adamw` makes a step of Muon as large as those of AdamW mostly are, so both have the same learning rate.
class Several:
    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def optimizer_of(model, lr, name="adamw", whose=OURS):
    """An optimizer for a model of `gpt` or `options`; ValueError for a name that isn't one of `OPTIONS`."""
    checks.choice("optimizer", name, OPTIONS)
    adamw = partial(whose.adamw, lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    if name == "adamw":
        return Several(adamw(model.parameters()))
    if name == "muon_parts" and whose is PYTORCH:
        raise ValueError("optimizer must be 'adamw' or 'muon' with PyTorch's: its Muon takes each weight as one matrix")
    those = groups(model, name == "muon_parts")
    taken = {id(weight) for group in those for weight in group["params"]}
    others = [weight for weight in model.parameters() if id(weight) not in taken]
    return Several(whose.muon(those, lr=lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), adamw(others))


# As a script it trains the small model twice, once with everything ours, operations and optimizer, and once with
# everything PyTorch's. Of Muon's rounds in bfloat16 some digits differ, and the losses with them.
if __name__ == "__main__":
    asked = script.arguments(
        __doc__, steps=dict(type=int, default=20), mixer=dict(choices=tuple(options.MIXERS), default="attention"),
        optimizer=dict(choices=OPTIONS[:2], default="adamw"),
    )  # fmt: skip
    config = dataclasses.replace(options.SMALL, mixer=asked.mixer)
    plain = dataclasses.replace(options.PLAIN, drop=lambda *x: dropout_reference(*x))
    both = [partial(optimizer_of, name=asked.optimizer, whose=whose) for whose in (OURS, PYTORCH)]
    apart = gpt.side_by_side(gpt.pair(config, plain=plain, kernels=options.OURS), asked.steps, optimizers=both)
    sys.exit(apart > (1e-3 if asked.optimizer == "adamw" else 5e-2))
