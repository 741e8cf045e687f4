r"""
# The loss that trains an indexer

What should [an indexer](indexer.py) give a high score? The keys to which attention gives weight. Attention itself is
the teacher: its probabilities, averaged over its heads, are a distribution over the keys, [[tag: IX-p]]. The softmax of
the indexer's scores is another one, [[tag: IX-softmax]], and the loss is how far the second is from the first:

[[eq: IX-KL]]

Both run over the same keys, those that [were selected](select_keys.py), since that is where attention was computed. (In
a first phase of training it is all keys that a query sees. Then `indices` counts them, with −1 behind the last.)

[[figure: selected/missed]]

The gradient of a score is a difference:

[[eq: IX-dI]]

From there it goes through the weights and the ReLU to the queries, [[tag: IX-dq]], the keys, [[tag: IX-dk]], and the
weights, [[tag: IX-dw]]. The target gets none, and nor does the rest of the model: the indexer's inputs are detached,
and this is its only loss.

**The keys turn round.** A query reads a list of keys. On the way back a key gets something from every query that has it
in its list, and of those there is no list. Adding with atomics would be simple, in an order that may change from run to
run. Here each query writes one row for each of its keys, a sort puts the rows of a key side by side, and a program for
each key adds them up in the order of the queries. The same bits come out each time.

[[figure: indexer/rows_by_key]]

**What it costs.** A selected pair takes one product of all heads forward, and four backward: the scores again in both
orientations, and one for each of two gradients. The rows are float32, 512 bytes a pair with 128 numbers, written once
and read once. They are made for so many queries at a time, one at least, that they take at most 256 MiB. On an H200
1024 queries that have selected 2048 keys each take [[bench: indexer_loss/1024x8192x2048x64/forward/ms]] forward and
[[bench: indexer_loss/1024x8192x2048x64/backward/ms]] backward. PyTorch, which gathers the keys first, takes
[[bench: indexer_loss/1024x8192x2048x64/forward/PyTorch, keys gathered.ms]] and
[[bench: indexer_loss/1024x8192x2048x64/backward/PyTorch, keys gathered.ms]]; compiled it is
[[bench: indexer_loss/1024x8192x2048x64/forward/torch.compile.ms]] and
[[bench: indexer_loss/1024x8192x2048x64/backward/torch.compile.ms]].

**Contract.** `q` is (M, H, D) and `k` is (S, D), both float32, float16 or bfloat16, `weights` (M, H) float32, H and D
from 1 to 128; `indices` (M, K) int32, −1 anywhere for "none"; a key that is listed twice counts twice. `target` is (M,
K) float32, not negative; where the index is −1 it counts as 0. Any strides. Its rows needn't add up to 1: the gradient
is that of the loss as it stands. The result is the *sum* over the queries. The factors of products have the inputs'
dtype, the gradient of a key is summed in float64, and all other arithmetic is float32. An index that is none of the
keys makes the loss NaN, and nothing outside is read.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, load_numbers, load_tile, same_device, store_tile, strided
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.exponential import exp
from annotated_examples.common.paged import load_rows
from annotated_examples.common.products import input_precision, multiply_add, rows_by_rows
from annotated_examples.common.selected import add_rows, launches, list_contract


# ## Reference
#
# A copy of the selected keys for each query, with a row of zeros for what is missing.
def indexer_loss_reference(q, k, weights, indices, target):
    none = indices < 0
    selected = torch.nn.functional.pad(k, (0, 0, 0, 1))[indices.masked_fill(none, len(k)).long()]
    z = torch.einsum("mhd,mkd->mhk", q, selected).relu()
    logits = (z * weights[..., None]).sum(1).masked_fill(none, -torch.inf)
    p = target.masked_fill(none, 0.0)
    cross = (p * torch.log_softmax(logits, 1)).masked_fill(none, 0.0)
    return torch.xlogy(p, p).sum() - cross.sum()


# ## Some keys of a list
#
# Their scores are those of the indexer, from keys that lie anywhere. An index that is missing has the score −∞, and one
# that can't be NaN.
@triton.jit
def load_selected(k_tensor, indices_tensor, target_tensor, row, offs_k, K, S, D: tl.constexpr, BLOCK_D: tl.constexpr):
    indices_ptr, stride_im, stride_ik = indices_tensor
    target_ptr, stride_pm, stride_pk = target_tensor
    at, row = offs_k.to(tl.int64), row.to(tl.int64)
    j = tl.load(indices_ptr + row * stride_im + at * stride_ik, mask=offs_k < K, other=-1)
    chosen = (j >= 0) & (j < S)
    p = tl.load(target_ptr + row * stride_pm + at * stride_pk, mask=chosen, other=0.0)
    k = load_rows(k_tensor, 0, tl.zeros_like(j), j, chosen, D, BLOCK_D)
    return j, chosen, k, p


@triton.jit
def scores(k, q, weights, j, chosen, H: tl.constexpr, INPUT_PRECISION: tl.constexpr):
    # [[tag: IX-I]]; z has a row for each key and a column for each head. Columns past the last head are 0, also where a
    # key is infinite.
    z = tl.where((tl.arange(0, q.shape[0]) < H)[None, :], rows_by_rows(k, q, INPUT_PRECISION), 0.0)
    logits = tl.sum(tl.where(z <= 0.0, 0.0, z) * weights[None, :], axis=1)
    return z, tl.where(chosen, logits, tl.where(j == -1, -float("inf"), float("nan")))


# ## The loss of a query
#
# One walk, as in [attention](flash_attention.py): the sum of exponentials is relative to the largest score so far. So
# is the other sum, of `p · (log p − logits)`. When a larger score comes, each of its terms grows by `p` times the
# difference, and all of them together by the sum of the `p`. A `p` of 0 adds nothing.
@triton.jit
def indexer_loss_kernel(
    q_tensor, k_tensor, weights_tensor,  # (pointer, four strides): (1, M, H, D), (1, S, 1, D), (1, M, H)
    indices_tensor, target_tensor,  # (pointer, two strides): (M, K)
    loss_ptr, sums_ptr,  # (M,); (3, M): the largest score, the sum of exponentials, the sum of the target
    M, S, K, H: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    offs_h = tl.arange(0, BLOCK_H)
    q = load_tile(head(q_tensor, 0, row, 0), offs_h, H, D, BLOCK_D)
    weights = load_numbers(head(weights_tensor, 0, row, 0), offs_h, H)
    row_max, row_sum, mass, cross = tl.full((), LOWEST, tl.float32), 0.0, 0.0, 0.0
    for start in tl.range(0, K, BLOCK_N):
        offs_k = start + tl.arange(0, BLOCK_N)
        j, chosen, k, p = load_selected(k_tensor, indices_tensor, target_tensor, row, offs_k, K, S, D, BLOCK_D)
        # The first query of the example has two keys: `pid=0: logits = [8, 7]`.
        _, logits = scores(k, q, weights, j, chosen, H, INPUT_PRECISION)
        new_max = tl.maximum(row_max, tl.max(logits, axis=0))
        row_sum = row_sum * exp(row_max - new_max) + tl.sum(exp(logits - new_max), axis=0)
        terms = tl.where(p == 0.0, 0.0, p * (tl.log(tl.where(p == 0.0, 1.0, p)) - (logits - new_max)))
        cross += mass * (new_max - row_max) + tl.sum(terms, axis=0)
        mass += tl.sum(p, axis=0)
        row_max = new_max
    # [[tag: IX-KL]]. A list without keys has the loss 0, not 0 times the logarithm of 0.
    loss = cross + mass * tl.log(tl.where(row_sum == 0.0, 1.0, row_sum))
    tl.store(loss_ptr + row, loss)
    tl.store(sums_ptr + row, row_max)
    tl.store(sums_ptr + M + row, row_sum)
    tl.store(sums_ptr + 2 * M + row, mass)


# ## Backward for a query
#
# The scores are computed again, with the same function as before: sums of *other* scores, of codes or in another order,
# wouldn't normalise these. Then [[tag: IX-dI]], with the sum of the target in place of 1.
#
# The gradient of a product has the shape of either factor: one needs a row for each key, the other a row for each head.
# Each orientation is computed from the inputs. Turning round a tile that a product has left is what some versions of
# the compiler get wrong on Hopper.
@triton.jit
def indexer_loss_backward_kernel(
    dloss_ptr, q_tensor, k_tensor, weights_tensor, indices_tensor, target_tensor, sums_ptr,  # one number; as above
    dq_tensor, dweights_tensor, rows_ptr,  # as q and weights; (queries of this launch, K, D) in float32
    first, M, S, K, H: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = first + tl.program_id(0)
    offs_h = tl.arange(0, BLOCK_H)
    q = load_tile(head(q_tensor, 0, row, 0), offs_h, H, D, BLOCK_D)
    weights = load_numbers(head(weights_tensor, 0, row, 0), offs_h, H)
    row_max, row_sum, mass = tl.load(sums_ptr + row), tl.load(sums_ptr + M + row), tl.load(sums_ptr + 2 * M + row)
    dq = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    dweights = tl.zeros((BLOCK_H,), tl.float32)
    for start in tl.range(0, K, BLOCK_N):
        offs_k = start + tl.arange(0, BLOCK_N)
        j, chosen, k, p = load_selected(k_tensor, indices_tensor, target_tensor, row, offs_k, K, S, D, BLOCK_D)
        z, logits = scores(k, q, weights, j, chosen, H, INPUT_PRECISION)
        dlogits = (exp(logits - row_max) / row_sum * mass - p) * tl.load(dloss_ptr)
        # Attention gave the first key a quarter, and the indexer three quarters: `pid=0: dlogits = [0.4811, -0.4811]`.
        dlogits = tl.where(chosen, dlogits, 0.0)
        # [[tag: IX-dk]], this query's part of it. Where the ReLU has left nothing, the key gets nothing.
        dz = tl.where(z <= 0.0, 0.0, weights[None, :] * dlogits[:, None])
        part = multiply_add(dz.to(q.dtype), q, tl.zeros((BLOCK_N, BLOCK_D), tl.float32), INPUT_PRECISION)
        rows = (rows_ptr + tl.program_id(0).to(tl.int64) * K * D, D, 1)
        store_tile(rows, part, offs_k, K, D, BLOCK_D)
        # [[tag: IX-dw]] and [[tag: IX-dq]], with a row for each head.
        z = rows_by_rows(q, k, INPUT_PRECISION)
        dweights += tl.sum(tl.where(z <= 0.0, 0.0, z) * dlogits[None, :], axis=1)
        dz = tl.where(z <= 0.0, 0.0, weights[:, None] * dlogits[None, :])
        dq = multiply_add(dz.to(k.dtype), k, dq, INPUT_PRECISION)
    store_tile(head(dq_tensor, 0, row, 0), dq, offs_h, H, D, BLOCK_D)
    ptr, stride_h, _ = head(dweights_tensor, 0, row, 0)
    tl.store(ptr + offs_h * stride_h, dweights, mask=offs_h < H)


# ## The launchers
#
# After each launch `add_rows` sorts its rows by key, and a program for each key adds up those that it has, in the order
# of the queries, to what earlier launches have left.
def launch_options(q, BLOCK_N):
    """The constants of both kernels that walk along a list."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    (_, H, D), float32 = q.shape, q.dtype == torch.float32
    BLOCK_H = max(16, triton.next_power_of_2(H))
    return dict(
        H=H, D=D, INPUT_PRECISION=input_precision(), BLOCK_N=BLOCK_N or (16 if float32 else 64), BLOCK_H=BLOCK_H,
        BLOCK_D=max(32, triton.next_power_of_2(D)), num_warps=8 if BLOCK_H == 128 else 4,
        num_stages=1 if float32 else 2,
    )  # fmt: skip


