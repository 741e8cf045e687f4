r"""
# The GPT with other parts: experts, eight bits, latents, a state, streams

[The GPT of these kernels](gpt.py) is built as models were in 2023. Today's models replace some of its parts. Here each
replacement is one word of the configuration:

| option | what is replaced | by |
|---|---|---|
| `feed_forward="experts"` | the gated unit | [a router](../moe/router.py) and [experts](../fast/moe_mlp.py) |
| `linear="row"`, or another recipe | the products of all layers | [those in eight bits](../fp8/linear.py) |
| `mixer="latent"` | the keys and values of heads | [one latent vector for all heads](../attention/mla.py) |
| `mixer="hybrid"` | attention, in three layers of four | [the gated delta rule](../fast/gated_delta_rule.py) |
| `mixer="kda"` | the same | [Kimi delta attention](../recurrences/kda.py) |
| `streams=4` | the stream that every layer adds to | [four of them, which are mixed](../model/hyper_connections.py) |

Everything else is the same: the text, the optimizer, the number of tokens in a step. So does it still learn as well,
and what does it cost? Each form is trained for the same steps as the first one, from the same seeds:

[[training: capstone_options]]

The losses are cross entropies, also where training adds other terms. `python benchmarks/capstone_options.py` measures
all forms, `--only experts` one of them beside the plain form. A form that the table doesn't have hasn't been on a card
yet; how the small model learns with it is on [the next page](optimizers.py).

**Experts.** The model has [[bench: capstone_options/experts/parameters]] million weights in place of
[[bench: capstone_options/dense/parameters]], but a token meets only as many as before: of eight experts, each half as
wide as the gated unit, it goes through two. A router begins as a random matrix, and sends some experts more than
others. The first additional term of the loss works against that, and the second keeps the logits small. Each block
hands both to the model, which adds them up. At the end of a run the first term, which is 1 where all experts get
the same and 4 where two get everything, is [[bench: capstone_options/experts/balance]]. (On the H200 this form was
measured with [the lesson's layer](../moe/moe_mlp.py), on the H100 with the fast one.)

**Eight bits.** The weights stay in float32, and so do their gradients. What is quantized are the operands of the
products, each time anew. The router and the last product, which makes the logits, aren't: there a small error decides
between two tokens or two experts. With experts, theirs are computed in bfloat16, too, so eight bits are left for
attention's products. In this model they have few operations for each number that has to be quantized: the weights are
1152 x 768 and 768 x 768, and the recipes were made for far wider ones.

**Latents.** A layer of attention keeps 2 x 64 numbers of each head of keys, with three of them 384 a token. Latents are
256, and 64 more for the positions. That is little less. Large models have 128 heads, and there one vector for all of
them is what saves. In training it costs more, not less: one more product, which makes a key and a value for each of the
12 heads; scores of 128 numbers in place of 64, since queries and keys have a part for positions; and 1856 rows of the
first product in place of 1152. The additional product is dropped when the model [writes](generate.py), and the cache
holds the latents themselves.

**A state.** Attention keeps every key and value that it has seen. A recurrent layer has one matrix for each head, which
doesn't grow, so a long text costs as much for each token as a short one. What such a matrix can't do is look up one
token among thousands, and that is what every fourth layer is for. At 1024 tokens attention has little to do, and a step
takes [[bench: capstone_options/hybrid/step]] with states in place of [[bench: capstone_options/dense/step]]. What the
page shows is whether it learns as well. In the gated delta rule a head forgets all channels of a key at one speed, in
Kimi's each at its own. That takes a gate for each of the 64 channels of each of the 12 heads, also where heads share a
key, and another row of the projection for each gate.

**Streams.** Every layer reads the same sum, of everything that was added before it. With four streams it reads a
weighted sum of them, adds to each another share of what it makes of that, and mixes them. At the start it reads a
quarter of each, all shares are 1, and the mixture keeps each stream nearly as it is. So the model begins as the one
with a single stream, and learns to use four. A layer reads four times as many bytes of them, and does one more product,
a thin one of 24 columns. A step takes [[bench: capstone_options/streams/step]], and
[[bench: capstone_options/streams/memory]] in place of [[bench: capstone_options/dense/memory]].
"""

