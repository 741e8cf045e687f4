r"""
# Token log-probabilities: how likely was that, and how undecided was the model?

A model that learns from rewards asks two things about every token that it wrote, two to four times a step: how likely
the token was, and how undecided the model was at that place. With the row of logits $x$, the token $c$ and the
temperature $\tau$, the *log-probability* of the token is

[[eq: LP]]

and the *entropy* of the distribution, in nats,

[[eq: LP-H]]

where $M$ is the row's largest logit, and $S$ and $E$ are the sums [[tag: LP-S]] and [[tag: LP-E]]. Both results may get
a gradient, and both go into the one of the logits, [[tag: LP-x]].

**What it costs.** The logits are 2.5 GB for 8192 tokens and a vocabulary of 151936 in bfloat16. Forward reads them
once, and both sums are made on the way. Backward reads them again and writes a gradient of the same size. So three
passes over that memory set the pace. PyTorch writes every log-probability, and then every product that the entropy adds
up. On an H200 forward takes [[bench: token_logprobs/8192x151936/forward/lesson.ms]],
[[bench: token_logprobs/8192x151936/forward/lesson.share]] of the speed of a copy, and
[[bench: token_logprobs/8192x151936/forward+backward/lesson.ms]] with the backward pass. PyTorch takes
[[bench: token_logprobs/8192x151936/forward/eager.ms]] and
[[bench: token_logprobs/8192x151936/forward+backward/eager.ms]], and compiled
[[bench: token_logprobs/8192x151936/forward/torch.compile.ms]] and
[[bench: token_logprobs/8192x151936/forward+backward/torch.compile.ms]]. [The fast version](../fast/token_logprobs.py)
gets to [[bench: token_logprobs/8192x151936/forward/ms]] and [[bench: token_logprobs/8192x151936/forward+backward/ms]].

**Contract.** `logits` is (…, vocab), float32, float16 or bfloat16, with any strides; `tokens` (…) has an integer for
each row. The results are float32. `logits[:, :-1]`, the logits of all tokens but the last, is read in place. A row
whose token is `ignore_index` has the results 0 and the gradient 0, and is *not read*. A logit of −∞ has the probability
0 and adds nothing, unless it is the token's: then the log-probability is −∞. A row with a NaN or $+\infty$, or with −∞
only, has NaN for results, and the other rows keep their bits. A row has the same bits in any batch.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.common.exponential import exp
from annotated_examples.common.logits import add_moments, labels_contract


# ## Reference
#
# As training libraries have it. An ignored row isn't looked at, and `masked_fill` keeps 0 · (−∞) out of the sum and out
# of its gradient.
def token_logprobs_reference(logits, tokens, *, temperature=1.0, ignore_index=-100):
    counts = tokens.long() != ignore_index
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p = torch.log_softmax(torch.where(counts[..., None], x, 0.0) / temperature, -1)
    p = log_p.exp()
    entropies = -(p * log_p.masked_fill(p == 0, 0.0)).sum(-1)
    logprobs = log_p.gather(-1, torch.where(counts, tokens.long(), 0)[..., None])[..., 0]
    return torch.where(counts, logprobs, 0.0), torch.where(counts, entropies, 0.0)


# ## Forward: a row in pieces
#
# A program takes one row, in blocks, as in [cross entropy](cross_entropy.py). What is new is a second sum beside the
# first: that of $(u - M) \, e^{u - M}$.
#
# [[figure: logprobs/pieces]]
#
# Of what it has seen of a row, it keeps four numbers: the largest logit, the two sums, and the token's logit. They are
# the *state* of the row, and it lies in memory. So the row may come in pieces, one launch each, with the state handed
# on. This file has whole rows, one piece each. [The next lesson](linear_token_logprobs.py) makes a piece of the
# vocabulary, gives it to these two kernels, and makes the next one in the same memory.


# A logit over the temperature. `tl.fma(x, s, 0.0)` is a product that is rounded here: fused with the subtraction of the
# maximum, which is rounded, the difference would not be exactly zero for the largest logit.
@triton.jit
def tempered(x, scaling):
    return tl.fma(x.to(tl.float32), scaling, 0.0)


@triton.jit
def token_logprobs_forward_kernel(
    logits_ptr,  # (B, T, width): the row [b, t] lies b · stride_xb + t · stride_xt behind the first
    tokens_ptr,  # (B · T,)
    state_ptr,  # (B · T, 4) in float32
    logprobs_ptr,  # (B · T,) in float32
    entropies_ptr,  # (B · T,) in float32
    T,
    stride_xb,
    stride_xt,
    start,
    width,
    vocab,
    ignore_index,
    temperature,
    BLOCK_N: tl.constexpr,
    FIRST: tl.constexpr,  # no piece of the row has been seen before: there is no state to read
):
    # Two strides lead to a row. So the logits of all tokens but the last are read where they are: to make one stride of
    # the two they would be copied, 2.5 GB. The example has `T = 2` tokens in a sequence, of which the third is cut off,
    # and the last of its rows begins at `pid=3: x_ptr = 44`.
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row // T * stride_xb + row % T * stride_xt
    token = tl.load(tokens_ptr + row).to(tl.int64)
    ignored = token == ignore_index
    # An ignored row ends before its first block, and nothing of it is read: `pid=1: end = 0`.
    end = tl.where(ignored, 0, width)
    # The temperature is no constexpr: each new value would be compiled. `tl.div_rn` divides as IEEE says; a plain `/`
    # is an approximation on a GPU, and would make every logit a little wrong. Inside `torch.compile` a Python float
    # arrives as float64, hence the cast.
    scaling = tl.div_rn(1.0, tl.cast(temperature, tl.float32))

    # The largest logit starts at the lowest *finite* number. With −∞, a first block of −∞ would compute −∞ − (−∞).
    state_ptr += row * 4
    row_max, row_sum = tl.full((), LOWEST, tl.float32), tl.full((), 0.0, tl.float32)
    weighted, z_token = row_sum, row_sum
    if not FIRST:
        row_max, row_sum = tl.load(state_ptr), tl.load(state_ptr + 1)
        weighted, z_token = tl.load(state_ptr + 2), tl.load(state_ptr + 3)
    for first in tl.range(0, end, BLOCK_N):
        offs_n = first + tl.arange(0, BLOCK_N)
        mask = offs_n < end
        z = tempered(tl.load(x_ptr + offs_n, mask=mask, other=0.0), scaling)
        # Lanes past the end mustn't count. A zero there would be a token of its own.
        z = tl.where(mask, z, -float("inf"))
        # Both sums, [[tag: LP-S]] and [[tag: LP-E]], follow a new maximum. After the first block
        # `pid=0, first=0: weighted = -0.37459`, relative to `pid=0, first=0: row_max = 4`; the second block brings a
        # larger logit, `pid=0, first=8: row_max = 6`.
        row_max, row_sum, weighted = add_moments(z, row_max, row_sum, weighted)

    # The token's logit has a load of its own, if it lies in this piece. A token elsewhere, or outside of the
    # vocabulary, must not become an address.
    here = token - start
    in_piece = (here >= 0) & (here < end)
    z_here = tempered(tl.load(x_ptr + here, mask=in_piece, other=0.0), scaling)
    z_token = tl.where(in_piece, z_here, z_token)
    tl.store(state_ptr, row_max)
    tl.store(state_ptr + 1, row_sum)
    tl.store(state_ptr + 2, weighted)
    tl.store(state_ptr + 3, z_token)

    # [[tag: LP]] and [[tag: LP-H]], as if the vocabulary ended here; the last piece stores the right ones over what the
    # earlier ones have stored. Large numbers cancel first: at logits around 10000, `z_token - (row_max + log S)` would
    # be off by up to 0.0005.
    log_sum = tl.log(row_sum)
    logprob = (z_token - row_max) - log_sum
    entropy = log_sum - weighted / row_sum
    in_range = (token >= 0) & (token < vocab)
    logprob = tl.where(in_range, logprob, float("nan"))
    entropy = tl.where(in_range, entropy, float("nan"))
    tl.store(logprobs_ptr + row, tl.where(ignored, 0.0, logprob))
    tl.store(entropies_ptr + row, tl.where(ignored, 0.0, entropy))


# ## Backward: every block on its own
#
# Given the state, no entry of the gradient depends on another. So the grid has rows and blocks of a row. (Rows lie
# along its first axis, which may have 2³¹ − 1 programs; the others end at 65,535.)
@triton.jit
def token_logprobs_backward_kernel(
    dlogprobs_ptr,  # (B · T,), or None
    dentropies_ptr,  # (B · T,), or None
    logits_ptr,  # (B, T, width), as in forward
    tokens_ptr,  # (B · T,)
    state_ptr,  # (B · T, 4)
    dlogits_ptr,  # (B · T, width), rows stride_dm apart; may be where the logits are
    T,
    stride_xb,
    stride_xt,
    stride_dm,
    start,
    width,
    vocab,
    ignore_index,
    temperature,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < width
    token = tl.load(tokens_ptr + row).to(tl.int64)
    ignored = token == ignore_index
    scaling = tl.div_rn(1.0, tl.cast(temperature, tl.float32))
    x_ptr = logits_ptr + row // T * stride_xb + row % T * stride_xt + offs_n
    x = tl.load(x_ptr, mask=mask & (token != ignore_index), other=0.0)
    z = tempered(x, scaling) - tl.load(state_ptr + row * 4)
    row_sum = tl.load(state_ptr + row * 4 + 1)
    p = exp(z) / row_sum

    # [[tag: LP-x]]: what each result brings, if it has an upstream gradient. The log-probability brings one at the
    # token minus the probability, `pid=(0, 0): onto_token[1:3] = [-0.10327, -0.0018914]`.
    dz = tl.zeros((BLOCK_N,), tl.float32)
    if dlogprobs_ptr is not None:
        onto_token = (start + offs_n == token).to(tl.float32) - p
        dz += tl.load(dlogprobs_ptr + row).to(tl.float32) * onto_token
    # The entropy grows with the logits that lie below their mean, $E / S$, and each counts by its probability. Where
    # that is zero, zero is the gradient: 0 · (−∞) would be NaN. A NaN goes on being one.
    if dentropies_ptr is not None:
        mean = tl.load(state_ptr + row * 4 + 2) / row_sum
        dz += tl.load(dentropies_ptr + row).to(tl.float32) * tl.where(p == 0.0, 0.0, p * (mean - z))
    # And the temperature's own factor, $1 / \tau$, which is easily forgotten.
    dx = tl.where((token >= 0) & (token < vocab), dz * scaling, float("nan"))
    tl.store(dlogits_ptr + row * stride_dm + offs_n, tl.where(ignored, 0.0, dx), mask=mask)


# ## Launchers
#
# Three dimensions, if that takes no copy: those that come before the last but one are merged.
def in_sequences(logits):
    """(B, T, V), columns beside each other."""
    x = logits.reshape(-1, *logits.shape[-2:]) if logits.dim() > 1 else logits[None, None]
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


# The first two handle one piece, whose columns begin at `start` of the vocabulary.
def add_piece(x, tokens, state, results, start, vocab, temperature, ignore_index, BLOCK_N, first):
    token_logprobs_forward_kernel[(len(state),)](
        x, tokens, state, *results, x.shape[1], x.stride(0), x.stride(1), start, x.shape[2], vocab, ignore_index,
        float(temperature), BLOCK_N=BLOCK_N, FIRST=first, num_warps=4,
    )  # fmt: skip


def differentiate_piece(upstream, x, tokens, state, dx, start, vocab, temperature, ignore_index, BLOCK_N):
    """Writes to `dx`, (rows, width), which may be where the logits `x` are."""
    dlogprobs, dentropies = (None if each is None else each.reshape(-1).contiguous() for each in upstream)
    token_logprobs_backward_kernel[(len(state), triton.cdiv(x.shape[2], BLOCK_N))](
        dlogprobs, dentropies, x, tokens, state, dx, x.shape[1], x.stride(0), x.stride(1), dx.stride(0), start,
        x.shape[2], vocab, ignore_index, float(temperature), BLOCK_N=BLOCK_N, num_warps=4,
    )  # fmt: skip


def empty_results(tokens):
    """For each token its state, and its log-probability and entropy."""
    made = dict(dtype=torch.float32, device=tokens.device)
    return torch.empty((tokens.numel(), 4), **made), [torch.empty(tokens.shape, **made) for _ in range(2)]


@replayed
def token_logprobs_forward(logits, tokens, temperature=1.0, ignore_index=-100, *, BLOCK_N=4096):
    """Log-probabilities, entropies, and the state of each row for the backward pass."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    state, results = empty_results(tokens)
    if len(state):
        x, flat = in_sequences(logits), tokens.reshape(-1).contiguous()
        add_piece(x, flat, state, results, 0, logits.shape[-1], temperature, ignore_index, BLOCK_N, first=True)
    return *results, state


