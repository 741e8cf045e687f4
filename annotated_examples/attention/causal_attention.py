r"""
# Causal attention: flash attention at its simplest

Each token asks a question, its *query*. Each token it may look at has a *key*, compared with the query, and a *value*,
what it contributes. A score is the dot product of a query and a key. A softmax turns a row of scores into weights, and
the output is the mean of the values under these weights:

[[eq: AT-S]]

[[eq: AT-P]]

[[eq: AT-O]]

Here $d$ is the width of a head, $n$ the number of tokens and $s$ a factor that keeps scores small. $M_{ij}$ is the
mask: 1 where query $i$ may see key $j$, 0 elsewhere. $L_{hi}$ is the log-sum-exp of the scores that the query sees,
[[tag: AT-lse]], which makes its weights add up to 1. In a language model token $i$ sees the tokens up to itself, and
none that comes later. That is what makes it *causal*.

With $T$ tokens there are $T^2$ scores for every head. At 16384 tokens and 16 heads they take 8.6 GB in bfloat16. *Flash
attention* never stores them. It computes a tile of scores, uses it and forgets it. For the backward pass it keeps the
output and that one number per row, the log-sum-exp.

This page has the idea and nothing else. [The next lesson](flash_attention.py) adds what models ask for: heads that
share keys, windows, a cap on the scores, sinks, and sequences of different lengths.

**What it costs.** Forward takes two products, $Q K^T$ and $P V$; each is about $T^2 \cdot D / 2$ multiplications per
head, as half of the scores are hidden. Backward needs five such products and computes seven, because both of its
kernels compute the scores and the gradients of the probabilities. Keys and values come mostly from L2, so memory isn't
the limit: the rate of the tensor cores is, and this kernel reaches
[[bench: causal_attention/4x16x4096x128/forward/share]] of it.

**Contract.** `q`, `k` and `v` are (B, H, T, D), with any strides, in float32, float16 or bfloat16. D is 16, 32, 64 or
128: a tile's width is a power of two, and of 16-bit numbers `tl.dot` needs at least 16 along the axis that it sums
over. T is anything. Scores and sums are float32. A NaN or $+\infty$ among the scores that a query sees makes its row
NaN, and so does a first tile of scores that are all $-\infty$. A score that the mask hides changes nothing. But 0 · NaN
and 0 · ∞ are NaN: a NaN or an infinity in a value may also reach earlier queries, and in the backward pass so may one
in a key or a query, as in PyTorch's products.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    dot_rows,
    head,
    load_numbers,
    load_tile,
    log_sum_exp,
    lse_dtype,
    store_numbers,
    store_tile,
    strided,
    weights,
)
from annotated_examples.common.opaque_attention import opaque_causal_attention
from annotated_examples.common.products import input_precision, multiply_add, rows_by_rows


# ## Reference
#
# All scores at once, in any dtype. In float64 it is what the kernels are measured against.
def causal_attention_reference(q, k, v, *, scale=None):
    T, D = q.shape[-2:]
    s = q @ k.transpose(-1, -2) * (1 / math.sqrt(D) if scale is None else scale)
    hidden = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(s.masked_fill(hidden, -math.inf), dim=-1) @ v


# ## Forward: a tile of queries, and all the keys that it sees
# [[figure: attention/causal]]


# One program computes `BLOCK_M` rows of the output. It walks along the keys, `BLOCK_N` at a time.
#
# A softmax needs the largest score of its row and the sum of its exponentials, and both are known only at the end of
# the row. So the kernel works with those of the keys seen so far, as the softmax of long rows does. When a larger score
# turns up, everything that was summed before is multiplied by one factor:
#
# [[eq: AT-merge]]
#
# Here $\alpha$ is the largest score before and $\beta$ the larger one; the factor $e^{\alpha - \beta}$ is `alpha` in
# the code.
#
# **The signature.** A kernel needs a tensor's address and its strides. For four tensors of four dimensions that would
# be twenty parameters. A parameter may also be a tuple: `q_tensor` holds the pointer to `q` and its four strides, and
# `head` takes it apart. It goes to head `h` of sequence `b`, and what is left is a matrix with a row for each token.
@triton.jit
def causal_attention_kernel(
    q_tensor, k_tensor, v_tensor, o_tensor,  # (pointer, four strides) of (B, H, T, D)
    lse_tensor,  # (pointer, strides) of (B, H, T)
    T, scale, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Which sequence, which head, which tile of queries? In the example the second program begins at `pid=(1, 0):
    # start_m = 2`.
    tiles = tl.cdiv(T, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    k_head, v_head = head(k_tensor, b, h, 0), head(v_tensor, b, h, 0)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    # The queries are loaded once and stay. A row past the last token is zeros. The first `D` is the width of a head,
    # the second that of the tile. Here both are the same; [flash attention](flash_attention.py), which calls
    # `load_tile` too, takes heads of other widths.
    q = load_tile(head(q_tensor, b, h, 0), offs_m, T, D, D)

    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    # The last query of the tile sees `start_m + BLOCK_M` keys, and no query sees more. So the loop ends there: later
    # tiles of keys are **skipped**. That saves nearly half of the work. `tl.minimum` takes the smaller of two numbers,
    # and `tl.range` counts as `range` does.
    for start_n in tl.range(0, tl.minimum(start_m + BLOCK_M, T), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k, v = load_tile(k_head, offs_n, T, D, D), load_tile(v_head, offs_n, T, D, D)
        # **S = Q Kᵀ**, [[tag: AT-S]]: a row for each query, a column for each key. `tl.trans` transposes a tile.
        s = tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION) * scale
        # A query sees no key after its own position. Those scores become −∞, and an exponential of −∞ is 0:
        # `pid=(1, 0), start_n=2: s = [[2, -inf], [2, 4]]`. Keys past the last token come after every query, so the same
        # line hides them.
        s = tl.where(offs_n[None, :] <= offs_m[:, None], s, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        # **P**, not divided yet, and relative to the largest score so far.
        p = tl.exp(s - new_max[:, None])
        # After the first tile of keys row 3, the tile's second, had a maximum of `pid=(1, 0), start_n=0: new_max[1] =
        # 1.5`, and now it has `pid=(1, 0), start_n=2: new_max[1] = 4`. What it summed so far shrinks by `pid=(1, 0),
        # start_n=2: alpha[1] = 0.0821`.
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        # **O = P V**, a sum over keys, so each tile of keys adds its part. `tl.dot` takes two factors of one dtype.
        acc = multiply_add(p.to(v.dtype), v, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max
    # Dividing once at the end makes the weights of a row add up to 1, [[tag: AT-O]]. Every token sees itself, so no sum
    # is 0. The log-sum-exp puts maximum and sum into one number, [[tag: AT-lse]].
    store_tile(head(o_tensor, b, h, 0), acc / row_sum[:, None], offs_m, T, D, D)
    store_numbers(head(lse_tensor, b, h, 0), log_sum_exp(row_max, row_sum, lse_tensor), offs_m, T)


# ## Backward, on paper
#
# The scores were thrown away, so they are computed again. With the log-sum-exp a probability is a single exponential,
# [[tag: AT-P]], and no maximum has to be found first. After $S$, there are four more products of matrices, and one line
# that goes element by element. With $dO$ for the upstream gradient of the output:
#
# | product | why | tag |
# |---|---|---|
# | $dV = P^T dO$ | a value reaches each output with its weight | [[tag: AT-dV]] |
# | $dP = dO \, V^T$ | a weight is multiplied by its value | |
# | $dS = P \circ (dP - \delta)$, per element | a score raises its own weight and lowers the others | [[tag: AT-dS]] |
# | $dQ = dS \, K$ | S is a product of Q and K, so the gradient goes to one factor times the other | [[tag: AT-dQ]] |
# | $dK = dS^T Q$ | the same for the other factor | [[tag: AT-dK]] |
#
# $\delta$ is one number per row, the mean of the row's $dP$ under its weights; the derivation calls it $D$. That looks
# like a sum over all keys, but it equals the dot product of the output's row and its gradient, [[tag: AT-D]]: nothing
# has to be gone through first.
#
# dQ is a sum over keys, dK and dV are sums over queries. So there are two kernels: one whose programs own a tile of
# queries and walk along the keys, and one the other way round. Each sum stays in one program, in one order, and the
# same call always gives the same bits.


# ## Backward for the queries
#
# The loop is the forward one, with three products.
@triton.jit
def causal_attention_queries_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, o_tensor, dq_tensor,  # (pointer, four strides) of (B, H, T, D)
    lse_tensor, delta_tensor,  # (pointer, strides) of (B, H, T)
    T, scale, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    k_head, v_head = head(k_tensor, b, h, 0), head(v_tensor, b, h, 0)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q, do = load_tile(head(q_tensor, b, h, 0), offs_m, T, D, D), load_tile(head(do_tensor, b, h, 0), offs_m, T, D, D)
    o = load_tile(head(o_tensor, b, h, 0), offs_m, T, D, D)
    lse = load_numbers(head(lse_tensor, b, h, 0), offs_m, T)
    # [[tag: AT-D]], `pid=(0, 0): delta = [9, -2.152]`. This kernel has both tiles at hand, so it also stores `delta`
    # for the next one.
    delta = dot_rows(do, o, INPUT_PRECISION)
    store_numbers(head(delta_tensor, b, h, 0), delta, offs_m, T)

    dq = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in tl.range(0, tl.minimum(start_m + BLOCK_M, T), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k, v = load_tile(k_head, offs_n, T, D, D), load_tile(v_head, offs_n, T, D, D)
        # **S** and **P** again, [[tag: AT-P]]. This time the weights are final: row 1 has `pid=(0, 0): p[1] = [0.2689,
        # 0.7311]`. The scores are masked first, as in the forward kernel. Subtracting `lse` from the product at once
        # would be compiled into a single fma: its product isn't rounded, that of the forward kernel was, and next to a
        # score of 10⁸ half a unit is 4, a factor of 50 in the weight.
        s = tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION) * scale
        mask = offs_n[None, :] <= offs_m[:, None]
        p = weights(tl.where(mask, s, -float("inf")), lse[:, None])
        # **dP = dO Vᵀ**, and **dS**, [[tag: AT-dS]]. Where a key is hidden, `ds` is replaced by 0 at the end. Its
        # weight of 0 alone wouldn't do: if the hidden key is NaN, so is `dp`, and 0 · NaN is NaN. `rows_by_rows` is
        # `tl.dot` of the first and the transposed second; in float32 it splits the sum.
        dp = rows_by_rows(do, v, INPUT_PRECISION)
        ds = tl.where(mask, p * (dp - delta[:, None]), 0.0)
        # **dQ = dS K**
        dq = multiply_add(ds.to(k.dtype), k, dq, INPUT_PRECISION)
    # The scale belongs to every score, so it is applied once, to the sum, [[tag: AT-dQ]].
    store_tile(head(dq_tensor, b, h, 0), dq * scale, offs_m, T, D, D)


# ## Backward for the keys and values
#
# Now a program owns a tile of keys with their values, and walks along the queries that see them: from the tile with its
# own position to the last.
#
# The formulas want $P^T$ and $dS^T$. Transposing a tile that was just computed costs time, as its numbers lie in the
# registers of many threads. So the tile of scores is computed the other way round, $S^T = K Q^T$, a row for each key.
# Then `p` is $P^T$ and `ds` is $dS^T$ from the start, and only loaded tiles are ever transposed.
@triton.jit
def causal_attention_keys_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, dk_tensor, dv_tensor,  # (pointer, four strides) of (B, H, T, D)
    lse_tensor, delta_tensor,  # (pointer, strides) of (B, H, T)
    T, scale, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(T, BLOCK_N)
    b, h, start_n = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_N
    q_head, do_head = head(q_tensor, b, h, 0), head(do_tensor, b, h, 0)
    lse_head, delta_head = head(lse_tensor, b, h, 0), head(delta_tensor, b, h, 0)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k, v = load_tile(head(k_tensor, b, h, 0), offs_n, T, D, D), load_tile(head(v_tensor, b, h, 0), offs_n, T, D, D)

    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    # Queries before `start_n` see none of these keys. The program of the last key begins at `pid=(2, 0): start_n = 4`,
    # so it makes one round, and the first program three.
    for start_m in tl.range(start_n // BLOCK_M * BLOCK_M, T, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        q, do = load_tile(q_head, offs_m, T, D, D), load_tile(do_head, offs_m, T, D, D)
        lse, delta = load_numbers(lse_head, offs_m, T), load_numbers(delta_head, offs_m, T)
        # **Sᵀ = K Qᵀ**, and **Pᵀ**, with a zero wherever the query comes before the key. Queries past the end count for
        # nothing, either: they are zeros, but zero times an infinite key is NaN.
        s = tl.dot(k, tl.trans(q), input_precision=INPUT_PRECISION) * scale
        mask = (offs_n[:, None] <= offs_m[None, :]) & (offs_m < T)[None, :]
        p = weights(tl.where(mask, s, -float("inf")), lse[None, :])
        # **dV = Pᵀ dO**, [[tag: AT-dV]]: the weights that this value had, times what each output's gradient is.
        dv = multiply_add(p.to(do.dtype), do, dv, INPUT_PRECISION)
        # **dPᵀ = V dOᵀ**, and **dSᵀ**, [[tag: AT-dS]].
        dp = rows_by_rows(v, do, INPUT_PRECISION)
        ds = tl.where(mask, p * (dp - delta[None, :]), 0.0)
        # **dK = dSᵀ Q**, [[tag: AT-dK]].
        dk = multiply_add(ds.to(q.dtype), q, dk, INPUT_PRECISION)
    store_tile(head(dk_tensor, b, h, 0), dk * scale, offs_n, T, D, D)
    store_tile(head(dv_tensor, b, h, 0), dv, offs_n, T, D, D)


# ## The launchers
#
# Forward has a program for every `BLOCK_M` queries of every head. Float32 leaves room only for smaller tiles.
def launch_options(q, BLOCK_M, BLOCK_N):
    """The tiles, passed in or by default, and the other constants of a kernel."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    D = q.shape[-1]
    float32 = q.dtype == torch.float32
    block = 64 if not float32 else 32 if D <= 64 else 16
    return dict(
        D=D, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M or block, BLOCK_N=BLOCK_N or block,
        num_warps=4 if float32 or D <= 64 else 8, num_stages=1 if float32 else 2,
    )  # fmt: skip


