r"""
# Chunks of a sequence

Linear attention and the delta rule cut a sequence into chunks of `BLOCK_T` tokens. Within a chunk every pair of tokens
is compared, as in attention; from chunk to chunk only a state is handed on. Here is what both need for that: which
sequence a chunk belongs to, tiles of a strided tensor, and how much of one token is left at another.
"""

from academy.runtime import checks, device

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import LARGEST_HEAD, head, same_device, sequence, strided
from annotated_examples.common.attention_tiles import fits
from annotated_examples.common.constants import LOG2E
from annotated_examples.common.sequences import sequences_contract


# ## Tiles
#
# `head` of the attention kernels leaves a matrix: a pointer, the distance from row to row and from column to column.
# A tile is some of its rows and some of its columns. What lies outside of the matrix is read as 0.
@triton.jit
def load_block(matrix, rows, length, columns, width):
    ptr, stride_row, stride_column = matrix
    at = rows.to(tl.int64)[:, None] * stride_row + columns.to(tl.int64)[None, :] * stride_column
    return tl.load(ptr + at, mask=(rows < length)[:, None] & (columns < width)[None, :], other=0.0)


@triton.jit
def store_block(matrix, values, rows, length, columns, width):
    ptr, stride_row, stride_column = matrix
    at = rows.to(tl.int64)[:, None] * stride_row + columns.to(tl.int64)[None, :] * stride_column
    tl.store(ptr + at, values, mask=(rows < length)[:, None] & (columns < width)[None, :])


# The same matrix transposed.
@triton.jit
def turned(matrix):
    ptr, stride_row, stride_column = matrix
    return ptr, stride_column, stride_row


# A state that nobody gave is 0.
@triton.jit
def load_state(tensor, b, h, offs_d, D, offs_e, E):
    ptr, _, _, _, _ = tensor
    if ptr is None:
        state = tl.zeros((offs_d.shape[0], offs_e.shape[0]), tl.float32)
    else:
        state = load_block(head(tensor, b, h, 0), offs_d, D, offs_e, E)
    return state


# ## Whose chunk is it?
#
# All chunks of all sequences are numbered in one row. In a batch every sequence has the same number of them. Packed
# sequences have different lengths: then `first_ptr` holds the number of each sequence's first chunk, and `owner_ptr`
# the sequence of each chunk.
@triton.jit
def chunk_at(sequences, c, BLOCK_T: tl.constexpr):
    # The sequence of chunk `c`, its first row and its length, and where in it the chunk begins.
    cu_ptr, first_ptr, owner_ptr, T = sequences
    if cu_ptr is None:
        chunks = tl.cdiv(T, BLOCK_T)
        b, n = c // chunks, c % chunks
    else:
        b = tl.load(owner_ptr + c)
        n = c - tl.load(first_ptr + b)
    start, length = sequence(cu_ptr, b, T)
    return b, start, length, n * BLOCK_T


@triton.jit
def chunks_of(sequences, b, BLOCK_T: tl.constexpr):
    # The first row of sequence `b`, its length, and the number of its first chunk.
    cu_ptr, first_ptr, _, T = sequences
    start, length = sequence(cu_ptr, b, T)
    if cu_ptr is None:
        first = b * tl.cdiv(T, BLOCK_T)
    else:
        first = tl.load(first_ptr + b)
    return start, length, first


class Chunks(NamedTuple):
    """Where the chunks are: what the kernels get, how many sequences there are, and how many chunks at most."""

    sequences: tuple
    batch: int
    count: int


