r"""
# The GPT writes: a cache in pages, a token at a time

[The GPT](gpt.py) has been trained; now it continues a text. It takes its own last token, and gives a probability for
each that may come next. One is [drawn](../sampling/sample.py), and so on. What a token needs of the earlier ones are
their keys and values, in each layer. They never change, so they are kept. The work has two phases:

| phase | tokens at a time | attention | what it costs |
|---|---|---|---|
| prefill | a whole prompt | [as in training](../fast/flash_attention.py) | operations, as in training |
| decode | one of each sequence | [over the cache](../fast/decode.py) | bytes: all weights and the cache |

The model is the same in both, down to the code. Of its operations three are exchanged: products (see below), dropout,
which drops nothing, and `attend`. That also keeps keys and values, and when it decodes, it attends to what was kept.
The form with `mixer="latent"` keeps [a latent](../attention/mla.py)
and reads [that](../attention/mla_decode.py). Keys and values may also be kept [in eight or four
bits](../attention/quantized_cache.py), whose [codes are read as they are](../fast/quantized_decode.py).

    python annotated_examples/capstone/generate.py --prompt "# A" --prompt "The kernel " --mixer latent
    python annotated_examples/capstone/generate.py --bits 4

The script trains the small model for 60 steps, writes, and says how many tokens that is a second. With 125 million
parameters on a card, prompts of 512 tokens and 128 new ones:

[[experiment: capstone_generate]]

What decoding costs here are launches from Python. For a token of each of 64 texts the card reads 0.25 GB of weights and
up to 0.38 GB of caches, which would take it a hundredth of the time. So eight texts take little longer than one, few
bits save this small model room and no time, and latents, which need a launch for each head (see below), are slowest.

**Pages.** How long will a text become? Nobody knows beforehand, and the longest one decides how much room each of them
gets if a cache is one tensor for all. So a cache is a pool of pages of a few tokens. A sequence takes another page when
its last one is full, wherever that lies, and a table says which ones it has. All that is lost is what a text leaves
empty of its last page. The script prints what both ways take.

**The same text, alone or in company.** Which other texts are written at the same time must not change a text. It isn't
enough that a kernel gives the same bits twice: in another batch the *shapes* differ, and whatever looks at the number
of rows may then add in [another order](../../docs/guides/numerics.md#the-same-row-in-another-batch). Then two logits
that are nearly equal change places, one token is another one, and everything after it. What this file does about it:

| where rows matter | here |
|---|---|
| products choose their tiles by the number of rows | `TILES`, whatever that number is |
| decoding cuts a cache into more parts if there are few sequences | always `PARTS` |
| `absorb` and `expand` are products of PyTorch, which promise nothing | our product, a launch for each head |
| prompts of different lengths, padded to the longest | each prompt alone |
| random numbers are drawn by the row | each sequence alone, with a seed of its own and of the token's place |

Norms, rotations, the gate of the unit and codes with a step for each token look at their own row only. So a text has
the same bits of each logit alone, in any company, and in pages or not. The price is said in the last column: more
launches, and tiles that fit few rows in the prefill of many. It doesn't hold for experts, whose product is tuned for
the rows that each expert gets, nor for products in eight bits: [past 64 rows](../fast/scaled_matmul.py) another kernel
makes them, and with `linear="tensor"` one scale is that of the whole batch. Keys with [a step for each
channel](../attention/quantized_cache.py) aren't kept here: there a token's codes depend on its neighbours in the page,
and so on the size of pages. And it doesn't hold between the two phases. A token's logits in the prefill and those of
the same token, decoded, differ by rounding.

**With few bits it is another text.** A prompt is attended to with its keys and values as they are, and written as codes
meanwhile. From the first token that is decoded on, everything is read from codes. One token that differs changes all
that follow, so differences are counted along a text that is given, the one that the cache without codes has led to: at
how many of its places would the same token have been drawn? The script says it, and so does what is measured above.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import dataclasses
import sys
import time
from dataclasses import dataclass

import torch

from annotated_examples.attention.mla_decode import mla_decode
from annotated_examples.attention.quantized_cache import append_
from annotated_examples.capstone import gpt, options
from annotated_examples.fast.decode import decode_attention
from annotated_examples.fast.matmul import matmul_forward
from annotated_examples.fast.quantized_decode import decode_quantized
from annotated_examples.sampling.sample import sample

# ## What doesn't depend on the number of rows
#
# The tiles are for few rows. Decoding reads all weights for a token of each sequence, so it is as fast as they arrive,
# and tiles of 16 rows leave shared memory to them.
TILES = dict(BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3)
PARTS = 4


def product(x, weight):
    return matmul_forward(x, weight.to(x.dtype).T, **TILES)


# (B, H, K) and (H, N, K): a product for each head, (B, H, N).
def product_by_head(x, weight):
    return torch.stack([product(x[:, head], weight[head]) for head in range(len(weight))], dim=1)


# ## What a layer keeps
#
# Rows of numbers for each token, in pages of a pool. A *slot* counts tokens through all pages: page 3 of 16 tokens
# begins with slot 48. A kind of layer says which rows those are, `parts`, and how to attend to them. The table `KEPT`
# has them all, by mixer and bits.
class Layer:
    def __init__(self, config, pages, page_size, dtype):
        self.rows = [
            torch.empty(pages, page_size, *shape, dtype=kind, device=device.DEVICE)
            for shape, kind in self.parts(config, dtype)
        ]

    def keep(self, slots, *rows):
        for pages, new in zip(self.rows, rows):
            pages.flatten(0, 1)[slots] = new.flatten(0, 1).to(pages.dtype)

    def bytes(self):
        return sum(pages.nbytes for pages in self.rows)


# Keys and values of the heads that groups of query heads share. A prompt is attended to as in training; its last token
# sees all others, and nothing is read back.
class Heads(Layer):
    decode = staticmethod(decode_attention)

    def parts(self, config, dtype):
        return [((config.key_heads, config.width // config.heads), dtype)] * 2

    def attend(self, ops, at, q, k, v):
        self.keep(at.slots, k.transpose(1, 2), v.transpose(1, 2))
        if at.prompt:
            return ops.attend(q, k, v)
        return self.decode(q[:, :, 0], *self.rows, at.lengths, block_table=at.table, num_splits=PARTS)[:, :, None]


# The same as codes, and a step for each row of them. With four bits there is the lowest value, too, and two codes share
# a byte.
class EightBits(Heads):
    bits, kind, decode = 8, torch.int8, staticmethod(decode_quantized)

    def parts(self, config, dtype):
        heads, D = config.key_heads, config.width // config.heads
        return [((heads, D * self.bits // 8), self.kind)] * 2 + [((heads, 8 // self.bits), torch.float32)] * 2

    def keep(self, slots, *rows):
        for codes, steps, new in zip(self.rows[:2], self.rows[2:], rows):
            append_(codes, steps, new.flatten(0, 1), slots)


class FourBits(EightBits):
    bits, kind = 4, torch.uint8


# Latents, and behind each of them the part of the key that was turned. The scale is that of the keys which the latents
# stand for.
class Latents(Layer):
    def parts(self, config, dtype):
        return [((config.rank + config.width // config.heads,), dtype)]

    def attend(self, ops, at, q, q_pe, c, k_pe, up, linear):
        self.keep(at.slots, torch.cat([c, k_pe], dim=2))
        if at.prompt:
            return ops.attend_latents(q, q_pe, c, k_pe, up, linear)
        (w_uk, w_uv), rank = up.to(q.dtype).chunk(2, dim=1), c.shape[2]
        absorbed = torch.cat([product_by_head(q[:, :, 0], w_uk.mT), q_pe[:, :, 0]], dim=2)
        scale = (q.shape[3] + q_pe.shape[3]) ** -0.5
        how = dict(rank=rank, scale=scale, block_table=at.table, num_splits=PARTS)
        return product_by_head(mla_decode(absorbed, *self.rows, at.lengths, **how), w_uv)[:, :, None]


KEPT = {
    ("attention", None): Heads, ("attention", 8): EightBits, ("attention", 4): FourBits, ("latent", None): Latents,
}  # fmt: skip
MIXERS = tuple(dict.fromkeys(mixer for mixer, _ in KEPT))
BITS = tuple(dict.fromkeys(bits for _, bits in KEPT))


# ## The cache
#
# The pool has as many pages as the sequences will need, each for itself. They come in turns, so a sequence's pages lie
# among those of the others. Without pages there is one for each sequence, as long as the longest.
#
# [[figure: training/pages]]
#
# The table and the lengths are kept on the host, which decides about pages, and copied to the card in each pass.
@dataclass(frozen=True)
class Pass:
    """Tokens that go through the model together. prompt: a whole one of one sequence; or a token of each."""

    prompt: bool
    positions: torch.Tensor  # (B, T)
    slots: torch.Tensor  # (B·T,)
    lengths: torch.Tensor  # (B,) int32, these tokens counted
    table: torch.Tensor | None  # (B, pages) int32


class Cache:
    def __init__(self, model, longest, page_size=None, bits=None):
        """longest: how many tokens each sequence will have. page_size: in tokens; None: no pages. bits: of a number;
        None: the model's dtype."""
        self.paged, self.page_size = page_size is not None, page_size or max(longest)
        pages = [-(-length // self.page_size) for length in longest]
        self.lengths, self.free = [0] * len(longest), list(range(sum(pages)))
        self.table = torch.full((len(longest), max(pages)), -1, dtype=torch.int32)
        kind = KEPT[mixer_of(model), bits]
        self.layers = [kind(model.config, sum(pages), self.page_size, model.dtype) for _ in model.blocks]

    def bytes(self):
        return sum(layer.bytes() for layer in self.layers)

    # Without pages sequence b has page b: the first one that it asks for is that one, if prompts come in order.
    def extend(self, sequence, count):
        """The positions of the next tokens of a sequence, and their slots."""
        positions = torch.arange(self.lengths[sequence], self.lengths[sequence] + count)
        for page in (positions // self.page_size).unique().tolist():
            if self.table[sequence, page] < 0:
                self.table[sequence, page] = self.free.pop(0)
        self.lengths[sequence] += count
        pages = self.table[sequence, positions // self.page_size].long()
        return positions, pages * self.page_size + positions % self.page_size

    def next(self, sequences, count, prompt):
        positions, slots = map(torch.stack, zip(*[self.extend(sequence, count) for sequence in sequences]))
        lengths = torch.tensor([self.lengths[sequence] for sequence in sequences], dtype=torch.int32)
        table = self.table[list(sequences)] if self.paged else None
        there = [x if x is None else x.to(device.DEVICE) for x in (positions, slots.flatten(), lengths, table)]
        return Pass(prompt, *there)


# ## One pass through the model
#
# The model's own code, with other operations. Each block attends once, so the layers of the cache take turns. Of a
# prompt only the last token's logits are wanted.
def logits_after(model, cache, sequences, tokens, prompt):
    """tokens: (B, T), the next ones of these sequences. (B, vocabulary), after the last of them."""
    at, layers, ops = cache.next(sequences, tokens.shape[1], prompt), iter(cache.layers), model.operations
    attend = lambda *parts: next(layers).attend(ops, at, *parts)  # noqa: E731
    changed = {name: attend for name in ("attend", "attend_latents") if hasattr(ops, name)}
    changed |= dict(linear=product, drop=lambda x, p, seed: x)
    y, _ = model.outputs(tokens, dataclasses.replace(ops, **changed), positions=at.positions)
    return product(y.view(*tokens.shape, -1)[:, -1], model.embedding)


# ## Writing
@dataclass(frozen=True)
class Options:
    """What is asked for.

    Attributes:
        tokens: how many are added to each prompt.
        page_size: of the cache, in tokens; None: no pages.
        temperature: what logits are divided by; 0: always the likeliest token.
        top_k, top_p: as `sample` takes them.
        bits: of each number of the cache, 8 or 4; None: the model's dtype.
    """

    tokens: int = 32
    page_size: int | None = 16
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    bits: int | None = None

    def check(self, model, prompts, seeds):
        """ValueError or TypeError, naming what doesn't fit."""
        checks.choice("mixer", mixer_of(model), MIXERS)
        checks.choice("bits", self.bits, [bits for mixer, bits in KEPT if mixer == mixer_of(model)])
        checks.whole_number("tokens", self.tokens, at_least=1)
        if self.page_size is not None:
            checks.whole_number("page_size", self.page_size, at_least=1)
        checks.number("temperature", self.temperature, at_least=0)
        if not prompts:
            raise ValueError("prompts must hold at least one prompt, got none")
        for at, prompt in enumerate(prompts):
            checks.tensors(**{f"prompts[{at}]": prompt})
            checks.dtypes((torch.int64,), **{f"prompts[{at}]": prompt})
            checks.dimensions(f"prompts[{at}]", prompt, 1, "tokens")
            most = model.config.context - self.tokens
            if not 1 <= len(prompt) <= most:
                raise ValueError(
                    f"prompts[{at}] must have 1 to {most} tokens, so that {self.tokens} more fit into the model's "
                    f"context of {model.config.context}, got {len(prompt)}"
                )
        if len(seeds) != len(prompts):
            raise ValueError(f"seeds must be one for each of {len(prompts)} prompts, got {len(seeds)}")
        for at, seed in enumerate(seeds):
            checks.whole_number(f"seeds[{at}]", seed, at_least=0, at_most=2**31 - 1)


def mixer_of(model):
    return getattr(model.config, "mixer", "attention")


# The noise of a draw is numbered by the row that it is for. So each sequence is drawn by itself, as row 0, or its text
# would change with its place in the batch.
def draw(logits, lengths, seeds, asked):
    how = dict(temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p)
    return torch.stack([
        sample(row, (seed << 32) + length, **how) for row, length, seed in zip(logits, lengths, seeds)
    ])  # fmt: skip


def generate(model, prompts, asked, seeds=None, along=None):
    """Continues prompts, a token of each at a time. TypeError or ValueError, by name, for an argument that can't be.

    Args:
        model: a GPT on the device; with `mixer` "attention" or "latent".
        prompts: (T,) int64 each, on the device, of any lengths. Each fits into the model's context with what is added.
        asked: `Options`.
        seeds: an int below 2³¹ for each prompt; by default 0, 1, 2, …
        along: (B, tokens) int64, on the device: a text that is followed whatever is drawn.

    Returns:
        An iterator over tensors (B,) int64, the next tokens, as they are drawn. Nothing is computed before they are
        asked for, and it may be left at any place: the model is as it was.
    """
    seeds = list(range(len(prompts))) if seeds is None else seeds
    asked.check(model, prompts, seeds)
    if along is not None:
        checks.tensors(along=along)
        checks.dtypes((torch.int64,), along=along)
        checks.shape("along", along, (len(prompts), asked.tokens), "the tokens of each prompt")
    cache = Cache(model, [len(prompt) + asked.tokens for prompt in prompts], asked.page_size, asked.bits)
    return steps(model, prompts, asked, seeds, along, cache)


@torch.no_grad()
def steps(model, prompts, asked, seeds, along, cache):
    logits = torch.cat([
        logits_after(model, cache, [sequence], prompt[None], True) for sequence, prompt in enumerate(prompts)
    ])  # fmt: skip
    for place in range(asked.tokens):
        new = draw(logits, cache.lengths, seeds, asked)
        yield new
        if place + 1 < asked.tokens:
            taken = new if along is None else along[:, place]
            logits = logits_after(model, cache, range(len(prompts)), taken[:, None], False)


# What few bits change. The first token of each text follows from the prefill, which reads no code.
def agreement(model, prompts, asked, seeds=None):
    """The share of places at which the same token is drawn as without codes, along the text that is written then."""
    text = torch.stack(list(generate(model, prompts, dataclasses.replace(asked, bits=None), seeds)), 1)
    found = torch.stack(list(generate(model, prompts, asked, seeds, text)), 1)
    return (found == text).float().mean().item()


# ## As a script
#
# It trains the small model for a moment, with a longer context, and writes. The tokens are bytes, so there is a text,
# though not a wise one. Then each prompt is continued by itself, and once more without pages: the same bytes, or the
# exit status is 1. The first text appears as it is written. Ctrl-C ends it, and nothing is left behind.
def encoded(text):
    return torch.tensor(list(text.encode()), dtype=torch.int64, device=device.DEVICE)


def shown(tokens):
    return bytes(tokens).decode(errors="replace")


def texts(model, prompts, asked, seeds=None, follow=False):
    """The tokens of each text, and seconds of the prefill and of the rest."""
    begin, found, times = time.perf_counter(), [], []
    for new in generate(model, prompts, asked, seeds):
        found.append(new.tolist())  # waits for the card
        times.append(time.perf_counter() - begin)
        if follow:
            print(shown(found[-1][:1]), end="", flush=True)
    return [list(text) for text in zip(*found)], times[0], times[-1] - times[0]


def main():
    asked = script.arguments(
        __doc__, steps=dict(type=int, default=60), prompt=dict(action="append"), tokens=dict(type=int, default=24),
        mixer=dict(choices=MIXERS, default="attention"), page_size=dict(type=int, default=4),
        bits=dict(type=int, choices=[bits for bits in BITS if bits]),
        temperature=dict(type=float, default=0.7), top_k=dict(type=int), top_p=dict(type=float),
    )  # fmt: skip
    written = asked.prompt or ["# The kernel, step by ", "import", "a"]
    wanted = Options(asked.tokens, asked.page_size, asked.temperature, asked.top_k, asked.top_p, asked.bits)
    model = gpt.pair(dataclasses.replace(options.SMALL, context=64, mixer=asked.mixer), kernels=options.OURS)[0]
    prompts = [encoded(text) for text in written]
    wanted.check(model, prompts, list(range(len(prompts))))  # before the training, not after it
    for step, loss in enumerate(gpt.training(model, gpt.batches(model.config, 4), asked.steps, lr=1e-2)):
        if step % 10 == 9 or step + 1 == asked.steps:
            print(f"step {step + 1:3} of {asked.steps}: loss {loss.item():.3f}", flush=True)

    print(f"\n{written[0]}", end="")
    together, prefill, decode = texts(model, prompts, wanted, follow=True)
    print("\n" + "".join(f"\n{prompt}{shown(text)}\n" for prompt, text in zip(written[1:], together[1:])))
    print(f"prefill: {sum(map(len, prompts)) / prefill:.1f} tokens a second")
    if decode:
        print(f"decode: {len(prompts) * (asked.tokens - 1) / decode:.1f} tokens a second, of {len(prompts)} texts")

    without = dataclasses.replace(wanted, page_size=None)
    longest = [len(prompt) + asked.tokens for prompt in prompts]
    for name, size in (("in pages", asked.page_size), ("without", None)):
        print(f"cache {name}: {Cache(model, longest, size, asked.bits).bytes()} bytes")
    alone = [texts(model, [prompt], wanted, [seed])[0][0] for seed, prompt in enumerate(prompts)]
    same = {"alone": alone == together, "without pages": texts(model, prompts, without)[0] == together}
    for name, equal in same.items():
        print(f"{name}: {'the same tokens' if equal else 'OTHER TOKENS'}")
    if asked.bits:
        share = agreement(model, prompts, wanted)
        print(f"with {asked.bits} bits: {share:.0%} of the tokens as without codes, along that text")
    return not all(same.values())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped")
