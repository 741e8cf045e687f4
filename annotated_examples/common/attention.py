r"""
# What attention kernels share

Tiles of rows and columns of a strided tensor, capped scores, and the options that a caller gives: which keys a query
sees, the scale, the cap and the sinks.
"""

from academy.runtime import checks

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from annotated_examples.common.products import rows_by_rows

LARGEST_HEAD = 256

# A window that is open on one side reaches this far. Keys of 128 numbers for so long a sequence would take 137 GB in 16
# bits. And the sum of a few such numbers still fits into 32 bits.
OPEN = 2**29


# ## Tensors and tiles
#
# A kernel needs a tensor's address and its strides, and attention has many tensors. So each arrives as one tuple: the
# pointer to the first element, and the distance in memory from one sequence to the next, from head to head, from token
# to token, and from column to column. `head` goes to one head of one sequence. What is left is a matrix, a row for
# each token. Offsets are 64 bits wide: a cache of long contexts has more than 2³¹ elements.
@triton.jit
def head(tensor, b, h, row):
    # Head `h` of sequence `b`, from row `row` on.
    ptr, stride_b, stride_h, stride_t, stride_d = tensor
    ptr = ptr + tl.cast(b, tl.int64) * stride_b + tl.cast(h, tl.int64) * stride_h + tl.cast(row, tl.int64) * stride_t
    return ptr, stride_t, stride_d


# A tile holds some rows of such a matrix (queries, keys or values, one per token) and all of their `D` numbers. Its
# width is a power of two. Rows past the end and columns past `D` are zeros, so they add nothing to a product.
@triton.jit
def tile_offsets(rows, stride_t, stride_d, BLOCK_D: tl.constexpr):
    columns = tl.arange(0, BLOCK_D).to(tl.int64)
    return rows.to(tl.int64)[:, None] * stride_t + columns[None, :] * stride_d


