"""What is measured of the vocabulary-parallel entropy: one rank's kernels, on one card."""

import torch

LESSON = "distributed.vocab_parallel_entropy"
FAST = None
FUNCTION = "vocab_parallel_entropy"
AXES = ("rows", "columns of a rank")


def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size, bytes_written=4 * rows, operations=7 * logits),
        "backward": dict(bytes_read=size + 16 * rows, bytes_written=size, operations=6 * logits),
        "forward+backward": dict(bytes_read=size, bytes_written=size, operations=13 * logits),
    }


# The recording counts the first call of each direction: those of rank 0, which has 4 of the 11 columns.
def example(rows, columns):
    size = rows * columns * 4
    return {
        "forward": dict(bytes_read=size, bytes_written=12 * rows, operations=7 * rows * columns),
        "backward": dict(bytes_read=size + 16 * rows, bytes_written=size, operations=6 * rows * columns),
    }


def inputs(shape, dtype, device):
    return {"logits": torch.randn(shape, dtype=dtype, device=device)}


def eager(logits):
    log_p = torch.log_softmax(logits, -1, dtype=torch.float32)
    return -(log_p.exp() * log_p).sum(-1)


EXAMPLES = {LESSON: example(2, 4)}
BENCH = dict(
    shapes=[(8192, 16032), (8192, 128256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward+backward"],
    differentiable=["logits"],
)
