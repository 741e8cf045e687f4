"""What is measured of linear cross entropy, and against whom. `shape` is (rows, hidden, vocab)."""

import torch
import torch.nn.functional as F

LESSON = "classics.linear_cross_entropy"
FAST = "fast.linear_cross_entropy"
FUNCTION = "linear_cross_entropy"
AXES = ("rows", "hidden", "vocabulary")


# A training step must read x, weight and labels, write both gradients, and form three products.
def cost(shape, dtype):
    rows, hidden, vocab = shape
    inputs = (rows + vocab) * hidden * dtype.itemsize
    both = dict(bytes_read=inputs + 8 * rows, bytes_written=inputs + 4 * rows, operations=6 * rows * hidden * vocab)
    return {"forward": both, "backward": both, "forward+backward": both}


# What is left of an example when scratch is taken off: the products are PyTorch's, and what a kernel stores is read
# again, by itself for the next piece or by a product. Forward reads the logits of the widest piece, a label for each
# row and the number of items; backward labels, two numbers of each row, the number of items and the upstream gradient.
def lesson_cost(rows, widest):
    forward = dict(bytes_read=rows * (4 * widest + 8) + 8, bytes_written=0, operations=5 * rows * widest)
    return {"forward": forward, "backward": dict(bytes_read=16 * rows + 12, bytes_written=0, operations=4 * rows)}


def fast_cost(rows):
    return {"forward": dict(bytes_read=8 * rows + 8, bytes_written=0, operations=0)}


def inputs(shape, dtype, device):
    rows, hidden, vocab = shape
    return dict(
        x=torch.randn(rows, hidden, dtype=dtype, device=device),
        weight=torch.randn(vocab, hidden, dtype=dtype, device=device) / hidden**0.5,
        labels=torch.randint(vocab, (rows,), device=device),
    )


def lean(function):
    from annotated_examples.fast.linear_cross_entropy import linear_cross_entropy_lean

    return linear_cross_entropy_lean if function.__module__.endswith("fast.linear_cross_entropy") else function


def liger():
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    return lambda x, weight, labels: LigerFusedLinearCrossEntropyFunction.apply(x, weight, labels)[0]


EXAMPLES = {
    "classics.linear_cross_entropy": lesson_cost(3, 8),
    "fast.linear_cross_entropy": fast_cost(3),
}
BENCH = dict(
    shapes=[(8192, 4096, 128256), (8192, 2048, 32000), (4096, 2048, 50257), (2048, 4096, 151936)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x, weight, labels: F.cross_entropy(F.linear(x, weight), labels),
    peers={"liger-kernel": liger},
    passes=["forward+backward"],
    differentiable=["x", "weight"],
    variants={"": {}, "lean": dict(call=lean)},
)