# The lengths are on the GPU, and the host doesn't wait for them. It makes room for as many chunks as there can be: each
# sequence may have one that isn't full. Offsets that fall, or lead past the end, are moved to where they do no harm.
def cut(x, cu_seqlens, BLOCK_T):
    """`Chunks` of x (B, H, T, …); with `cu_seqlens` B is 1, and all sequences lie along T."""
    T = x.shape[2]
    if cu_seqlens is None:
        return Chunks((None, None, None, T), x.shape[0], x.shape[0] * triton.cdiv(T, BLOCK_T))
    batch = cu_seqlens.numel() - 1
    count = T // BLOCK_T + batch
    cu_seqlens = cu_seqlens.clamp(0, T).cummax(0).values
    ends = ((cu_seqlens.diff() + (BLOCK_T - 1)) // BLOCK_T).cumsum(0, dtype=torch.int32)
    first = torch.nn.functional.pad(ends, (1, 0))
    owner = torch.searchsorted(ends, torch.arange(count, dtype=torch.int32, device=x.device), right=True)
    owner = owner.clamp(max=max(batch - 1, 0)).to(torch.int32)
    return Chunks((cu_seqlens, first, owner, T), batch, count)


# A walk from chunk to chunk has one program for each head and tile of columns. Where those are few and the text is
# long, the fast versions cut it into parts, which are walked along at the same time. How many parts there are doesn't
# depend on the card, and so the bits of the result don't either.
def length_of_parts(T, programs, cu_seqlens):
    """Tokens of a part: all, if they aren't to be cut; or a power of two, from 512 on, that leaves about 256 programs.

    programs: how many there are if nothing is cut. A few times as many don't pay: parts are walked along twice.
    """
    if cu_seqlens is not None or programs > 64:
        return max(T, 1)
    return max(512, triton.next_power_of_2(T * programs // 256))


# How many tiles of each tensor a walk of the fast versions has in shared memory. A third one helps where it leaves room
# for as many programs on an SM: with heads of up to 64 numbers, and where queries aren't loaded, too. Forward linear
# attention of 2 x 16384 tokens and 8 heads of 64 takes 19 % less time with three, on an H200; at 1 x 16384 and 16 heads
# of 128 it takes 5 % more, and its backward pass 4 % less. Cards with less shared memory have room for two.
def stages_of(x, tiles, outputs):
    """x: a tensor on the card. outputs: whether the walk computes outputs, and so loads queries, too."""
    return 2 if outputs and tiles["BLOCK_D"] > 64 or device.shared_memory(x.device.index) < 2**17 else 3


# A tensor as the kernels take it: with its strides, of which packed sequences have none from one to the next. It may be
# missing.
def tensor(x, cu_seqlens=None):
    return (None, 0, 0, 0, 0) if x is None else strided(x, cu_seqlens)


def suits(*tensors):
    """Whether the fast kernels can take these (B, H, T, D): 16-bit numbers that a descriptor fits, at most 128 wide."""
    return all(x.numel() and x.shape[3] <= 128 and fits(x) for x in tensors)


# The states between chunks lie in memory only until the next kernel reads them. Beside bfloat16 rows they are rounded
# to bfloat16 before each product, see below; so they are stored like that, and half of their bytes are saved.
def states_between(q, state, chunks):
    """A state before each chunk, (chunks, H, D, E), not filled; `state` is one for each sequence."""
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32
    return state.new_empty(chunks.count, *state.shape[1:], dtype=dtype)


def new_state(q, v, cu_seqlens):
    """A state for each sequence of q (B, H, T, D) and v (B, H, T, E), not filled."""
    batch = v.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    return v.new_empty(batch, v.shape[1], q.shape[3], v.shape[3], dtype=torch.float32)


# No program writes rows that belong to no sequence. They are 0.
def new_like(x, cu_seqlens, dtype=None):
    make = torch.empty_like if cu_seqlens is None else torch.zeros_like
    return make(x, dtype=dtype)


# The two kernels of a chunk's gradients have constants of their own. The queries' has one stage: no tile is loaded
# before the last one was used. A state is both multiplied and summed number by number there. With two stages Triton 3.6
# and 3.7 keep it in a single place, and copy the next one there while the tensor cores may still read it. The keys' has
# eight warps where tiles are large: on four it has too few registers.
def of_queries(launch):
    return launch | dict(num_stages=1)


def of_keys(launch):
    large = launch["BLOCK_T"] == 64 and launch["BLOCK_D"] > 32
    return launch | dict(num_warps=8) if large else launch


# ## How much is left
#
# A gate, at most 0, is the logarithm of a decay. The textbook adds gates up from the chunk's start and takes a
# difference of two sums, [[tag: LA-L]]. That loses digits where both are large, gives ∞ − ∞ for a gate of −∞, and in
# the upper triangle it overflows. Here the decays *between* the two tokens are multiplied. A product is never above 1,
# and a gate of −∞ leaves exactly nothing of what came before it. The rounding error of a sum of −26 would be an error
# of a millionth in its exponential; each factor of the product has a sixteenth of that.
#
# A lane past the end has a gate of 0, and so has a call without gates.
@triton.jit
def load_gates(
    g_tensor,  # (pointer, strides) of (B, H, T); the pointer may be None
    b, h, start, offs_t, length,
):  # fmt: skip
    ptr, _, _, _, _ = g_tensor
    if ptr is None:
        g = tl.zeros(offs_t.shape, tl.float32)
    else:
        ptr, stride_t, _ = head(g_tensor, b, h, start)
        g = tl.load(ptr + offs_t.to(tl.int64) * stride_t, mask=offs_t < length, other=0.0).to(tl.float32)
    return g


# What one gate leaves: its exponential. Dozens of them are multiplied, so their errors add up, and those of the
# hardware's exponential all point the same way: `tl.exp` multiplies by the logarithm of e to base two and raises two to
# that power. In float32 the logarithm is too small by a part in 75 million. Every factor is then too large, and a
# product of forty ordinary gates by 4 · 10⁻⁷, before the error of the power itself, which is up to two units in the
# last place.
#
# This one is right to about a unit in the last place, and as often too large as too small.
LN2_HIGH = tl.constexpr(0.693359375)
LN2_LOW = tl.constexpr(-2.12194440e-4)


# The nearest power of two is taken out, with ln 2 in two parts: the first has so few digits that its product is exact.
# (`tl.floor` rounds down to a whole number.) What is left is at most 0.35, and a polynomial does. A gate of 0 leaves
# exactly 1, one of −∞ exactly 0, and NaN stays NaN.
@triton.jit
def decay_of(g):
    g = tl.where(g < -120.0, -120.0, g)
    # With a half added, rounding down becomes rounding to the nearest whole number.
    power = tl.floor(g * LOG2E + 0.5)
    r = (g - power * LN2_HIGH) - power * LN2_LOW
    tail = 1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040))))
    return (1.0 + r * (1.0 + r * (0.5 + r * tail))) * tl.exp2(power)