def as_tensors(q, k, weights, indices, target):
    """The inputs as kernels take them."""
    attention = strided(q[None]), strided(k[None, :, None]), strided(weights[None])
    return *attention, (indices, *indices.stride()), (target, *target.stride())


@opaque(
    "(Tensor q, Tensor k, Tensor weights, Tensor indices, Tensor target) -> (Tensor, Tensor)",
    lambda q, k, weights, *rest: (weights.new_empty(()), weights.new_empty((3, len(q)))),
)
def indexer_loss_forward(q, k, weights, indices, target, *, BLOCK_N=None):
    """The loss, and what its gradient needs of each query, (3, M)."""
    losses, sums = weights.new_empty(len(q)), weights.new_empty((3, len(q)))
    if len(q):
        indexer_loss_kernel[(len(q),)](
            *as_tensors(q, k, weights, indices, target), losses, sums, len(q), len(k), indices.shape[1],
            **launch_options(q, BLOCK_N),
        )  # fmt: skip
    return losses.sum(), sums


@opaque(
    "(Tensor dloss, Tensor q, Tensor k, Tensor weights, Tensor indices, Tensor target, Tensor sums) "
    "-> (Tensor, Tensor, Tensor)",
    lambda dloss, q, k, weights, *rest: (torch.empty_like(q), k.new_empty(k.shape), torch.empty_like(weights)),
)
def indexer_loss_backward(dloss, q, k, weights, indices, target, sums, *, BLOCK_N=None, queries=None):
    """The gradients of q, k and weights. queries: so many in each launch."""
    (M, K), (S, D), launch = indices.shape, k.shape, launch_options(q, BLOCK_N)
    dq, dweights, dk = torch.empty_like(q), torch.empty_like(weights), k.new_zeros((S, D), dtype=torch.float64)
    for first, lists in launches(indices, D, queries):
        rows = weights.new_empty((len(lists) * K, D))
        indexer_loss_backward_kernel[(len(lists),)](
            dloss, *as_tensors(q, k, weights, indices, target), sums, strided(dq[None]), strided(dweights[None]), rows,
            first, M, S, K, **launch,
        )  # fmt: skip
        add_rows(rows, lists, dk)
    return dq, dk.to(k.dtype), dweights