from academy.runtime import checks, script  # missing? Run make in the clone, then .venv/bin/python

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from annotated_examples.attention.mla import mla_attention, mla_attention_reference
from annotated_examples.capstone import gpt
from annotated_examples.classics.dropout import dropout_reference
from annotated_examples.classics.swiglu import swiglu, swiglu_reference
from annotated_examples.fast.gated_delta_rule import gated_delta_rule
from annotated_examples.fast.moe_mlp import moe_mlp
from annotated_examples.fp8.linear import RECIPES, float8_linear, float8_linear_reference
from annotated_examples.model.hyper_connections import (
    collapse_streams, collapse_streams_reference, expand_streams, expand_streams_reference,
)  # fmt: skip
from annotated_examples.model.stream_coefficients import stream_coefficients, stream_coefficients_reference
from annotated_examples.moe.moe_mlp import moe_mlp_reference
from annotated_examples.moe.router import (
    load_balancing_loss,
    load_balancing_loss_reference,
    route,
    route_reference,
    router_z_loss,
    router_z_loss_reference,
)
from annotated_examples.recurrences.causal_conv1d import causal_conv1d, causal_conv1d_reference
from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule_reference
from annotated_examples.recurrences.kda import kda, kda_reference
from annotated_examples.recurrences.l2_normalize import l2_normalize, l2_normalize_reference


# ## Operations
#
# Those of the GPT, and what the options need.
@dataclass(frozen=True)
class Operations(gpt.Operations):
    """`experts` is (tokens, k), the matrices of experts (E, 2N, width) and (E, width, N). For a state, `q` and `k` are
    (B, T, Hk, D), `v` (B, T, H, D), `beta` and `g` (B, T, H), but (B, T, H, D) if each channel has a gate. With
    latents, `q` and `q_pe` are (B, H, T, D), `c` (B, T, rank), `k_pe` (B, T, D), `up` (H, 2D, rank). Streams are
    `x`, (tokens, streams, width)."""

    quantized: Callable  # (x, weight, recipe) -> x Wᵀ of operands in eight bits
    route: Callable  # (logits, k) -> weights, experts
    balance: Callable  # (logits, experts) -> 1 if all experts get the same, at most E
    z: Callable  # (logits) -> mean of the squared log-sum-exp
    experts: Callable  # (x, experts, weights, gate_up, down) -> each token's experts, weighted and added up
    convolve: Callable  # (x, filters) -> silu of a causal convolution of each channel
    unit: Callable  # (x) -> x / its length
    recur: Callable  # (q, k, v, g, beta) -> what a state that decays and corrects itself gives for each token
    recur_by_channel: Callable  # the same, and each row of the state decays by itself
    gate_by: Callable  # (gate, x) -> silu(gate) · x
    coefficients: Callable  # (x, phi, alpha, bias) -> how much is read of each stream, written to each, and the mixture
    collapse: Callable  # (x, pre) -> (tokens, width): the streams' sum, each times what is read of it
    expand: Callable  # (x, y, res, post) -> the streams, mixed, and y times what is written to each
    attend_latents: Callable  # (q, q_pe, c, k_pe, up, linear) -> attention to what `up` makes of latents, (B, H, T, D)


# A product makes a head's key and value of each latent. Both are halves of what it returns, and stay where they lie.
def decompressed(attention):
    def attend(q, q_pe, c, k_pe, up, linear):
        both = linear(c.flatten(0, 1), up.flatten(0, 1)).view(*c.shape[:2], *up.shape[:2]).transpose(1, 2)
        k, v = both.chunk(2, dim=3)
        return attention(q, q_pe, k, k_pe, v)

    return attend


