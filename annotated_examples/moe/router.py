r"""
# A router: which experts a token gets, and how much of each

A layer with experts has `E` small networks in place of a large one, and each token goes through `k` of them. A
*router* decides: a linear layer gives each token a score for every expert, its **logits**. The softmax makes
probabilities of them, [[tag: RO-p]]; the `k` largest are selected, and those are scaled so that they add up to a given
number $a$, mostly 1:

[[eq: RO-g]]

Here $m$ is 1 for the selected experts and 0 for the others. Some models use sigmoids in place of the softmax,
[[tag: RO-sigma]], leave the weights as they are, or add a bias that counts for the selection only.

Left alone, a router learns to send everything to a few experts: those get better, and so they get more. Two terms of
the loss keep order: one falls when load is balanced, [[tag: RO-aux]], one keeps logits small, [[tag: RO-z]].

Afterwards the slots of all tokens are **sorted by expert**, so that [one product](grouped_matmul.py) can take
the rows of each expert together.

[[figure: experts/sorted_rows]]

**What it costs.** 8192 tokens of 256 logits, 8 MB, take [[bench: router/8192x256/forward/ms]],
[[bench: router/8192x256/forward/share]] of the speed of a copy of as many bytes. What decides is the work on a row, `k`
maxima in turn: with 64 logits a row, as many launches take [[bench: router/8192x64/forward/ms]].

**Where it falls behind.** `torch.compile` is ahead in one of the measured shapes, backward at 8192 x 256:
[[bench: router/8192x256/backward/ms]], [[bench: router/8192x256/backward/torch.compile.ms]].

**Contract.** Logits are float32, float16 or bfloat16, any strides; all arithmetic is float32, and so are the weights.
(A router that computes in bfloat16 sends some tokens to other experts.) Of equal scores the expert with the smaller
number comes first, zeros of either sign are equal, and a NaN of either sign counts as larger than anything. A row with
NaN still gets `k` different experts, and other rows don't notice. Its weights are NaN, with two exceptions. Sigmoids
that aren't renormalised: only the NaN's own weight is NaN. And a softmax with a bias: all scores of the row are NaN
then, so it gets the first `k` experts, and renormalised weights of these may be finite. Experts are int32, best first.
Nothing waits for the GPU.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.experts import MOST_EXPERTS, Plan, count_by_block, experts_contract, sorted_by_expert
from annotated_examples.common.exponential import exp, sigmoid_of

SCORES = ("softmax", "sigmoid")
LOWEST = tl.constexpr(-(2**63))


# ## Reference
#
# `torch.topk` promises nothing about the order of equal numbers. A stable sort does. NaN it takes for the largest
# number, but on a GPU only if its sign bit is 0. So every NaN gets that one.
def probabilities_reference(logits, score):
    z = logits.double() if logits.dtype == torch.float64 else logits.float()
    return z, torch.softmax(z, 1) if score == "softmax" else torch.sigmoid(z)


def route_reference(logits, top_k, *, score="softmax", renormalize=True, bias=None, scale=1.0):
    z, p = probabilities_reference(logits, score)
    choice = z if bias is None else p + bias
    choice = torch.where(choice.isnan(), torch.nan, choice)
    experts = torch.sort(choice, dim=1, descending=True, stable=True).indices[:, :top_k]
    weights = p.gather(1, experts)
    if renormalize and score == "softmax":
        weights = torch.softmax(z.gather(1, experts), 1)
    elif renormalize:
        weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
    return weights * scale, experts.int()


def sort_by_expert_reference(experts, num_experts):
    flat = experts.reshape(-1).long()
    keys = torch.where((flat < 0) | (flat >= num_experts), num_experts, flat)
    order = torch.sort(keys, stable=True).indices
    offsets = torch.bincount(keys, minlength=num_experts + 1)[:num_experts].cumsum(0)
    return Plan(offsets.int(), order.int(), torch.argsort(order).int().view(experts.shape))


def load_balancing_loss_reference(logits, experts, *, score="softmax"):
    T, E = logits.shape
    _, p = probabilities_reference(logits, score)
    if score == "sigmoid":
        p = p / (p.sum(1, keepdim=True) + 1e-20)
    flat = experts.reshape(-1).long()
    counts = torch.bincount(flat[flat >= 0], minlength=E)
    f = E * counts.to(p.dtype) / counts.sum().clamp(min=1)
    return (p * f).sum() / max(T, 1)


def router_z_loss_reference(logits):
    z, _ = probabilities_reference(logits, "softmax")
    return torch.logsumexp(z, 1).square().sum() / max(len(z), 1)


# ## Selecting the largest, without losing any
#
# `tl.topk` and `tl.sort` compare floats, and a NaN among them vanishes and leaves its neighbour twice, or all eight of
# a block become NaN. So floats become **whole numbers with the same order**. The bits of positive floats have it
# already. Those of negative floats run backwards, and flipping all bits but the sign turns them around. Below these 32
# bits come 32 more: how far the expert is from the last one. So no two keys of a row are equal, and of equal scores the
# smaller expert has the larger key.
#
# [[figure: experts/sort_keys]]
@triton.jit
def sort_key(value, expert, BLOCK_E: tl.constexpr):
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    ordered = tl.where(value != value, 0x7FFFFFFF, ordered)
    return (ordered.to(tl.int64) << 32) | (BLOCK_E - 1 - expert).to(tl.int64)


@triton.jit
def softmax_rows(z):
    shifted = exp(z - tl.max(z, 1)[:, None])
    return shifted / tl.sum(shifted, 1)[:, None]


# ## Route
#
# A program takes some tokens, with all scores. The example has 7 tokens, 6 experts, two a token; a program has four.
@triton.jit
def my_logits(T, E, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    e = tl.arange(0, BLOCK_E)
    return token, e, (token < T)[:, None] & (e < E)[None, :]


@triton.jit
def route_forward_kernel(
    logits_ptr, bias_ptr, weights_ptr, experts_ptr,  # (T, E); (E,), or None; (T, k) in float32; (T, k) in int32
    T, E, stride_t, stride_e, scale, SIGMOID: tl.constexpr, RENORMALIZE: tl.constexpr, TOP_K: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    # Six experts in a block of eight lanes. The last two have no logit: minus infinity has the probability 0.
    token, e, mask = my_logits(T, E, BLOCK_T, BLOCK_E)
    logits_ptrs = logits_ptr + token[:, None] * stride_t + e[None, :].to(tl.int64) * stride_e
    z = tl.load(logits_ptrs, mask=mask, other=float("-inf")).to(tl.float32)

    # What is compared: the logits themselves. Softmax and sigmoid keep their order, and unlike the probabilities two
    # of them never become equal by underflow. A bias is added to the probabilities, though, so then those are needed.
    choice = z
    if bias_ptr is not None:
        choice = sigmoid_of(z) if SIGMOID else softmax_rows(z)
        choice += tl.load(bias_ptr + e, mask=e < E, other=0.0)[None, :]
    key = tl.where(mask, sort_key(choice, e[None, :], BLOCK_E), LOWEST)

    # `k` times: take the largest key, and replace it by the lowest. Each round is a reduction over the row's `BLOCK_E`
    # keys of 64 bits, another one that picks the logit, and one pass to take the key out. A round needs what the round
    # before has left. So for 8 of 256 experts 8 maxima wait for each other; each of the 8 sums waits for its maximum.
    #
    # The lower half of a key is the expert, and a cast to 32 bits keeps just that. Expert 1 and expert 3 have the same
    # logit in token 0, and expert 1 comes first: `pid=0, j=0: expert[0] = 1`, `pid=0, j=1: expert[0] = 3`. The weight
    # is made of the *logit*, not of what was compared: a bias moves the choice and nothing else. `tl.sum` over one lane
    # that isn't zero picks it.
    slot = tl.arange(0, BLOCK_K)
    experts = tl.zeros((BLOCK_T, BLOCK_K), tl.int32)
    selected = tl.full((BLOCK_T, BLOCK_K), float("-inf"), tl.float32)
    for j in range(TOP_K):
        expert = BLOCK_E - 1 - tl.max(key, 1).to(tl.int32)
        mine = e[None, :] == expert[:, None]
        value = tl.sum(tl.where(mine, z, 0.0), 1)
        experts = tl.where(slot[None, :] == j, expert[:, None], experts)
        selected = tl.where(slot[None, :] == j, value[:, None], selected)
        key = tl.where(mine, LOWEST, key)

    # [[tag: RO-g]]: the softmax of the selected logits alone. All other terms are in numerator and denominator, and
    # cancel. Token 0 has two equal logits, so each expert gets half: `pid=0: weights[0] = [0.5, 0.5]`. Token 2 has a
    # NaN, which comes first, `pid=0: experts[2] = [4, 0]`, and makes both of its weights NaN.
    if SIGMOID:
        # [[tag: RO-sigma-g]]. Far below zero all sigmoids are 0, and a tiny number keeps their quotient from being NaN.
        weights = sigmoid_of(selected)
        if RENORMALIZE:
            weights /= tl.sum(weights, 1)[:, None] + 1e-20
    elif RENORMALIZE:
        weights = softmax_rows(selected)
    else:
        row_max = tl.max(z, 1)[:, None]
        weights = exp(selected - row_max) / tl.sum(tl.exp(z - row_max), 1)[:, None]
    offs = token[:, None] * TOP_K + slot[None, :]
    mask = (token < T)[:, None] & (slot < TOP_K)[None, :]
    # Inside `torch.compile` a Python float arrives as float64.
    tl.store(weights_ptr + offs, weights * tl.cast(scale, tl.float32), mask=mask)
    tl.store(experts_ptr + offs, experts, mask=mask)


# ## Backward
#
# The gradient of a token's `k` weights becomes one of its `E` logits. First each weight's gradient goes to its expert's
# place, with zeros elsewhere: `dweight`. With the softmax renormalised, only selected logits have any influence, and
# the derivative is that of a softmax over them, [[tag: RO-dz-selected]]. Without, every logit is in the denominator,
# and those that weren't selected get a gradient too, [[tag: RO-dz]]. Both are one formula with another `p`.
#
# The whole row is written once. Zeros first, and then the selected ones, would be two stores to the same place by
# different threads, in no particular order.
@triton.jit
def route_backward_kernel(
    dweights_ptr, logits_ptr, experts_ptr, dlogits_ptr,  # (T, k); (T, E); (T, k), contiguous; (T, E), contiguous
    T, E, stride_dt, stride_dk, stride_t, stride_e, scale, SIGMOID: tl.constexpr, RENORMALIZE: tl.constexpr,
    TOP_K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    token, e, mask = my_logits(T, E, BLOCK_T, BLOCK_E)
    logits_ptrs = logits_ptr + token[:, None] * stride_t + e[None, :].to(tl.int64) * stride_e
    z = tl.load(logits_ptrs, mask=mask, other=float("-inf")).to(tl.float32)

    dweight = tl.zeros((BLOCK_T, BLOCK_E), tl.float32)
    chosen = tl.zeros((BLOCK_T, BLOCK_E), tl.int1)
    for j in range(TOP_K):
        expert = tl.load(experts_ptr + token * TOP_K + j, mask=token < T, other=0)
        upstream = tl.load(dweights_ptr + token * stride_dt + j * stride_dk, mask=token < T, other=0.0)
        mine = e[None, :] == expert[:, None]
        dweight = tl.where(mine, upstream[:, None], dweight)
        chosen = chosen | mine

    # Only token 0's first weight has an upstream gradient there, `pid=0: dweight[0] = [0, 1, 0, 0, 0, 0, 0, 0]`. Its
    # weights are half and half, so one logit gains what the other loses:
    # `pid=0: dz[0] = [0, 0.25, 0, -0.25, 0, 0, 0, 0]`.
    if SIGMOID:
        p = sigmoid_of(z)
        dz = dweight * p * (1.0 - p)
        if RENORMALIZE:
            # [[tag: RO-sigma-dz]]
            share = tl.where(chosen, p, 0.0)
            share /= tl.sum(share, 1)[:, None] + 1e-20
            dz = share * (1.0 - p) * (dweight - tl.sum(share * dweight, 1)[:, None])
    else:
        p = softmax_rows(tl.where(chosen, z, float("-inf")) if RENORMALIZE else z)
        dz = p * (dweight - tl.sum(p * dweight, 1)[:, None])
    # Then the others have no part in it. A NaN doesn't reach them (0 · NaN is NaN), unless it is their own sigmoid.
    dz = tl.where(chosen, dz, 0.0 * p if SIGMOID else 0.0) if RENORMALIZE else dz
    tl.store(dlogits_ptr + token[:, None] * E + e[None, :], dz * tl.cast(scale, tl.float32), mask=mask)


# ## Two losses of the router
#
# If expert $i$ got $c_i$ of all slots, $f_i$ is its share, times the number of experts: 1 if the load is balanced. The
# first loss weights each probability with it. Counting has no derivative, so $f$ is a constant, and the gradient lowers
# the logits of experts that have more than others. The second loss is the square of the log-sum-exp.
#
# Each program adds up its tokens and stores one number. With `counts_ptr` it is the first loss, without the second.
#
# `loss_terms` gets `token` and `e` from the kernels. If it returned them, `torch.compile` would fail: it follows the
# address of each store back, and takes all arguments of a function on the way for written to. The logits are among
# them, and require a gradient, so nothing may be written into them.
@triton.jit
def loss_terms(
    logits_ptr, counts_ptr,  # (T, E); (E,), or None
    token, e, mask, E, stride_t, stride_e, SIGMOID,
):  # fmt: skip
    logits_ptrs = logits_ptr + token[:, None] * stride_t + e[None, :].to(tl.int64) * stride_e
    z = tl.load(logits_ptrs, mask=mask, other=float("-inf")).to(tl.float32)
    if counts_ptr is None:
        # [[tag: RO-z]] and its slope, [[tag: RO-z-z]]. With an infinite logit the largest can't be subtracted: infinity
        # minus infinity is NaN.
        row_max = tl.max(z, 1)
        shift = tl.where(tl.abs(row_max) == float("inf"), 0.0, row_max)
        value = shift + tl.log(tl.sum(tl.exp(z - shift[:, None]), 1))
        slope = 2.0 * value[:, None] * softmax_rows(z)
        value = value * value
    else:
        counts = tl.load(counts_ptr + e, mask=e < E, other=0)
        f = (counts * (E / tl.maximum(tl.sum(counts, 0), 1).to(tl.float32)))[None, :]
        if SIGMOID:
            # [[tag: RO-aux-sigma]] and its slope, [[tag: RO-aux-sigma-z]]
            s = sigmoid_of(z)
            p = s / (tl.sum(s, 1)[:, None] + 1e-20)
            value = tl.sum(p * f, 1)
            slope = p * (1.0 - s) * (f - value[:, None])
        else:
            # [[tag: RO-aux]] and its slope, [[tag: RO-aux-z]]
            p = softmax_rows(z)
            value = tl.sum(p * f, 1)
            slope = p * (f - value[:, None])
    return value, slope


@triton.jit
def loss_forward_kernel(
    logits_ptr, counts_ptr, partial_ptr,  # (T, E); (E,), or None; one number for each program
    T, E, stride_t, stride_e, SIGMOID: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    token, e, mask = my_logits(T, E, BLOCK_T, BLOCK_E)
    value, _ = loss_terms(logits_ptr, counts_ptr, token, e, mask, E, stride_t, stride_e, SIGMOID)
    tl.store(partial_ptr + tl.program_id(0), tl.sum(tl.where(token < T, value, 0.0), 0))


@triton.jit
def loss_backward_kernel(
    dloss_ptr, logits_ptr, counts_ptr, dlogits_ptr,  # one number; (T, E); (E,), or None; (T, E), contiguous
    T, E, stride_t, stride_e, SIGMOID: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    token, e, mask = my_logits(T, E, BLOCK_T, BLOCK_E)
    _, slope = loss_terms(logits_ptr, counts_ptr, token, e, mask, E, stride_t, stride_e, SIGMOID)
    dz = tl.load(dloss_ptr) / T * slope
    tl.store(dlogits_ptr + token[:, None] * E + e[None, :], dz, mask=mask)


# ## Launchers
#
# A program holds a matrix of tokens by experts in registers: fewer tokens the more experts there are. `route` backward
# has next to nothing to compute between its loads and its store. Its loop of `k` rounds is written out, so the loads of
# several rounds are requested together. It takes small programs: while some wait, others work.
def tile(E, BLOCK_T, numbers=2048):
    checks.power_of_two(BLOCK_T=BLOCK_T)
    BLOCK_E = triton.next_power_of_2(E)
    return dict(BLOCK_T=BLOCK_T or max(1, numbers // BLOCK_E), BLOCK_E=BLOCK_E)


@replayed
def route_forward(logits, top_k, score, renormalize, bias, scale, *, BLOCK_T=None):
    T, E = logits.shape
    sizes = tile(E, BLOCK_T)
    weights = torch.empty((T, top_k), dtype=torch.float32, device=logits.device)
    experts = torch.empty((T, top_k), dtype=torch.int32, device=logits.device)
    if T:
        bias = None if bias is None else bias.contiguous()
        route_forward_kernel[(triton.cdiv(T, sizes["BLOCK_T"]),)](
            logits, bias, weights, experts, T, E, *logits.stride(), scale, SIGMOID=score == "sigmoid",
            RENORMALIZE=renormalize, TOP_K=top_k, BLOCK_K=triton.next_power_of_2(top_k), **sizes,
        )  # fmt: skip
    return weights, experts


@replayed
def route_backward(dweights, logits, experts, score, renormalize, scale, *, BLOCK_T=None):
    T, E = logits.shape
    sizes = tile(E, BLOCK_T, numbers=512)
    dlogits = torch.empty((T, E), dtype=logits.dtype, device=logits.device)
    if T:
        route_backward_kernel[(triton.cdiv(T, sizes["BLOCK_T"]),)](
            dweights, logits, experts, dlogits, T, E, *dweights.stride(), *logits.stride(), scale,
            SIGMOID=score == "sigmoid", RENORMALIZE=renormalize, TOP_K=experts.shape[1], **sizes,
        )  # fmt: skip
    return dlogits


# The mean over tokens comes last: PyTorch adds the programs' float32 sums in a fixed order. Without a token it is 0.
@replayed
def loss_forward(logits, counts, score, *, BLOCK_T=None):
    T, E = logits.shape
    sizes = tile(E, BLOCK_T)
    partial = torch.empty(triton.cdiv(T, sizes["BLOCK_T"]), dtype=torch.float32, device=logits.device)
    if T:
        loss_forward_kernel[partial.shape](
            logits, counts, partial, T, E, *logits.stride(), SIGMOID=score == "sigmoid", **sizes
        )
    return partial.sum() / max(T, 1)


@replayed
def loss_backward(dloss, logits, counts, score, *, BLOCK_T=None):
    T, E = logits.shape
    sizes = tile(E, BLOCK_T)
    dlogits = torch.empty((T, E), dtype=logits.dtype, device=logits.device)
    if T:
        loss_backward_kernel[(triton.cdiv(T, sizes["BLOCK_T"]),)](
            dloss, logits, counts, dlogits, T, E, *logits.stride(), SIGMOID=score == "sigmoid", **sizes
        )
    return dlogits


# ## Joining autograd
#
# Experts are whole numbers and have no gradient. Neither has the count of them.
class Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, top_k, score, renormalize, bias, scale):
        weights, experts = route_forward(logits, top_k, score, renormalize, bias, scale)
        ctx.save_for_backward(logits, experts)
        ctx.options = score, renormalize, scale
        ctx.mark_non_differentiable(experts)
        return weights, experts

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dweights, _):
        return route_backward(dweights, *ctx.saved_tensors, *ctx.options), None, None, None, None, None


class RouterLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, counts, score):
        ctx.save_for_backward(logits, counts)
        ctx.score = score
        return loss_forward(logits, counts, score)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        return loss_backward(dloss, *ctx.saved_tensors, ctx.score), None, None


# ## The public functions
def contract(logits, score="softmax"):
    """Raises on bad arguments."""
    checks.tensors(logits=logits)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, 2, "tokens, experts")
    if not 1 <= logits.shape[1] <= MOST_EXPERTS:
        raise ValueError(f"logits must have 1 to {MOST_EXPERTS} columns, got shape {tuple(logits.shape)}")
    checks.choice("score", score, SCORES)


@replayed
def route(logits, top_k, *, score="softmax", renormalize=True, bias=None, scale=1.0):
    """The `top_k` best experts of each token, and their weights; differentiable in `logits`.

    Args:
        logits: tensor of shape (T, E), float32, float16 or bfloat16, any strides; E from 1 to 4096.
        top_k: how many experts each token gets, 1 to E.
        score: "softmax" or "sigmoid".
        renormalize: whether the selected scores are divided by their sum (of sigmoids: plus 1e-20).
        bias: None, or float32 of shape (E,), added to the scores for the selection only. It gets no gradient.
        scale: a finite number that multiplies the weights.

    Returns:
        `(weights, experts)`, float32 and int32, both (T, top_k), best first. Of equal scores the smaller expert comes
        first, and a score that is NaN before all others.

    Raises:
        TypeError: `logits` or `bias` isn't a tensor or has another dtype; `top_k` or `scale` isn't a number.
        ValueError: another shape, score or renormalize, `top_k` or `scale` out of range, a tensor on the wrong device,
            or a `bias` that requires a gradient.

    Source: Shazeer et al., "Outrageously Large Neural Networks" (2017). Sigmoid and bias: DeepSeek-AI, "DeepSeek-V3
    Technical Report" (2024).
    """
    contract(logits, score)
    checks.whole_number("top_k", top_k, at_least=1, at_most=logits.shape[1])
    checks.choice("renormalize", renormalize, (True, False))
    checks.number("scale", scale)
    checks.optional_tensors(bias=bias)
    checks.dtypes((torch.float32,), bias=bias)
    checks.shape("bias", bias, logits.shape[1:], "one for each expert")
    if bias is not None and autograd.needs_frame(bias):
        raise ValueError("bias requires a gradient, but route gives it none: pass bias.detach()")
    if not autograd.needs_frame(logits):
        return route_forward(logits, top_k, score, renormalize, bias, float(scale))
    return Route.apply(logits, top_k, score, renormalize, bias, float(scale))


# The kernels of the sort are in `common/experts.py`, because the layer needs them as well.
def sort_by_expert(experts, num_experts):
    """The slots of all tokens in the order of their experts: a stable sort, in three launches. Forward only.

    Args:
        experts: int32 or int64 of shape (T, k), any strides; −1 is a dropped slot.
        num_experts: E, 1 to 4096.

    Returns:
        `Plan(offsets, order, position)`, all int32. `offsets`, (E,): where each expert's rows end. `order`, (T · k,):
        the slot t · k + j of each row; dropped slots come last. `position`, (T, k): the row of each slot.

    Raises:
        TypeError: `experts` isn't a tensor or has another dtype; `num_experts` isn't an int.
        ValueError: not two dimensions, 2³¹ − 2¹⁴ slots or more, `num_experts` out of range, the wrong device. On the
            CPU and with `ACADEMY_DEBUG=1` also an expert outside −1 to E − 1, which a GPU takes for a dropped slot.

    Source: Gale et al., "MegaBlocks" (2022), which sorts by radix; here it is a counting sort.
    """
    checks.tensors(experts=experts)
    checks.whole_number("num_experts", num_experts, at_least=1, at_most=MOST_EXPERTS)
    experts_contract(experts, num_experts)
    return sorted_by_expert(experts, num_experts)


@replayed
def load_balancing_loss(logits, experts, *, score="softmax"):
    """E times the sum over experts of its share of the slots times its mean probability; differentiable in `logits`.

    Args:
        logits: as for `route`.
        experts: as for `sort_by_expert`, one row for each of `logits`. Dropped slots don't count.
        score: "softmax" or "sigmoid". Sigmoids are divided by their sum over all experts.

    Returns:
        A float32 of shape (), at most E: 1 if all experts have the same share, unless a token's sigmoids are all 0.
        0 without a token or without a slot.

    Raises:
        TypeError: an argument isn't a tensor or has another dtype. ValueError: another shape or score, a tensor on the
            wrong device, and experts as for `sort_by_expert`.

    Source: Fedus et al., "Switch Transformers" (2021).
    """
    contract(logits, score)
    checks.tensors(experts=experts)
    experts_contract(experts, logits.shape[1])
    if len(experts) != len(logits):
        raise ValueError(f"experts must have a row for each of logits, {len(logits)}, got {tuple(experts.shape)}")
    counts = count_by_block(experts, logits.shape[1])[:, :-1].sum(0, dtype=torch.int32)
    if not autograd.needs_frame(logits):
        return loss_forward(logits, counts, score)
    return RouterLoss.apply(logits, counts, score)


@replayed
def router_z_loss(logits):
    """The mean over tokens of the square of the log-sum-exp; differentiable in `logits`.

    Args:
        logits: as for `route`.

    Returns:
        A float32 of shape (); 0 without a token.

    Raises:
        TypeError: `logits` isn't a tensor or has another dtype. ValueError: another shape, the wrong device.

    Source: Zoph et al., "ST-MoE" (2022).
    """
    contract(logits)
    if not autograd.needs_frame(logits):
        return loss_forward(logits, None, "softmax")
    return RouterLoss.apply(logits, None, "softmax")


# ## A run small enough to watch
#
# Seven tokens, six experts, two for each: a tie in token 0, a NaN in token 2, and nobody chooses expert 5. Then the
# backward pass of token 0's first weight, the sort, and the balance.
def EXAMPLE():
    rows = [[0, 4, 1, 4, 0, 0], [5, 1, 2, 0, 0, 0], [3, 0, 0, 0, float("nan"), 0], [0, 0, 7, 6, 0, 0]]
    rows += [[2, 1, 0, 0, 0, -1], [1, 2, 0, 0, 0, 0], [0, 0, 3, 0, 3, 0]]
    logits = torch.tensor(rows, device=device.DEVICE, dtype=torch.float32)
    weights, experts = route_forward(logits, 2, "softmax", True, None, 1.0, BLOCK_T=4)
    dweights = torch.zeros_like(weights)
    dweights[0, 0] = 1
    route_backward(dweights, logits, experts, "softmax", True, 1.0, BLOCK_T=4)
    sorted_by_expert(experts, 6, BLOCK=8, BLOCK_B=2)
    counts = count_by_block(experts, 6, BLOCK=8)[:, :-1].sum(0, dtype=torch.int32)
    loss_forward(logits, counts, "softmax", BLOCK_T=4)


if __name__ == "__main__":
    script.main(route, route_reference)