# ## Joining autograd
def contract(q, k, weights, indices, target):
    """Raises on bad arguments."""
    checks.tensors(q=q, k=k, weights=weights, indices=indices, target=target)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, k=k)
    checks.dtypes((torch.float32,), weights=weights, target=target)
    checks.dtypes((torch.int32,), indices=indices)
    checks.dimensions("q", q, 3, "M, H, D")
    checks.dimensions("k", k, 2, "S, D")
    checks.dimensions("indices", indices, 2, "M, K")
    (M, H, D), S = q.shape, len(k)
    checks.shape("k", k, (S, D), "the width of q")
    checks.shape("weights", weights, (M, H), "the queries and heads of q")
    list_contract("indices", indices, S, (M, indices.shape[1]), "a list for each query")
    checks.shape("target", target, tuple(indices.shape), "one for each index")
    same_device(q=q, k=k, weights=weights, indices=indices, target=target)
    if not (1 <= H <= 128 and 1 <= D <= 128):
        raise ValueError(f"q must have 1 to 128 heads of 1 to 128 numbers, got shape {tuple(q.shape)}")


class IndexerLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        loss, sums = indexer_loss_forward(*inputs)
        ctx.save_for_backward(*inputs, sums)
        return loss

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        return *indexer_loss_backward(dloss, *ctx.saved_tensors), None, None


