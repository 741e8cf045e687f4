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
# # Fewer bytes per token
#
# A model has read a long text, and writes the next word of it. How much of what it has read must it read again? All of
# it: the keys and values of every token so far, in every layer, for every single word. This chapter takes four steps to
# make that less, the ones by which the large models of today are served: fewer heads, a latent, selected keys, fewer
# bits. Of each you count what it saves, run it, measure what it gets wrong, and see where it is of no use.

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
from annotated_examples.attention.decode import decode_attention, decode_attention_reference
from annotated_examples.attention.indexer import indexer_logits
from annotated_examples.attention.mla import mla_attention_reference
from annotated_examples.attention.mla_decode import absorb, expand, mla_decode
from annotated_examples.attention.quantized_cache import append_, quantize_key_pages_
from annotated_examples.attention.quantized_decode import decode_quantized
from annotated_examples.attention.select_keys import select_keys
from annotated_examples.attention.sparse_decode import sparse_decode, to_slots

import torch

torch.manual_seed(0)
print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## What a new token reads
#
# To write a token is called [decoding](../kernels/attention/decode.md). Two things are read for it: the weights, once
# for all texts that are written together, and the **cache** of each text. For each token and layer the cache holds some
# heads. Each head is a pair: one key and one value, usually of 128 numbers each:


