"""The tuned product: what is compared with formulas, and what is measured.

CuBLAS, alone and with the activation as a second kernel.
"""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES, matrices, silu_in_pytorch, through  # noqa: F401  academy reads AXES
from operations._products import product_cost as cost

LESSON = "tutorials.matmul_autotuned"
FAST = "fast.matmul"
FUNCTION = "matmul"
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "matmul", {"a": "m k", "b": "k n", "activation": (None, "leaky_relu", "gelu")}, at=(96, 160, 64),
        batch={"m": "the tiles are tuned for each number of rows; with tiles that are given it holds"},
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas


@case(
    modules=FAST,
    returns="MM-silu",
    gradients=through("MM-silu-Z"),
    pytorch=silu_in_pytorch,
    sizes={"M": 88, "N": 40, "K": 24},
    dtypes=("float16",),
)
def persistent_with_descriptors(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=2, num_stages=2, NUM_PROGRAMS=2, descriptors=True)
    c, z = module.matmul_forward(X, Y, "silu", save_z=True, **tiles)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "silu", **tiles)
    return c, {"X": dX, "Y": dY}


@case(
    modules=FAST,
    returns="MM-silu",
    pytorch=silu_in_pytorch,
    sizes={"M": 72, "N": 208, "K": 48},
    dtypes=("float16",),
    forward_only=True,
)
def interleaved(module, X, Y):
    return module.matmul_forward(X, Y, "silu", BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=3, interleaved=True)


# ---------------------------------------------------------------- what is measured
EXAMPLES = {
    LESSON: cost((9, 6, 10), torch.float32, saved=1),
    FAST: cost((6, 24, 24), torch.float16, saved=1),
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