# A row for each reading token i, a column for each token j that it reads. `tl.cumprod` multiplies along an axis and
# keeps all products on the way. That takes a round of exchanges between threads for each halving of the tile. Beside
# 16-bit numbers, of type `dtype`, the textbook's sums are exact enough: see below.
@triton.jit
def decay_between(g, dtype: tl.constexpr):
    place = tl.arange(0, g.shape[0])
    if dtype == tl.float32:
        left = tl.cumprod(tl.where(place[:, None] > place[None, :], decay_of(g)[:, None], 1.0), axis=0)
        left = tl.where(place[:, None] >= place[None, :], left, 0.0)
    else:
        sums, _, _, _ = decays_of_sums(g)
        left = between_sums(sums)
    return left


# The same with rows and columns swapped. Computing it anew is safer than transposing a tile that was computed: some
# versions of the compiler get that wrong on Hopper.
@triton.jit
def decay_between_transposed(g, dtype: tl.constexpr):
    place = tl.arange(0, g.shape[0])
    if dtype == tl.float32:
        left = tl.cumprod(tl.where(place[None, :] > place[:, None], decay_of(g)[None, :], 1.0), axis=1)
        left = tl.where(place[None, :] >= place[:, None], left, 0.0)
    else:
        sums, _, _, _ = decays_of_sums(g)
        left = between_sums(sums, True)
    return left


@triton.jit
def multiply(x, y):
    return x * y


# What is left of the state before the chunk at each of its tokens.
@triton.jit
def decay_from_start(g):
    return tl.cumprod(decay_of(g), axis=0)


# What is left of each token at the chunk's end, and of the state before the chunk. `tl.reduce` makes one number of a
# row with a function of two numbers.
@triton.jit
def decay_to_end(g):
    place = tl.arange(0, g.shape[0])
    return tl.reduce(tl.where(place[None, :] > place[:, None], decay_of(g)[None, :], 1.0), 1, multiply)


@triton.jit
def decay_of_all(g):
    return tl.reduce(decay_of(g), 0, multiply)


# Beside 16-bit numbers sums of the gates are exact enough, and cheaper: the hardware has an instruction for powers of
# two. A gate of −∞ would make ∞ − ∞ of a difference. One of −100 leaves 4 · 10⁻⁴⁴, which is as good as nothing.
@triton.jit
def decays_of_sums(g):
    # The sums, what is left of the state before the chunk, of each token at the chunk's end, and of that state there.
    g = tl.where(g < -100.0, -100.0, g) * LOG2E
    sums, whole = tl.cumsum(g, axis=0), tl.sum(g, axis=0)
    return sums, tl.exp2(sums), tl.exp2(whole - sums), tl.exp2(whole)


