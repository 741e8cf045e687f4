"""What is measured of the gated delta rule, and against whom. `shape` is (batch, tokens, heads, head dimension)."""

import torch
import torch.nn.functional as F

from benchmarks.linear_attention import CHUNK, operations_of

LESSON = "recurrences.gated_delta_rule"
FAST = "fast.gated_delta_rule"
FUNCTION = "gated_delta_rule"
AXES = ("batch", "tokens", "heads", "head dimension")


# As linear attention, with one more number for each token and head. In each chunk there is a system to solve: its
# matrix, its inverse, W and U, and what the keys ask of the state. Of a triangle only the half that isn't 0 is counted.
def delta_operations_of(B, T, H, D, E, C):
    return operations_of(B, T, H, D, E, C) + 2 * B * H * T * (C * (C // 3 + 2 * D + E) // 2 + D * E)


def cost(shape, dtype):
    B, T, H, D = shape
    tensor, numbers = B * T * H * D * dtype.itemsize, 2 * 4 * B * T * H
    forward = delta_operations_of(B, T, H, D, D, CHUNK)
    return {
        "forward": dict(bytes_read=3 * tensor + numbers, bytes_written=tensor, operations=forward),
        "backward": dict(
            bytes_read=4 * tensor + numbers, bytes_written=3 * tensor + numbers, operations=5 * forward // 2
        ),
    }


def inputs(shape, dtype, device):
    B, T, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    made["k"] = F.normalize(made["k"].float(), dim=-1).to(dtype)
    g = F.logsigmoid(torch.randn(B, T, H, device=device) + 3)
    return made | dict(g=g, beta=torch.rand(B, T, H, device=device))


def reference(q, k, v, g, beta):
    """A head at a time: all pairs of tokens at once take T² numbers each."""
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule_reference

    batches = []
    for b in range(len(q)):
        heads = []
        for h in range(v.shape[2]):
            one = [x[b : b + 1, :, h : h + 1] for x in (q, k, v, g, beta)]
            heads.append(checkpoint(gated_delta_rule_reference, *one, use_reentrant=False))
        batches.append(torch.cat(heads, dim=2))
    return torch.cat(batches)


def fla(inputs):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return lambda q, k, v, g, beta: chunk_gated_delta_rule(q, k, v, g, beta)[0]


_EXAMPLE, _FAST = delta_operations_of(1, 4, 1, 2, 2, 4), delta_operations_of(1, 4, 1, 8, 8, 4)
# The state at the end is written, too, and so is the gradient of the one at the start.
EXAMPLES = {
    "recurrences.gated_delta_rule": {
        "forward": dict(bytes_read=4 * (3 * 8 + 4), bytes_written=4 * (8 + 4), operations=_EXAMPLE),
        "backward": dict(bytes_read=4 * (4 * 8 + 4), bytes_written=4 * (3 * 8 + 4 + 4), operations=5 * _EXAMPLE // 2),
    },
    # Backward one kernel writes its part of the keys' gradient, which another one reads again.
    "fast.gated_delta_rule": {
        "forward": dict(bytes_read=2 * 3 * 32 + 4 * 4, bytes_written=2 * 32 + 4 * 64, operations=_FAST),
        "backward": dict(
            bytes_read=2 * 4 * 32 + 4 * 4, bytes_written=2 * 2 * 32 + 4 * 4 + 4 * 64, operations=5 * _FAST // 2
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
    peers={"fla": fla},
    # Apart, because fla refuses its backward pass on triton 3.6, and would be left out of both.
    variants={"": {}, "backward": dict(passes=["backward"], differentiable=["q", "k", "v", "g", "beta"])},
)
