"""The product below Triton: what is compared with formulas, and what is measured.

CuBLAS, and our fast version in Triton.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES, matrices, product_cost  # noqa: F401  academy reads AXES

LESSON = "gluon.matmul"
FAST = None
FUNCTION = "matmul"
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("matmul", {"a": "m k", "b": "k n"}, at=(20, 40, 24), dtypes=("float16", "bfloat16"))]

# ---------------------------------------------------------------- what is compared with formulas


# ---------------------------------------------------------------- below Triton: 16-bit factors only
@case(
    modules=LESSON,
    returns="MM-Z",
    gradients={"X": "MM-X", "Y": "MM-Y"},
    sizes={"M": 72, "N": 40, "K": 50},
    dtypes=("float16", "bfloat16"),
)
def below_triton(module, X, Y):
    return module.matmul(X, Y)


@case(
    modules=LESSON,
    returns="MM-Z",
    sizes={"M": 200, "N": 40, "K": 50},
    dtypes=("float16",),
    pytorch="matmul_reference",
    forward_only=True,
)
def in_turns(module, X, Y):
    tiles = dict(BLOCK_M=64, BLOCK_N=16, BLOCK_K=16, STAGES=2, HALVES=1)
    return module.matmul_forward(X, Y, PINGPONG=True, **tiles)


@case(
    modules=LESSON,
    returns="MM-Z",
    sizes={"M": 100, "N": 40, "K": 50},
    dtypes=("float16",),
    pytorch="matmul_reference",
    forward_only=True,
)
def one_group_of_warps(module, X, Y):
    return module.matmul_tile(X, Y, BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, STAGES=2, num_warps=4)


# ---------------------------------------------------------------- what is measured
cost = product_cost


def in_triton():
    from annotated_examples.fast.matmul import matmul

    return matmul


EXAMPLES = {LESSON: {"forward": cost((70, 72, 40), torch.float16)["forward"]}}
BENCH = dict(
    shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)],
    dtypes=[torch.bfloat16],
    inputs=matrices("a", "b"),
    eager=lambda a, b: a @ b,
    eager_name="cuBLAS",
    compile=False,
    differentiable=["a", "b"],
    peers={"Triton": in_triton},
    host_shape=(64, 64, 64),
)
