r"""
# Token log-probabilities, fast: sums that no thread waits for

[The lesson](../classics/token_logprobs.py) reads the logits once forward and once backward. This file moves the same
bytes, and waits less for anything else.

**What it costs.** With 8192 tokens and a vocabulary of 151936 the logits are 2.5 GB in bfloat16: one such pass forward,
two backward. What stands between the lesson and the speed of a copy are instructions and waiting. In each block, all
threads of the lesson's program wait for each other several times for each of three: the maximum and two sums. Backward,
each probability is a quotient. Here each thread has sums of its own, and backward a row's numbers are folded into two,
so that nothing is divided for an entry. On an H200 forward takes [[bench: token_logprobs/8192x151936/forward/ms]],
[[bench: token_logprobs/8192x151936/forward/share]] of the speed of a copy, and
[[bench: token_logprobs/8192x151936/forward+backward/ms]] with the backward pass,
[[bench: token_logprobs/8192x151936/forward+backward/share]]. The lesson takes
[[bench: token_logprobs/8192x151936/forward/lesson.ms]] and
[[bench: token_logprobs/8192x151936/forward+backward/lesson.ms]], and PyTorch, compiled,
[[bench: token_logprobs/8192x151936/forward/torch.compile.ms]] and
[[bench: token_logprobs/8192x151936/forward+backward/torch.compile.ms]].

**Where it falls behind.** Log-probabilities without entropies take
[[bench: token_logprobs:logprobs/8192x151936/forward/ms]], Liger's kernel for those alone
[[bench: token_logprobs:logprobs/8192x151936/forward/liger-kernel.ms]].

**Contract.** That of the lesson.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.call_cache import remembered
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.classics.token_logprobs import TokenLogprobs, contract, in_sequences, token_logprobs_reference
from annotated_examples.common.constants import LOG2E, LOWEST
from annotated_examples.common.exponential import exp

# ## The difference to the largest logit
#
# Both passes need $2^t$ and $t \, 2^t$, where $t$ is a logit's distance from the largest one, over the temperature and
# in powers of two. Of a logit of −∞ the second would be $-\infty \cdot 0$, NaN. So in that product $t$ ends at a number
# whose power of two is zero as well. (A NaN shows in the sum of the powers.)
LEAST = tl.constexpr(-16384.0)


@triton.jit
def strip_moments(x, shift, total, weighted, log2_scale):
    # Adds a block of strips to three numbers for each strip: its largest logit, the sum of all powers, and their sum
    # weighted by the exponents, both relative to that logit. When it grows, the first sum is scaled down, and every
    # exponent in the second one is moved as well, [[tag: LP-E]]. In the second block of the example one of two strips
    # finds a larger logit: `token_logprobs_forward_kernel, pid=0, start=0: shift = [2, 2]`, and then
    # `token_logprobs_forward_kernel, pid=0, start=8: shift = [3, 2]`.
    new_shift = tl.maximum(shift, tl.max(x, 1))
    moved = tl.maximum((shift - new_shift) * log2_scale, LEAST)
    factor = tl.exp2(moved)
    t = (x - new_shift[:, None]) * log2_scale
    power = tl.exp2(t)
    weighted = (weighted + moved * total) * factor + tl.sum(power * tl.maximum(t, LEAST), 1)
    return new_shift, total * factor + tl.sum(power, 1), weighted


# ## How a row is cut
#
# As in [cross entropy](cross_entropy.py): memory is fast if 16 bytes are moved at a time, a *strip*, from an address
# divisible by 16. Up to the first such address of a row there is a short *head*; then comes the *body*, all whole
# strips, and the rest is the *tail*. Head and tail are handled together, as one block of two strips.
#
# [[figure: logprobs/strips]]
@triton.jit
def cut(first, width, ALIGNED: tl.constexpr, STRIP: tl.constexpr):
    head = 0
    if ALIGNED:
        head = tl.minimum((STRIP - first % STRIP) % STRIP, width)
    return head, (width - head) // STRIP * STRIP


@triton.jit
def edges(head, body, width, STRIP: tl.constexpr):
    lane = tl.arange(0, 2 * STRIP)
    columns = tl.where(lane < STRIP, lane, head + body + lane - STRIP)
    return columns, columns < tl.where(lane < STRIP, head, width)


# ## Forward
@triton.jit
def token_logprobs_forward_kernel(
    logits_ptr,  # (B, T, width): the row [b, t] lies b · stride_xb + t · stride_xt behind the first
    tokens_ptr,  # (B · T,)
    state_ptr,  # (B · T, 3) in float32
    logprobs_ptr,  # (B · T,) in float32
    entropies_ptr,  # (B · T,) in float32
    T,
    stride_xb,
    stride_xt,
    width,
    ignore_index,
    temperature,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
):
    row = tl.program_id(0)
    x_start = (row // T).to(tl.int64) * stride_xb + (row % T).to(tl.int64) * stride_xt
    token = tl.load(tokens_ptr + row).to(tl.int64)
    ignored = token == ignore_index
    in_range = (token >= 0) & (token < width)
    scaling = tl.div_rn(1.0, tl.cast(temperature, tl.float32))
    log2_scale = scaling * LOG2E
    # Loaded now and used at the end: a load doesn't stop a program, the first use of its result does.
    x_token = tl.load(logits_ptr + x_start + token, mask=in_range & (token != ignore_index), other=0.0).to(tl.float32)

    # Row 0 begins with a whole strip, `pid=0: head = 0`, and has five of them, `pid=0: body = 20`.
    head, body = cut(x_start, width, ALIGNED, STRIP)
    x_ptr = logits_ptr + (x_start + head)
    if ALIGNED:
        x_ptr = logits_ptr + tl.multiple_of(x_start + head, STRIP)
    # An ignored row ends before its first block, and nothing of it is read.
    end = tl.where(ignored, 0, body)
    # A block is a matrix with a strip in each row: `offs = [[0, 1, 2, 3], [4, 5, 6, 7]]`.
    strips = tl.arange(0, BLOCK // STRIP) * STRIP
    offs = strips[:, None] + tl.arange(0, STRIP)[None, :]
    shift = tl.full((BLOCK // STRIP,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK // STRIP,), tl.float32)
    weighted = tl.zeros((BLOCK // STRIP,), tl.float32)
    # Whole blocks, up to `pid=0: whole = 16`, are read without a mask. For the rest, the mask covers whole strips, so
    # that loads stay wide.
    whole = end // BLOCK * BLOCK
    for start in tl.range(0, whole, BLOCK):
        x = tl.load(x_ptr + start + offs).to(tl.float32)
        shift, total, weighted = strip_moments(x, shift, total, weighted, log2_scale)
    for start in tl.range(whole, end, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=(start + strips < end)[:, None], other=-float("inf")).to(tl.float32)
        shift, total, weighted = strip_moments(x, shift, total, weighted, log2_scale)

    # Head and tail are one more strip, which is twice as long. Here it has one entry: `pid=0: edge_total = [1]`.
    columns, mask = edges(head, body, width, STRIP)
    x = tl.load(logits_ptr + x_start + columns, mask=mask & (token != ignore_index), other=-float("inf"))
    none = tl.full((1,), LOWEST, tl.float32)
    edge_shift, edge_total, edge_weighted = strip_moments(
        x.to(tl.float32)[None, :], none, tl.zeros((1,), tl.float32), tl.zeros((1,), tl.float32), log2_scale
    )

    # All strips become one row, as one strip follows a larger maximum: `pid=0: row_shift = 3` and `pid=0: row_sum =
    # 1.6052`.
    row_shift = tl.maximum(tl.max(shift, 0), tl.max(edge_shift, 0))
    moved = tl.maximum((shift - row_shift) * log2_scale, LEAST)
    edge_moved = tl.maximum((edge_shift - row_shift) * log2_scale, LEAST)
    row_sum = tl.sum(total * tl.exp2(moved), 0) + tl.sum(edge_total * tl.exp2(edge_moved), 0)
    row_weighted = tl.sum((weighted + moved * total) * tl.exp2(moved), 0)
    row_weighted += tl.sum((edge_weighted + edge_moved * edge_total) * tl.exp2(edge_moved), 0)

    # [[tag: LP]] and [[tag: LP-H]]. Large numbers cancel first: at logits around 10000 it would cost three digits to
    # add the logarithm to the largest logit before the token's is subtracted. This token was unlikely:
    # `pid=0: logprob = -12.473`.
    log_sum = tl.log(row_sum)
    mean = row_weighted / (row_sum * LOG2E)
    logprob = tl.where(in_range, (x_token - row_shift) * scaling - log_sum, float("nan"))
    entropy = tl.where(in_range, log_sum - mean, float("nan"))
    tl.store(logprobs_ptr + row, tl.where(ignored, 0.0, logprob))
    tl.store(entropies_ptr + row, tl.where(ignored, 0.0, entropy))
    tl.store(state_ptr + row * 3, row_shift)
    tl.store(state_ptr + row * 3 + 1, row_sum)
    tl.store(state_ptr + row * 3 + 2, tl.where(ignored, 0.0, mean))


# ## Backward
#
# [[tag: LP-x]] for an entry that isn't the token's is its probability times a number that grows with its exponent. The
# probability is $e^t / S$, and everything but $t$ belongs to the row. So the row is folded into two numbers, `alpha`
# and `beta`, and an entry takes a power, $\alpha + \beta t$, and their product.
@triton.jit
def slope(x, row_shift, scaling, alpha, beta):
    # In float32 the power has [all its digits](../common/exponential.py): a probability is a result by itself here.
    t = (x.to(tl.float32) - row_shift) * scaling
    return (exp(t) if x.dtype == tl.float32 else tl.exp2(t)) * (alpha + beta * tl.maximum(t, LEAST))


@triton.jit
def token_logprobs_backward_kernel(
    dlogprobs_ptr,  # (B · T,), or None
    dentropies_ptr,  # (B · T,), or None
    logits_ptr,  # (B, T, width), as in forward
    tokens_ptr,  # (B · T,)
    state_ptr,  # (B · T, 3)
    dlogits_ptr,  # (B · T, width)
    T,
    stride_xb,
    stride_xt,
    width,
    ignore_index,
    temperature,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
):
    row = tl.program_id(0)
    x_start = (row // T).to(tl.int64) * stride_xb + (row % T).to(tl.int64) * stride_xt
    d_start = row.to(tl.int64) * width
    token = tl.load(tokens_ptr + row).to(tl.int64)
    ignored = token == ignore_index
    scaling = tl.div_rn(1.0, tl.cast(temperature, tl.float32))
    row_shift = tl.load(state_ptr + row * 3)
    row_sum = tl.load(state_ptr + row * 3 + 1)

    # What the log-probability brings is minus the probability, and one more at the token. The entropy brings the
    # probability times the mean exponent less that of the entry. The temperature's own factor is in both.
    on_token, alpha, beta = tl.full((), 0.0, tl.float32), tl.full((), 0.0, tl.float32), tl.full((), 0.0, tl.float32)
    if dlogprobs_ptr is not None:
        on_token = tl.load(dlogprobs_ptr + row).to(tl.float32) * scaling
        alpha -= on_token / row_sum
    if dentropies_ptr is not None:
        per_nat = tl.load(dentropies_ptr + row).to(tl.float32) * scaling / row_sum
        alpha += per_nat * tl.load(state_ptr + row * 3 + 2)
        beta -= per_nat
    # Both are known before the first entry is: `pid=(0, 0): alpha = -1.7734`.
    alpha = tl.where((token >= 0) & (token < width), alpha, float("nan"))
    # Exponents of 2 are shorter than those of e by this factor.
    if logits_ptr.dtype.element_ty != tl.float32:
        scaling, beta = scaling * LOG2E, beta / LOG2E

    head, body = cut(x_start, width, ALIGNED, STRIP)
    x_body, d_body = x_start + head, d_start + head
    if ALIGNED:
        x_body, d_body = tl.multiple_of(x_body, STRIP), tl.multiple_of(d_body, STRIP)
    strips = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK // STRIP) * STRIP
    offs = strips[:, None] + tl.arange(0, STRIP)[None, :]
    mask = (strips < body)[:, None]
    x = tl.load(logits_ptr + x_body + offs, mask=mask & (token != ignore_index), other=0.0)
    dx = slope(x, row_shift, scaling, alpha, beta) + tl.where(head + offs == token, on_token, 0.0)
    tl.store(dlogits_ptr + d_body + offs, tl.where(ignored, 0.0, dx), mask=mask)

    # The first program of a row has its edges, too.
    if tl.program_id(1) == 0:
        columns, edge_mask = edges(head, body, width, STRIP)
        edge_x = tl.load(logits_ptr + x_start + columns, mask=edge_mask & (token != ignore_index), other=0.0)
        edge_dx = slope(edge_x, row_shift, scaling, alpha, beta) + tl.where(columns == token, on_token, 0.0)
        tl.store(dlogits_ptr + d_start + columns, tl.where(ignored, 0.0, edge_dx), mask=edge_mask)


# ## The launchers
#
# Forward goes through a row: large blocks and many warps for a long one, small ones for a short one, so that many rows
# share an SM. Backward, a program has a block and is done, and small blocks are faster.
FORWARD = (4096, 1024, 1), (16384, 2048, 1), (65536, 8192, 4), (math.inf, 16384, 8)
BACKWARD = (4096, 1024, 1), (16384, 2048, 2), (math.inf, 4096, 4)


def tiles(width, itemsize, table):
    """`BLOCK` (entries) and `num_warps` for rows of `width` entries of `itemsize` bytes. table: (bytes of a row up to
    which it holds, bytes of a block, num_warps), …"""
    block_bytes, num_warps = next(rest for limit, *rest in table if width * itemsize <= limit)
    return block_bytes // itemsize, num_warps


def launch_rows(kernel, tensors, logits, dlogits, temperature, ignore_index, blocks, BLOCK, num_warps):
    """`kernel`, with one program a row, or backward with one for each block of each row."""
    checks.power_of_two(BLOCK=BLOCK, num_warps=num_warps)
    rows, width, strip = logits.shape[0] * logits.shape[1], logits.shape[2], 16 // logits.element_size()
    tuned_block, tuned_warps = tiles(width, logits.element_size(), BACKWARD if blocks else FORWARD)
    BLOCK = BLOCK or tuned_block
    strides, gaps = logits.stride()[:2], [logits.shape[1] * width, width]
    # Accesses are as wide as a strip only if strips are aligned in the logits *and* in the gradient.
    aligned = not any(stride % strip for stride in (*strides, width)) or dlogits is None or list(strides) == gaps
    launch(
        kernel, (rows, cdiv(width, BLOCK)) if blocks else (rows,), tensors,
        (logits.shape[1], *strides, width, ignore_index, float(temperature)),
        ALIGNED=aligned, BLOCK=BLOCK, STRIP=min(BLOCK, strip), num_warps=num_warps or tuned_warps,
    )  # fmt: skip


@replayed
def token_logprobs_forward(logits, tokens, temperature=1.0, ignore_index=-100, *, BLOCK=None, num_warps=None):
    """Log-probabilities, entropies, and three numbers of each row for the backward pass."""
    made = dict(dtype=torch.float32, device=tokens.device)
    state, results = torch.empty((tokens.numel(), 3), **made), [torch.empty(tokens.shape, **made) for _ in range(2)]
    if tokens.numel():
        x = in_sequences(logits)
        tensors = x, tokens.reshape(-1).contiguous(), state, *results
        launch_rows(token_logprobs_forward_kernel, tensors, x, None, temperature, ignore_index, False, BLOCK, num_warps)
    return *results, state


@replayed
def token_logprobs_backward(
    dlogprobs, dentropies, logits, tokens, state, temperature=1.0, ignore_index=-100, *, BLOCK=None, num_warps=None
):
    """The gradient of the logits in a new tensor. Either upstream gradient may be None."""
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if dlogits.numel():
        x = in_sequences(logits)
        upstream = [None if each is None else each.reshape(-1).contiguous() for each in (dlogprobs, dentropies)]
        tensors = *upstream, x, tokens.reshape(-1).contiguous(), state, dlogits
        launch_rows(
            token_logprobs_backward_kernel, tensors, x, dlogits, temperature, ignore_index, True, BLOCK, num_warps
        )
    return dlogits


checked = remembered(contract, values=True)


@replayed
def token_logprobs(logits, tokens, *, temperature=1.0, ignore_index=-100):
    """The same as `annotated_examples.classics.token_logprobs.token_logprobs`, but faster.

    Args: as `token_logprobs` of the lesson.

    Returns:
        `(logprobs, entropies)`, as the lesson.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson.
    """
    checked(logits, tokens, temperature, ignore_index)
    if not autograd.needs_frame(logits):
        return token_logprobs_forward(logits, tokens, temperature, ignore_index)[:2]
    launchers = token_logprobs_forward, token_logprobs_backward
    return TokenLogprobs.apply(logits, tokens, temperature, ignore_index, *launchers)


# ## A run small enough to watch
#
# That of the lesson in rows of 21, cut into blocks of 8: each row has a head and a tail of its own length.
def EXAMPLE():
    at = torch.arange(2 * 3 * 21, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 3, 21)[:, :-1]
    tokens = torch.tensor([[4, -100], [0, 20]], device=device.DEVICE)
    logprobs, entropies, state = token_logprobs_forward(logits, tokens, 0.5, BLOCK=8)
    dlogprobs, dentropies = torch.full_like(logprobs, 1.0), torch.full_like(entropies, 0.5)
    token_logprobs_backward(dlogprobs, dentropies, logits, tokens, state, 0.5, BLOCK=8)


if __name__ == "__main__":
    script.main(token_logprobs, token_logprobs_reference)
