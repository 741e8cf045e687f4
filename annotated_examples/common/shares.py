r"""
# The mean of tokens: what each sequence's sum is multiplied by

A loss of many tokens ends in few numbers: of each part of a sequence, the sum of its terms and how much of it counts.
The [policy losses](../classics/policy_loss.py) say which means there are. Here one program adds up and divides. In
PyTorch that would be several operations on a few numbers, each a launch.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl


@triton.jit
def of_sequences(parts_ptr, offs_b, B, N, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr):
    sums = tl.zeros((BLOCK_B,), tl.float32)
    for start_n in range(0, N, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        mask = (offs_b < B)[:, None] & (offs_n < N)[None, :]
        sums += tl.sum(tl.load(parts_ptr + offs_b[:, None] * N + offs_n[None, :], mask=mask, other=0.0), 1)
    return sums


# `n` is what all sums are divided by: a number, or one in memory, or with `COUNTED` what counts in all sequences. With
# `EACH` a sequence is divided by what counts in it, and by the number of sequences. Where nothing counts, the share
# is 0.
@triton.jit
def mean_kernel(
    sums_ptr, counts_ptr, n_ptr,  # (B, N) each; a number, or None
    shares_ptr, loss_ptr,  # (B,), and one number
    B, N, n, COUNTED: tl.constexpr, EACH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    n = tl.cast(n, tl.float32)
    if n_ptr is not None:
        n = tl.load(n_ptr).to(tl.float32)
    if COUNTED:
        for start_b in range(0, B, BLOCK_B):
            offs_b = (start_b + tl.arange(0, BLOCK_B)).to(tl.int64)
            n += tl.sum(of_sequences(counts_ptr, offs_b, B, N, BLOCK_B, BLOCK_N), 0)
    losses = tl.zeros((BLOCK_B,), tl.float32)
    for start_b in range(0, B, BLOCK_B):
        offs_b = (start_b + tl.arange(0, BLOCK_B)).to(tl.int64)
        each = tl.zeros((BLOCK_B,), tl.float32) + n
        if EACH:
            each = of_sequences(counts_ptr, offs_b, B, N, BLOCK_B, BLOCK_N) * B
        share = tl.where(each > 0.0, 1.0 / each, 0.0)
        tl.store(shares_ptr + offs_b, share, mask=offs_b < B)
        losses += of_sequences(sums_ptr, offs_b, B, N, BLOCK_B, BLOCK_N) * share
    tl.store(loss_ptr, tl.sum(losses, 0))


@replayed
def mean_of_tokens(sums, counts, reduction, n_items, max_length):
    """`(loss, shares)`, a number and (B,), from (B, parts) each. The rest as for `grpo_loss`."""
    B, N = sums.shape
    loss, shares = sums.new_empty(()), sums.new_empty(B)
    n = n_items.to(sums.device) if isinstance(n_items, torch.Tensor) else None
    number = B * max_length if reduction == "constant" else n_items if n is None and n_items is not None else 0
    BLOCK_N = min(64, triton.next_power_of_2(max(N, 1)))
    mean_kernel[(1,)](
        sums, counts, n, shares, loss, B, N, float(number), COUNTED=reduction == "token" and n_items is None,
        EACH=reduction == "sequence", BLOCK_B=min(1024 // BLOCK_N, triton.next_power_of_2(max(B, 1))), BLOCK_N=BLOCK_N,
    )  # fmt: skip
    return loss, shares