@replayed
def token_logprobs_backward(
    dlogprobs, dentropies, logits, tokens, state, temperature=1.0, ignore_index=-100, *, BLOCK_N=4096
):
    """The gradient of the logits in a new tensor. Either upstream gradient may be None."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if dlogits.numel():
        x, flat, dx = in_sequences(logits), tokens.reshape(-1).contiguous(), dlogits.view(-1, logits.shape[-1])
        upstream = dlogprobs, dentropies
        differentiate_piece(upstream, x, flat, state, dx, 0, logits.shape[-1], temperature, ignore_index, BLOCK_N)
    return dlogits


# ## Arguments
def contract(logits, tokens, temperature, ignore_index):
    checks.tensors(logits=logits, tokens=tokens)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, range(1, 65), "the vocabulary lies along the last")
    if logits.shape[-1] == 0:
        raise ValueError(f"logits must have at least one entry a row, got shape {tuple(logits.shape)}")
    checks.number("temperature", temperature, above=0)
    labels_contract("logits", logits, logits.shape[-1], ignore_index, tokens=tokens)


# ## Joining autograd
#
# Whoever asks for the log-probability alone hands no gradient to the entropy. Then its part isn't computed.
class TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, tokens, temperature, ignore_index, launch_forward, launch_backward):
        logprobs, entropies, state = launch_forward(logits, tokens, temperature, ignore_index)
        ctx.save_for_backward(logits, tokens, state)
        ctx.options, ctx.launch_backward = (temperature, ignore_index), launch_backward
        if not torch.compiler.is_compiling():  # Dynamo can't do this; it makes zeros for unused results
            ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dlogprobs, dentropies):
        return ctx.launch_backward(dlogprobs, dentropies, *ctx.saved_tensors, *ctx.options), *[None] * 5


@replayed
def token_logprobs(logits, tokens, *, temperature=1.0, ignore_index=-100):
    r"""Log-probability of each token and entropy of its distribution, both differentiable in the logits.

    Args:
        logits: (…, vocab), float32, float16 or bfloat16, any strides, any size of vocabulary.
        tokens: (…), any integer dtype, any strides; in [0, vocab), or equal to `ignore_index`.
        temperature: $\tau$, what the logits are divided by: a finite number above 0.
        ignore_index: rows with this token have the results 0 and the gradient 0, and are not read.

    Returns:
        `(logprobs, entropies)`, both of the shape of `tokens`, in float32 and in nats. Either may be left unused.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, the temperature isn't a finite number above 0,
            or, for CPU tensors and with `ACADEMY_DEBUG=1` in the environment, a token is out of range. Without that
            check (it has to wait for the GPU) such a token makes its row's results and gradient NaN; nothing outside
            the row is read.

    Source: the online sums are those of Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv
    1805.02867), with one more. TRL's `selective_log_softmax` and `entropy_from_logits` compute the same in PyTorch.
    """
    contract(logits, tokens, temperature, ignore_index)
    if not autograd.needs_frame(logits):
        return token_logprobs_forward(logits, tokens, temperature, ignore_index)[:2]
    launchers = token_logprobs_forward, token_logprobs_backward
    return TokenLogprobs.apply(logits, tokens, temperature, ignore_index, *launchers)


# ## A run small enough to watch
#
# Two sequences of three tokens and a vocabulary of 11, in blocks of 8. The last logits of a sequence predict a token
# that isn't there yet, so they are cut off. The second token of the first sequence is ignored.
def EXAMPLE():
    at = torch.arange(2 * 3 * 11, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 3, 11)[:, :-1]
    tokens = torch.tensor([[4, -100], [0, 10]], device=device.DEVICE)
    logprobs, entropies, state = token_logprobs_forward(logits, tokens, 0.5, BLOCK_N=8)
    dlogprobs, dentropies = torch.full_like(logprobs, 1.0), torch.full_like(entropies, 0.5)
    token_logprobs_backward(dlogprobs, dentropies, logits, tokens, state, 0.5, BLOCK_N=8)


if __name__ == "__main__":
    script.main(token_logprobs, token_logprobs_reference)
