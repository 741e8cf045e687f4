"""What is measured of the tuned product, and against whom: cuBLAS, alone and with the activation as a second kernel."""

import functools

import torch
import torch.nn.functional as F

from benchmarks._products import AXES, matrices  # noqa: F401  academy reads AXES
from benchmarks._products import product_cost as cost

LESSON = "tutorials.matmul_autotuned"
FAST = "fast.matmul"
FUNCTION = "matmul"

EXAMPLES = {
    "tutorials.matmul_autotuned": cost((9, 6, 10), torch.float32, saved=1),
    "fast.matmul": cost((6, 24, 24), torch.float16, saved=1),
}
BENCH = dict(
    shapes=[(n, n, n) for n in range(128, 4097, 128)]
    + [(8192, 8192, 8192), (1000, 3000, 5000), (16, 8192, 8192), (64, 8192, 8192)],
    dtypes=[torch.bfloat16],
    inputs=matrices("a", "b"),
    eager=lambda a, b: a @ b,
    eager_name="cuBLAS",
    compile=False,
    differentiable=["a", "b"],
    variants={
        "": {},  # the product alone
        "leaky_relu": dict(
            shapes=[(n, n, n) for n in (512, 1024, 2048, 3072, 4096, 8192)] + [(1000, 3000, 5000)],
            call=lambda matmul: functools.partial(matmul, activation="leaky_relu"),
            eager=lambda a, b: F.leaky_relu(a @ b, 0.01),
            eager_name="cuBLAS + leaky_relu",
        ),
        "backward": dict(shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)], passes=["backward"]),
    },
)
