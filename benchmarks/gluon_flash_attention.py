"""What is measured of attention below Triton, and against whom. `shape` is as in flash_attention.py."""

import functools

import torch

from benchmarks import flash_attention as dense
from benchmarks.flash_attention import AXES, cost, inputs  # noqa: F401  academy reads AXES

LESSON = "gluon.flash_attention"
FAST = None
BACKWARD = "gluon.flash_attention_backward"
FUNCTION = "flash_attention"


def in_triton(causal):
    """The kernels in Triton. The public function would hand large calls to those that are measured here."""
    from annotated_examples.fast import flash_attention as fast

    def call(q, k, v):
        options = fast.checked(q, k, v, causal, None, None, 0.0, None, False)
        kernels = fast.attention_forward, fast.attention_backward
        return fast.attention(q, k, v, None, None, None, options, *kernels)[0]

    return call


def variant(causal):
    return dense.variant(causal) | dict(
        eager=dense.sdpa("CUDNN_ATTENTION", causal),
        peers={"Triton": functools.partial(in_triton, causal)},
    )


# 136 tokens of 16 numbers; query i sees i + 1 keys. The number of the next tile is written, too.
FORWARD = dense.attention_cost(136, 136, 16, 2, pairs=136 * 137 // 2)["forward"]
# Backward 40 queries see 136 keys. Sums for dQ are float32, written and read. A counter says whose turn it is, two
# which ticket is next.
BACKWARD_COST = dense.attention_cost(40, 136, 16, 2, pairs=40 * 136)["backward"]
EXAMPLES = {
    "gluon.flash_attention": {"forward": FORWARD | {"bytes_written": FORWARD["bytes_written"] + 4}},
    "gluon.flash_attention_backward": {
        "backward": BACKWARD_COST
        | {
            "bytes_written": BACKWARD_COST["bytes_written"] + 40 * 16 * 4 + 12,
            "bytes_read": BACKWARD_COST["bytes_read"] + 40 * 16 * 4,
        }
    },
}
BENCH = dict(
    shapes=[(4, 16, 16, 4096, 128), (4, 32, 8, 4096, 128), (1, 16, 16, 16384, 128), (4, 32, 32, 4096, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager_name="cuDNN (SDPA)",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "k", "v"],
    host_shape=(1, 2, 1, 128, 64),
    variants={"causal": variant(True), "full": variant(False)},
)
