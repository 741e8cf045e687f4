"""The grouped product: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES, SEVERAL_TILES, matrices, through  # noqa: F401  academy reads AXES
from operations._products import product_cost as cost

LESSON = "tutorials.matmul_grouped"
FAST = None
FUNCTION = "matmul"
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("matmul", {"x": "m k", "y": "k n", "activation": ("none", "relu")}, at=(96, 160, 64), batch={"m": ""})]

# ---------------------------------------------------------------- what is compared with formulas


# ---------------------------------------------------------------- grouped: several tiles, several groups
@case(modules=LESSON, returns="MM-Z", gradients={"X": "MM-X", "Y": "MM-Y"}, sizes=SEVERAL_TILES)
def groups_of_two(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, num_warps=4)
    dX, dY = module.matmul_backward(nabla_C, X, Y, **tiles)
    return module.matmul_forward(X, Y, **tiles), {"X": dX, "Y": dY}


@groups_of_two.pytorch
def _(X, Y):
    return X @ Y


@case(
    modules=LESSON,
    returns="MM-relu",
    gradients=through("MM-relu-Z"),
    sizes={"M": 37, "N": 19, "K": 53},
)
def two_launches(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3, num_warps=4)
    z = module.matmul_forward(X, Y, "relu", **tiles)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "relu", **tiles)
    return z, {"X": dX, "Y": dY}


@two_launches.pytorch
def _(X, Y):
    return torch.relu(X @ Y)


# ---------------------------------------------------------------- what is measured
EXAMPLES = {LESSON: cost((7, 5, 8), torch.float32, saved=1)}
BENCH = dict(
    shapes=[(1024, 1024, 1024), (4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=matrices("x", "y"),
    eager=lambda x, y: x @ y,
    passes=["forward", "backward"],
    differentiable=["x", "y"],
)