# %%
def bytes_of_heads(heads, width=128, bits=16):
    """Of a token in a layer. Few bits come with a step for each row, four with the lowest value, too."""
    return 2 * heads * (width * bits // 8 + {16: 0, 8: 4, 4: 8}[bits])


def bytes_of_latent(rank=512, rotated=64):
    return 2 * (rank + rotated)


def bytes_of_scorer(width=128):
    """A key of the indexer: codes of eight bits, and a scale."""
    return width + 4


MODELS = {  # layers, and bytes of a token in each of them
    "Llama-2-7b-hf": (32, bytes_of_heads(32)),
    "Llama-3.1-70B": (80, bytes_of_heads(8)),
    "Qwen3-235B-A22B": (94, bytes_of_heads(4)),
    "DeepSeek-V3": (61, bytes_of_latent()),
    "DeepSeek-V3.2-Exp": (61, bytes_of_latent() + bytes_of_scorer()),
    "GLM-5": (78, bytes_of_latent() + bytes_of_scorer()),
}

# %% [markdown]
# The numbers are those of each model's `config.json` on Hugging Face (of meta-llama, Qwen, deepseek-ai and zai-org):
# `num_hidden_layers`, `num_key_value_heads` and `head_dim`, or `kv_lora_rank`, `qk_rope_head_dim` and `index_head_dim`,
# with sixteen bits for what isn't the indexer's. What a latent and an indexer are comes below.
#
# **Before you run it:** which takes more memory for a token, the Llama of 7 billion parameters, or the one of 70
# billion?

# %%
print(f"{'':18}{'a layer':>12}{'all layers':>14}{'131,072 tokens':>17}")
for name, (layers, size) in MODELS.items():
    print(f"{name:18}{size:7,} bytes{layers * size:8,} bytes{131072 * layers * size / 2**30:13.1f} GiB")

# %% [markdown]
# The small one. All of its 32 heads have keys and values of their own, while the large one keeps only 8 heads of them;
# its 80 layers don't make up for that. At 131,072 tokens one text would take 68.7 GB (64 GiB), nearly half of a card of
# 141 GB.
#
# When does the cache matter? Reading takes as long as its bytes take to arrive, so compare bytes. Llama 3.1 with 70
# billion parameters has 141 GB of weights in bfloat16:

# %%
WEIGHTS = 2 * 70.6e9
layers, size = MODELS["Llama-3.1-70B"]
for texts, tokens in ((1, 1000), (1, 131072), (64, 1000), (64, 8192), (64, 131072)):
    cache = texts * tokens * layers * size
    print(
        f"{texts:2} texts of {tokens:6} tokens: cache {cache / 1e9:7.1f} GB, {cache / (cache + WEIGHTS):4.0%} of the bytes"
    )

# %% [markdown]
# For one short text the weights are nearly everything, and nothing of what follows would be noticed. With one long text,
# or many short ones, they are still most of it. For the cache to be more it takes texts that are many *and* long. The cache also decides how
# many texts fit on a card, and so among how many the weights are shared.
#
# ## Fewer heads
#
# The first step is to let a *group* of query heads share one head of the cache. The group's queries are rows of one
# tile, so the cache is read once for all of them.
#
# **Before you run it:** 8 heads of queries have 8 heads of the cache, and then they share 2. How much less is read, and
# how many more operations are there for each byte?


# %%
def error(found, exact):
    """Root mean square of the difference, over that of the right numbers."""
    return ((found.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


S, D, DTYPE = 256, 64, torch.bfloat16
q = 2 * torch.randn(1, 8, D, device=device.DEVICE).to(DTYPE)
lengths = torch.tensor([S], dtype=torch.int32, device=device.DEVICE)
for heads in (8, 2):
    k, v = (torch.randn(1, S, heads, D, device=device.DEVICE).to(DTYPE) for _ in "kv")
    exact = decode_attention_reference(q.double(), k.double(), v.double(), lengths)
    off = error(decode_attention(q, k, v, lengths), exact)
    per_byte = 4 * 8 * D * S / (k.nbytes + v.nbytes)
    print(
        f"{heads} heads in the cache: {k.nbytes + v.nbytes:6} bytes, {per_byte:.0f} operations a byte, error {off:.1e}"
    )

# %% [markdown]
# A quarter of the bytes, and four times as many operations for each of them; the number of operations stays the same.
# Are four many? By its data sheet an H200 brings 4.8 · 10¹² bytes a second, and its tensor cores do 989 · 10¹²
# operations in bfloat16. Only they multiply matrices that fast. (Measured here: [[bench: device/copy]] and [[bench:
# device/matrix]].) Everything else, such as turning a code into a number, is done by its ordinary units, at 33.5 · 10¹²
# instructions a second. (The data sheet says 67 · 10¹² operations, because it counts a multiply-add as two.)

# %%
RIDGE = 989e12 / 4.8e12
print(
    f"while a byte arrives: {RIDGE:.0f} operations of the tensor cores, {67e12 / 2 / 4.8e12:.0f} ordinary instructions"
)

# %% [markdown]
# A kernel with fewer operations a byte than the tensor cores do meanwhile waits for memory. That is what is behind all of
# these steps: **decoding leaves the tensor cores idle, so give them work that saves bytes**. Ordinary instructions are
# scarcer.
#
# The error is what bfloat16 leaves of this attention. It depends on the data, so each section below prints it again for
# its own. What is lost by sharing doesn't show in it. A model with fewer heads isn't an approximation to one with more.
# It is another model, and has to be trained as such.
#
# ## One latent for all heads
#
# The second step is to keep neither keys nor values, but one **latent** vector. Each head has two matrices: [one makes
# its key of the latent, the other its value](../kernels/attention/mla.md). Beside the latent a part is kept that is
# rotated by the position.
#
# [[figure: latent/cache]]
#
# Isn't it slow to make all keys again for each new token? They aren't made. A key is a matrix times the latent, and a
# score is the query times the key. So the matrix can be [multiplied to the query](../kernels/attention/mla_decode.md)
# once, and the query meets the latents themselves:
#
# [[eq: MLA-S-absorbed]]
#
# With values it is the same at the other end: the mean is taken of latents, and the matrix is multiplied to that.
#
# **Before you run it:** both programs compute the same function in bfloat16. Is one of them exact?

# %%
H, N, RANK, ROTATED = 8, 32, 64, 16
scale = (N + ROTATED) ** -0.5


def alike(*shape):
    """For each head, and mostly the same for all: heads often look at the same keys."""
    return 0.9 * torch.randn(1, *shape, device=device.DEVICE) + 0.44 * torch.randn(H, *shape, device=device.DEVICE)


latents, k_pe = (torch.randn(1, S, width, device=device.DEVICE).to(DTYPE) for width in (RANK, ROTATED))
w_uk, w_uv = (alike(N, RANK).div(RANK**0.5).to(DTYPE) for _ in "kv")
q_nope, q_pe = (5 * alike(width)[None].to(DTYPE) for width in (N, ROTATED))


def decompressed(dtype):
    """Keys and values are made first."""
    c, pe, uk, uv, q, turned = (x.to(dtype) for x in (latents, k_pe, w_uk, w_uv, q_nope, q_pe))
    keys, values = (torch.einsum("bsr,hnr->bhsn", c, w) for w in (uk, uv))
    queries = q[:, :, None], turned[:, :, None]  # one token
    return mla_attention_reference(*queries, keys, pe, values, causal=False, scale=scale)[:, :, 0]


cache = torch.cat([latents, k_pe], 2)
absorbed = absorb(q_nope, q_pe, w_uk)
from_latents = expand(mla_decode(absorbed, cache, lengths, rank=RANK, scale=scale), w_uv)
exact = decompressed(torch.float64)
print(f"keys made first, in PyTorch: error {error(decompressed(DTYPE), exact):.1e}")
print(f"read from latents:           error {error(from_latents, exact):.1e}")
print(f"bytes of a token: {bytes_of_heads(128, 160)} with 128 heads, {bytes_of_latent()} with a latent")
with_key, with_latent, making = 2 * (192 + 128), 2 * (512 + 64 + 512), 2 * 512 * (128 + 128)
print(f"operations of a head for a token: {with_key} with a key and a value, {with_latent} with a latent")
print(f"to make the key and the value: {making}, as many as {making / (with_latent - with_key):.1f} queries save by it")

# %% [markdown]
# Neither. They round in other places: here PyTorch rounds each key and each probability to bfloat16, while the kernel
# keeps scores and sums in float32. With real numbers they would be equal.
#
# What is paid are operations. A key of DeepSeek's has 192 numbers and a value 128. A latent has 576, of which 512 are
# used again as a value: 3.4 times as many. With all 128 heads that is 242 operations for each of the 1152 bytes. It is
# the first time that there are more than the 206 of the card: the tensor cores have a little more to do than the memory.
# With 64 heads, as in GLM-5, it is 121, and the bytes decide again.
#
# A prompt has many queries for each key, and there the choice turns round. A key and its value are made once, for
# 262,144 operations. Then every query that meets them saves 2176 − 640 = 1536. So [from 171 queries
# on](../derivations/mla.md) it is cheaper to make them. A prompt is read by the first program, and a text is written by
# the second.
#
# ## Only some of the keys
#
# The third step is not to read all latents. A small **indexer** looks at all keys, and attention reads the few thousand
# that [it puts first](../kernels/attention/select_keys.md).
#
# [[figure: indexer/heads]]
#
# A trained indexer imitates the attention that it works for. Here something cruder does: the same rows, projected to fewer
# numbers and rounded to eight bits.


# %%
def codes_of(x):
    """Numbers of float8 (e4m3), handed on as floats, which any card can multiply; and scales of rows."""
    scale = x.abs().amax(-1) / 448
    return (x / scale[..., None]).to(torch.float8_e4m3fn).float(), scale


def indexed(width):
    """What an indexer thinks of each key: (1, S)."""
    projection = torch.randn(RANK + ROTATED, width, device=device.DEVICE) / width**0.5
    (q, q_scale), (k, k_scale) = (codes_of(x[0].float() @ projection) for x in (absorbed, cache))
    return indexer_logits(q[None], k, q_scale[None], k_scale, end=lengths)


table = torch.zeros(1, 1, dtype=torch.int32, device=device.DEVICE)  # one page, which holds everything
weights = torch.softmax(scale * absorbed.double() @ cache.double().mT, -1)  # of heads and keys


def selected(scores, k):
    """The error of attention to k keys, and how much of all heads' attention they have."""
    keys = select_keys(scores, k)
    o = sparse_decode(absorbed, cache, to_slots(keys, table, S), rank=RANK, scale=scale)
    return error(expand(o, w_uv), exact), weights[0, :, keys[0].long()].sum(-1).mean().item()


# %% [markdown]
# **Before you run it:** there are 256 keys. Can attention to half of them be as right as bfloat16 is? And if any half is
# taken?

# %%
any_keys = torch.rand(1, S, device=device.DEVICE)
best = weights.mean(1).float()
SCORERS = {"the best for all heads": best, "the crude indexer's": indexed(64), "any": any_keys}
print(f"{'keys':24}" + "".join(f"{k:14}" for k in (16, 64, 128, 256)))
for name, scores in SCORERS.items():
    row = [selected(scores, k) for k in (16, 64, 128, 256)]
    print(f"{name:24}" + "".join(f"{off:9.1e}{share:5.0%}" for off, share in row))

# %% [markdown]
# Beside each error stands how much of the attention the selected keys get. The best half is as good as everything: here,
# as is hoped of real texts, most of the attention goes to few keys. But they have to be found. What isn't found is missing, and no later
# step brings it back. The crude indexer does better than chance, and that isn't enough. A real one is
# [trained](../kernels/attention/indexer_loss.md) to imitate the attention, and then the model learns to live with its
# choice.
#
# What is saved? The indexer's keys are all read, 132 bytes each, and each score is a float32 that is written once and
# read twice. Attention to 2048 keys is the same work at any length:


# %%
def read(tokens, k=2048):
    """Bytes for a new token, in one layer and of one text: all latents, and selected ones."""
    scored = (bytes_of_scorer() + 3 * 4) * tokens
    return bytes_of_latent() * tokens, scored + bytes_of_latent() * min(k, tokens)


for tokens in (1024, 2048, 4096, 32768, 131072, 1048576):
    everything, few = read(tokens)
    print(
        f"{tokens:7} tokens: all {everything / 1e6:7.2f} MB, selected {few / 1e6:6.2f} MB, a factor of {everything / few:.1f}"
    )
print("the first length that gains:", next(tokens for tokens in range(10**4) if read(tokens)[1] < read(tokens)[0]))

# %% [markdown]
# Below some 2300 tokens more is read than without an indexer. And the gain has a limit, because the indexer still reads
# something of every token: 132 + 12 bytes instead of 1152. So no text is long enough for a factor of 8. Nor does **the
# cache itself** shrink. All latents must be kept, for nobody knows which ones the next token will select, and the
# indexer's keys beside them: 1284 bytes a token instead of 1152. This step saves time, and it costs room.
#
# ## Eight bits, four bits
#
# The fourth step can be combined with each of the others: the same numbers in fewer bits. [A row is
# written](../kernels/attention/quantized_cache.md) as codes with a step. [Attention multiplies the query by the
# codes](../kernels/attention/quantized_decode.md), and by the step afterwards, once for each score. What is left to do
# for each code is to turn the integer into a number of sixteen bits. A cache in sixteen bits is never written.
#
# [[figure: quantized/bytes]]
#
# Steps count, too. A row of 128 numbers in four bits is 72 bytes and not 64; of 64 numbers it would be 40 and not 32. The
# step can also belong to a **channel**, one of the numbers of a key. Then a *page* of tokens shares it, here of 64. 128
# channels with a step and a lowest value each are 1024 bytes a page, 16 a token, so a key is 80 bytes.
#
# A **rotation** multiplies each row by a matrix that mixes all of its channels, and the query by the same one, which
# leaves the score as it is. The matrix has entries of one size. *Signs first* means that each channel is multiplied by
# its own random 1 or −1 before that.
#
# **Before you run it:** keys often have a few channels that are much larger than the others, or a mean that all channels
# share. For which of these formats is that a problem: int8, int4 with a step for each token, int4 with a step for each
# channel? And where does a rotation help?

# %%
PAGE, KV = 64, 2
slots = torch.arange(S, device=device.DEVICE)
signs = torch.where(torch.rand(D, device=device.DEVICE) < 0.5, -1.0, 1.0)


def room(kind):
    four = kind == torch.uint8
    codes = torch.zeros(S // PAGE, PAGE, KV, D // (1 + four), dtype=kind, device=device.DEVICE)
    return codes, torch.zeros(S // PAGE, PAGE, KV, 1 + four, device=device.DEVICE)


def written(kind, x, signs=None):
    codes, steps = room(kind)
    append_(codes, steps, x[0], slots, signs=signs)
    return codes, steps


def attended(k, v, kind, signs=None, channel=False):
    """Attention to k and v in few bits."""
    if channel:
        keys = room(kind)[0], torch.zeros(S // PAGE, KV, D, 2, device=device.DEVICE)
        quantize_key_pages_(*keys, k[0].unflatten(0, (-1, PAGE)), slots[: S // PAGE])
    else:
        keys = written(kind, k, signs)
    values = written(kind, v, signs)
    pages = torch.arange(S // PAGE, dtype=torch.int32, device=device.DEVICE)[None]
    how = dict(granularity="channel" if channel else "token", signs=signs, block_table=pages)
    return decode_quantized(q, keys[0], values[0], keys[1], values[1], lengths, **how)


FORMATS = {
    "int8": dict(kind=torch.int8),
    "int4": dict(kind=torch.uint8),
    "int4, rotated": dict(kind=torch.uint8, signs=torch.ones_like(signs)),
    "int4, signs first": dict(kind=torch.uint8, signs=signs),
    "int4, by channel": dict(kind=torch.uint8, channel=True),
}
large = 1 + 19 * (torch.arange(D, device=device.DEVICE) % 16 == 7)  # four channels, 20 times as large
print(f"{'error':18}{'normal keys':>14}{'four large channels':>22}{'a mean of 10':>15}")
offs = {"bfloat16": []} | {name: [] for name in FORMATS}
for factor, mean in ((torch.ones_like(large), 0), (large, 0), (torch.ones_like(large), 10)):
    k = (mean + torch.randn(1, S, KV, D, device=device.DEVICE) * factor).to(DTYPE)
    q = (2 * torch.randn(1, 8, D, device=device.DEVICE) / factor).to(DTYPE)  # scores as large as before
    exact = decode_attention_reference(q.double(), k.double(), v.double(), lengths)
    offs["bfloat16"].append(error(decode_attention(q, k, v, lengths), exact))
    for name, how in FORMATS.items():
        offs[name].append(error(attended(k, v, **how), exact))
for name, (normal, outliers, shifted) in offs.items():
    print(f"{name:18}{normal:14.1e}{outliers:22.1e}{shifted:15.1e}")

# %% [markdown]
# Large channels are a problem for both formats with a step for each token. The step is as large as the largest number
# asks for, and to the other channels few codes are left: with eight bits the error is now more than half of that with four
# bits before, and with four bits it is larger than the result. A
# [rotation](../kernels/attention/quantized_cache.md) spreads an outlier over all channels. That is better than nothing,
# and still far worse than normal keys. With a step for each channel large channels hardly matter. But such a step
# needs all tokens of a page at once. So the newest keys wait in sixteen bits until 64 of them make a page, and a token's
# codes depend on the others in its page.
#
# A common mean does no harm to plain int4, which keeps the lowest value of the row; int8 keeps none, and loses some of
# its codes to the mean. A rotation adds it up in one channel, and so makes the outlier that it is meant to remove. Signs
# first make that better, but not good.
#
# An error of a fifth sounds like much. It is that of random numbers in a single layer, and says nothing about a text.
# [The capstone](../kernels/capstone/generate.md) writes from such a cache, and counts how many tokens stay the same.
#
# ## All of them
#
# [[figure: fewer/read]]
#
# A latent has as many bytes as eight heads in four bits, by chance exactly. It rounds nothing away, but only a model that
# was trained with latents has them. Fewer bits are possible for any model that is there already.
# And steps can be combined: DeepSeek V3.2 selects from latents. FlashMLA keeps their 512 numbers in eight bits, with four
# scales in float32, and the 64 rotated ones in sixteen: 512 + 16 + 128 = 656 bytes.
#
# ## Change it
#
# Which of the caches don't fit on one card of 141 GB, even without the weights? From which length on does it pay to
# select? What becomes of the operations for each byte with 16 heads, and which of them are more than the 206 of the card?


# %%
def of_a_token(tokens, heads, key_heads, selected):
    """Name -> bytes that are kept in a layer, bytes that are read for a new token, operations."""
    everything, few = read(tokens, selected)
    latent = 2 * heads * (512 + 64 + 512)
    found = {
        f"{key_heads} heads, {bits:2} bits": (tokens * size, tokens * size, 4 * heads * 128 * tokens)
        for bits in (16, 8, 4)
        for size in [bytes_of_heads(key_heads, bits=bits)]
    }
    found["latents"] = everything, everything, latent * tokens
    kept = everything + bytes_of_scorer() * tokens
    scoring = 2 * 64 * 128  # the indexer of DeepSeek V3.2 has 64 heads, and each multiplies 128 numbers
    found["latents, selected"] = kept, few, scoring * tokens + latent * min(selected, tokens)
    return found


# %% tags=["parameters", "live"]
tokens = 131072  # 1024, 4096, 32768, 131072, 1048576
heads = 64  # 16, 64, 128
key_heads = 8  # 1, 4, 8, 16
selected = 2048  # 512, 2048, 8192
texts = 8  # 1 to 64

# %%
print(f"{'':20}{'GB kept, 61 layers':>20}{'MB read, a layer':>18}{'operations a byte':>19}")
for name, (kept, fetched, operations) in of_a_token(tokens, heads, key_heads, selected).items():
    gigabytes, megabytes = 61 * texts * kept / 1e9, texts * fetched / 1e6
    print(f"{name:20}{gigabytes:20.1f}{megabytes:18.1f}{operations / fetched:19.0f}")

# %% [markdown]
# ## When not to
#
# | step | of no use, or harmful, where |
# |---|---|
# | any | the texts are few and short. One text of 1000 tokens is 0.3 GB beside 141 GB of weights |
# | any, but for selected keys | a prompt is read. There are many queries for each key, so operations decide, and not bytes. (A selection [saves operations, too](../kernels/attention/sparse_mla.md), if the prompt is longer than what is selected) |
# | fewer heads | the model exists already: it would have to be trained again |
# | a latent | there are few heads anyway: it is as large as two heads or so of keys and values. Or each of several cards has some of the heads: heads can be divided among them, and a latent, which all heads need, is on every card |
# | selected keys | a text is hardly longer than what is selected: below 2341 tokens more is read than without. Or room is what is missing, not time. Or nobody has trained an indexer |
# | eight or four bits | a few channels are far larger, and there is one step for a token |
# | a rotation | all channels have a common mean: it makes an outlier of that, and random signs only make it smaller |
# | four bits | instructions are what is missing. Codes have to be turned into numbers by the ordinary units, and while a byte with two codes arrives they have time for about seven instructions: three or four a code |
#
# ## On a card
#
# What counting predicts has to be measured. One new token's attention in a layer with 64 heads, for one text and for 64,
# with the share of the time that a copy of as many bytes takes:
#
# [[experiment: bytes_per_token]]
#
# With 64 texts of 131,072 tokens every step saves time, and none as much as bytes. Eight bits take little more than half
# the time of sixteen, and have half of the bytes. Four bits have two sevenths of them and take half the time, because
# codes have to be turned into numbers; latents have as many bytes, take as long, and make the tensor cores work for it.
# Selected keys take a ninth of the time, most of it for the scores. With one text of 32,768 tokens nothing gains much:
# what is read is too little to keep the card busy. There the selection, which is several launches, takes more than twice
# as long as reading everything.
#
# Each function at sizes of its own, beside other ways to compute it, is on the pages of [benchmarks](../benchmarks/index.md).
# Decoding from heads in four bits:

# %%
notebook.speed("quantized_decode", live=[(64, 32, 8, 4096, 128)])

# %% [markdown]
# And from latents:

# %%
notebook.speed("mla_decode", live=[(128, 16, 4096)])

# %% [markdown]
# ## Exercises
#
# [[exercises]]
#
# Next: the same operations, as fast as the card allows, beginning with [what a call costs](../guides/what-a-call-costs.md).
#
# Heads in groups are Ainslie et al., "GQA" (arXiv 2305.13245). Latents: DeepSeek-AI, "DeepSeek-V2" (arXiv 2405.04434).
# Selected keys: DeepSeek-AI, "DeepSeek-V3.2" (2025). A step for each channel: Liu et al., "KIVI" (arXiv 2402.02750).
