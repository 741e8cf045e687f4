"""What is measured of the running sum, and against whom."""

import torch

LESSON = "recurrences.cumsum"
FAST = "fast.cumsum"
FUNCTION = "cumsum"
AXES = ("rows", "columns")


# Every element is read once and written once; a scan of a chunk takes about ten rounds.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    each = dict(bytes_read=n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=10 * n)
    return {"forward": each, "backward": each}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def eager(x):
    return torch.cumsum(x, -1)


EXAMPLES = {"recurrences.cumsum": cost((2, 6), torch.float32), "fast.cumsum": cost((1, 11), torch.float32)}
BENCH = dict(
    shapes=[(4096, 16384), (65536, 128), (8192, 32000), (1, 1 << 26)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward", "backward"],
    differentiable=["x"],
)
