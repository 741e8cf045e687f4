r"""
# Latent attention: one vector a token instead of keys and values

Each head of [attention](flash_attention.py) has keys and values of its own. While text is written they are all kept.
With 128 heads of keys of 192 and values of 128 numbers, a token takes 81,920 bytes in bfloat16. *Multi-head latent
attention*, of the DeepSeek models, keeps 1152 bytes, 71 times fewer. Most of them are one latent vector of 512 numbers,
of which a matrix makes the keys of each head and another one the values, [[tag: MLA-K]] and [[tag: MLA-V]].

Positions don't fit into this. A query and a key are [rotated](../classics/rope.py) by their positions, and that can't
happen inside a product that is the same for all tokens. So a key has a second part, 64 numbers, which is rotated and
shared by all heads. A score is the sum of two products:

[[eq: MLA-S]]

[[eq: MLA-O]]

This page trains: keys and values are there, decompressed by ordinary matrix products before it is called. [The next
page](mla_decode.py) reads the latents as they are.

**What it costs.** A score takes a product of 128 and one of 64 numbers, and its value one of 128: 640 operations for
each pair of a query and a key that it sees, in each head. Copying the shared part into every head's key would do the
same, with keys half as large again, and with a gradient that has to be summed over the heads afterwards. On an H200 one
sequence of 4096 tokens with 128 heads takes [[bench: mla/1x128x4096x128x64x128/forward/ms]] forward and
[[bench: mla/1x128x4096x128x64x128/backward/ms]] backward.

**Where it falls behind.** cuDNN, which accepts values that are narrower than keys, takes
[[bench: mla/1x128x4096x128x64x128/forward/cuDNN (SDPA).ms]] and
[[bench: mla/1x128x4096x128x64x128/backward/cuDNN (SDPA).ms]]. FlashAttention-2 needs values that are padded with zeros,
and takes [[bench: mla/1x128x4096x128x64x128/forward/flash-2 (SDPA), v padded.ms]] and
[[bench: mla/1x128x4096x128x64x128/backward/flash-2 (SDPA), v padded.ms]]. Forward, the products and exponentials of a
program take turns; [below Triton](../gluon/flash_attention.py) they could overlap. Backward, the kernel for the keys
has sums of 320 numbers for each of its 64 keys, and as Triton 3.7 compiles it, each thread spills about 300 bytes. With
32 keys nothing is spilled, but such tiles are too small for Hopper's quickest products.

**Contract.** `q_nope` and `k_nope` are (B, H, T, D) and (B, H, S, D), `q_pe` is (B, H, T, E), **`k_pe` is (B, S, E)**,
without heads, `v` is (B, H, S, V). float32, float16 or bfloat16, any strides: `k_nope` and `v` may be the two halves of
one tensor. D and V are 1 to 256, E is 0 to 64. With `causal` the last query sees all keys. `q_pe` and `k_pe` arrive
rotated. Scores and sums are float32. A row that sees no key is 0. A NaN among the scores that a query sees makes its
row NaN. But 0 · NaN is NaN: one in a value may also reach queries that don't see it, and in the backward pass so may
one in a key, a query or an upstream gradient.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    LARGEST_HEAD, dot_rows, head, load_numbers, log_sum_exp, lse_dtype, same_device, scale_and_cap, store_numbers,
    strided, weights,
)  # fmt: skip
from annotated_examples.common.chunks import load_block, store_block
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.products import input_precision, multiply_add, rows_by_rows


# ## Reference
#
# All scores at once, in any dtype.
def mla_attention_reference(q_nope, q_pe, k_nope, k_pe, v, *, causal=True, scale=None, return_lse=False):
    T, S = q_nope.shape[2], k_nope.shape[2]
    scale = 1 / math.sqrt(q_nope.shape[3] + q_pe.shape[3]) if scale is None else scale
    s = scale * (q_nope @ k_nope.mT + q_pe @ k_pe[:, None].mT)
    hidden = torch.ones(T, S, dtype=torch.bool, device=s.device).triu(S - T + 1 if causal else S)
    s = s.masked_fill(hidden, -math.inf)
    o = torch.softmax(s, dim=-1).masked_fill(hidden, 0.0) @ v
    lse = torch.logsumexp(s.to(torch.promote_types(s.dtype, torch.float32)), dim=-1)
    return (o, lse) if return_lse else o


# ## A score is a sum of two products
#
# [[figure: latent/cache]]
#
# A head's queries and keys have two parts. Both products go into the same sum, so the tile of scores is made once, and
# no tile is as wide as both parts together: the width of a tile is a power of two, and 128 + 64 numbers would take 256.
#
# Backward needs the scores with a row for each key. Then the caller passes the keys first, and nothing that was just
# computed has to be transposed.
@triton.jit
def scores(a, a_pe, b, b_pe, scale, INPUT_PRECISION: tl.constexpr):
    # [[tag: MLA-S]], a row for each row of `a`, a column for each row of `b`.
    s = tl.dot(a, tl.trans(b), input_precision=INPUT_PRECISION)
    s = multiply_add(a_pe, tl.trans(b_pe), s, INPUT_PRECISION)
    s, _ = scale_and_cap(s, scale, 0.0)
    return s


# Query i sees the keys up to i + `ahead`. With a causal mask `ahead` is S − T, so that the last query sees all keys;
# without one it is S. Rows and columns past the ends don't count.
@triton.jit
def sees(offs_m, offs_n, sizes):
    _, T, S, ahead, _, _, _ = sizes
    return (offs_n <= offs_m + ahead) & (offs_n < S) & (offs_m < T)


# ## Forward
#
# The walk along the keys is that of [causal attention](causal_attention.py), with another line for the scores. `k_pe`
# has no heads. It arrives with a distance of 0 from head to head, so that each head finds the same rows.
#
# `load_block` loads some rows and some columns of a head. What lies outside is 0, and adds nothing to a product. All
# sizes arrive as one tuple.
@triton.jit
def mla_attention_kernel(
    q_tensor, q_pe_tensor,  # (pointer, four strides): (B, H, T, D), (B, H, T, E)
    k_tensor, k_pe_tensor, v_tensor,  # the same: (B, H, S, D), (B, H, S, E), (B, H, S, V)
    o_tensor, lse_tensor,  # (B, H, T, V), (B, H, T)
    sizes,  # (H, T, S, ahead, D, E, V)
    scale, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    H, T, S, ahead, D, E, V = sizes
    tiles = tl.cdiv(T, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    offs_d, offs_e, offs_v = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_V)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_block(head(q_tensor, b, h, 0), offs_m, T, offs_d, D)
    q_pe = load_block(head(q_pe_tensor, b, h, 0), offs_m, T, offs_e, E)

    # The example has a key more than queries, `pid=(0, 0): ahead = 1`, so its first query sees two. The maximum begins
    # at the lowest finite number, and not at −∞: a row sees no key at all where there are more queries than keys.
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    for start_n in tl.range(0, tl.minimum(start_m + BLOCK_M + ahead, S), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = load_block(head(k_tensor, b, h, 0), offs_n, S, offs_d, D)
        k_pe = load_block(head(k_pe_tensor, b, h, 0), offs_n, S, offs_e, E)
        v = load_block(head(v_tensor, b, h, 0), offs_n, S, offs_v, V)
        s = scores(q, q_pe, k, k_pe, scale, INPUT_PRECISION)
        s = tl.where(sees(offs_m[:, None], offs_n[None, :], sizes), s, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = multiply_add(p.to(v.dtype), v, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max
    # [[tag: MLA-O]] and [[tag: MLA-lse]]. A row that sees nothing has a sum of 0: it gets 0 and −∞.
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = log_sum_exp(row_max, row_sum, lse_tensor)
    store_block(head(o_tensor, b, h, 0), o, offs_m, T, offs_v, V)
    store_numbers(head(lse_tensor, b, h, 0), lse, offs_m, T)


# ## Backward for the queries
#
# Both parts of a query come from the same `ds`, each times its own part of the keys: [[tag: MLA-dQ]] and
# [[tag: MLA-dR]]. What the row shares is one number, [[tag: AT-D]], which this kernel leaves for the next one.
@triton.jit
def mla_attention_queries_kernel(
    do_tensor, q_tensor, q_pe_tensor, k_tensor, k_pe_tensor, v_tensor, o_tensor,  # as above; do as o
    dq_tensor, dq_pe_tensor,  # (B, H, T, D), (B, H, T, E)
    dlse_tensor, lse_tensor, delta_tensor,  # (B, H, T)
    sizes, scale, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    H, T, S, ahead, D, E, V = sizes
    tiles = tl.cdiv(T, BLOCK_M)
    b, h, start_m = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_M
    offs_d, offs_e, offs_v = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_V)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_block(head(q_tensor, b, h, 0), offs_m, T, offs_d, D)
    q_pe = load_block(head(q_pe_tensor, b, h, 0), offs_m, T, offs_e, E)
    do = load_block(head(do_tensor, b, h, 0), offs_m, T, offs_v, V)
    o = load_block(head(o_tensor, b, h, 0), offs_m, T, offs_v, V)
    lse = load_numbers(head(lse_tensor, b, h, 0), offs_m, T)
    delta = dot_rows(do, o, INPUT_PRECISION) - load_numbers(head(dlse_tensor, b, h, 0), offs_m, T)
    store_numbers(head(delta_tensor, b, h, 0), delta, offs_m, T)

    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    dq_pe = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for start_n in tl.range(0, tl.minimum(start_m + BLOCK_M + ahead, S), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = load_block(head(k_tensor, b, h, 0), offs_n, S, offs_d, D)
        k_pe = load_block(head(k_pe_tensor, b, h, 0), offs_n, S, offs_e, E)
        v = load_block(head(v_tensor, b, h, 0), offs_n, S, offs_v, V)
        # [[tag: MLA-P]]; it means nothing where a query doesn't see a key, nor in a row whose `lse` is −∞.
        p = weights(scores(q, q_pe, k, k_pe, scale, INPUT_PRECISION), lse[:, None])
        dp = rows_by_rows(do, v, INPUT_PRECISION)
        # [[tag: MLA-dS]]. The mask comes last: zero times the NaN of a hidden key would still be NaN.
        ds = tl.where(sees(offs_m[:, None], offs_n[None, :], sizes), p * (dp - delta[:, None]), 0.0)
        dq = multiply_add(ds.to(k.dtype), k, dq, INPUT_PRECISION)
        dq_pe = multiply_add(ds.to(k.dtype), k_pe, dq_pe, INPUT_PRECISION)
    store_block(head(dq_tensor, b, h, 0), dq * scale, offs_m, T, offs_d, D)
    store_block(head(dq_pe_tensor, b, h, 0), dq_pe * scale, offs_m, T, offs_e, E)


# ## Backward for the keys and values
#
# Who adds up `dk_pe`? Every head contributes to it, [[tag: MLA-dE]]. If each head's program added to the same numbers,
# the order could change from run to run, and with it the last bits. Here a program owns a tile of keys and goes through
# **eight heads** one after the other. `dk_pe` is a sum in one place in one order, while `dk` and `dv` start again with
# each head. The sums of eight are stored, and added up by the launcher.
#
# Why not all heads? Of 4096 keys there would be 64 programs for each sequence, for the 132 SMs of an H200. And with one
# head in each program `dk_pe` would be stored 128 times.
HEADS = tl.constexpr(8)


@triton.jit
def mla_attention_keys_kernel(
    do_tensor, q_tensor, q_pe_tensor, k_tensor, k_pe_tensor, v_tensor, lse_tensor, delta_tensor,  # as above
    dk_tensor, dk_pe_tensor, dv_tensor,  # (B, H, S, D), (B, groups of heads, S, E) in float32, (B, H, S, V)
    sizes, scale, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    H, T, S, ahead, D, E, V = sizes
    tiles = tl.cdiv(S, BLOCK_N)
    b, group, start_n = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(0) % tiles * BLOCK_N
    offs_d, offs_e, offs_v = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_V)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k_pe = load_block(head(k_pe_tensor, b, 0, 0), offs_n, S, offs_e, E)
    dk_pe = tl.zeros((BLOCK_N, BLOCK_E), tl.float32)
    for h in tl.range(group * HEADS, tl.minimum(group * HEADS + HEADS, H)):
        k = load_block(head(k_tensor, b, h, 0), offs_n, S, offs_d, D)
        v = load_block(head(v_tensor, b, h, 0), offs_n, S, offs_v, V)
        dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
        dv = tl.zeros((BLOCK_N, BLOCK_V), tl.float32)
        # Queries before `start_n - ahead` see none of these keys.
        for start_m in tl.range(tl.maximum(start_n - ahead, 0) // BLOCK_M * BLOCK_M, T, BLOCK_M):
            offs_m = start_m + tl.arange(0, BLOCK_M)
            q = load_block(head(q_tensor, b, h, 0), offs_m, T, offs_d, D)
            q_pe = load_block(head(q_pe_tensor, b, h, 0), offs_m, T, offs_e, E)
            do = load_block(head(do_tensor, b, h, 0), offs_m, T, offs_v, V)
            lse = load_numbers(head(lse_tensor, b, h, 0), offs_m, T)
            delta = load_numbers(head(delta_tensor, b, h, 0), offs_m, T)
            # A row for each key: **Sᵀ**, and so **Pᵀ** and **dSᵀ**.
            mask = sees(offs_m[None, :], offs_n[:, None], sizes)
            p = weights(scores(k, k_pe, q, q_pe, scale, INPUT_PRECISION), lse[None, :])
            p = tl.where(mask, p, 0.0)
            # [[tag: MLA-dV]], then [[tag: MLA-dK]] and these heads' part of [[tag: MLA-dE]].
            dv = multiply_add(p.to(do.dtype), do, dv, INPUT_PRECISION)
            dp = rows_by_rows(v, do, INPUT_PRECISION)
            ds = tl.where(mask, p * (dp - delta[None, :]), 0.0).to(q.dtype)
            dk = multiply_add(ds, q, dk, INPUT_PRECISION)
            dk_pe = multiply_add(ds, q_pe, dk_pe, INPUT_PRECISION)
        store_block(head(dk_tensor, b, h, 0), dk * scale, offs_n, S, offs_d, D)
        store_block(head(dv_tensor, b, h, 0), dv, offs_n, S, offs_v, V)
    store_block(head(dk_pe_tensor, b, group, 0), dk_pe * scale, offs_n, S, offs_e, E)


# ## The launchers
#
# A program has a tile of its own and walks along other tiles. In 16 bits and with heads of up to 128 the next one is
# fetched while one is worked on, so these are smaller. Wider heads and float32 leave room only for small ones, one at
# a time.
def launch_options(q_nope, q_pe, v, own, walked, tiles):
    """The sizes of tiles, passed in or by default, and the other constants of a kernel. own, walked: their names."""
    checks.power_of_two(**tiles)
    D, E, V = q_nope.shape[3], q_pe.shape[3], v.shape[3]
    float32, wide = q_nope.dtype == torch.float32, max(D, V) > 128
    blocks = {own: 16 if float32 else 32 if wide else 64, walked: 16 if float32 else 32}
    blocks |= {name: size for name, size in tiles.items() if size is not None}
    widths = {name: max(16, triton.next_power_of_2(size)) for name, size in (("D", D), ("E", E), ("V", V))}
    return blocks | {f"BLOCK_{name}": width for name, width in widths.items()} | dict(
        INPUT_PRECISION=input_precision(), num_warps=8 if wide or own == "BLOCK_N" else 4,
        num_stages=1 if wide or float32 else 2,
    )  # fmt: skip


def without_heads(k_pe):
    """k_pe, (B, S, E), as the kernels take it: from head to head it is a step of 0."""
    return k_pe, k_pe.stride(0), 0, *k_pe.stride()[1:]


def sizes_of(q_nope, q_pe, k_nope, v, causal):
    (_, H, T, D), S = q_nope.shape, k_nope.shape[2]
    return H, T, S, S - T if causal else S, D, q_pe.shape[3], v.shape[3]


@opaque(
    "(Tensor q_nope, Tensor q_pe, Tensor k_nope, Tensor k_pe, Tensor v, bool causal, float scale) -> (Tensor, Tensor)",
    lambda q_nope, q_pe, k_nope, k_pe, v, *rest: (
        q_nope.new_empty(*q_nope.shape[:3], v.shape[3]),
        q_nope.new_empty(q_nope.shape[:3], dtype=lse_dtype(q_nope.dtype)),
    ),
)  # fmt: skip
def mla_attention_forward(q_nope, q_pe, k_nope, k_pe, v, causal, scale, *, BLOCK_M=None, BLOCK_N=None):
    """`(o, lse)`, (B, H, T, V) and (B, H, T), lse in `lse_dtype`. A tile has BLOCK_M queries or BLOCK_N keys."""
    launch = launch_options(q_nope, q_pe, v, "BLOCK_M", "BLOCK_N", dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N))
    B, H, T, _ = q_nope.shape
    o = q_nope.new_empty(B, H, T, v.shape[3])
    lse = q_nope.new_empty((B, H, T), dtype=lse_dtype(q_nope.dtype))
    if o.numel():
        mla_attention_kernel[(B * triton.cdiv(T, launch["BLOCK_M"]), H)](
            strided(q_nope), strided(q_pe), strided(k_nope), without_heads(k_pe), strided(v), strided(o),
            strided(lse), sizes_of(q_nope, q_pe, k_nope, v, causal), scale, **launch,
        )  # fmt: skip
    return o, lse


@opaque(
    "(Tensor do, Tensor dlse, Tensor q_nope, Tensor q_pe, Tensor k_nope, Tensor k_pe, Tensor v, Tensor o, Tensor lse, "
    "bool causal, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dlse, *inputs: tuple(map(torch.empty_like, inputs[:5])),
)
def mla_attention_backward(
    do, dlse, q_nope, q_pe, k_nope, k_pe, v, o, lse, causal, scale, *, BLOCK_M=None, BLOCK_N=None
):
    """The gradients of the five inputs, from those of `o` and `lse`, which may have any strides."""
    tiles, (B, H, T, _), S = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N), q_nope.shape, k_nope.shape[2]
    dq, dq_pe, dk, dv = map(torch.empty_like, (q_nope, q_pe, k_nope, v))
    dk_pe = lse.new_empty(B, triton.cdiv(H, HEADS.value), *k_pe.shape[1:], dtype=torch.float32)
    delta, sizes = torch.empty_like(lse, dtype=torch.float32), sizes_of(q_nope, q_pe, k_nope, v, causal)
    inputs = [strided(x) for x in (do, q_nope, q_pe, k_nope)] + [without_heads(k_pe), strided(v)]
    if o.numel():
        launch = launch_options(q_nope, q_pe, v, "BLOCK_M", "BLOCK_N", tiles)
        mla_attention_queries_kernel[(B * triton.cdiv(T, launch["BLOCK_M"]), H)](
            *inputs, strided(o), strided(dq), strided(dq_pe), strided(dlse), strided(lse), strided(delta), sizes,
            scale, **launch,
        )  # fmt: skip
    if B * H * S:
        launch = launch_options(q_nope, q_pe, v, "BLOCK_N", "BLOCK_M", tiles)
        mla_attention_keys_kernel[(B * triton.cdiv(S, launch["BLOCK_N"]), dk_pe.shape[1])](
            *inputs, strided(lse), strided(delta), strided(dk), strided(dk_pe), strided(dv), sizes, scale, **launch,
        )  # fmt: skip
    # One after the other: the order of a `sum` may depend on how much there is to add.
    total = sum(dk_pe.unbind(1), dk_pe.new_zeros(k_pe.shape))
    return dq, dq_pe, dk, torch.empty_like(k_pe).copy_(total), dv


# ## Joining autograd
LARGEST_ROTATED = 64


def contract(q_nope, q_pe, k_nope, k_pe, v, causal, scale, return_lse):
    """Checks the arguments, and returns the scale."""
    tensors = dict(q_nope=q_nope, q_pe=q_pe, k_nope=k_nope, k_pe=k_pe, v=v)
    checks.tensors(**tensors)
    checks.dtypes(q_nope=q_nope)
    checks.same_dtype(**tensors)
    checks.dimensions("q_nope", q_nope, 4, "B, H, T, D")
    checks.dimensions("q_pe", q_pe, 4, "B, H, T, E")
    checks.dimensions("k_nope", k_nope, 4, "B, H, S, D")
    checks.dimensions("v", v, 4, "B, H, S, V")
    (B, H, T, D), E, S, V = q_nope.shape, q_pe.shape[3], k_nope.shape[2], v.shape[3]
    checks.shape("q_pe", q_pe, (B, H, T, E), "the batch, heads and tokens of q_nope")
    checks.shape("k_nope", k_nope, (B, H, S, D), "the batch, heads and width of q_nope")
    checks.shape("k_pe", k_pe, (B, S, E), "the tokens of k_nope, the width of q_pe, no heads")
    checks.shape("v", v, (B, H, S, V), "the batch, heads and tokens of k_nope")
    same_device(**tensors)
    for name, width, least, most in (
        ("q_nope", D, 1, LARGEST_HEAD),
        ("v", V, 1, LARGEST_HEAD),
        ("q_pe", E, 0, LARGEST_ROTATED),
    ):
        if not least <= width <= most:
            raise ValueError(f"{name} must have a width of {least} to {most}, got {width}")
    checks.programs("q_nope", "heads", H)
    checks.choice("causal", causal, (True, False))
    checks.choice("return_lse", return_lse, (True, False))
    if scale is not None:
        checks.number("scale", scale)
    return 1 / math.sqrt(D + E) if scale is None else float(scale)


class MLAAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q_nope, q_pe, k_nope, k_pe, v, causal, scale):
        o, lse = mla_attention_forward(q_nope, q_pe, k_nope, k_pe, v, causal, scale)
        ctx.save_for_backward(q_nope, q_pe, k_nope, k_pe, v, o, lse)
        ctx.options = causal, scale
        return o, lse

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do, dlse):
        return *mla_attention_backward(do, dlse, *ctx.saved_tensors, *ctx.options), None, None


@replayed
def mla_attention(q_nope, q_pe, k_nope, k_pe, v, *, causal=True, scale=None, return_lse=False):
    r"""Attention of heads whose keys share a rotated part. Differentiable in all five and through the log-sum-exp.

    Args:
        q_nope: (B, H, T, D), float32, float16 or bfloat16, any strides, D from 1 to 256.
        q_pe: (B, H, T, E), dtype of `q_nope`, rotated, E from 0 to 64.
        k_nope: (B, H, S, D), dtype of `q_nope`.
        k_pe: (B, S, E), dtype of `q_nope`, rotated: one for all heads.
        v: (B, H, S, V), dtype of `q_nope`, V from 1 to 256.
        causal: query i sees the keys up to i + S − T: the last query sees all.
        scale: of the scores, default $1/\sqrt{D + E}$. A model that stretches its rotation multiplies this by a factor
            of its own; with YaRN, in DeepSeek's models, by the square of 0.1 · `mscale_all_dim` · ln(factor) + 1.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        o, (B, H, T, V) in the dtype of `q_nope`; or (o, lse) with lse (B, H, T), float32, a natural logarithm. A row
        that sees no key gives 0 and −∞.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or `scale` is not finite.

    Source: DeepSeek-AI, "DeepSeek-V2" (arXiv 2405.04434).
    """
    scale, inputs = contract(q_nope, q_pe, k_nope, k_pe, v, causal, scale, return_lse), (q_nope, q_pe, k_nope, k_pe, v)
    call = MLAAttention.apply if autograd.needs_frame(*inputs) else mla_attention_forward
    o, lse = call(*inputs, causal, scale)
    return (o, lse.float()) if return_lse else o


# ## A run small enough to watch
#
# Two heads, three queries and four keys, whose parts have two numbers and one, in tiles of two.
def EXAMPLE():
    at = torch.arange(24, dtype=torch.float32, device=device.DEVICE)
    q, k = (at[:12] * 5 % 7 - 3).view(1, 2, 3, 2), (at[:16] * 3 % 7 - 3).view(1, 2, 4, 2)
    q_pe, k_pe = (at[:6] % 3 - 1).view(1, 2, 3, 1), (at[:4] % 3 - 1).view(1, 4, 1)
    v = (at[:16] * 2 % 5 - 2).view(1, 2, 4, 2)
    o, lse = mla_attention_forward(q, q_pe, k, k_pe, v, True, 0.5, BLOCK_M=2, BLOCK_N=2)
    dlse = torch.zeros_like(lse, dtype=torch.float32)
    mla_attention_backward(q.clone(), dlse, q, q_pe, k, k_pe, v, o, lse, True, 0.5, BLOCK_M=2, BLOCK_N=2)


if __name__ == "__main__":
    script.main(mla_attention, mla_attention_reference)
