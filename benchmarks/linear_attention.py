"""What is measured of linear attention, and against whom. `shape` is (batch, tokens, heads, head dimension)."""

import functools

import torch
import torch.nn.functional as F

LESSON = "recurrences.linear_attention"
FAST = "fast.linear_attention"
FUNCTION = "linear_attention"
AXES = ("batch", "tokens", "heads", "head dimension")
CHUNK = 64


# q, k, v and the gates are read and o is written, once. The lesson reads q, k and v twice and moves a state for each
# chunk besides; that is its own affair, not what has to move.
def operations_of(B, T, H, D, E, C):
    """Forward: scores and outputs inside of a chunk, and three products with a state."""
    return 2 * B * H * T * (C * (D + E) // 2 + 2 * D * E)


def cost(shape, dtype):
    B, T, H, D = shape
    tensor, gates = B * T * H * D * dtype.itemsize, 4 * B * T * H
    forward = operations_of(B, T, H, D, D, CHUNK)
    return {
        "forward": dict(bytes_read=3 * tensor + gates, bytes_written=tensor, operations=forward),
        "backward": dict(bytes_read=4 * tensor + gates, bytes_written=3 * tensor + gates, operations=5 * forward // 2),
    }


def inputs(shape, dtype, device):
    B, T, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    return made | dict(g=F.logsigmoid(torch.randn(B, T, H, device=device) + 3))


# With all pairs of tokens at once the reference needs T² numbers a head: a few heads at a time.
def reference(q, k, v, g):
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.recurrences.linear_attention import linear_attention_reference

    one = functools.partial(checkpoint, linear_attention_reference, use_reentrant=False)
    batches = []
    for b in range(len(q)):
        heads = [one(*(x[b : b + 1, :, h : h + 1] for x in (q, k, v, g))) for h in range(v.shape[2])]
        batches.append(torch.cat(heads, dim=2))
    return torch.cat(batches)


def simple_gla(inputs):
    from fla.ops.simple_gla import chunk_simple_gla

    return lambda q, k, v, g: chunk_simple_gla(q, k, v, g)[0]


# The state at the end is written, too, and so is the gradient of the one at the start. One kernel writes its part of
# the gates' gradient, which the next one reads again.
EXAMPLES = {
    "recurrences.linear_attention": {
        "forward": dict(
            bytes_read=4 * (3 * 8 + 4), bytes_written=4 * (8 + 4), operations=operations_of(1, 4, 1, 2, 2, 2)
        ),
        "backward": dict(
            bytes_read=4 * (4 * 8 + 4),
            bytes_written=4 * (3 * 8 + 4),
            operations=5 * operations_of(1, 4, 1, 2, 2, 2) // 2,
        ),
    },
    "fast.linear_attention": {
        "forward": dict(
            bytes_read=2 * 3 * 32 + 4 * 4,
            bytes_written=2 * 32 + 4 * 64,
            operations=operations_of(1, 4, 1, 8, 8, 2),
        ),
        "backward": dict(
            bytes_read=2 * 4 * 32 + 4 * 4,
            bytes_written=2 * 3 * 32 + 4 * 64,
            operations=5 * operations_of(1, 4, 1, 8, 8, 2) // 2,
        ),
    },
}
BENCH = dict(
    shapes=[(8, 4096, 16, 128), (1, 16384, 16, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    compile=False,
    host_shape=(1, 128, 2, 64),
    eager=reference,
    time_eager=False,
    peers={"fla, simple_gla": simple_gla},
    # Apart, because fla refuses its backward pass on triton 3.6, and would be left out of both.
    variants={"": {}, "backward": dict(passes=["backward"], differentiable=["q", "k", "v", "g"])},
)
