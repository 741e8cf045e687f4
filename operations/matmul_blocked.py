"""The product in blocks: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES, SEVERAL_TILES, matrices  # noqa: F401  academy reads AXES
from operations._products import forward_cost as cost

LESSON = "tutorials.matmul_blocked"
FAST = None
FUNCTION = "matmul"
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("matmul", {"x": "m k", "y": "k n"}, at=(96, 160, 64), differentiable=False, batch={"m": ""})]

# ---------------------------------------------------------------- what is compared with formulas


@case(modules=LESSON, returns="MM-Z", forward_only=True)
def product(module, X, Y):
    return module.matmul(X, Y)


@case(
    modules=LESSON,
    returns="MM-Z",
    sizes=SEVERAL_TILES,
    pytorch="matmul_reference",
    forward_only=True,
)
def product_of_several_tiles(module, X, Y):
    return module.matmul_forward(X, Y, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


# ---------------------------------------------------------------- what is measured
EXAMPLES = {LESSON: cost((8, 8, 8), torch.float32)}
BENCH = dict(
    shapes=[(1024, 1024, 1024), (4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=matrices("x", "y"),
    eager=lambda x, y: x @ y,
)
