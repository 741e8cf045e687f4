r"""
# A GPT, trained with these kernels

Is a transformer made of these kernels the same model as one in plain PyTorch? Does it learn the same, and how much
faster? This file has both: one model, and two sets of operations that it can be built from. The text that it learns is
this site's.

**The same model.** Both start from the same weights and see the same batches. With 125 million parameters, in bfloat16,
16 sequences of 1024 tokens a step, and dropout, which drops different elements in the two:

[[training: capstone]]

The last loss is the mean of a run's last 20 steps. From seed to seed it differs by
[[bench: capstone/eager/loss_spread]] in the plain model, far more than between the models:
[[bench: capstone/eager/loss]] against [[bench: capstone/ours/loss]], averaged over the seeds.

**What it costs.** A step does about six operations for each parameter and each token, nearly all of them in matrix
products. What there is to gain lies between the products: there plain PyTorch writes every intermediate result to
memory and reads it back. Its step takes [[bench: capstone/eager/step]], ours [[bench: capstone/ours/step]]. In memory
the plain model needs [[bench: capstone/eager/memory]], ours [[bench: capstone/ours/memory]]. The chapter
[From a profile to kernels](/learn/from_profile.py) says which operation gained what.

**Beside a compiler.** `torch.compile` fuses what lies between the products by itself. With it the plain model takes
[[bench: capstone/torch.compile/step]] and [[bench: capstone/torch.compile/memory]]. So ours saves memory, but no time
to speak of: by then products and attention are most of the step, and the library leaves little to gain there. When ours
replace them, a step goes from [[bench: capstone/ladder/dropout/step_ms]] to
[[bench: capstone/ladder/attention/step_ms]] for attention, and to [[bench: capstone/ladder/products/step_ms]] for the
products. The reason is the gradients of the weights. Such a gradient has as few elements as its weight: 768 x 768 make
36 tiles of 128 x 128, for 132 SMs. And each element is a sum of 16384 terms. cuBLAS divides such sums among
programs, and our product doesn't.

All of them are timed as CUDA graphs of a whole step with its optimizer, after some steps to warm up. Otherwise Python,
which has hundreds of kernels to launch, would be part of what is compared: without a graph our step takes
[[bench: capstone/ours/loop]], and the compiled one [[bench: capstone/torch.compile/loop]].
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from annotated_examples.classics.dropout import dropout, dropout_reference
from annotated_examples.classics.rope import rope, rope_reference
from annotated_examples.classics.swiglu import swiglu_packed
from annotated_examples.common.products import Product
from annotated_examples.fast.flash_attention import flash_attention
from annotated_examples.fast.linear_cross_entropy import linear_cross_entropy
from annotated_examples.fast.matmul import matmul_forward
from annotated_examples.fast.rmsnorm import add_rmsnorm, rmsnorm

EPS = 1e-6


# ## What the model is made of
#
# Weights are kept in float32, and so are their gradients and the optimizer's averages: a step changes a weight by less
# than bfloat16 could tell apart. The model computes in the dtype of `x`, so a weight is rounded where it is used. Both
# sets of operations do that in the same way. Our norms and our loss need no rounded copy: they read the float32
# weights.
@dataclass(frozen=True)
class Operations:
    """`x` and `residual` are (tokens, width), `q` (B, H, T, D), `k` and `v` (B, Hk, T, D), weights (out, in)."""

    linear: Callable  # (x, weight) -> x Wᵀ
    norm: Callable  # (x, weight) -> x / rms(x) · weight
    add_norm: Callable  # (x, residual, weight) -> norm(x + residual, weight), x + residual
    rotate: Callable  # (q, k, cos, sin) -> q and k, turned by their position
    attend: Callable  # (q, k, v) -> causal attention
    gate: Callable  # (x) -> silu(first half) · second half
    drop: Callable  # (x, p, seed) -> dropout
    loss: Callable  # (x, weight, labels) -> mean cross entropy of x Wᵀ


# The gradient of a weight is wanted in the weight's own layout. `matmul` would give the gradient of the transposed
# weight, which would then have to be transposed in memory. So the backward pass here computes both products in the
# layout in which they are needed.
def linear_gradients(dy, x, transposed, saved, activation, *, needs):
    dx = matmul_forward(dy, transposed.T) if needs[0] else None
    return dx, matmul_forward(dy.T, x).T if needs[1] else None


def linear(x, weight):
    return Product.apply(x, weight.to(x.dtype).T, None, matmul_forward, linear_gradients)


OURS = Operations(
    linear=linear,
    norm=lambda x, weight: rmsnorm(x, weight, EPS),
    add_norm=lambda x, residual, weight: add_rmsnorm(x, residual, weight, EPS),
    rotate=rope,
    attend=lambda q, k, v: flash_attention(q, k, v, causal=True),
    gate=swiglu_packed,
    drop=dropout,
    loss=linear_cross_entropy,
)


# The same in PyTorch, as it is usually written. Attention, products and the optimizer are PyTorch's best: its attention
# is a fused kernel, too. The logits are converted to float32 for the loss, because bfloat16 would round the loss
# itself.
def plain_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), EPS)


def plain_add_norm(x, residual, weight):
    total = x + residual
    return plain_norm(total, weight), total


def plain_gate(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


PLAIN = Operations(
    linear=lambda x, weight: F.linear(x, weight.to(x.dtype)),
    norm=plain_norm,
    add_norm=plain_add_norm,
    rotate=rope_reference,
    attend=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
    gate=plain_gate,
    drop=lambda x, p, seed: F.dropout(x, p),
    loss=lambda x, weight, labels: F.cross_entropy(F.linear(x, weight.to(x.dtype)).float(), labels),
)


# ## The model
#
# Two sizes. The small one is for Triton's interpreter. The large one is as large as the first GPT-2. A configuration
# also makes the blocks of its model: that is how [other forms](options.py), with experts or with eight bits, replace
# parts of them.
@dataclass(frozen=True)
class Config:
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    width: int = 32
    hidden: int = 88
    context: int = 16
    token_bytes: int = 1
    p: float = 0.1

    @property
    def vocabulary(self):
        return 256**self.token_bytes

    def block(self, layer):
        return Block(self, Attention(self), GatedUnit(self))


SMALL = Config()
GPT_124M = Config(layers=12, heads=12, key_heads=3, width=768, hidden=2048, context=1024, token_bytes=2)


def weights(*shape, std=0.02):
    return torch.nn.Parameter(std * torch.randn(shape))


# What adds to the stream of activations begins smaller the more layers there are, two terms each.
def into_stream(config):
    return 0.02 / (2 * config.layers) ** 0.5


# Attention brings something from earlier tokens. Queries, keys and values are projections of the same input, so they
# are one product, with the rows of all three weights.
#
# Heads are views: (B·T, heads·D) is (B, T, heads, D), and is seen as (B, heads, T, D). All kernels take strides. The
# heads are split before the dimensions are swapped. Then their gradients have the layout that the product needs, and
# joining them is one plain copy.
class Attention(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.qkv = weights((config.heads + 2 * config.key_heads) * config.width // config.heads, config.width)
        self.out = weights(config.width, config.width, std=into_stream(config))

    def forward(self, y, ops, B, cos, sin):
        c = self.config
        heads = ops.linear(y, self.qkv).view(B, len(y) // B, -1, c.width // c.heads)
        q, k, v = (part.transpose(1, 2) for part in heads.split([c.heads, c.key_heads, c.key_heads], dim=2))
        q, k = ops.rotate(q, k, cos, sin)
        return ops.linear(ops.attend(q, k, v).transpose(1, 2).reshape(len(y), c.width), self.out)


# A gated unit makes something of each token alone. Its second result is what it adds to the loss: nothing.
class GatedUnit(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_up = weights(2 * config.hidden, config.width)
        self.down = weights(config.width, config.hidden, std=into_stream(config))

    def forward(self, y, ops):
        return ops.linear(ops.gate(ops.linear(y, self.gate_up)), self.down), ()


# A block adds both to the stream `x`. The last thing to be added arrives separately from the stream, as `delta`,
# because one kernel adds and normalises; and the block returns its own last one separately, too.
class Block(torch.nn.Module):
    def __init__(self, config, mixer, feed_forward):
        super().__init__()
        self.norms = torch.nn.ParameterList(torch.ones(config.width) for _ in range(2))
        self.mixer, self.feed_forward = mixer, feed_forward

    def forward(self, x, delta, ops, B, cos, sin, drop):
        y, x = ops.add_norm(x, delta, self.norms[0])
        y, x = ops.add_norm(x, drop(self.mixer(y, ops, B, cos, sin)), self.norms[1])
        delta, terms = self.feed_forward(y, ops)
        return x, drop(delta), terms


# The embedding is also the matrix of the last product, so that the vocabulary is paid for once. Looking up its rows is
# left to PyTorch in both.
#
# Dropout needs a different seed for each place where it is applied and for each step. The seeds are computed on the
# device, from the number of the step, so that nothing waits for them and a recorded step can be replayed with another
# number.
class GPT(torch.nn.Module):
    def __init__(self, config, operations, dtype=torch.float32):
        super().__init__()
        self.config, self.operations, self.dtype = config, operations, dtype
        self.embedding = weights(config.vocabulary, config.width)
        self.blocks = torch.nn.ModuleList(config.block(layer) for layer in range(config.layers))
        self.norm = torch.nn.Parameter(torch.ones(config.width))
        pairs = config.width // config.heads // 2
        angles = torch.arange(config.context)[:, None] / 10000 ** (torch.arange(pairs) / pairs)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, labels, step=0):
        """The loss. tokens, labels: (B, T) int64; step: an int or a 0-d int64 tensor on their device."""
        first, *terms = self.losses(tokens, labels, step)
        return sum(terms, first)

    def losses(self, tokens, labels, step=0):
        """Its terms: the mean cross entropy, and what blocks add to it."""
        y, terms = self.outputs(tokens, self.operations, step)
        return [self.operations.loss(y, self.embedding, labels.flatten()), *terms]

    # [Writing](generate.py) needs the model without its loss, for tokens that don't begin at position 0.
    def outputs(self, tokens, ops, step=0, positions=None):
        """What the last product takes, (B·T, width), and what blocks add to the loss. positions: (B, T); 0 to T − 1."""
        (B, T), p = tokens.shape, self.config.p
        places = 2 * len(self.blocks) + 1
        seeds = iter((torch.arange(places, device=tokens.device) + places * step).unbind())
        cos, sin = (x[:T] if positions is None else x[positions] for x in (self.cos, self.sin))

        def drop(x):
            return ops.drop(x, p, next(seeds)) if self.training and p else x

        x = self.embed(tokens.flatten()).to(self.dtype)
        delta = torch.zeros_like(x)
        x, terms = drop(x), []
        for block in self.blocks:
            x, delta, more = block(x, delta, ops, B, cos, sin, drop)
            terms += more
        y, _ = ops.add_norm(x, delta, self.norm)
        return y, terms

    def embed(self, tokens):
        return F.embedding(tokens, self.embedding)


# Both models start from the same weights: with different ones their losses couldn't be compared.
def pair(config, dtype=torch.float32, seed=0, plain=PLAIN, kernels=OURS):
    """Ours and the plain model on the device, with the same weights."""
    torch.manual_seed(seed)
    ours, theirs = GPT(config, kernels, dtype), GPT(config, plain, dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours.to(device.DEVICE), theirs.to(device.DEVICE)


# ## The text
#
# What this repository has to say: its pages, its derivations and its kernels. A token is a byte, or in the large model
# a pair of bytes, which makes a vocabulary of 65536 without a tokenizer. A window may begin at any byte.
#
# It is read once: all runs of a process have the same text, also if somebody saves a page meanwhile.
@functools.cache
def text():
    folders = ("docs", "backprop_math", "annotated_examples")
    files = [path for folder in folders for path in (script.ROOT / folder).rglob("*") if path.suffix in (".md", ".py")]
    return b"\n".join(path.read_bytes() for path in sorted(files))


def batches(config, B, seed=0):
    """(tokens, labels) without end, (B, context) int64 on the device. A label is the token that comes next."""
    data, per = torch.frombuffer(bytearray(text()), dtype=torch.uint8), config.token_bytes
    length, generator = per * (config.context + 1), torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - length + 1, (B, 1), generator=generator)
        digits = data[starts + torch.arange(length)].view(B, -1, per).long()
        tokens = (digits * 256 ** torch.arange(per)).sum(-1).to(device.DEVICE)
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


# ## Training
#
# `capturable`: the optimizer counts its steps on the device, so that a whole step can be recorded as a CUDA graph.
def adamw(model, lr):
    options = dict(betas=(0.9, 0.95), weight_decay=0.1, fused=True, capturable=not device.INTERPRET)
    return torch.optim.AdamW(model.parameters(), lr=lr, **options)


def training(model, data, steps, lr=3e-3, optimizer=adamw):
    """Trains, and gives the loss of each step as it comes, a tensor. optimizer: (model, lr) -> used as PyTorch's."""
    optimizer = optimizer(model, lr)
    for step, (tokens, labels) in zip(range(steps), data):
        loss = model(tokens, labels, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


def train(*arguments, **options):
    """The loss of each step of `training`, as numbers."""
    return torch.stack(list(training(*arguments, **options))).tolist()


# Two models that train side by side say after each step how far they are.
def side_by_side(models, steps, B=2, optimizers=(adamw, adamw)):
    """Prints the losses of ours and the plain model, step by step; the largest difference."""
    of = lambda model, optimizer: training(model, batches(model.config, B), steps, optimizer=optimizer)  # noqa: E731
    apart, runs = 0.0, map(of, models, optimizers)
    for step, pair_of_losses in enumerate(zip(*runs)):
        mine, theirs = (loss.item() for loss in pair_of_losses)
        print(f"step {step:3}: ours {mine:.5f}, PyTorch {theirs:.5f}", flush=True)
        apart = max(apart, abs(mine - theirs))
    return apart


# As a script it trains the small model twice. Here the plain one drops the same elements, by our reference for dropout,
# so that the losses can be compared number by number.
if __name__ == "__main__":
    import dataclasses

    steps = script.arguments(__doc__, steps=dict(type=int, default=30)).steps
    models = pair(SMALL, plain=dataclasses.replace(PLAIN, drop=lambda *x: dropout_reference(*x)))
    sys.exit(side_by_side(models, steps) > 1e-3)