@replayed
def indexer_loss(q, k, weights, indices, target):
    """The divergence of an indexer's distribution over selected keys from attention's. Differentiable in the first
    three.

    Args:
        q: (M, H, D) float32, float16 or bfloat16, any strides, H and D from 1 to 128.
        k: (S, D), dtype of `q`.
        weights: (M, H) float32, of any sign; constant factors of the scores belong here.
        indices: (M, K) int32, the keys of each query's list; −1 anywhere for none.
        target: (M, K) float32, at least 0: the probability that attention gives to each of them. Constant.

    Returns:
        The loss, float32, without dimensions: the sum over the queries.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes or devices don't fit, or, on the CPU and with `ACADEMY_DEBUG=1` in the environment, an index
            is out of range.

    Source: DeepSeek-AI, "DeepSeek-V3.2" (2025), equations 3 and 4.
    """
    contract(q, k, weights, indices, target)
    call = (
        IndexerLoss.apply if autograd.needs_frame(q, k, weights) else lambda *inputs: indexer_loss_forward(*inputs)[0]
    )
    return call(q, k, weights, indices, target)


# ## A run small enough to watch
#
# Two queries of two heads, three keys, and lists of two, in tiles of two. The second query has a single key.
def EXAMPLE():
    at = torch.arange(8, dtype=torch.float32, device=device.DEVICE)
    q, k = (at * 5 % 7 - 3).view(2, 2, 2), (at[:6] * 3 % 5 - 2).view(3, 2)
    weights = torch.tensor([[1, 0.5], [0.5, 1]], device=device.DEVICE)
    indices = torch.tensor([[0, 1], [1, -1]], dtype=torch.int32, device=device.DEVICE)
    target = torch.tensor([[0.25, 0.75], [1, 0]], device=device.DEVICE)
    loss, sums = indexer_loss_forward(q, k, weights, indices, target, BLOCK_N=2)
    indexer_loss_backward(torch.ones_like(loss), q, k, weights, indices, target, sums, BLOCK_N=2)


if __name__ == "__main__":
    script.main(indexer_loss, indexer_loss_reference)
