r"""
# Keys of a list

What the kernels share that read the keys which a list names: what a number in a list means, where its key lies, and how
the gradients that many queries have for one key are added up in a fixed order.
"""

from academy.runtime import checks  # before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.paged import load_rows


# ## A number in a list
#
# It is a key, or −1 for none, which may stand anywhere. What lies past the end of the list is none, too. Any other
# number outside of the keys is a mistake of the caller's, such as an index of another sequence: it must not pass for
# none, and must never become an address.
@triton.jit
def load_list(lists_tensor, b, t, offs_k, K):
    # (pointer, four strides) of (B, T, K), as `strided` makes it.
    ptr, stride_k, _ = head(lists_tensor, b, t, 0)
    return tl.load(ptr + offs_k.to(tl.int64) * stride_k, mask=offs_k < K, other=-1)


@triton.jit
def is_key(j, pages):
    num_pages, page_size = pages
    return (j >= 0) & (j < tl.cast(num_pages, tl.int64) * page_size)


# The rows of the keys, latents and rotated parts; zeros where there is none.
@triton.jit
def load_keys(
    keys_tensor, j, pages, R: tl.constexpr, E: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    ptr, stride_p, stride_s, stride_h, stride_d = keys_tensor
    _, page_size = pages
    page, slot, mask = j // page_size, j % page_size, is_key(j, pages)
    rotated = ptr + tl.cast(stride_d, tl.int64) * R, stride_p, stride_s, stride_h, stride_d
    return (
        load_rows(keys_tensor, 0, page, slot, mask, R, BLOCK_R),
        load_rows(rotated, 0, page, slot, mask, E, BLOCK_E),
    )


def one_page(keys):
    """(pages, keys of a page) where all keys lie in one piece."""
    return min(len(keys), 1), max(len(keys), 1)


# A score of what is none is −∞, which weighs nothing. Of a mistake it is NaN, and so is all that it takes part in.
@triton.jit
def score_or_none(s, j, pages):
    s = tl.where(is_key(j, pages), s, float("nan"))
    return tl.where(j == -1, -float("inf"), s)


# Rows are queries. Most lists have keys only. That the rest stands in a branch makes the product before it faster, too:
# [decoding from latents](../attention/mla_decode.py) says why.
@triton.jit
def score_of_tile(s, j, pages):
    if tl.min(is_key(j, pages).to(tl.int32), axis=0) == 0:
        s = score_or_none(s, j[None, :], pages)
    return s


# ## The sum of a key
#
# Each query of a launch has left a row for each number of its list. A stable sort by key puts the rows of a key side by
# side, in the order of the queries, and `first_of` tells where they begin. A program has a key and adds its rows, one
# after the other, to what earlier launches have left. So it makes no difference how many queries a launch has. What is
# none comes before the first key, and is never read.
#
# A popular key has thousands of rows. Added one by one in float32, they would lose a digit or two. The sum is float64:
# beside a row's way from memory one addition in float64 takes no time on an A100, an H100 or a B200. (An RTX 5090
# has but two units for it in each SM, and takes longer.)
@triton.jit
def add_rows_kernel(
    rows_ptr, order_ptr, first_of_ptr, dk_ptr,  # (rows, D); (rows,); (S + 1,); (S, D) in float64; all contiguous
    D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    j, offs_d = tl.program_id(0), tl.arange(0, BLOCK_D)
    dk_ptrs = dk_ptr + j.to(tl.int64) * D + offs_d
    acc = tl.load(dk_ptrs, mask=offs_d < D, other=0.0)
    for place in tl.range(tl.load(first_of_ptr + j), tl.load(first_of_ptr + j + 1)):
        at = tl.load(order_ptr + place)
        acc += tl.load(rows_ptr + at * D + offs_d, mask=offs_d < D, other=0.0).to(tl.float64)
    tl.store(dk_ptrs, acc, mask=offs_d < D)


ROOM = 2**26  # numbers in the rows of a launch


def launches(lists, D, queries=None):
    """The first query of each launch, and its part of the lists, (M, K).

    D: numbers in a row. queries: so many in each launch.
    """
    M, K = lists.shape
    queries = max(1, min(M, ROOM // max(K * D, 1))) if queries is None else queries
    return [(first, lists[first : first + queries]) for first in range(0, M, queries)]


def add_rows(rows, lists, dk):
    """Adds to each row of dk, (S, D) in float64, those that belong to it of `rows`, (the numbers of `lists`, D) in
    float32."""
    S, D = dk.shape
    in_order, order = torch.sort(lists.flatten(), stable=True)
    if S:
        keys = torch.arange(S + 1, dtype=in_order.dtype, device=dk.device)
        first_of = torch.searchsorted(in_order, keys, out_int32=True)
        BLOCK_D = max(32, triton.next_power_of_2(D))
        add_rows_kernel[(S,)](rows, order, first_of, dk, D=D, BLOCK_D=BLOCK_D, num_warps=max(1, BLOCK_D // 256))


# ## Arguments
#
# Looking at the numbers means waiting for the GPU. So this check runs on the CPU, and on a GPU on request.
def list_contract(name, lists, count, shape, meaning):
    """Raises on a list that isn't of this shape, or on a number outside of [−1, count) where values are looked at."""
    checks.shape(name, lists, shape, meaning)
    if checks.looks_at_values() and ((lists < -1) | (lists >= count)).any():
        raise ValueError(f"{name} must be in [-1, {count}), got {int(lists.min())} to {int(lists.max())}")
