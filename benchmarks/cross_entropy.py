"""What is measured of the cross entropy, and against whom."""

import torch

LESSON = "classics.cross_entropy"
FAST = "fast.cross_entropy"
FUNCTION = "cross_entropy_loss"
AXES = ("rows", "vocabulary")


# A training step must read logits and labels and write the gradient and a loss for each row; that is all, because the
# gradient can be made on the way. A backward pass with an upstream gradient other than 1 reads and writes it once more.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    forward = dict(
        bytes_read=logits * dtype.itemsize + rows * 8,
        bytes_written=logits * dtype.itemsize + rows * 4,
        operations=8 * logits,
    )
    backward = dict(bytes_read=logits * dtype.itemsize + 4, bytes_written=logits * dtype.itemsize, operations=logits)
    return {"forward": forward, "backward": backward, "forward+backward": forward}


# The lesson leaves the gradient to the backward pass, which reads the logits again. A row has a label of 8 bytes, and a
# loss and two saved numbers of 4. The number of labels and what both passes are multiplied by are single numbers.
def lesson_cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size + 8 * rows + 8, bytes_written=12 * rows, operations=5 * logits),
        "backward": dict(bytes_read=size + 16 * rows + 12, bytes_written=size, operations=4 * logits),
    }


def inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        labels=torch.randint(shape[-1], shape[:-1], device=device),
    )


def liger():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return lambda logits, labels: LigerCrossEntropyFunction.apply(logits, labels, None)[0]


def quack():
    from quack.cross_entropy import cross_entropy

    return lambda logits, labels: cross_entropy(logits, labels, reduction="mean")


EXAMPLES = {
    "classics.cross_entropy": lesson_cost((3, 11), torch.float32),
    "fast.cross_entropy": cost((2, 2, 21), torch.float32),
}
BENCH = dict(
    shapes=[*((8192, vocab) for vocab in (32000, 128256, 50257, 151936, 201088, 1000, 4097)), (4096, 262144)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward+backward"],
    differentiable=["logits"],
)
