r"""
# Choosing without sorting

What the kernels share that take the largest of a row: whole numbers with the order of floats, a threshold that is found
digit by digit, and a short list of those that may lie above it.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl


# ## Keys
#
# The bits of a float, changed so that they have the floats' order as whole numbers. A negative zero is made an ordinary
# one first. Minus infinity becomes `0x007FFFFF`, the smallest key: 0 is for lanes past the end of the row.
@triton.jit
def key_of(x):
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, ~bits, bits ^ -0x80000000).to(tl.uint32, bitcast=True)


# The way back tells which logit a threshold is.
@triton.jit
def logit_of(key):
    bits = key.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ -0x80000000, ~bits).to(tl.float32, bitcast=True)


# A chunk of the row: places, logits and keys. A NaN counts as minus infinity here, for kernels that deal with it at the
# end; with `NAN_FIRST` it has the largest key, whatever its sign bit. An element of a **list** holds both, the key in
# its upper half, the place in the lower one.
@triton.jit
def load_chunk(
    row_ptr, list_ptr,  # (V,); (V,), whole numbers of 64 bits, or None for the row itself
    start, V, BLOCK_V: tl.constexpr, NAN_FIRST: tl.constexpr = False,
):  # fmt: skip
    offs_v = start + tl.arange(0, BLOCK_V)
    if list_ptr is not None:
        both = tl.load(list_ptr + offs_v, mask=offs_v < V, other=0)
        key = (both >> 32).to(tl.uint32)
        offs_v, x = both.to(tl.int32), tl.where(key > 0, logit_of(key), float("-inf"))
    else:
        x = tl.load(row_ptr + offs_v, mask=offs_v < V, other=float("-inf")).to(tl.float32)
        if not NAN_FIRST:
            x = tl.where(x == x, x, float("-inf"))
        key = tl.where(offs_v < V, key_of(x), 0)
        if NAN_FIRST:
            key = tl.where(x == x, key, 0xFFFFFFFF)
    return offs_v, x, key


# A logit less the row's largest, over the temperature. Infinity less infinity would be NaN.
@triton.jit
def shifted(x, row_max, temperature):
    return tl.where(x == row_max, 0.0, x - row_max) / temperature


# ## The search
#
# The largest key for which the elements of a list with keys of at least that weigh `target` or more, and the weight of
# those with larger keys. A weight is 1, or with `PROBABLE` a probability before it is divided by the sum. All values of
# the next digit, of `BITS` bits, are tried at once. The digit is the number of those that still reach the target, less
# one.
#
# Sums of floats are rounded. But rounding is monotone, and every candidate is summed in the same order: more elements
# never weigh less. So the largest candidate that reaches the target is well defined, on every run the same. Candidates
# up to `above` count as reached whatever they weigh.
@triton.jit
def search(
    list_ptr,  # (n,)
    n, target, above, row_max, temperature, PROBABLE: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    threshold = tl.cast(0, tl.uint32)
    beyond = 0.0
    for done in range(0, 32, BITS):
        shift = 32 - BITS - done
        candidates = threshold + (tl.arange(0, 1 << BITS).to(tl.uint32) << shift)

        # Each lane adds up its own share for each candidate. The lanes are added once, at the end of the row.
        weights = tl.zeros((1 << BITS, BLOCK_V), tl.float32)
        for start in range(0, n, BLOCK_V):
            _, x, key = load_chunk(None, list_ptr, start, n, BLOCK_V)
            weight = tl.full((BLOCK_V,), 1.0, tl.float32)
            if PROBABLE:
                weight = tl.exp(shifted(x, row_max, temperature))
            weights += tl.where(key[None, :] >= candidates[:, None], weight[None, :], 0.0)
        weight = tl.sum(weights, axis=1)

        # The candidate 0 is always among those that reach the target, so the digit isn't negative. Those that don't
        # are all larger than the threshold; the heaviest of them, in the end, is what lies **beyond** it.
        reached = (weight >= target) | (candidates <= above)
        beyond = tl.maximum(beyond, tl.max(tl.where(reached, 0.0, weight), axis=0))
        digit = tl.sum(reached.to(tl.int32), axis=0) - 1
        threshold += digit.to(tl.uint32) << shift
    return threshold, beyond


# ## A short list
#
# The list has all logits with keys of at least `least`, in the order of their places: a running sum of ones counts
# them. What one thread has stored another one will load, so threads wait for each other before and after.
@triton.jit
def write_list(
    row_ptr, list_ptr,  # (V,); (V,), whole numbers of 64 bits
    V, least, BLOCK_V: tl.constexpr, NAN_FIRST: tl.constexpr = False,
):  # fmt: skip
    n, least = 0, tl.maximum(least, 1)
    tl.debug_barrier()
    for start in range(0, V, BLOCK_V):
        offs_v, _, key = load_chunk(row_ptr, None, start, V, BLOCK_V, NAN_FIRST)
        wanted = (key >= least).to(tl.int32)
        list_ptrs = list_ptr + n + tl.cumsum(wanted, axis=0) - 1
        tl.store(list_ptrs, (key.to(tl.int64) << 32) | offs_v, mask=wanted == 1)
        n += tl.sum(wanted, axis=0)
    tl.debug_barrier()
    return n


# Above the threshold everything is kept. Of those at it, the first `left`: a running sum of ones counts them, and
# `seen` those in the chunks before.
@triton.jit
def kept_of_chunk(key, threshold, left, seen):
    tie = (key == threshold).to(tl.int32)
    rank = seen + tl.cumsum(tie, axis=0)
    return (key > threshold) | ((tie == 1) & (rank <= left)), seen + tl.sum(tie, axis=0)
