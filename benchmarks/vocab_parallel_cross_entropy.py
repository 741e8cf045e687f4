"""What is measured of the vocabulary-parallel cross entropy: one rank's kernels, on one card.

What a gather between cards costs is not in these numbers: a machine with several cards is needed for that.
"""

import torch

LESSON = "distributed.vocab_parallel_cross_entropy"
FAST = None
FUNCTION = "vocab_parallel_cross_entropy"
AXES = ("rows", "columns of a rank")


# The logits are read by both passes. Four numbers a row are written, gathered and read.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=4 * rows, operations=5 * logits),
        "backward": dict(bytes_read=size + 20 * rows, bytes_written=size, operations=4 * logits),
        "forward+backward": dict(bytes_read=size, bytes_written=size, operations=9 * logits),
    }


# The recording counts the first call of each direction: those of rank 0, which has 4 of the 11 columns.
def example(rows, columns):
    size = rows * columns * 4
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=16 * rows, operations=5 * rows * columns),
        "backward": dict(bytes_read=size + 20 * rows, bytes_written=size, operations=4 * rows * columns),
    }


def inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        labels=torch.randint(shape[-1], shape[:-1], device=device),
    )


EXAMPLES = {LESSON: example(3, 4)}
BENCH = dict(
    shapes=[(8192, 16032), (8192, 128256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    passes=["forward+backward"],
    differentiable=["logits"],
)
