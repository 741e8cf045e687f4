"""What is measured of the product in blocks, and against whom."""

import torch

from benchmarks._products import AXES, matrices  # noqa: F401  academy reads AXES
from benchmarks._products import forward_cost as cost

LESSON = "tutorials.matmul_blocked"
FAST = None
FUNCTION = "matmul"

EXAMPLES = {"tutorials.matmul_blocked": cost((8, 8, 8), torch.float32)}
BENCH = dict(
    shapes=[(1024, 1024, 1024), (4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=matrices("x", "y"),
    eager=lambda x, y: x @ y,
)
