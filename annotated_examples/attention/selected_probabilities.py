r"""
# What attention read: the indexer's target

[An indexer learns](indexer_loss.py) from attention: how much weight did each of the selected keys get? Attention has
many heads and the indexer gives one score, so the heads' probabilities are averaged,

[[eq: SP-p]]

and that is what this kernel returns, a number for each number of the list.

[[figure: selected/target]]

[Attention](sparse_mla.py) never has them all at once. But it leaves the log-sum-exp of each row, and with it a
probability takes one product: [[tag: SP-P]]. It must be the log-sum-exp of *these* scores, over this list: then the
probabilities add up to 1. With a sink in it they add up to less, and the rest is the sink's.

**What it costs.** About half of attention: the scores again, without the product with the values. In bfloat16 a row of
1152 bytes becomes one number of 4. On an H200 4096 queries of 128 heads with 2048 keys each take
[[bench: selected_probabilities/4096x128x8192x2048/forward/ms]], where PyTorch, which gathers the keys first, takes
[[bench: selected_probabilities/4096x128x8192x2048/forward/PyTorch, keys gathered.ms]], and compiled
[[bench: selected_probabilities/4096x128x8192x2048/forward/torch.compile.ms]].

**Contract.** `q`, `kv`, `indices` and `scale` are those of attention, and so is `lse`, (T, H) in float32. The last
columns of a row are rotated, but here nothing depends on where the latent ends. The result is float32, and 0 where the
list has none. A key that is named twice has its probability in both places, each time that of one copy. The target is a
constant: forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, load_numbers, same_device, scale_and_cap, strided
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.exponential import exp
from annotated_examples.common.latents import LARGEST_RANK, LARGEST_ROTATED
from annotated_examples.common.products import input_precision, tile_of_product
from annotated_examples.common.selected import is_key, list_contract, load_list, one_page, score_or_none


# ## Reference
#
# A copy of the selected keys for each query, with a row of zeros for none.
def selected_probabilities_reference(q, kv, indices, lse, *, scale):
    none = indices < 0
    rows = torch.nn.functional.pad(kv, (0, 0, 0, 1))[indices.masked_fill(none, len(kv)).long()]
    s = (scale * torch.einsum("thw,tkw->thk", q, rows)).masked_fill(none[:, None], -math.inf)
    p = torch.exp(s.to(torch.promote_types(s.dtype, torch.float32)) - lse[..., None])
    return p.masked_fill(none[:, None], 0.0).mean(1)


# ## A product whose rows a list names
#
# Nothing but scores is needed, so this is a tiled product like [any other](../common/products.py), with keys as its
# rows, heads as its columns, and one thing more: the rows lie where the list says. A tile goes along the width of a key
# in short steps, so there is room for many keys beside many heads, and each number that was loaded meets up to 128
# others. (A tile as wide as a key would fill the shared memory with 64 keys and 64 heads. It was tried: then the one
# program of an SM waits for its keys, and nothing else is at work meanwhile.)
#
# A program has a query and a tile of its list, and goes through all heads. Each head adds its probability of a key to
# the key's sum. Here the probability is the result, and nothing larger stands beside it. So the exponential is the one
# [with all its digits](../../annotated_examples/common/exponential.py).
@triton.jit
def selected_probabilities_kernel(
    q_tensor, kv_tensor, lists_tensor,  # (pointer, four strides): (1, T, H, W), (1, 1, S, W), (1, T, K)
    lse_tensor, out_ptr,  # (1, T, H); (T, K), contiguous
    H, K, W, pages,  # pages: (pages, keys of a page)
    scale, INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(K, BLOCK_N)
    t, offs_k = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    j, S = load_list(lists_tensor, 0, t, offs_k, K), pages[1]
    # What is no key is past the last one, and isn't read.
    rows = tl.where(is_key(j, pages), j, S).to(tl.int64)
    q_ptr, stride_qh, stride_qd = head(q_tensor, 0, t, 0)
    kv_ptr, stride_kt, stride_kd = head(kv_tensor, 0, 0, 0)
    total = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, H, BLOCK_M):
        offs_h = start + tl.arange(0, BLOCK_M)
        s = tile_of_product(
            kv_ptr, q_ptr, rows, offs_h.to(tl.int64), S, H, W, stride_kt, stride_kd, stride_qd, stride_qh,
            INPUT_PRECISION, BLOCK_W,
        )  # fmt: skip
        s, _ = scale_and_cap(s, scale, 0.0)
        lse = load_numbers(head(lse_tensor, 0, t, 0), offs_h, H)
        # [[tag: SP-P]]; where there is no head it means nothing, nor where the list has none.
        s = score_or_none(s, j[:, None], pages)
        counts = (offs_h < H)[None, :] & (j != -1)[:, None]
        total += tl.sum(tl.where(counts, exp(s - lse[None, :]), 0.0), axis=1)
    # [[tag: SP-p]]: of the two keys of the second query of the example `pid=1: total / H = [0.5, 0, 0.5, 0]`.
    tl.store(out_ptr + t.to(tl.int64) * K + offs_k, total / H, mask=offs_k < K)


# ## The launcher
@opaque(
    "(Tensor q, Tensor kv, Tensor indices, Tensor lse, float scale) -> Tensor",
    lambda q, kv, indices, lse, scale: lse.new_empty(indices.shape),
)
def selected_probabilities_forward(q, kv, indices, lse, scale, *, BLOCK_M=None, BLOCK_N=None, BLOCK_W=None):
    """(T, K) float32. A tile has BLOCK_M heads or BLOCK_N keys, and BLOCK_W numbers of each."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_W=BLOCK_W)
    (_, H, W), (T, K) = q.shape, indices.shape
    # float32 has no tensor cores: its sums are made by threads, which have no room for more.
    most, wide = (64, 32) if q.dtype == torch.float32 else (128, 64)
    BLOCK_M, BLOCK_N = BLOCK_M or min(max(16, triton.next_power_of_2(H)), most), BLOCK_N or most
    out = lse.new_empty(indices.shape)
    if out.numel():
        selected_probabilities_kernel[(T * triton.cdiv(K, BLOCK_N),)](
            *[strided(x) for x in (q[None], kv[None, None], indices[None], lse[None])], out, H, K, W, one_page(kv),
            scale, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_W=BLOCK_W or wide,
            num_warps=4, num_stages=3,
        )  # fmt: skip
    return out


