r"""
# Halves of a chunk

What is left between two tokens of a chunk when every channel fades by itself: products of queries with keys, each
channel times its own decay, and the gradients of such products. Each pair of different tokens lies in the two halves of
exactly one block of 2, 4, 8, … tokens, and its decay is a factor for the row times a factor for the column there,
[[tag: KDA-L]]. Nothing is subtracted or divided, forward or backward: every factor is a product of decays, at most 1,
and a gate of −∞ leaves exactly nothing.
"""

from academy.runtime import device  # noqa: F401  (before anything imports triton)

import triton
import triton.language as tl

from annotated_examples.common.chunks import decay_of, multiply, round_to_tf32
from annotated_examples.common.constants import LOG2E


# What each gate leaves. Beside 16-bit numbers the hardware's instruction for powers of 2 is exact enough.
@triton.jit
def what_is_left(g, dtype: tl.constexpr):
    if dtype == tl.float32:
        left = decay_of(g)
    else:
        left = tl.exp2(g * LOG2E)
    return left


# What all gates of a chunk leave, along an axis.
@triton.jit
def left_of_all(left, axis: tl.constexpr):
    return tl.reduce(left, axis, multiply)


# ## The products within halves of `HALF` tokens
#
# Of decays: up to a token, its own included, and after a token to the end of its half. A block with three dimensions
# has a row of halves, and `tl.cumprod` along its middle axis multiplies inside of each half. What comes after a token
# begins with the next token's decay, which is loaded, as `next_left`: to divide by the token's own could be 0 by 0.
@triton.jit
def within_halves(left, next_left, HALF: tl.constexpr):
    shape: tl.constexpr = (left.shape[0] // HALF, HALF, left.shape[1])
    last = tl.arange(0, left.shape[0]) % HALF == HALF - 1
    rest = tl.where(last[:, None], 1.0, next_left)
    upto = tl.cumprod(tl.reshape(left, shape), axis=1)
    after = tl.cumprod(tl.reshape(rest, shape), axis=1, reverse=True)
    return tl.reshape(upto, left.shape), tl.reshape(after, left.shape)


# ## The products
#
# Of all levels the products of queries with keys, and of keys times β with keys. `second` says which tokens are in the
# second half of their block. On each level rows of first halves and columns of second halves are 0, and `pair` leaves
# out what lies in two different blocks. Only the factors are rounded to 16 bits, once each.
@triton.jit
def faded_products(q, own_k, k, left, next_left, INPUT_PRECISION: tl.constexpr):
    BLOCK_T: tl.constexpr = k.shape[0]
    place = tl.arange(0, BLOCK_T)
    p, a = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    for level in tl.static_range(0, 6):
        if 2**level < BLOCK_T:
            upto, after = within_halves(left, next_left, 2**level)
            second = (place // 2**level % 2 == 1)[:, None]
            fade, columns = tl.where(second, upto, 0.0), tl.where(second, 0.0, k * after).to(k.dtype)
            pair = place[:, None] // 2 ** (level + 1) == place[None, :] // 2 ** (level + 1)
            reads = tl.dot((q * fade).to(k.dtype), tl.trans(columns), input_precision=INPUT_PRECISION)
            asks = tl.dot((own_k * fade).to(k.dtype), tl.trans(columns), input_precision=INPUT_PRECISION)
            p += tl.where(pair, reads, 0.0)
            a += tl.where(pair, asks, 0.0)
    return p, a


# ## Their gradients
#
# Sums are products with zeros and ones. Beside 16-bit numbers TF32 is exact enough, if it is rounded and not cut off.
@triton.jit
def sums_across(ones, terms, dtype: tl.constexpr):
    if dtype == tl.float32:
        sums = tl.dot(ones, terms, input_precision="ieee")
    else:
        sums = tl.dot(ones, round_to_tf32(terms), input_precision="tf32")
    return sums


# `lam` and `alpha` are the gradients of the two products, and the turned ones have a row for each token that is read.
# They come as products of their own: what comes out of a product is never transposed, which some versions of the
# compiler get wrong on Hopper. Of a masked product the gradients are two masked products, level by level; what isn't
# below the diagonal takes part in none.
#
# A gate of a second half is in the factors of all readers of that half that are not before it; a gate of a first half
# is in those of the writers of that half that are before it. So on each level a gate's gradient is a sum over part of a
# half, of what the level adds to the gradient of a factor, times the factor.
@triton.jit
def faded_gradients(
    lam, lam_turned, alpha, alpha_turned, q, own_k, k, left, next_left, INPUT_PRECISION: tl.constexpr
):  # fmt: skip
    BLOCK_T: tl.constexpr = k.shape[0]
    rows, columns = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_T)[None, :]
    dq, down = tl.zeros(k.shape, tl.float32), tl.zeros(k.shape, tl.float32)
    dk, dg = tl.zeros(k.shape, tl.float32), tl.zeros(k.shape, tl.float32)
    for level in tl.static_range(0, 6):
        if 2**level < BLOCK_T:
            upto, after = within_halves(left, next_left, 2**level)
            second = rows // 2**level % 2 == 1
            pair = rows // 2 ** (level + 1) == columns // 2 ** (level + 1)
            written = tl.where(second, 0.0, k * after).to(k.dtype)
            dq_here = tl.dot(tl.where(pair, lam, 0.0).to(k.dtype), written, input_precision=INPUT_PRECISION)
            down_here = tl.dot(tl.where(pair, alpha, 0.0).to(k.dtype), written, input_precision=INPUT_PRECISION)
            dq_here, down_here = tl.where(second, dq_here * upto, 0.0), tl.where(second, down_here * upto, 0.0)
            reads = tl.where(second, q * upto, 0.0).to(k.dtype)
            asks = tl.where(second, own_k * upto, 0.0).to(k.dtype)
            dk_here = tl.dot(tl.where(pair, lam_turned, 0.0).to(k.dtype), reads, input_precision=INPUT_PRECISION)
            dk_here += tl.dot(tl.where(pair, alpha_turned, 0.0).to(k.dtype), asks, input_precision=INPUT_PRECISION)
            dk_here = tl.where(second, 0.0, dk_here * after)
            dq += dq_here
            down += down_here
            dk += dk_here
            passes = tl.where(second, columns >= rows, columns < rows) & (rows // 2**level == columns // 2**level)
            dg += sums_across(passes.to(tl.float32), q * dq_here + own_k * down_here + k * dk_here, k.dtype)
    return dq, down, dk, dg
