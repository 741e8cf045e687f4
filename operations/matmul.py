"""The product with an activation: what is compared with formulas, and what is measured."""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES, SEVERAL_TILES, matrices, silu_in_pytorch, through  # noqa: F401  academy reads AXES
from operations._products import product_cost as cost

LESSON = "classics.matmul"
FAST = None
FUNCTION = "matmul"
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public("matmul", {"a": "m k", "b": "k n", "activation": (None, "gelu", "silu")}, at=(96, 160, 64), batch={"m": ""})
]

# ---------------------------------------------------------------- what is compared with formulas
#: With gradients. On a GPU the last two search for a configuration, which takes seconds for each shape: so in most of
#: their cases the launchers are given tile sizes.
ALL = (LESSON, "tutorials.matmul_grouped", "tutorials.matmul_autotuned", "fast.matmul")
ACTIVATED = (LESSON, "tutorials.matmul_autotuned", "fast.matmul")


@case(modules=ALL, returns="MM-Z", gradients={"X": "MM-X", "Y": "MM-Y"})
def matmul(module, X, Y):
    return module.matmul(X, Y)


@case(modules=(LESSON, "tutorials.matmul_grouped"), returns="MM-relu", gradients=through("MM-relu-Z"))
def relu(module, X, Y):
    return module.matmul(X, Y, "relu")


def column_major(nabla_C):
    return nabla_C.t().contiguous().t()


@case(
    modules=ACTIVATED,
    returns="MM-leaky",
    gradients=through("MM-leaky-Z"),
    upstream=column_major,
    sizes={"M": 9, "N": 261, "K": 5},
)
def leaky_relu(module, X, Y):
    return module.matmul(X, Y, "leaky_relu")


@case(modules=LESSON, returns="MM-gelu", gradients=through("MM-gelu-Z"))
def gelu(module, X, Y):
    return module.matmul(X, Y, "gelu")


@case(modules=LESSON, returns="MM-silu", gradients=through("MM-silu-Z"))
def silu(module, X, Y):
    return module.matmul(X, Y, "silu")


# ---------------------------------------------------------------- with an activation: several tiles, no search
TILES = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2, "num_warps": 4}


@case(modules=ACTIVATED, returns="MM-relu", gradients=through("MM-relu-Z"), sizes=SEVERAL_TILES)
def relu_with_given_tiles(module, X, Y, nabla_C):
    c = module.matmul_forward(X, Y, "relu", **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, c, "relu", **TILES)
    return c, {"X": dX, "Y": dY}


@relu_with_given_tiles.pytorch
def _(X, Y):
    return torch.relu(X @ Y)


@case(modules=ACTIVATED, returns="MM-gelu", gradients=through("MM-gelu-Z"), sizes=SEVERAL_TILES)
def gelu_with_given_tiles(module, X, Y, nabla_C):
    c, z = module.matmul_forward(X, Y, "gelu", save_z=True, **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "gelu", **TILES)
    return c, {"X": dX, "Y": dY}


@gelu_with_given_tiles.pytorch
def _(X, Y):
    return torch.nn.functional.gelu(X @ Y)


@case(
    modules=ACTIVATED, returns="MM-silu", gradients=through("MM-silu-Z"), pytorch=silu_in_pytorch, sizes=SEVERAL_TILES
)
def silu_with_given_tiles(module, X, Y, nabla_C):
    c, z = module.matmul_forward(X, Y, "silu", save_z=True, **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "silu", **TILES)
    return c, {"X": dX, "Y": dY}


# ---------------------------------------------------------------- what is measured
EXAMPLES = {LESSON: cost((16, 8, 16), torch.float32, saved=1)}
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
