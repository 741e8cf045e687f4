r"""
# Attention to selected keys, fast: nothing waits for a key

[The lesson](../attention/sparse_mla.py) computes this, at less than a third of the tensor cores' speed:

[[eq: SP-O]]

**What is its time made of?** Its forward kernel was run with parts left out. The results are wrong then, but not the
times:

[[figure: selected/left_out]]

No part is the culprit. Leaving one out saves a bit, because they stand in a row, and each waits for the one before.
The compiled code shows it. A program asks for the next tile of keys when it has issued its last product, and waits for
it before the next first one: only one product hides a part of the copy. And it has eight warps for 64 heads. A product
of the tensor cores takes four, for 64 rows, so both groups of four compute the same scores.

Other sizes of tiles don't help. Without masks, a tile of 32 keys takes
[[bench: sparse_mla/ladder/lesson/32_keys_ms]], four warps take [[bench: sparse_mla/ladder/lesson/4_warps_ms]], and all
128 heads in a program, whose sums don't fit into registers, [[bench: sparse_mla/ladder/lesson/128_heads_ms]].

So who copies, who scores and who sums should be different warps, and work at the same time.
[Below Triton](../gluon/sparse_mla.py) one can say so.

**What it costs.** On an H200 4096 queries of 128 heads with 2048 keys each take
[[bench: sparse_mla/4096x128x8192x2048/forward/ms]] forward, which is
[[bench: sparse_mla/4096x128x8192x2048/forward/rate]]. The lesson takes
[[bench: sparse_mla/4096x128x8192x2048/forward/lesson.ms]], and PyTorch, which gathers the keys first,
[[bench: sparse_mla/4096x128x8192x2048/forward/PyTorch, keys gathered.ms]]. Backward it is the lesson.

**Contract.** That of the lesson.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch

from annotated_examples.attention import sparse_mla as lesson
from annotated_examples.attention.sparse_mla import attention, contract, sparse_attention_reference
from annotated_examples.common.attention import lse_dtype
from annotated_examples.common.custom_operator import opaque


# ## Which kernel?
#
# The kernel below Triton is for a Hopper card, and for latents as models have them: 512 numbers and 64 rotated ones, in
# 16 bits. Its tiles have 64 heads; for up to 32 the lesson's have fewer. And its first launches cost Python more,
# because they make descriptors. So a call has to be large: `2**22` scores are 9 billion operations.
WORTHWHILE = 2**22


def goes_below_triton(q, indices, rank):
    """Whether the Gluon kernel takes this call."""
    (T, H, W), K = q.shape, indices.shape[1]
    fits = rank == 512 and W == 576 and H > 32 and q.dtype != torch.float32
    return fits and T * H * K >= WORTHWHILE and not device.INTERPRET and device.has("gluon", q.device.index)


@opaque(
    "(Tensor q, Tensor kv, Tensor indices, Tensor? sinks, int rank, float scale) -> (Tensor, Tensor)",
    lambda q, kv, indices, sinks, rank, scale: (
        q.new_empty(*q.shape[:2], rank), q.new_empty(q.shape[:2], dtype=lse_dtype(q.dtype)),
    ),
)  # fmt: skip
def sparse_attention_forward(q, kv, indices, sinks, rank, scale, **tiles):
    """`(o, lse)`, by the kernel that is faster for the call. tiles: those of the lesson's."""
    if not tiles and goes_below_triton(q, indices, rank):
        from annotated_examples.gluon import sparse_mla as below_triton  # only a Hopper card needs it

        return below_triton.sparse_attention_forward(q, kv, indices, sinks, rank, scale)
    return lesson.sparse_attention_forward(q, kv, indices, sinks, rank, scale, **tiles)


sparse_attention_backward = lesson.sparse_attention_backward


# ## Joining autograd
@replayed
def sparse_attention(q, kv, indices, *, rank, scale, sinks=None, return_lse=False, deterministic=True):
    """The same as `annotated_examples.attention.sparse_mla.sparse_attention`, but faster forward.

    Args: as `annotated_examples.attention.sparse_mla.sparse_attention`.

    Returns:
        As the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as the lesson's.
    """
    scale = contract(q, kv, indices, rank, scale, sinks, return_lse, deterministic)
    return attention(q, kv, indices, sinks, rank, scale, return_lse, deterministic, sparse_attention_forward)


# ## A run small enough to watch
#
# Too small for the kernel below Triton: it is the lesson's.
def EXAMPLE():
    lesson.EXAMPLE()


if __name__ == "__main__":
    script.main(sparse_attention, sparse_attention_reference)