OURS = Operations(
    **vars(gpt.OURS),
    quantized=lambda x, weight, recipe: float8_linear(x, weight.to(x.dtype), recipe=recipe),
    route=route,
    balance=load_balancing_loss,
    z=router_z_loss,
    experts=moe_mlp,
    convolve=lambda x, filters: causal_conv1d(x, filters.to(x.dtype), activation="silu"),
    unit=l2_normalize,
    recur=gated_delta_rule,
    recur_by_channel=kda,
    gate_by=swiglu,
    coefficients=lambda x, phi, *others: stream_coefficients(x, phi.to(x.dtype), *others),
    collapse=collapse_streams,
    expand=expand_streams,
    attend_latents=decompressed(mla_attention),
)

# The same in PyTorch. It is what ours are compared with, and was not written to be fast.
PLAIN = Operations(
    **vars(gpt.PLAIN),
    quantized=lambda x, weight, recipe: float8_linear_reference(x, weight.to(x.dtype), recipe=recipe),
    route=route_reference,
    balance=load_balancing_loss_reference,
    z=router_z_loss_reference,
    experts=moe_mlp_reference,
    convolve=lambda x, filters: causal_conv1d_reference(x, filters.to(x.dtype), activation="silu"),
    unit=l2_normalize_reference,
    recur=gated_delta_rule_reference,
    recur_by_channel=kda_reference,
    gate_by=swiglu_reference,
    coefficients=lambda x, phi, *others: stream_coefficients_reference(x, phi.to(x.dtype), *others),
    collapse=collapse_streams_reference,
    expand=expand_streams_reference,
    attend_latents=decompressed(mla_attention_reference),
)