def causal_attention_forward(q, k, v, scale, *, BLOCK_M=None, BLOCK_N=None):
    """`(o, lse)`, (B, H, T, D) and (B, H, T), lse in `lse_dtype`. A tile has BLOCK_M queries or BLOCK_N keys."""
    launch = launch_options(q, BLOCK_M, BLOCK_N)
    B, H, T, _ = q.shape
    o = torch.empty_like(q)
    lse = torch.empty((B, H, T), dtype=lse_dtype(q.dtype), device=q.device)
    if o.numel():
        tensors = [strided(x) for x in (q, k, v, o, lse)]
        causal_attention_kernel[(B * triton.cdiv(T, launch["BLOCK_M"]), H)](*tensors, T, scale, **launch)
    return o, lse


def causal_attention_backward(do, q, k, v, o, lse, scale, *, BLOCK_M=None, BLOCK_N=None):
    """`(dq, dk, dv)` from the upstream gradient of o, which may have any strides."""
    launch = launch_options(q, BLOCK_M, BLOCK_N)
    B, H, T, _ = q.shape
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse, dtype=torch.float32)
    if dq.numel():
        inputs, numbers = [strided(x) for x in (do, q, k, v)], [strided(lse), strided(delta)]
        causal_attention_queries_kernel[(B * triton.cdiv(T, launch["BLOCK_M"]), H)](
            *inputs, strided(o), strided(dq), *numbers, T, scale, **launch
        )
        causal_attention_keys_kernel[(B * triton.cdiv(T, launch["BLOCK_N"]), H)](
            *inputs, strided(dk), strided(dv), *numbers, T, scale, **launch
        )
    return dq, dk, dv


