"""What is measured of the router, and against whom."""

import torch

LESSON = "moe.router"
FAST = None
FUNCTION = "route"
AXES = ("tokens", "experts")
TOP_K = 8


# The logits are read once, a weight and an expert of each selected slot written, 4 bytes each. An exponential counts as
# one operation. Backward reads the logits, the experts and the gradients of the weights, and writes that of the logits.
def cost(shape, dtype, top_k=TOP_K):
    tokens, experts = shape
    logits, slots = tokens * experts, tokens * top_k
    return {
        "forward": dict(bytes_read=logits * dtype.itemsize, bytes_written=8 * slots, operations=(4 + top_k) * logits),
        "backward": dict(
            bytes_read=logits * dtype.itemsize + 8 * slots,
            bytes_written=logits * dtype.itemsize,
            operations=(6 + top_k) * logits,
        ),
    }


def inputs(shape, dtype, device):
    return dict(logits=torch.randn(shape, dtype=dtype, device=device))


def eager(logits):
    weights, experts = torch.topk(torch.softmax(logits.float(), 1), TOP_K)
    return weights / weights.sum(1, keepdim=True), experts.int()


# Only the weights have a gradient.
def weights_of(route):
    return lambda logits: route(logits, TOP_K)[0]


EXAMPLES = {"moe.router": cost((7, 6), torch.float32, 2)}
BENCH = dict(
    shapes=[(8192, 256), (8192, 64), (8192, 128), (65536, 64), (512, 256)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=weights_of,
    eager=lambda logits: eager(logits)[0],
    passes=["forward", "backward"],
    differentiable=["logits"],
)
