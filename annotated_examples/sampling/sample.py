r"""
# Choosing a token: the k largest without sorting, and a draw without adding up

A language model ends with a **logit** for each of `V` tokens, often a hundred thousand or more. The next token is drawn
with the probabilities [[tag: SA-q]]. Usually the unlikely tokens are left out first: **top-k** keeps the `k` largest
logits, [[tag: SA-k]], and **top-p**, or *nucleus sampling*, the shortest list of largest ones whose probabilities add
up to `p`, [[tag: SA-p]]. (**Min-p** keeps what has at least a share of the likeliest token's probability: with a share
of 0.4 and a probability of 0.5, all from 0.2 on. That bound needs no search, and isn't in this file.)

PyTorch's way is to sort each row, take running sums of the sorted probabilities, mask, and draw. But nobody asked for
the order of a hundred thousand tokens. What is asked for is one number, the **threshold**: what lies above it is kept.

[[figure: choosing/rounds]]

The bits of a float can be made a whole number with the same order. Then the threshold is found digit by digit, the
leading one first, by *radix selection*: how many logits are at least *this* large? Nothing is sorted, and the threshold
is exact. And since most logits are far below it, those that aren't are copied to a short list first, which is all that
is searched.

The draw needs no running sum either. Each token gets a random number of its own, and the largest of

[[eq: SA-s]]

wins: the *Gumbel-max trick*. That happens with just the right probabilities; [the
derivation](../../backprop_math/sample.md) shows why.

**What it costs.** A row is read from memory once, 4 bytes a logit in float32, and a token is written. Then it is read
from the L2 cache: once for the list, with top-p alone once more for the sum, and without either once for the draw. Room
for the list is 8 bytes a logit, of which few are used as a rule. Where nearly all logits are alike, the list holds
nearly all of them. It is read 16 times for each threshold, once for each digit, and that takes longer than reading the
row as often.

**Where it falls behind.** One program has a row, so a few long rows leave most of the card idle. One of 151936 with
top-p alone takes [[bench: sample:top-p alone/1x151936/forward/lesson.ms]], PyTorch's sort
[[bench: sample:top-p alone/1x151936/forward/eager.ms]]. [The fast version](../fast/sample.py) shares a row.

**Contract.** Logits are float32, float16 or bfloat16, rows of up to 2¹⁸ along the last dimension, any strides; all
arithmetic is float32. A larger logit comes first, of equal ones that with the lower index, and zeros of either sign are
equal: so the set that is kept has exactly one right answer. (Where a sum of probabilities comes as close to `p` as
$10^{-6}$, it may count as either side.) Top-k comes first, then the temperature, then `p` of what is left. A logit of ∞
takes all of the probability. A row with NaN becomes NaN and draws the token −1; a row of −∞ stays as it is, and
draws −1 as well; other rows don't notice. The noise of a draw depends on the seed, the number and the width of the row,
and on nothing else: tiles and runs make no difference. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.choosing import kept_of_chunk, key_of, load_chunk, logit_of, search, shifted, write_list
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.rows import as_rows
from annotated_examples.common.seeds import random_words_reference, seed_contract, seeded

WIDEST_ROW = 2**18
LARGEST_BELOW_ONE = tl.constexpr(1 - 2.0**-24)


# ## Reference
#
# In PyTorch, with a sort, always in float64. A stable sort leaves equal logits in the order of their indices.
def kept_reference(logits, top_k=None, top_p=None, temperature=1.0):
    """True where a logit is kept, and the logits less the largest, divided by the temperature."""
    z, V = logits.double(), logits.shape[-1]
    largest = z.amax(-1, keepdim=True) if V else z
    shifted = torch.where(z == largest, 0.0, z - largest) / temperature
    order = torch.sort(z, dim=-1, descending=True, stable=True).indices
    kept = torch.ones_like(z, dtype=torch.bool)
    if top_k is not None:
        most = top_k.unsqueeze(-1) if isinstance(top_k, torch.Tensor) else top_k
        kept = torch.arange(V, device=z.device).expand(z.shape) < most
    if top_p is not None and top_p < 1:
        weight = torch.where(kept, shifted.gather(-1, order).exp(), 0.0)
        kept = kept & (weight.cumsum(-1) - weight < top_p * weight.sum(-1, keepdim=True))
    return torch.zeros_like(kept).scatter(-1, order, kept), shifted


def filter_logits_reference(logits, *, top_k=None, top_p=None):
    kept, _ = kept_reference(logits, top_k, top_p)
    kept = torch.where(kept, logits, -torch.inf)
    return torch.where(logits.isnan().any(-1, keepdim=True), torch.nan, kept)


# The noise, from the random words as the kernel takes them, but in float64.
def gumbel_reference(shape, seed, device=None):
    V = shape[-1]
    rows, words = torch.Size(shape[:-1]).numel(), -(-V // 4)
    counters = torch.arange(rows * words, device=device)
    word = random_words_reference(torch.as_tensor(seed, device=device), counters).view(rows, -1)[:, :V]
    v = ((word.double() + 0.5) / 2**32).clamp(max=1 - 2.0**-24)
    return -torch.log(-torch.log1p(-v)).view(shape)


def sample_reference(logits, seed, *, temperature=1.0, top_k=None, top_p=None):
    if temperature == 0:
        temperature, top_k = 1.0, 1
    kept, shifted = kept_reference(logits, top_k, top_p, temperature)
    score = torch.where(kept, shifted + gumbel_reference(logits.shape, seed, logits.device), -torch.inf)
    lost = logits.isnan().any(-1) | (logits == -torch.inf).all(-1)
    if logits.shape[-1] == 0:
        return torch.full(logits.shape[:-1], -1, device=logits.device)
    return torch.where(lost, -1, score.argmax(-1))


# ## Whole numbers with the order of floats
#
# A float32 is a sign, an exponent and a mantissa, in this order. So of two positive floats the larger one has the
# larger bits, read as a whole number. For negative ones it is the other way round, and they have a 1 in front. Two
# changes make one order of all, which `key_of` makes:
#
# - the bits of a negative float are inverted: that turns the order around, and the 1 in front becomes a 0;
# - the sign bit of the others is set, which puts them above.
#
# [[figure: choosing/keys]]
#
# ## The search
#
# Let each logit have a weight: 1 to count, or its $e^z$ for probabilities. We want the largest key `c` for which the
# logits with keys of at least `c` weigh `target` or more. The weight falls as `c` grows, so `search` finds it as in a
# guessing game, `BITS` bits a round: all values of the next digit are tried at once. In the example it is 4 a round, so
# a key has eight digits. The key of 1.5 is `BFC00000`, and the search for the two largest begins with the digit 11,
# which is B.
#
# Top-p searches among those that top-k has kept: above the first threshold, and some of those at it. What lies below
# doesn't matter, since candidates up to the first threshold, `above`, count as reached whatever they weigh.
#
# ## A short list
#
# Most logits of a row have no chance, and that shows early. While a program looks for the largest logit, each of its
# lanes finds the largest of its own. These are a few thousand logits of the row, and the `k`-th largest *of them* isn't
# larger than the `k`-th largest of all. So what lies below it is out. The same holds for top-p: if those of them above
# some key weigh enough, then so do all logits above it.
#
# They stand at the end of the list's room. `tl.debug_barrier` makes all threads wait until each has stored its own.
@triton.jit
def largest_of(row_ptr, list_ptr, V, BLOCK_V: tl.constexpr):
    # A comparison with NaN is false, so NaN is looked for separately.
    largest = tl.full((BLOCK_V,), float("-inf"), tl.float32)
    nan = tl.zeros((BLOCK_V,), tl.int32)
    for start in range(0, V, BLOCK_V):
        offs_v = start + tl.arange(0, BLOCK_V)
        x = tl.load(row_ptr + offs_v, mask=offs_v < V, other=float("-inf")).to(tl.float32)
        largest = tl.where(x > largest, x, largest)
        nan = tl.where(x != x, 1, nan)
    # Lanes 0 and 1 have seen two logits each, −1 and 0, 1.5 and 1: `pid=0: largest = [0, 1.5, 2, 1.5]`.
    if list_ptr is not None:
        lane = tl.arange(0, BLOCK_V)
        list_ptrs = list_ptr + V - tl.minimum(V, BLOCK_V) + lane
        tl.store(list_ptrs, key_of(largest).to(tl.int64) << 32, mask=lane < V)
        tl.debug_barrier()
    return tl.max(largest, axis=0), tl.max(nan, axis=0) > 0


# ## What is kept
#
# The result is the threshold, how many of the logits *at* the threshold are kept, the row's largest logit, and whether
# there is a NaN. And how long the list is, or the row, if nothing is left out.
@triton.jit
def kept_set(
    row_ptr, list_ptr, k_ptr,  # (V,); (V,) or None; this row's k, or None
    V, p, temperature,
    TOP_P: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    row_max, nan = largest_of(row_ptr, list_ptr, V, BLOCK_V)
    lanes = tl.minimum(V, BLOCK_V)
    threshold, left, n = tl.cast(0, tl.uint32), 0, V
    if k_ptr is not None:
        # Of the lanes' largest logits the second one is 1.5. Three logits of six are that large:
        # `launch=1, pid=0: n = 3`.
        k = tl.minimum(tl.maximum(tl.load(k_ptr), 1), V)
        target = k.to(tl.float32)
        last_ptr = list_ptr + V - lanes
        least = search(last_ptr, lanes, target, threshold, row_max, temperature, False, BITS, BLOCK_V)[0]
        n = write_list(row_ptr, list_ptr, V, least, BLOCK_V)

        # [[tag: SA-tie]]: `beyond` logits are larger than the threshold, and the rest of the `k` places go to the
        # first of those that equal it. Two logits of the example are 1.5, and with the 2 beyond there is
        # room for one: `launch=1, pid=0: left = 1`.
        threshold, beyond = search(list_ptr, n, target, threshold, row_max, temperature, False, BITS, BLOCK_V)
        left = k - beyond.to(tl.int32)
    if TOP_P:
        threshold, left, n = kept_by_weight(
            row_ptr, list_ptr, V, n, p, temperature, row_max, threshold, left, k_ptr is not None, BITS, BLOCK_V
        )
    return threshold, left, row_max, nan, n


# Top-p first needs the weight of everything that is left: above the threshold of top-k, and `left` times that at it.
#
# Where top-k has made no list, the lanes' largest logits may not weigh enough. Then another bound holds: all tokens
# that are lighter than $(1 - p) / V$ of the whole weigh less than $1 - p$ together. So what lies before them weighs
# more than $p$, and none of them is kept. Half of that bound leaves room for rounding.
@triton.jit
def kept_by_weight(
    row_ptr, list_ptr,  # (V,); (V,)
    V, n, p, temperature, row_max, above, left,
    LISTED: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    weights = tl.zeros((BLOCK_V,), tl.float32)
    for start in range(0, n, BLOCK_V):
        _, x, key = load_chunk(row_ptr, list_ptr if LISTED else None, start, n, BLOCK_V)
        weights += tl.where(key > above, tl.exp(shifted(x, row_max, temperature)), 0.0)
    tied = left * tl.exp(shifted(logit_of(above), row_max, temperature))
    whole = tl.sum(weights, axis=0) + tl.where(left > 0, tied, 0.0)
    p = tl.cast(p, tl.float32)
    target = p * whole
    if not LISTED:
        light = row_max + temperature * tl.log((1.0 - p) * 0.5 * whole / V)
        lanes = tl.minimum(V, BLOCK_V)
        above = key_of(light) - 1
        least = search(list_ptr + V - lanes, lanes, target, above, row_max, temperature, True, BITS, BLOCK_V)[0]
        n = write_list(row_ptr, list_ptr, V, least, BLOCK_V)
        above = tl.maximum(least, 1) - 1

    # [[tag: SA-p]]. Equal logits have equal weights: a division tells how many of them are needed.
    threshold, beyond = search(list_ptr, n, target, above, row_max, temperature, True, BITS, BLOCK_V)
    each = tl.exp(shifted(logit_of(threshold), row_max, temperature))
    needed = tl.maximum(tl.ceil((target - beyond) / each).to(tl.int32), 1)
    return threshold, tl.where(threshold > above, needed, tl.minimum(needed, left)), n


# ## Filtering
#
# One program has one row. In the example it has six logits, −1, 1.5, 2, 1.5, 0 and 1, in chunks of four.
@triton.jit
def filter_kernel(
    x_ptr, y_ptr, list_ptr, k_ptr,  # (M, V); the other two (M, V), contiguous, list_ptr or None; (M,) or None
    V, p, stride_xm, stride_k,
    TOP_P: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    if k_ptr is not None:
        k_ptr += row * stride_k
    if list_ptr is not None:
        list_ptr += row * V
    threshold, left, _, nan, _ = kept_set(x_ptr, list_ptr, k_ptr, V, p, 1.0, TOP_P, BITS, BLOCK_V)

    # The first 1.5 is kept, the second isn't: `launch=0, pid=0, start=0: y = [-inf, 1.5, 2, -inf]`.
    seen = 0
    for start in range(0, V, BLOCK_V):
        offs_v, x, key = load_chunk(x_ptr, None, start, V, BLOCK_V)
        keep, seen = kept_of_chunk(key, threshold, left, seen)
        y = tl.where(keep, x, float("-inf"))
        tl.store(y_ptr + row * V + offs_v, tl.where(nan, float("nan"), y), mask=offs_v < V)


# ## The draw
#
# The textbook's way is to add up probabilities until a random number is passed. That is a running sum over the row, and
# a search in it. Here the tokens run an **exponential race** instead: each one's time is exponentially distributed, the
# likelier the token the shorter, and the first one wins. On a logarithmic scale the race is a sum: the logit, and a
# noise that is named after Gumbel, [[tag: SA-s]]. There is no sum over the row, only a maximum, and it doesn't matter
# in what order the tokens are looked at. (The temperature divides the logit only. If it divided the noise as well, the
# largest sum would be the same one at every temperature.)
#
# The random words are those of [dropout](../classics/dropout.py): counter `c` gives the words of four neighbours, and a
# token takes one of them. Each row begins with a counter of its own. A counter knows nothing of chunks: if it did, the
# size of a chunk would decide which token is drawn.
@triton.jit
def noise_of_tokens(seed, row, offs_v, V):
    counter = row * tl.cdiv(V, 4) + offs_v // 4
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    none = tl.zeros_like(low)
    w0, w1, w2, w3 = tl.philox(seed, low, high, none, none)
    which = offs_v % 4
    return noise_of(tl.where(which < 2, tl.where(which == 0, w0, w1), tl.where(which == 2, w2, w3)))


# A word becomes a number between 0 and 1, and that a time, [[tag: SA-E]]. What wins are short times, $-\log(1 - v)$ for
# a small $v$. Floats are dense near 0 and far apart near 1, so $1 - v$ would round most of the small ones to a few
# numbers: many tokens would have the same time, and of those the first would always win. The quotient corrects that.
# `w` is what became of $1 - v$, and the logarithm of `w` over its distance from 1 hardly changes nearby. With the half
# that is added `v` is never 0, and it must not become 1 either: such a time is infinite.
@triton.jit
def noise_of(word):
    v = tl.minimum((word.to(tl.float32) + 0.5) * 2.0**-32, LARGEST_BELOW_ONE)
    w = 1.0 - v
    time = tl.where(w == 1.0, v, -tl.log(w) * v / (1.0 - w))
    return -tl.log(time)


@triton.jit
def sample_kernel(
    x_ptr, token_ptr, list_ptr,  # (M, V); (M,) in int64; (M, V) in int64, contiguous, or None
    k_ptr, seed_ptr,  # (M,) or None; one number
    V, p, temperature, stride_xm, stride_k,
    TOP_P: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    row, seed = tl.program_id(0).to(tl.int64), tl.load(seed_ptr)
    x_ptr += row * stride_xm
    if k_ptr is not None:
        k_ptr += row * stride_k
    if list_ptr is not None:
        list_ptr += row * V
    temperature = tl.cast(temperature, tl.float32)
    threshold, left, row_max, nan, n = kept_set(x_ptr, list_ptr, k_ptr, V, p, temperature, TOP_P, BITS, BLOCK_V)

    # The best that each lane has met, and where. A later one must be better, not just as good. Of the list too only
    # those are drawn that are kept.
    seen, token, best = 0, tl.full((BLOCK_V,), 0, tl.int32), tl.full((BLOCK_V,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK_V):
        offs_v, x, key = load_chunk(x_ptr, list_ptr, start, n, BLOCK_V)
        keep, seen = kept_of_chunk(key, threshold, left, seen)
        score = shifted(x, row_max, temperature) + noise_of_tokens(seed, row, offs_v, V)
        score = tl.where(keep, score, float("-inf"))
        token = tl.where(score > best, offs_v, token)
        best = tl.maximum(best, score)
    token = tl.min(tl.where(best == tl.max(best, axis=0), token, V), axis=0)

    # All logits minus infinity, or one of them NaN: there is no token to draw.
    token = tl.where(nan | (row_max == float("-inf")), -1, token)
    tl.store(token_ptr + row, token)


# ## Launchers
#
# A `k` for all rows is a tensor with a stride of zero, so that the kernel has one way for both. Four candidates a round
# are what a lane can add up in registers. In PyTorch 2.11 `torch.compile` misreads kernels that scan; `opaque` tells it
# what comes out.
def places(top_k, rows):
    """The `k` of each row as a tensor, and its stride."""
    if top_k is None:
        return None, 0
    if isinstance(top_k, torch.Tensor):
        top_k = top_k.reshape(-1)
        return top_k, top_k.stride(0)
    return torch.full((1,), top_k, dtype=torch.int32, device=rows.device), 0


def options(rows, places, TOP_P, BLOCK_V, BITS):
    """Room for lists, if anything is left out, and how a launch is cut."""
    checks.power_of_two(BLOCK_V=BLOCK_V, BITS=BITS)
    BLOCK_V = BLOCK_V or min(max(triton.next_power_of_2(rows.shape[1]), 16), 4096)
    room = torch.empty(rows.shape, dtype=torch.int64, device=rows.device) if TOP_P or places is not None else None
    cut = dict(TOP_P=TOP_P, BITS=BITS, BLOCK_V=BLOCK_V)
    return room, cut | dict(num_warps=max(1, min(BLOCK_V // 256, 16)))


@opaque(
    "(Tensor logits, Tensor? places, int stride_k, float? top_p) -> Tensor",
    lambda logits, places, stride_k, top_p: torch.empty(logits.shape, dtype=logits.dtype, device=logits.device),
)
def filter_forward(logits, places, stride_k, top_p, *, BLOCK_V=None, BITS=2):
    """`logits` with −∞ outside of the set. BITS: of a key that are found in a round, a power of two up to 8."""
    y = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if y.numel() > 0:
        rows = as_rows(logits)
        room, cut = options(rows, places, top_p is not None, BLOCK_V, BITS)
        filter_kernel[(len(rows),)](rows, y, room, places, rows.shape[1], top_p or 1.0, rows.stride(0), stride_k, **cut)
    return y


@opaque(
    "(Tensor logits, Tensor seed, float temperature, Tensor? places, int stride_k, float? top_p) -> Tensor",
    lambda logits, *rest: torch.empty(logits.shape[:-1], dtype=torch.int64, device=logits.device),
)
def sample_forward(logits, seed, temperature, places, stride_k, top_p, *, BLOCK_V=None, BITS=2):
    """A token for each row."""
    token = torch.empty(logits.shape[:-1], dtype=torch.int64, device=logits.device)
    if logits.numel() == 0:
        return token.fill_(-1)
    rows = as_rows(logits)
    room, cut = options(rows, places, top_p is not None, BLOCK_V, BITS)
    sample_kernel[(len(rows),)](
        rows, token, room, places, seed, rows.shape[1], top_p or 1.0, temperature, rows.stride(0), stride_k, **cut
    )
    return token


# ## The public functions
#
# A `top_p` of 1 keeps everything. It isn't left to the sum: in float32 that may reach its end before the last tiny
# summand.
def contract(logits, top_k, top_p):
    """Raises on bad arguments."""
    checks.tensors(logits=logits)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, range(1, 65), "rows lie along the last")
    if logits.shape[-1] > WIDEST_ROW:
        raise ValueError(f"logits must have rows of at most {WIDEST_ROW} elements, got shape {tuple(logits.shape)}")
    if isinstance(top_k, torch.Tensor):
        checks.tensors(top_k=top_k)
        checks.dtypes((torch.int32, torch.int64), top_k=top_k)
        checks.shape("top_k", top_k, tuple(logits.shape[:-1]), "one for each row of logits")
        if checks.looks_at_values() and (top_k < 1).any():
            raise ValueError(f"top_k must be at least 1, got {int(top_k.min())}")
    elif top_k is not None:
        checks.whole_number("top_k", top_k, at_least=1)
    if top_p is not None:
        checks.number("top_p", top_p, above=0)
        if top_p > 1:
            raise ValueError(f"top_p must be at most 1, got {top_p}")


def of_all_rows(logits, top_k, top_p):
    """`top_k` and `top_p` as the launchers take them."""
    top_k = min(top_k, WIDEST_ROW) if isinstance(top_k, int) else top_k
    return *places(top_k, logits), None if top_p is None or top_p == 1 else float(top_p)


def draw_contract(logits, seed, temperature, top_k, top_p):
    """Raises on bad arguments; the temperature and the rest as `sample_forward` takes them."""
    contract(logits, top_k, top_p)
    seed_contract(seed, logits.device)
    checks.number("temperature", temperature, at_least=0)
    checks.no_gradient("sample", logits=logits)
    if temperature == 0:
        temperature, top_k, top_p = 1.0, 1, None
    return float(temperature), *of_all_rows(logits, top_k, top_p)


@replayed
def filter_logits(logits, *, top_k=None, top_p=None):
    """The logits of the most likely tokens, −∞ for all others. Forward only.

    Args:
        logits: tensor of shape (..., V), V up to 2¹⁸, float32, float16 or bfloat16, any strides.
        top_k: how many are kept, at least 1: an int, or an int32 or int64 tensor of shape (...), one for each row. A
            number below 1 in a tensor is an error on the CPU and with `ACADEMY_DEBUG=1`, else taken for 1. More than V
            keep all.
        top_p: the probability that those kept have together, above 0 and up to 1, of what `top_k` leaves.

    Returns:
        A new contiguous tensor of the shape and dtype of `logits`. Rows with NaN are NaN.

    Raises:
        TypeError: `logits` isn't a tensor; `logits`, `top_k` or `top_p` has a wrong type.
        ValueError: a shape, a number or a device is wrong, or `logits` requires a gradient.

    Source: top-p is Holtzman et al., "The Curious Case of Neural Text Degeneration" (ICLR 2020).
    """
    contract(logits, top_k, top_p)
    checks.no_gradient("filter_logits", logits=logits)
    return filter_forward(logits, *of_all_rows(logits, top_k, top_p))


@seeded
@replayed
def sample(logits, seed, *, temperature=1.0, top_k=None, top_p=None):
    """A token for each row of logits, drawn with the softmax of what top-k and top-p leave. Forward only.

    Args:
        logits: as for `filter_logits`.
        seed: an int from 0 to 2⁶³ − 1, or a 0-d int64 tensor on the device of `logits`, which nobody waits for. The
            same seed draws the same tokens, so each step needs a seed of its own.
        temperature: what logits are divided by, at least 0. 0 takes the largest logit.
        top_k, top_p: as for `filter_logits`; the probabilities are those at the temperature.

    Returns:
        int64 of shape (...): indices of tokens. −1 for a row with NaN, of −∞ alone, or without elements.

    Raises:
        TypeError, ValueError: as `filter_logits`, for `seed` and `temperature`, too.

    Source: Gumbel's noise for draws: Maddison et al., "A* Sampling" (NeurIPS 2014).
    """
    return sample_forward(logits, seed, *draw_contract(logits, seed, temperature, top_k, top_p))


# ## A run small enough to watch
#
# Six logits in chunks of four, and keys of eight digits: a draw from the three largest, the two largest, and the
# likeliest of all with a probability of 0.6 together.
def EXAMPLE():
    logits = torch.tensor([[-1, 1.5, 2, 1.5, 0, 1]], device=device.DEVICE)
    seed = torch.tensor(7, device=device.DEVICE)
    sample_forward(logits, seed, 1.0, *of_all_rows(logits, 3, None), BLOCK_V=4, BITS=4)
    filter_forward(logits, *of_all_rows(logits, 2, None), BLOCK_V=4, BITS=4)
    filter_forward(logits, *of_all_rows(logits, None, 0.6), BLOCK_V=4, BITS=4)


if __name__ == "__main__":
    script.main(filter_logits, filter_logits_reference)
