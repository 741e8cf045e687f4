r"""
# Policy losses: ten lines that everybody gets wrong once

A model wrote some text, the text got a reward, and now tokens that led to a good one should become likelier. The loss
needs two numbers of each token: its log-probability $y$ now, which [an earlier lesson](token_logprobs.py) computes, and
the one it had when it was written, $o$. Their *ratio* says how far the model has moved since, [[tag: PL-ratio]]. With
the *advantage* $A$, how much better than expected the text was, PPO and GRPO compute

[[eq: PL]]

The ratio is clipped, so that one step can't go far, and moving away from a reference model costs a small price,
$\beta k$, [[tag: PL-k3]]. The gradient is [[tag: PL-y]]. DPO needs no rewards: of two texts one was preferred, and
with $u$ from [[tag: DPO-u]] the loss is

[[eq: DPO]]

**What it costs.** Next to nothing: 8 sequences of 1024 tokens are 8192 numbers in each tensor, where their logits were
a billion. What counts is the host's time, how many kernels are launched, and that it is right. Two do the forward pass:
one computes the slope of each token and adds up their losses, and one program takes the mean. A third multiplies on the
way back. On an H200 64 sequences of 2048 tokens take the card [[bench: policy_loss/64x2048/forward+backward/ms]] with
the backward pass, PyTorch [[bench: policy_loss/64x2048/forward+backward/eager.ms]], and what `torch.compile` makes of
the same formula [[bench: policy_loss/64x2048/forward+backward/torch.compile.ms]].

**Where it falls behind.** Forward alone, with 512 sequences of 8192 tokens, it takes
[[bench: policy_loss/512x8192/forward/ms]], and what is compiled
[[bench: policy_loss/512x8192/forward/torch.compile.ms]].

**Contract.** All tensors are float32 but the mask, which is boolean, integer or floating: how much a token counts. Any
strides. Where the mask is 0 nothing is read, so NaN there harms nothing. Only log-probabilities of the model that is
trained get a gradient; all else is constant. A ratio above $e^{88.7}$ is $+\infty$ in float32, and so is the loss where
the clip doesn't stop it, that is, where $A < 0$.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

from annotated_examples.common.exponential import exp, sigmoid_of
from annotated_examples.common.logits import INTEGERS
from annotated_examples.common.shares import mean_of_tokens


# ## Reference
#
# Terms of tokens that count, in plain PyTorch, and then one of three means, [below](#which-mean). Libraries write
# `-torch.minimum(ratio * a, ratio.clamp(low, high) * a)`, which is the same while the ratio is finite. Behind the clip
# an infinite one has a gradient of 0 · ∞ there. So it is selected here, before the exponential.
def grpo_loss_reference(
    logprobs, old_logprobs, advantages, mask=None, *, ref_logprobs=None, clip=(0.2, 0.2), beta=0.0, reduction="token",
    n_items=None, max_length=None,
):  # fmt: skip
    v = torch.ones_like(logprobs) if mask is None else mask.to(logprobs.dtype)
    y = torch.where(v != 0, logprobs, 0.0)
    old, a = y.detach() if old_logprobs is None else old_logprobs.detach(), advantages.detach()
    log_ratio, a = y - torch.where(v != 0, old, 0.0), a[:, None] if a.dim() == 1 else a
    ratio, bound = log_ratio.exp(), torch.where(a > 0, 1 + clip[1], 1 - clip[0]).to(y.dtype)
    beyond = ((a > 0) & (ratio > bound)) | ((a < 0) & (ratio < bound))
    terms = -torch.where(beyond, bound, torch.where(beyond, 0.0, log_ratio).exp()) * a
    if beta:
        d = torch.where(v != 0, ref_logprobs.detach(), 0.0) - y
        terms = terms + beta * (d.exp() - 1 - d)
    terms, counts = torch.where(v != 0, v * terms, 0.0).sum(1), v.sum(1)
    if reduction == "sequence":
        return torch.where(counts > 0, terms / counts.clamp(min=1e-30), 0.0).sum() / max(len(y), 1)
    n = counts.sum() if n_items is None else torch.as_tensor(n_items, dtype=y.dtype, device=y.device)
    n = n * 0 + len(y) * max_length if reduction == "constant" else n
    return torch.where(n > 0, terms.sum() / n, terms.sum() * 0)


def dpo_loss_reference(
    chosen, rejected, ref_chosen, ref_rejected, *, beta=0.1, label_smoothing=0.0, reduction="mean"
):  # fmt: skip
    u = beta * ((chosen - ref_chosen.detach()) - (rejected - ref_rejected.detach()))
    weights = (1 - label_smoothing, -u), (label_smoothing, u)
    losses = sum(weight * F.softplus(x) for weight, x in weights if weight)  # 0 · ∞ would be NaN
    return losses if reduction == "none" else losses.sum() / (max(len(u), 1) if reduction == "mean" else 1)


# ## How far from the reference
#
# For one token, $k$ estimates the divergence from the reference model. It is never negative: $e^d$ lies above its
# tangent. But the model is mostly near its reference, where $e^d - 1$ and $d$ agree in almost all their digits. With
# $d$ drawn from −0.001 to 0.001 the difference of floats is off by more than 15 % half of the time, and negative for
# one $d$ in ten. So a small $d$ goes into the series of the exponential, without its first two terms.
@triton.jit
def k3(d):
    # $k$ and its slope in $d$, which is $k + d$ or $e^d - 1$. Where the reference calls a token impossible, $d$ is −∞:
    # then $k$ is infinite, and the slope is −1.
    rest = 1 / 6 + d * (1 / 24 + d * (1 / 120 + d * (1 / 720 + d * (1 / 5040 + d * (1 / 40320)))))
    k, above = d * d * (0.5 + d * rest), exp(d) - 1.0
    near = tl.abs(d) < 0.5
    return tl.where(near, k, above - d), tl.where(near, k + d, above)


# ## Loss and slope of a token
#
# [[figure: policy/clip]]
#
# What does the minimum do? For a good token, $A > 0$, it stops a ratio that is too high; for a bad one, a ratio that is
# too low. The other side of the clip never counts. So one comparison is enough, and the sign of $A$ says which.
@triton.jit
def grpo_kernel(
    logprobs_ptr, old_ptr, ref_ptr,  # (B, T); old_ptr None: as `logprobs`; ref_ptr None: no price
    advantages_ptr, mask_ptr,  # one for each sequence, or (B, T): see the strides; (B, T), or None
    slopes_ptr, sums_ptr, counts_ptr,  # (B, T); of each part of a sequence, (B, parts): its terms, how much counts
    T, stride_ab, stride_at, lowest, highest, beta, BLOCK: tl.constexpr,
):  # fmt: skip
    # Inside `torch.compile` a Python float arrives as float64, and what it meets becomes float64, too.
    lowest, highest, beta = tl.cast(lowest, tl.float32), tl.cast(highest, tl.float32), tl.cast(beta, tl.float32)
    b, part = tl.program_id(0).to(tl.int64) // tl.cdiv(T, BLOCK), tl.program_id(0) % tl.cdiv(T, BLOCK)
    offs_t = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs, within = b * T + offs_t, offs_t < T
    weight = within.to(tl.float32)
    if mask_ptr is not None:
        weight = tl.load(mask_ptr + offs, mask=within, other=0).to(tl.float32)
    # The third token of the example's first sequence doesn't count, `pid=0: counts = [1, 1, 0, 1]`. It is selected, not
    # multiplied with zero: zero times NaN is NaN.
    counts = weight != 0.0
    y = tl.load(logprobs_ptr + offs, mask=counts, other=0.0)
    # One advantage for a whole sequence, or one for each token: then the second stride isn't 0.
    a = tl.load(advantages_ptr + b * stride_ab + offs_t * stride_at, mask=counts, other=0.0)

    # [[tag: PL-ratio]]. In the first step after a rollout nothing has moved, and the ratio is 1. The gradient is not 0,
    # but −A: the old log-probability is a constant, though it has the same value.
    log_ratio = y - y
    if old_ptr is not None:
        log_ratio = y - tl.load(old_ptr + offs, mask=counts, other=0.0)
    # Without an advantage the product is 0. A ratio of infinity would make it NaN, so 1 takes its place. A NaN stays.
    ratio = tl.where((a == 0.0) & (log_ratio == log_ratio), 1.0, exp(log_ratio))
    # Beyond the bound the term is constant, and the slope 0: the last token of the first sequence,
    # `pid=0: beyond = [0, 0, 0, 1]`. The second token of the other has the same ratio, and is a bad one,
    # `pid=1: beyond = [0, 0, 1, 0]`. At the bound the slope is kept, as PyTorch's `minimum` and `clamp` do. A NaN isn't
    # beyond: it stays.
    bound = tl.where(a > 0.0, highest, lowest)
    beyond = (a > 0.0) & (ratio > bound) | (a < 0.0) & (ratio < bound)
    term = -tl.where(beyond, bound, ratio) * a
    slope = tl.where(beyond, 0.0, -ratio * a)

    # [[tag: PL-k3]]
    if ref_ptr is not None:
        k, in_d = k3(tl.load(ref_ptr + offs, mask=counts, other=0.0) - y)
        term += beta * k
        slope -= beta * in_d
    tl.store(slopes_ptr + offs, tl.where(counts, weight * slope, 0.0), mask=within)
    # Terms go no further: their sum does, and beside it what this part of the sequence weighs.
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.where(counts, weight * term, 0.0), 0))
    tl.store(counts_ptr + tl.program_id(0), tl.sum(weight, 0))


# ## Which mean?
#
# - `"token"` divides by the number of tokens that count, in all sequences: every token weighs the same, and long
#   answers more than short ones. A step that is *accumulated* from several batches has to divide each by the number of
#   all, `n_items`, and by nothing else: a mean of means is another loss.
# - `"sequence"` takes the mean of each sequence, and then of these: a token in a long answer weighs less.
# - `"constant"` divides by the same number always, the sequences times `max_length`, so that no weight depends on how
#   long answers came out.
#
# Each is a *share* of every sequence, by which the sum of its terms is multiplied. The few numbers that are left are
# added up [by one program](../common/shares.py).
@replayed
def grpo_forward(
    logprobs, old_logprobs, advantages, mask, ref_logprobs, clip, beta, reduction, n_items, max_length, *, BLOCK=None
):
    """The loss, and for the backward pass the slope of each token, and the share of each sequence."""
    checks.power_of_two(BLOCK=BLOCK)
    y, old, v, ref = (x if x is None else x.contiguous() for x in (logprobs, old_logprobs, mask, ref_logprobs))
    slopes, (B, T) = torch.empty_like(y), y.shape
    BLOCK = BLOCK or min(1024, max(16, triton.next_power_of_2(T)))
    N = triton.cdiv(T, BLOCK)
    a = advantages[:, None].expand(B, T) if advantages.dim() == 1 else advantages
    sums, counts = y.new_empty(B, N), y.new_empty(B, N)
    if y.numel():
        grpo_kernel[(B * N,)](
            y, old, ref if beta else None, a, v, slopes, sums, counts, T, *a.stride(), 1.0 - clip[0], 1.0 + clip[1],
            float(beta), BLOCK=BLOCK,
        )  # fmt: skip
    loss, shares = mean_of_tokens(sums, counts, reduction, n_items, max_length)
    return loss, slopes, shares


# ## The gradient
#
# The slopes are known since the forward pass, so backward is a product. A token that doesn't count has the slope 0, as
# has one that a clip holds without a price, and gets no gradient whatever comes from above: 0 · ∞ would be NaN.
@triton.jit
def slopes_kernel(
    slopes_ptr, shares_ptr, dloss_ptr,  # (B, T), (B,), and one number
    dlogprobs_ptr, T, BLOCK: tl.constexpr,  # (B, T)
):  # fmt: skip
    b, part = tl.program_id(0).to(tl.int64) // tl.cdiv(T, BLOCK), tl.program_id(0) % tl.cdiv(T, BLOCK)
    offs_t = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slope = tl.load(slopes_ptr + b * T + offs_t, mask=offs_t < T, other=0.0)
    factor = tl.load(dloss_ptr) * tl.load(shares_ptr + b)
    tl.store(dlogprobs_ptr + b * T + offs_t, tl.where(slope == 0.0, 0.0, slope * factor), mask=offs_t < T)


@replayed
def grpo_backward(dloss, slopes, shares, *, BLOCK=1024):
    """The gradient of `logprobs`."""
    gradient, (B, T) = torch.empty_like(slopes), slopes.shape
    if slopes.numel():
        slopes_kernel[(B * triton.cdiv(T, BLOCK),)](slopes, shares, dloss, gradient, T, BLOCK=BLOCK)
    return gradient


# ## Preferences
#
# The obvious way, the logarithm of a sigmoid, is −∞ as soon as the sigmoid is too small for a float. Here the first
# term is exact, and the second lies between 0 and log 2. `libdevice.log1p(x)` is $\log(1 + x)$, where a sum with 1
# would lose a small `x`.
@triton.jit
def softplus(u):
    return tl.maximum(u, 0.0) + libdevice.log1p(exp(-tl.abs(u)))


# A text that a model calls impossible makes one of the two infinite. Where that one has no weight, it doesn't count.
@triton.jit
def weighted(weight, x):
    return tl.where(weight == 0.0, 0.0, weight * x)


@triton.jit
def dpo_kernel(
    chosen_ptr, rejected_ptr, ref_chosen_ptr, ref_rejected_ptr,  # (B,) each
    losses_ptr, slopes_ptr,  # (B,)
    n, beta, smoothing, BLOCK: tl.constexpr,
):  # fmt: skip
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    beta, smoothing = tl.cast(beta, tl.float32), tl.cast(smoothing, tl.float32)
    # [[tag: DPO-u]]: first each text's sum minus the reference's for the same text. The sums are in the hundreds, and
    # most of that cancels.
    chosen = tl.load(chosen_ptr + offs, mask=mask, other=0.0) - tl.load(ref_chosen_ptr + offs, mask=mask, other=0.0)
    rejected = tl.load(rejected_ptr + offs, mask=mask, other=0.0) - tl.load(
        ref_rejected_ptr + offs, mask=mask, other=0.0
    )
    u = beta * (chosen - rejected)
    # [[tag: DPO-stable]]: the pair counts as labelled the wrong way round with the probability `smoothing`.
    loss = weighted(1.0 - smoothing, softplus(-u)) + weighted(smoothing, softplus(u))
    # [[tag: DPO-w]], as a sum of two sigmoids: far from zero, `sigmoid(u) - 1` would be rounded to 0.
    slope = beta * (smoothing * sigmoid_of(u) - (1.0 - smoothing) * sigmoid_of(-u))
    tl.store(losses_ptr + offs, loss, mask=mask)
    tl.store(slopes_ptr + offs, slope, mask=mask)


@replayed
def dpo_forward(chosen, rejected, ref_chosen, ref_rejected, beta, label_smoothing, reduction, *, BLOCK=256):
    """The loss, and the slope of each pair, divided as the loss is."""
    checks.power_of_two(BLOCK=BLOCK)
    pairs = [x.contiguous() for x in (chosen, rejected, ref_chosen, ref_rejected)]
    losses, slopes, n = torch.empty_like(pairs[0]), torch.empty_like(pairs[0]), len(chosen)
    if n:
        smoothing = float(label_smoothing)
        dpo_kernel[(triton.cdiv(n, BLOCK),)](*pairs, losses, slopes, n, float(beta), smoothing, BLOCK=BLOCK)
    if reduction == "mean":
        losses, slopes = losses / max(n, 1), slopes / max(n, 1)
    return losses if reduction == "none" else losses.sum(), slopes


# ## Arguments
def contract(logprobs, old_logprobs, advantages, mask, ref_logprobs, clip, beta, reduction, n_items, max_length):
    others = dict(old_logprobs=old_logprobs, ref_logprobs=ref_logprobs)
    checks.tensors(logprobs=logprobs, advantages=advantages)
    checks.optional_tensors(mask=mask, **others)
    checks.dtypes((torch.float32,), logprobs=logprobs, advantages=advantages, **others)
    checks.dtypes((torch.bool, *checks.FLOATS, *INTEGERS), mask=mask)
    checks.dimensions("logprobs", logprobs, 2, "sequences, tokens")
    for name, value in dict(mask=mask, **others).items():
        checks.shape(name, value, logprobs.shape, "that of logprobs")
    one_each = logprobs.shape[: advantages.dim()] if advantages.dim() == 1 else logprobs.shape
    checks.shape("advantages", advantages, one_each, "one for each sequence, or for each token")
    for value in (logprobs, old_logprobs, advantages, mask, ref_logprobs):
        if value is not None and value.device != logprobs.device:
            raise ValueError(f"logprobs and all other tensors must be on one device, got {value.device}")
    if not isinstance(clip, tuple | list) or len(clip) != 2:
        raise TypeError(f"clip must be two numbers, below and above 1, got {clip!r}")
    for bound in clip:
        checks.number("clip", bound, at_least=0)
    checks.number("beta", beta, at_least=0)
    checks.choice("reduction", reduction, ("token", "sequence", "constant"))
    if beta > 0 and ref_logprobs is None:
        raise ValueError("ref_logprobs must be given: beta is above 0")
    if n_items is not None and reduction != "token":
        raise ValueError(f'n_items must be left out: reduction is "{reduction}", and not "token"')
    if (max_length is None) == (reduction == "constant"):
        raise ValueError('max_length must be given with the reduction "constant", and with no other')
    if isinstance(n_items, torch.Tensor):
        checks.number_tensor("n_items", n_items)
        n_items = n_items.item() if checks.looks_at_values() else None
    if n_items is not None:
        checks.number("n_items", n_items, above=0)
    if max_length is not None:
        checks.positive(max_length=max_length)


def dpo_contract(beta, label_smoothing, reduction, chosen, **others):
    checks.tensors(chosen=chosen, **others)
    checks.dtypes((torch.float32,), chosen=chosen, **others)
    checks.dimensions("chosen", chosen, 1, "pairs")
    for name, value in others.items():
        checks.shape(name, value, chosen.shape, "that of chosen")
        if value.device != chosen.device:
            raise ValueError(f"{name} must be on the device of chosen, {chosen.device}, got {value.device}")
    checks.number("beta", beta, above=0)
    checks.number("label_smoothing", label_smoothing, at_least=0)
    if label_smoothing > 1:
        raise ValueError(f"label_smoothing must be at most 1, got {label_smoothing}")
    checks.choice("reduction", reduction, ("mean", "sum", "none"))


# ## Joining autograd
class GrpoLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logprobs, *arguments):
        loss, slopes, shares = grpo_forward(logprobs, *arguments)
        ctx.save_for_backward(slopes, shares)
        ctx.dependence = autograd.dependence(logprobs)
        return loss

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        slopes, shares = ctx.saved_tensors
        return grpo_backward(dloss, slopes, shares), *[None] * 9


class DpoLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, chosen, rejected, *arguments):
        loss, slopes = dpo_forward(chosen, rejected, *arguments)
        ctx.save_for_backward(slopes)
        ctx.dependence = autograd.dependence(chosen, rejected)
        return loss

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        (slopes,) = ctx.saved_tensors
        return slopes * dloss, slopes * -dloss, *[None] * 5


@replayed
def grpo_loss(
    logprobs, old_logprobs, advantages, mask=None, *, ref_logprobs=None, clip=(0.2, 0.2), beta=0.0, reduction="token",
    n_items=None, max_length=None,
):  # fmt: skip
    r"""The clipped policy loss of PPO and GRPO, and a price for leaving a reference; differentiable in `logprobs`.

    Args:
        logprobs: (B, T) float32, the log-probability of each token under the model that is trained.
        old_logprobs: (B, T) float32, under the model that wrote it; None: `logprobs.detach()`. Constant.
        advantages: (B,) or (B, T) float32. Constant.
        mask: (B, T), bool, integer or float: how much a token counts. Where it is 0, nothing is read. None: all count.
        ref_logprobs: (B, T) float32, under the reference model; needed if `beta` is above 0. Constant.
        clip: how far below and above 1 a ratio still counts.
        beta: $\beta$, the price.
        reduction: "token", the sum over the mask's sum or `n_items`; "sequence", the mean of each sequence's mean;
            "constant", the sum over B times `max_length`.
        n_items: what "token" divides by: an int, a float or a 0-d tensor above 0, for a step of several batches.
        max_length: the number of tokens that "constant" takes for each sequence.

    Returns:
        The loss, a float32 scalar. Where no token counts, it and its gradient are 0. A sequence without tokens adds 0.

    Raises:
        TypeError, ValueError: a dtype, a shape, a device or an option is wrong, or options don't belong together.

    Source: Schulman et al., "Proximal policy optimization algorithms" (arXiv 1707.06347); Shao et al., "DeepSeekMath"
    (arXiv 2402.03300); Liu et al., "Understanding R1-Zero-like training" (arXiv 2503.20783), for "constant".
    """
    options = clip, beta, reduction, n_items, max_length
    contract(logprobs, old_logprobs, advantages, mask, ref_logprobs, *options)
    arguments = logprobs, old_logprobs, advantages, mask, ref_logprobs, *options
    return GrpoLoss.apply(*arguments) if autograd.needs_frame(logprobs) else grpo_forward(*arguments)[0]


@replayed
def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, *, beta=0.1, label_smoothing=0.0, reduction="mean"):
    r"""Direct preference optimization: the loss of pairs of texts; differentiable in `chosen` and `rejected`.

    Args:
        chosen, rejected: (B,) float32, the log-probabilities of both texts, summed over their tokens.
        ref_chosen, ref_rejected: (B,) float32, the same under the reference model. Constant.
        beta: $\beta$, how much a difference counts, above 0.
        label_smoothing: the share of pairs that may be the wrong way round, 0 to 1.
        reduction: "mean", "sum", or "none" for the loss of each pair.

    Returns:
        A float32 scalar, or (B,) with "none". The mean of no pairs is 0.

    Raises:
        TypeError, ValueError: a dtype, a shape, a device or an option is wrong.

    Source: Rafailov et al., "Direct preference optimization" (arXiv 2305.18290).
    """
    pairs = chosen, rejected, ref_chosen, ref_rejected
    dpo_contract(
        beta, label_smoothing, reduction, chosen, **dict(zip(("rejected", "ref_chosen", "ref_rejected"), pairs[1:]))
    )
    arguments = *pairs, beta, label_smoothing, reduction
    return DpoLoss.apply(*arguments) if autograd.needs_frame(*pairs[:2]) else dpo_forward(*arguments)[0]


# The sums that it takes. This is plain PyTorch, and autograd follows it.
def sequence_logprobs(logprobs, mask, average=False):
    """The log-probability of each sequence: the sum of its tokens', weighted by the mask; or their mean.

    Args:
        logprobs: (B, T), floating.
        mask: (B, T), bool, integer or float. Where it is 0, NaN harms nothing.
        average: divide by the mask's sum. The mean of no tokens is 0.

    Returns:
        (B,), the dtype of `logprobs`.

    Raises:
        TypeError, ValueError: a dtype or a shape is wrong.
    """
    checks.dtypes((torch.bool, *checks.FLOATS, *INTEGERS), mask=mask)
    checks.dimensions("logprobs", logprobs, 2, "sequences, tokens")
    checks.shape("mask", mask, logprobs.shape, "that of logprobs")
    weights = mask.detach().to(logprobs.dtype)
    sums, counts = (torch.where(mask != 0, logprobs, 0.0) * weights).sum(1), weights.sum(1)
    return torch.where(counts > 0, sums / torch.where(counts > 0, counts, 1.0), 0.0) if average else sums


# ## A run small enough to watch
#
# Two sequences of four tokens, a good and a bad one. Two tokens don't count, and two have moved too far. Then two pairs
# of texts.
def EXAMPLE():
    on = dict(device=device.DEVICE)
    old = torch.tensor([[-1.0, -2.0, -3.0, -0.5], [-1.0, -0.5, -2.0, -4.0]], **on)
    logprobs = old + torch.tensor([[0.0, 0.1, 0.0, 0.5], [0.0, 0.5, -0.5, 0.0]], **on)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0]], **on)
    arguments = logprobs, old, torch.tensor([1.0, -2.0], **on), mask, old.clone(), (0.2, 0.2), 0.1, "token", None, None
    _, slopes, shares = grpo_forward(*arguments, BLOCK=4)
    grpo_backward(torch.ones((), **on), slopes, shares, BLOCK=4)
    sums = torch.tensor([[-30.0, -20.0], [-28.0, -25.0], [-31.0, -20.0], [-27.0, -26.0]], **on)
    dpo_forward(*sums, 0.5, 0.1, "mean", BLOCK=2)


if __name__ == "__main__":
    script.main(grpo_loss, grpo_loss_reference)