# A row for each reading token; or, transposed, for each token that is read.
@triton.jit
def between_sums(sums, TRANSPOSED: tl.constexpr = False):
    place = tl.arange(0, sums.shape[0])
    if TRANSPOSED:
        left = tl.where(place[None, :] >= place[:, None], tl.exp2(sums[None, :] - sums[:, None]), 0.0)
    else:
        left = tl.where(place[:, None] >= place[None, :], tl.exp2(sums[:, None] - sums[None, :]), 0.0)
    return left


# ## TF32
#
# A tensor core doesn't multiply float32 numbers. It takes them as TF32: of the 23 bits of a fraction it looks at 10 and
# drops the rest. So every factor becomes smaller, by a part in 2900 on average, and so does a sum of many products:
# errors that all point the same way don't cancel. Rounded to the nearest number of 10 bits first, a factor
# is as often too large as too small.
#
# Adding a half of what the last bit that stays is worth rounds up where the dropped bits are a half or more. The
# fraction is at the end of the number, and the exponent above it: so a carry out of the fraction is right, too. NaN is
# left alone. With all bits set, the sum would be no NaN any more.
@triton.jit
def round_to_tf32(x):
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


# ## Products with a state
#
# A state is float32. Beside bfloat16 rows it is rounded to bfloat16, which has float32's range. float16 ends at 65504,
# and a sum over a long sequence may be larger: so the rows become float32 instead. TF32 keeps as many digits as
# float16.
@triton.jit
def state_product(rows, state, INPUT_PRECISION: tl.constexpr):
    if rows.dtype == tl.float16:
        product = tl.dot(rows.to(tl.float32), round_to_tf32(state), input_precision="tf32")
    else:
        product = tl.dot(rows, state.to(rows.dtype), input_precision=INPUT_PRECISION)
    return product


# ## The gradient of the gates
#
# Gate t stands between every token before it and every token from it on. Its gradient is a sum over all that passes it,
# each already multiplied by what is left of it, [[tag: LA-dg]]:
#
# - `m`: from a token j before it to a token i not before it, both in this chunk, a row for each j;
# - `out`: from the state before the chunk to token i;
# - `into`: from token j to the state after the chunk;
# - `through`: from the one state to the other.
#
# All terms are sums of products. The usual short cut takes the difference of two sums that share most of their terms;
# under strong decay nothing but rounding is left of it.
@triton.jit
def sums_from(out):
    # For each t the sum of what is at t and later.
    place = tl.arange(0, out.shape[0])
    return tl.sum(tl.where(place[:, None] >= place[None, :], out[:, None], 0.0), axis=0)


@triton.jit
def gate_gradient(m, into, dtype: tl.constexpr):
    place = tl.arange(0, into.shape[0])
    from_t, before = place[:, None] >= place[None, :], place[:, None] < place[None, :]
    m = tl.where(before, m, 0.0)
    # A sum over i ≥ t is a product with a triangle of ones. Its zeros would make NaN of an infinity that has no part in
    # the sum: what isn't finite is counted apart. Beside 16-bit factors TF32 is exact enough.
    PRECISION: tl.constexpr = "ieee" if dtype == tl.float32 else "tf32"
    finite = tl.abs(m) < float("inf")
    terms, ones = tl.where(finite, m, 0.0), from_t.to(tl.float32)
    if dtype == tl.float16:
        coarse = round_to_tf32(terms)
        inside = tl.dot(coarse, ones, input_precision="tf32")
        inside = tl.dot(terms - coarse, ones, inside, input_precision="tf32")
    else:
        inside = tl.dot(terms, ones, input_precision=PRECISION)
    spoilt = tl.dot((~finite).to(tl.float16), from_t.to(tl.float16), input_precision="ieee") > 0.0
    inside = tl.where(spoilt, float("nan"), inside)
    return tl.sum(tl.where(before, inside + into[:, None], 0.0), axis=0)