# ## Joining autograd
launchers = opaque_causal_attention(causal_attention_forward, causal_attention_backward)  # inside torch.compile
HEAD_DIMENSIONS = (16, 32, 64, 128)


def contract(q, k, v, scale):
    """Checks the arguments, and returns the scale."""
    checks.tensors(q=q, k=k, v=v)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, k=k, v=v)
    checks.dimensions("q", q, 4, "B, H, T, D")
    checks.same_shape(q=q, k=k, v=v)
    checks.programs("q", "heads", q.shape[1])
    D = q.shape[-1]
    if D not in HEAD_DIMENSIONS:
        allowed = ", ".join(map(str, HEAD_DIMENSIONS))
        raise ValueError(f"q must have a head dimension of {allowed}, got {D}; flash_attention takes any up to 256")
    if scale is not None:
        checks.number("scale", scale)
    return 1 / math.sqrt(D) if scale is None else float(scale)


class CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        o, lse = launchers[0](q, k, v, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.scale = scale
        return o

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do):
        return *launchers[1](do, *ctx.saved_tensors, ctx.scale), None


@replayed
def causal_attention(q, k, v, *, scale=None):
    r"""Softmax attention in which token i sees the tokens up to itself. Differentiable in `q`, `k` and `v`.

    Args:
        q, k, v: (B, H, T, D) of one dtype, float32, float16 or bfloat16; any strides; D is 16, 32, 64 or 128.
        scale: of the scores, default $1/\sqrt{D}$.

    Returns:
        (B, H, T, D) in the dtype of `q`.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or `scale` is not finite.

    Source: Dao, "FlashAttention-2" (arXiv 2307.08691).
    """
    scale = contract(q, k, v, scale)
    if not autograd.needs_frame(q, k, v):
        return launchers[0](q, k, v, scale)[0]
    return CausalAttention.apply(q, k, v, scale)


# ## Where it falls behind
#
# At 4096 tokens with 16 heads of 128 PyTorch's attention is faster: forward ours has
# [[bench: causal_attention/4x16x4096x128/forward/speedup]] its speed, backward
# [[bench: causal_attention/4x16x4096x128/backward/speedup]]. Here 16-bit tiles have one size for all cards and widths,
# threads compute addresses, and every tile is masked. [The fast version](../fast/flash_attention.py) climbs from here.


# ## A run small enough to watch
#
# Five tokens with two numbers each, in tiles of two queries and two keys. The last tile has a row that is no token.
def EXAMPLE():
    at = torch.arange(10, dtype=torch.float32, device=device.DEVICE)
    q, k, v = ((at * step % 7 - 3).view(1, 1, 5, 2) for step in (5, 3, 2))
    o, lse = causal_attention_forward(q, k, v, 0.5, BLOCK_M=2, BLOCK_N=2)
    causal_attention_backward(k.clone(), q, k, v, o, lse, 0.5, BLOCK_M=2, BLOCK_N=2)


if __name__ == "__main__":
    script.main(causal_attention, causal_attention_reference)
