"""What is measured of the grouped product, and against whom."""

import torch

from benchmarks._products import AXES, matrices  # noqa: F401  academy reads AXES
from benchmarks._products import product_cost as cost

LESSON = "tutorials.matmul_grouped"
FAST = None
FUNCTION = "matmul"

EXAMPLES = {"tutorials.matmul_grouped": cost((7, 5, 8), torch.float32, saved=1)}
BENCH = dict(
    shapes=[(1024, 1024, 1024), (4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=matrices("x", "y"),
    eager=lambda x, y: x @ y,
    passes=["forward", "backward"],
    differentiable=["x", "y"],
)