# ## Experts in place of the gated unit
#
# Logits are computed in float32, from the router's float32 weights: rounded to bfloat16, they would send some tokens
# elsewhere. That product has eight columns, and is left to PyTorch in both.
class Experts(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        c, inner = config, config.hidden // config.top_k
        self.config = config
        self.router = gpt.weights(c.experts, c.width)
        self.gate_up = gpt.weights(c.experts, 2 * inner, c.width)
        self.down = gpt.weights(c.experts, c.width, inner, std=gpt.into_stream(c))

    def forward(self, y, ops):
        c = self.config
        logits = F.linear(y.to(self.router.dtype), self.router)
        weights, experts = ops.route(logits, c.top_k)
        result = ops.experts(y, experts, weights, self.gate_up.to(y.dtype), self.down.to(y.dtype))
        return result, (c.balance * ops.balance(logits, experts), c.z * ops.z(logits))


# ## A state in place of attention
#
# The layer of Qwen3-Next. One product makes queries, keys and values, a gate for the result, and two numbers for each
# head. A short convolution lets queries, keys and values of neighbours mix, since the state alone knows no positions.
# Keys have length 1, without which the state could grow. Then `beta` says how much of a token is written, and `g`, the
# logarithm of a decay, how much of the state remains. Both are few numbers, and computed in float32. There are as many
# values as the model is wide, and fewer keys, as in attention.
#
# Kimi's layer has a decay for each channel of a head, so `a` is as wide as the model. (In Kimi Linear two narrow
# products make it. The rest of the layer is left as it is here, so that the gates are all that differs.)
class Recurrence(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        c, self.head = config, config.width // config.heads
        self.config, keys = c, c.key_heads * self.head
        self.decays = (c.heads, self.head) if c.mixer == "kda" else (c.heads,)
        self.parts = [2 * keys + c.width, c.width, c.heads, math.prod(self.decays)]
        self.project = gpt.weights(sum(self.parts), c.width)
        self.filters = gpt.weights(self.parts[0], 4, std=0.3)
        # A head forgets at its own rate: at first `rate · step` is between 0.001 and 1.6 for each token.
        step = torch.exp(torch.empty(self.decays).uniform_(math.log(0.001), math.log(0.1)))
        rate = torch.empty(c.heads, *[1] * (len(self.decays) - 1)).uniform_(1, 16)
        self.log_rate = torch.nn.Parameter(rate.log())
        self.step = torch.nn.Parameter(step.expm1().log())  # the inverse of softplus
        self.norm = torch.nn.Parameter(torch.ones(self.head))
        self.out = gpt.weights(c.width, c.width, std=gpt.into_stream(c))

    def forward(self, y, ops, B, cos, sin):
        c = self.config
        mixed, gate, b, a = ops.linear(y, self.project).split(self.parts, dim=1)
        mixed = ops.convolve(mixed.view(B, len(y) // B, -1), self.filters)
        heads = mixed.unflatten(2, (-1, self.head))
        q, k, v = heads.split([c.key_heads, c.key_heads, c.heads], dim=2)
        b, a = (x.to(self.step.dtype).view(B, -1, *sizes) for x, sizes in ((b, (c.heads,)), (a, self.decays)))
        g = -self.log_rate.exp() * F.softplus(a + self.step)
        recur = ops.recur_by_channel if c.mixer == "kda" else ops.recur
        o = recur(ops.unit(q), ops.unit(k), v, g, b.sigmoid())
        o = ops.norm(o.reshape(-1, self.head), self.norm).view(len(y), c.width)
        return ops.linear(ops.gate_by(gate, o), self.out)


# ## Latents in place of keys and values
#
# One product makes the queries, in two parts each, the latent, and the part of the keys that positions turn. As in
# DeepSeek's models the latent is normalised, or it would be as large as it likes. `up` has the matrix of each head's
# keys above that of its values.
class LatentAttention(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        c, self.head = config, config.width // config.heads
        self.config, self.parts = c, [c.width, c.width, c.rank, self.head]
        self.project = gpt.weights(sum(self.parts), c.width)
        self.norm = torch.nn.Parameter(torch.ones(c.rank))
        self.up = gpt.weights(2 * c.width, c.rank)
        self.out = gpt.weights(c.width, c.width, std=gpt.into_stream(c))

    def forward(self, y, ops, B, cos, sin):
        c = self.config
        q, q_pe, latents, k_pe = ops.linear(y, self.project).split(self.parts, dim=1)
        q, q_pe, k_pe = (x.view(B, len(y) // B, -1, self.head).transpose(1, 2) for x in (q, q_pe, k_pe))
        q_pe, k_pe = ops.rotate(q_pe, k_pe, cos, sin)
        latents, up = ops.norm(latents, self.norm).view(B, -1, c.rank), self.up.view(c.heads, -1, c.rank)
        o = ops.attend_latents(q, q_pe, latents, k_pe[:, 0], up, ops.linear)
        return ops.linear(o.transpose(1, 2).reshape(len(y), c.width), self.out)


# ## Eight bits in place of the products
#
# A block has four products, or with experts two; latents make it one more. It passes another `linear` on to its parts.
class Block(gpt.Block):
    def __init__(self, config, mixer, feed_forward):
        super().__init__(config, mixer, feed_forward)
        self.recipe = config.linear

    def operations(self, ops):
        if self.recipe == "unquantized":
            return ops
        return dataclasses.replace(ops, linear=lambda x, weight: ops.quantized(x, weight, self.recipe))

    def forward(self, x, delta, ops, *others):
        return super().forward(x, delta, self.operations(ops), *others)


# ## Streams in place of one
#
# What a part reads, writes and mixes depends on the token: on a product of its streams with `phi`. `alpha` is how much
# that counts, and begins small, so at first the bias decides: each stream is read as one over their number, a layer is
# written to all of them once, and of the mixture's logits the diagonal is `STAY`, which with four streams keeps 99 % of
# each.
STAY = 6.0


class Streams(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        n = config.streams
        self.phi = gpt.weights(2 * n + n * n, n * config.width)
        self.alpha = torch.nn.Parameter(torch.full((3,), 0.01))
        bias = [torch.full((n,), -math.log(n - 1)), torch.zeros(n), (STAY * torch.eye(n)).flatten()]
        self.bias = torch.nn.Parameter(torch.cat(bias))


# The first block makes the streams, all alike, and the last one makes one of them, their mean. Between blocks nothing
# waits to be added, so `delta` stays zero.
class StreamBlock(Block):
    def __init__(self, config, mixer, feed_forward, last):
        super().__init__(config, mixer, feed_forward)
        self.count, self.last = config.streams, last
        self.streams = torch.nn.ModuleList(Streams(config) for _ in range(2))

    def forward(self, x, delta, ops, B, cos, sin, drop):
        ops, found = self.operations(ops), []
        x = x[:, None].expand(-1, self.count, -1) if x.dim() == 2 else x
        parts = (lambda y: (self.mixer(y, ops, B, cos, sin), ()), lambda y: self.feed_forward(y, ops))
        for part, streams, norm in zip(parts, self.streams, self.norms):
            pre, post, res = ops.coefficients(x, streams.phi, streams.alpha, streams.bias)
            y, terms = part(ops.norm(ops.collapse(x, pre), norm))
            x = ops.expand(x, drop(y), res, post)
            found += terms
        return x.mean(1) if self.last else x, delta, found


# ## The configuration
MIXERS = {"attention": gpt.Attention, "latent": LatentAttention, "hybrid": Recurrence, "kda": Recurrence}


@dataclass(frozen=True)
class Config(gpt.Config):
    """A GPT's configuration and its options; ValueError for one that doesn't exist.

    Attributes:
        feed_forward: "dense" or "experts".
        linear: "unquantized", or the recipe of `float8_linear`.
        mixer: "attention", or "latent"; or with a state in three layers of four: "hybrid", or with a gate for each
            channel "kda".
        rank: how many numbers a latent has.
        streams: that layers read and add to, up to 8.
        experts, top_k: how many experts there are, and through how many a token goes. Each is `hidden // top_k` wide.
        balance, z: what the two losses of a router are multiplied with, in each layer.
    """

    feed_forward: str = "dense"
    linear: str = "unquantized"
    mixer: str = "attention"
    rank: int = 16
    streams: int = 1
    experts: int = 8
    top_k: int = 2
    balance: float = 0.01
    z: float = 0.001

    def __post_init__(self):
        checks.choice("feed_forward", self.feed_forward, ("dense", "experts"))
        checks.choice("linear", self.linear, ("unquantized", *RECIPES))
        checks.choice("mixer", self.mixer, tuple(MIXERS))
        checks.whole_number("rank", self.rank, at_least=1, at_most=512)
        checks.whole_number("streams", self.streams, at_least=1, at_most=8)
        checks.whole_number("top_k", self.top_k, at_least=1, at_most=self.experts)
        if self.hidden % self.top_k:
            raise ValueError(f"hidden must be a multiple of top_k, {self.top_k}, got {self.hidden}")

    def block(self, layer):
        mixer = MIXERS[self.mixer]
        mixer = gpt.Attention if mixer is Recurrence and layer % 4 == 3 else mixer
        parts = mixer(self), Experts(self) if self.feed_forward == "experts" else gpt.GatedUnit(self)
        return Block(self, *parts) if self.streams == 1 else StreamBlock(self, *parts, layer + 1 == self.layers)


SMALL = Config()
GPT_124M = Config(**vars(gpt.GPT_124M), rank=256)


# As a script it trains a small model of one form twice, with our operations and with PyTorch's. Here both drop the same
# elements. In eight bits the two drift apart after some steps: where a number lies between two codes, the last bit of
# float32 decides.
if __name__ == "__main__":
    options = {name: dict(default=getattr(SMALL, name)) for name in ("feed_forward", "linear", "mixer")}
    asked = script.arguments(__doc__, steps=dict(type=int, default=10), **options)
    config = dataclasses.replace(SMALL, **{name: getattr(asked, name) for name in options})
    plain = dataclasses.replace(PLAIN, drop=lambda *x: dropout_reference(*x))
    gpt.side_by_side(gpt.pair(config, plain=plain, kernels=OURS), asked.steps)
