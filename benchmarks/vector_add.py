"""What is measured of the vector addition, and against whom."""

import torch

LESSON = "tutorials.vector_add"
FAST = None
FUNCTION = "vector_add"
AXES = ("elements",)


# The backward pass launches nothing.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    return {"forward": dict(bytes_read=2 * n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=n)}


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("x", "y")}


EXAMPLES = {"tutorials.vector_add": cost((10,), torch.float32)}
BENCH = dict(
    shapes=[(1 << 20,), (1 << 24,), (1 << 28,)],
    dtypes=[torch.float32, torch.bfloat16],
    inputs=inputs,
    eager=lambda x, y: x + y,
)
