"""What functions that kernels call make of given numbers, for the pictures that show it. Each is called in a kernel of its
own, in the interpreter."""

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import stochastic
from annotated_examples.fast.mx_matmul import in_threads, two_codes
from annotated_examples.fast.quantized_decode import numbers
from annotated_examples.moe.router import sort_key


@triton.jit
def two_codes_kernel(words_ptr, both_ptr, ONE: tl.constexpr):
    words = tl.load(words_ptr + tl.arange(0, ONE))[:, None]
    planes = tl.arange(0, ONE)[:, None, None] * 4 + tl.arange(0, 4)[None, :, None]
    tl.store(both_ptr + planes, two_codes(words, False))


@triton.jit
def in_threads_kernel(words_ptr, out_ptr, WORDS: tl.constexpr):
    at = tl.arange(0, 1)[:, None] + tl.arange(0, WORDS)[None, :]
    tl.store(out_ptr + at, in_threads(tl.load(words_ptr + at), True))


@triton.jit
def sort_key_kernel(scores_ptr, keys_ptr, expert, COUNT: tl.constexpr, EXPERTS: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(keys_ptr + at, sort_key(tl.load(scores_ptr + at), at * 0 + expert, EXPERTS))


@triton.jit
def stochastic_kernel(values_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, stochastic(tl.load(values_ptr + at), 0, at.to(tl.int64), 3, -6))


@triton.jit
def numbers_kernel(units_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    for i in tl.static_range(4):
        tl.store(out_ptr + i * COUNT + at, numbers(tl.load(units_ptr + at), i, 4))


def planes_of(word: int) -> list[int]:
    """Two bfloat16 codes for each plane of a word, as `two_codes` gives them."""
    both = torch.empty(4, dtype=torch.int32)
    two_codes_kernel[(1,)](torch.tensor([word], dtype=torch.int32), both, 1)
    return [each & 0xFFFFFFFF for each in both.tolist()]


def order_of_words(count: int) -> list[int]:
    order = torch.empty(count, dtype=torch.int32)
    in_threads_kernel[(1,)](torch.arange(count, dtype=torch.int32), order, count)
    return order.tolist()


def keys_of(scores: list[float], expert: int, experts: int) -> list[int]:
    keys = torch.empty(len(scores), dtype=torch.int64)
    sort_key_kernel[(1,)](torch.tensor(scores), keys, expert, len(scores), experts)
    return keys.tolist()


def draws_of(value: float, count: int) -> list[float]:
    """Codes of e4m3 that `stochastic` gives a number, at `count` places of a tensor."""
    out = torch.empty(count)
    stochastic_kernel[(1,)](torch.full((count,), value), out, count)
    return out.tolist()


def numbers_of(units: torch.Tensor) -> list[list[float]]:
    """For each place in a unit of four codes, the numbers that `numbers` makes of them."""
    out = torch.empty(4, len(units), dtype=torch.bfloat16)
    numbers_kernel[(1,)](units, out, len(units))
    return out.tolist()