@triton.jit
def load_tile(matrix, rows, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride_t, stride_d = matrix
    mask = (rows < length)[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    return tl.load(ptr + tile_offsets(rows, stride_t, stride_d, BLOCK_D), mask=mask, other=0.0)


@triton.jit
def store_tile(matrix, values, rows, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride_t, stride_d = matrix
    mask = (rows < length)[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    tl.store(ptr + tile_offsets(rows, stride_t, stride_d, BLOCK_D), values, mask=mask)


# The log-sum-exp and its like have one number for each token, and no columns.
@triton.jit
def load_numbers(matrix, rows, length):
    ptr, stride_t, _ = matrix
    return tl.load(ptr + rows.to(tl.int64) * stride_t, mask=rows < length, other=0.0)


@triton.jit
def store_numbers(matrix, values, rows, length):
    ptr, stride_t, _ = matrix
    tl.store(ptr + rows.to(tl.int64) * stride_t, values, mask=rows < length)


# The dot products of equal rows: the diagonal of a matrix product. Multiplying element by element would do as well, but
# tensor cores add up in their own order. This way the sums are rounded like those of dP: with a single key the two are
# equal, and the gradient of its score is exactly 0.
@triton.jit
def dot_rows(a, b, INPUT_PRECISION: tl.constexpr):
    products = rows_by_rows(a, b, INPUT_PRECISION)
    place = tl.arange(0, a.shape[0])
    return tl.sum(tl.where(place[:, None] == place[None, :], products, 0.0), axis=1)


# ## Sequences
#
# Sequences of different lengths may be packed one after another into a tensor without a batch dimension. Then `cu_ptr`
# holds where each sequence begins, and one more number: where the last one ends. Numbers that make no sense are
# clamped: they must never become an address outside of the tensor.
@triton.jit
def sequence(cu_ptr, b, length):  # (sequences + 1,), or None
    start = 0
    if cu_ptr is not None:
        start = tl.minimum(tl.maximum(tl.load(cu_ptr + b), 0), length)
        length = tl.minimum(tl.maximum(tl.load(cu_ptr + b + 1), start), length) - start
    return start, length


# ## Scores
#
# [[tag: AT-S]]: the products of queries and keys, scaled and then capped, [[tag: AT-cap]]. The slope is the factor that
# the cap puts on the gradient, [[tag: AT-cap-dS]].
@triton.jit
def scale_and_cap(s, scale, softcap: tl.constexpr):
    # Inside `torch.compile` a Python float arrives as float64, and would make all of this float64. The sum with nothing
    # keeps the product's rounding: the backward kernels subtract `lse` next, and the compiler would make one rounding
    # of both. Then P wouldn't be that of the forward kernel: next to a score of 10⁸ the lost half unit is 4.
    s = tl.fma(s, tl.cast(scale, tl.float32), 0.0)
    slope = 1.0
    if softcap != 0.0:
        tanh = libdevice.tanh(s / softcap)
        s = softcap * tanh
        slope = 1.0 - tanh * tanh
    return s, slope


# The weights once more, exp(S − L), in a backward kernel. L is as large as the scores. Next to a score of 300 a float32
# is off by up to 2⁻¹⁶, and all weights of the row would be off by that factor. PyTorch's aren't: it has kept them. So
# for float32 `lse` is stored in float64 (`lse_dtype`): the forward kernel adds the logarithm in the dtype of that
# tensor, and a row without a key gets −∞. `weights` subtracts it in two parts, of which the first difference is exact
# for the keys that count. In 16 bits P is rounded to 16 bits anyway.
@triton.jit
def log_sum_exp(row_max, row_sum, lse_tensor):  # (rows,), (rows,); (pointer, strides) of (B, H, T)
    lse = row_max.to(lse_tensor[0].dtype.element_ty) + tl.log(row_sum)
    return tl.where(row_sum == 0.0, -float("inf"), lse)


@triton.jit
def weights(s, lse):
    nearest = lse.to(tl.float32)
    s = s - nearest
    if lse.dtype == tl.float64:
        s -= (lse - nearest).to(tl.float32)
    return tl.exp(s)


# ## Options
class Options(NamedTuple):
    """What a kernel is told besides its tensors.

    scale: of the scores. left, right: how many keys before and after its own position a query sees. softcap: 0.0 is
    off. max_seqlen_q, max_seqlen_k: the longest sequence, from which the launchers compute their grids.
    """

    scale: float
    left: int
    right: int
    softcap: float
    max_seqlen_q: int
    max_seqlen_k: int


def window_bounds(causal, window):
    """(left, right) with OPEN for an open side. Raises if `window` isn't a valid one, or needs `causal` and doesn't get
    it."""
    checks.choice("causal", causal, (True, False))
    left, right = OPEN, OPEN
    if isinstance(window, int) and not isinstance(window, bool):
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        if not causal:
            raise ValueError("window as an int needs causal=True; pass (left, right) otherwise")
        left = min(window - 1, OPEN)
    elif window is not None:
        left, right = (OPEN if side == -1 else min(side, OPEN) for side in _sides(window))
    return left, 0 if causal else right


def _sides(window):
    wanted = "window must be None, an int or a pair of ints (left, right)"
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"{wanted}, got {window!r}")
    for side in window:
        if isinstance(side, bool) or not isinstance(side, int):
            raise TypeError(f"{wanted}, got {window!r}")
        if side < -1:
            raise ValueError(f"window must have sides of at least 0, or -1 for open, got {window!r}")
    return window


def options_contract(q, scale, softcap, sinks):
    """Checks the arguments that both attention and decode take, and returns the scale."""
    H, D = q.shape[1], q.shape[-1]
    if not 1 <= D <= LARGEST_HEAD:
        raise ValueError(f"q must have a head dimension of 1 to {LARGEST_HEAD}, got shape {tuple(q.shape)}")
    if scale is not None:
        checks.number("scale", scale)
    checks.number("softcap", softcap, at_least=0)
    if sinks is not None:
        checks.tensors(sinks=sinks)
        checks.dtypes((q.dtype, torch.float32), sinks=sinks)
        checks.shape("sinks", sinks, (H,), "one for each head of q")
        same_device(q=q, sinks=sinks)
    return 1 / math.sqrt(D) if scale is None else float(scale)


def group_contract(q, k, axis, names):
    """Each head of k and v serves a group of heads of q, and all groups are equally large."""
    if k.shape[axis] == 0 or q.shape[1] % k.shape[axis]:
        raise ValueError(f"q must have a multiple of the heads of {names}, {k.shape[axis]}, got shape {tuple(q.shape)}")


def same_device(**named):
    (first, reference), *rest = named.items()
    for name, value in rest:
        if value.device != reference.device:
            raise ValueError(f"{name} must be on the device of {first}, {reference.device}, got {value.device}")


# ## Arguments of flash attention
#
# Everything that can be checked without looking at values is checked before anything is launched.
def contract(q, k, v, causal, scale, window, softcap, sinks, return_lse, layout="B, H, T, D"):
    """Checks everything but the lengths, and returns `Options` for one sequence per batch entry."""
    checks.tensors(q=q, k=k, v=v)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, k=k, v=v)
    checks.dimensions("q", q, layout.count(",") + 1, layout)
    checks.dimensions("k", k, q.dim(), "as q")
    checks.same_shape(k=k, v=v)
    same_device(q=q, k=k, v=v)
    checks.choice("return_lse", return_lse, (True, False))
    group_contract(q, k, 1, "k and v")
    checks.programs("q", "heads", q.shape[1])
    if k.shape[-1] != q.shape[-1] or q.dim() == 4 and k.shape[0] != q.shape[0]:
        raise ValueError(f"k must have the batch and head dimension of q, {tuple(q.shape)}, got {tuple(k.shape)}")
    scale = options_contract(q, scale, softcap, sinks)
    left, right = window_bounds(causal, window)
    return Options(scale, left, right, float(softcap), q.shape[-2], k.shape[-2])


def varlen_contract(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options):
    """`options` with the lengths of the longest sequences."""
    checks.tensors(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    checks.dtypes((torch.int32,), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    checks.dimensions("cu_seqlens_q", cu_seqlens_q, 1, "where each sequence begins, and where the last ends")
    checks.same_shape(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    same_device(q=q, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    if cu_seqlens_q.numel() == 0:
        raise ValueError("cu_seqlens_q must have at least one element, got none")
    longest = []
    for name, x, cu_seqlens, given in ("q", q, cu_seqlens_q, max_seqlen_q), ("k", k, cu_seqlens_k, max_seqlen_k):
        if given is not None:
            checks.whole_number(f"max_seqlen_{name}", given, at_least=0)
        if checks.looks_at_values():
            check_offsets(f"cu_seqlens_{name}", cu_seqlens, x.shape[0], f"max_seqlen_{name}", given)
        longest.append(x.shape[0] if given is None else min(given, x.shape[0]))
    return options._replace(max_seqlen_q=longest[0], max_seqlen_k=longest[1])


# Looking at the offsets means waiting for the GPU. So this check runs on the CPU, and on a GPU on request.
def check_offsets(name, cu_seqlens, total, name_of_longest, longest):
    offsets = cu_seqlens.tolist()
    lengths = [end - start for start, end in zip(offsets, offsets[1:])]
    if offsets[0] != 0 or offsets[-1] != total or min(lengths, default=0) < 0:
        raise ValueError(f"{name} must rise from 0 to the number of rows, {total}, got {offsets}")
    if longest is not None and max(lengths, default=0) > longest:
        raise ValueError(f"{name_of_longest} must be at least the longest sequence, {max(lengths)}, got {longest}")


# ## What attention's launchers share
#
# A tensor as the kernels take it. Packed sequences form a single batch entry, so there is no stride from one sequence
# to the next; rows of single numbers have no columns.
def strided(x, cu_seqlens=None):
    """`(x, stride_b, stride_h, stride_t, stride_d)`: x is (B, H, T, D), or (B, H, T) with a stride_d of 0."""
    stride_b, *others = x.stride()
    return x, stride_b if cu_seqlens is None else 0, *others, *[0] * (4 - x.dim())


# No program writes rows that belong to no sequence. Filled with NaN, they can't be mistaken for a result.
def empty_like(x, cu_seqlens):
    new = torch.empty_like(x)
    return new if cu_seqlens is None else new.fill_(float("nan"))


def new_rows(x, shape, cu_seqlens, dtype=torch.float32):
    """A new tensor on the device of x."""
    new = torch.empty(shape, dtype=dtype, device=x.device)
    return new if cu_seqlens is None else new.fill_(float("nan"))


def lse_dtype(dtype):
    """In which log-sum-exps are kept for the backward pass of tensors of this dtype; see `weights`."""
    return torch.float64 if dtype == torch.float32 else torch.float32


def batches(x, cu_seqlens):
    return x.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1


# [[tag: AT-dsink]]: the gradient of a sink is its probability times the per-row number that the gradients of all other
# scores also contain.
def sink_gradient(sinks, lse, delta):
    if sinks is None:
        return None
    p = torch.exp(sinks.float()[:, None] - lse)
    return (p * delta).sum((0, 2)).neg().to(sinks.dtype)