# ## The inverse of a triangle
#
# (I + A) is a triangle with ones on its diagonal, and so is its inverse, [[tag: GD-T]]. Of two halves with the inverses
# T₁ and T₂ and the block B below the diagonal between them, the whole has the inverse
#
# | | |
# |---|---|
# | T₁ | 0 |
# | -T₂ B T₁ | T₂ |
#
# So it grows from blocks of two tokens to blocks of four, eight, and so on, all blocks at once: `cross` is what of A
# lies between the halves of each pair. Squaring A again and again would be shorter. But with similar keys its powers
# grow beyond 10⁹, while no number of the inverse is above 1, and no digit is right. Here A is multiplied by inverses
# only, and never by itself.
@triton.jit
def inverse_of_system(a, BLOCK_T: tl.constexpr, PRECISION: tl.constexpr):
    place = tl.arange(0, BLOCK_T)
    rows, columns = place[:, None], place[None, :]
    inverse = tl.where(rows == columns, 1.0, 0.0) - tl.where(rows // 2 == columns // 2, a, 0.0)
    for level in tl.static_range(1, 7):
        if 2**level < BLOCK_T:
            half, pair = 2**level, 2 ** (level + 1)
            cross = tl.where((rows // pair == columns // pair) & (rows // half != columns // half), a, 0.0)
            taken = tl.dot(inverse, cross, input_precision=PRECISION)
            inverse -= tl.dot(taken, inverse, input_precision=PRECISION)
    # The ones on the diagonal are left out: what a token writes of its own is added in float32, and only what others
    # take away is rounded.
    return inverse - tl.where(rows == columns, 1.0, 0.0)


# ## Contract
#
# Everything that can be checked without looking at values is checked before anything is launched. Looking at values
# means waiting for the GPU: so that is done on the CPU, and on a GPU on request.
def contract(
    q, k, v, g, scale, initial_state, return_final_state, cu_seqlens=None, packed=False, per_channel=False, **more
):
    """Checks the arguments, and returns the scale as a float. per_channel: whether g has a gate for each number of a
    key. more: tensors with a number for each token and head, which must be there."""
    layout, last = ("total, H, D", 2) if packed else ("B, T, H, D", 3)
    checks.tensors(q=q, k=k, v=v, **more)
    checks.optional_tensors(g=g, initial_state=initial_state)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, k=k, v=v)
    checks.dimensions("q", q, last + 1, layout)
    checks.same_shape(q=q, k=k)
    checks.dimensions("v", v, last + 1, layout)
    if v.shape[:-2] != q.shape[:-2]:
        raise ValueError(f"v must have the tokens of q, {tuple(q.shape[:-2])}, got shape {tuple(v.shape)}")
    if q.shape[-2] == 0 or v.shape[-2] % q.shape[-2]:
        raise ValueError(f"v must have a multiple of the heads of q, {q.shape[-2]}, got shape {tuple(v.shape)}")
    for name, x in ("q", q), ("v", v):
        if not 1 <= x.shape[-1] <= LARGEST_HEAD:
            raise ValueError(f"{name} must have a head dimension of 1 to {LARGEST_HEAD}, got shape {tuple(x.shape)}")
    for name, x in (("g", g), *more.items()):
        if x is not None:
            checks.dtypes((torch.float32, q.dtype), **{name: x})
            expected, what = tuple(v.shape[:-1]), "a number for each token and head of v"
            if per_channel and name == "g":
                expected, what = (*expected, q.shape[-1]), "a number for each token, head of v and column of k"
            checks.shape(name, x, expected, what)
    if scale is not None:
        checks.number("scale", scale)
    checks.choice("return_final_state", return_final_state, (True, False))
    batch = q.shape[0] if not packed else sequences_contract(q.shape[0], cu_seqlens)
    if initial_state is not None:
        checks.dtypes((torch.float32,), initial_state=initial_state)
        expected = (batch, v.shape[-2], q.shape[-1], v.shape[-1])
        checks.shape("initial_state", initial_state, expected, "sequences, heads of v, D of q, D of v")
    present = dict(k=k, v=v, g=g, initial_state=initial_state, cu_seqlens=cu_seqlens, **more)
    same_device(q=q, **{name: x for name, x in present.items() if x is not None})
    if checks.looks_at_values():
        for name, x in [("g", g)] * (g is not None):
            if bool((x > 0).any()):
                raise ValueError(f"{name} must be at most 0, the logarithm of a decay, got {x.max().item():.4g}")
    return q.shape[-1] ** -0.5 if scale is None else float(scale)