# ## Arguments
def contract(q, kv, indices, lse, scale):
    """Raises on bad arguments, and returns the scale."""
    checks.tensors(q=q, kv=kv, indices=indices, lse=lse)
    checks.no_gradient("selected_probabilities", q=q, kv=kv, lse=lse)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, kv=kv)
    checks.dtypes((torch.int32,), indices=indices)
    checks.dtypes((torch.float32,), lse=lse)
    checks.dimensions("q", q, 3, "T, H, W")
    checks.dimensions("kv", kv, 2, "S, W")
    checks.dimensions("indices", indices, 2, "T, K")
    (T, H, W), S = q.shape, len(kv)
    checks.shape("kv", kv, (S, W), "the width of q")
    checks.shape("lse", lse, (T, H), "the queries and heads of q")
    same_device(q=q, kv=kv, indices=indices, lse=lse)
    list_contract("indices", indices, S, (T, indices.shape[1]), "a list for each query")
    if H < 1 or not 1 <= W <= LARGEST_RANK + LARGEST_ROTATED:
        raise ValueError(
            f"q must have a head and 1 to {LARGEST_RANK + LARGEST_ROTATED} columns, got shape {tuple(q.shape)}"
        )
    checks.number("scale", scale)
    return float(scale)


@replayed
def selected_probabilities(q, kv, indices, lse, *, scale):
    r"""The probability that attention gives to each selected key, averaged over its heads. Forward only.

    Args:
        q: (T, H, W), absorbed; float32, float16 or bfloat16, any strides, H at least 1, W from 1 to 576.
        kv: (S, W), dtype of `q`.
        indices: (T, K) int32: the keys of each query's list; −1 anywhere for none.
        lse: (T, H) float32, of `sparse_attention` with the same arguments and `return_lse=True`.
        scale: of the scores, as there.

    Returns:
        (T, K) float32: `target` of `indexer_loss`, 0 where the list has none. A row adds up to 1, to less with sinks,
        and to 0 without keys. A number that is neither a key nor −1 has NaN; nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes or devices don't fit, a number is out of range, an input requires a gradient, or, on the CPU
            and with `ACADEMY_DEBUG=1` in the environment, an index is out of range.

    Source: DeepSeek-AI, "DeepSeek-V3.2" (2025), equations 3 and 4.
    """
    return selected_probabilities_forward(q, kv, indices, lse, contract(q, kv, indices, lse, scale))


# ## A run small enough to watch
#
# Two queries of two heads and three keys. The second query has two keys, which are alike to it, and its list has a gap.
def EXAMPLE():
    at = torch.arange(12, dtype=torch.float32, device=device.DEVICE)
    q, kv = (at * 5 % 7 - 3).view(2, 2, 3), (at[:9] * 3 % 5 - 2).view(3, 3)
    indices = torch.tensor([[0, 1, 2], [1, -1, 1]], dtype=torch.int32, device=device.DEVICE)
    scores = torch.einsum("thw,tkw->thk", q, kv[indices.clamp(min=0).long()]) / 2
    lse = torch.logsumexp(scores.masked_fill(indices[:, None] < 0, -math.inf), -1)
    selected_probabilities_forward(q, kv, indices, lse, 0.5, BLOCK_M=2, BLOCK_N=4)


if __name__ == "__main__":
    script.main(selected_probabilities, selected_probabilities_reference)
