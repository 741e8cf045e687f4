"""What is measured of the product with an activation, and against whom."""

import functools

import torch

from benchmarks._products import AXES, matrices  # noqa: F401  academy reads AXES
from benchmarks._products import product_cost as cost

LESSON = "classics.matmul"
FAST = None
FUNCTION = "matmul"

EXAMPLES = {"classics.matmul": cost((16, 8, 16), torch.float32, saved=1)}
BENCH = dict(
    shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (1000, 3000, 5000)],
    dtypes=[torch.bfloat16],
    inputs=matrices("a", "b"),
    eager=lambda a, b: a @ b,
    passes=["forward", "backward"],
    differentiable=["a", "b"],
    variants={
        "": {},  # the product alone
        "relu": dict(
            shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)],
            call=lambda matmul: functools.partial(matmul, activation="relu"),
            eager=lambda a, b: torch.relu(a @ b),
            cost=functools.partial(cost, saved=1),
        ),
    },
)
