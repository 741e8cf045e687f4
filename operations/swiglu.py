"""SwiGLU: what is compared with formulas, and what is measured."""

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._gated import AXES, SHAPES, inputs, unit_cost  # noqa: F401  academy reads AXES

LESSON = "classics.swiglu"
FAST = None
FUNCTION = "swiglu"
DERIVATION = "swiglu"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public("swiglu", {"gate": "rows cols", "up": "rows cols"}, at=(5, 300), batch={"rows": ""}),
    Public("swiglu_packed", {"x": "rows 2*cols"}, at=(5, 300), batch={"rows": ""}),
]

# ---------------------------------------------------------------- what is compared with formulas
ROWS = ("g", "u", "nabla_y")
GRADIENTS = {"g": "SwiGLU-gate", "u": "SwiGLU-up"}


@case(modules=LESSON, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, dtypes=("float32", "bfloat16", "float16"))
def swiglu(module, g, u):
    return module.swiglu(g, u)


@case(modules=LESSON, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS)
def packed(module, g, u):
    return module.swiglu_packed(torch.cat([g, u]))


@case(modules=LESSON, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, sizes={"rows": 150}, dtypes=("float32",))
def packed_in_rows(module, g, u):
    return module.swiglu_packed(torch.stack([g, u], 1))[:, 0]


@case(modules=LESSON, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, sizes={"rows": (3, 150)})
def several_tiles(module, g, u, nabla_y):
    y = module.swiglu_forward(g, u, BLOCK_N=16)
    dg, du = module.swiglu_backward(nabla_y, g, u, BLOCK_N=16)
    return y, {"g": dg, "u": du}


@several_tiles.pytorch
def _(g, u):
    return torch.nn.functional.silu(g) * u


def ones(x):
    return torch.ones_like(x)


@case(modules=LESSON, returns=None, gradients={"x": "SiLU"}, rows=("x",), upstream=ones)
def derivative(module, x):
    return module.swiglu(x, ones(x))


# ---------------------------------------------------------------- what is measured
# An exponential and a division count as one operation each.
def cost(shape, dtype):
    return unit_cost(shape, dtype, forward_operations=6, backward_operations=12)


def liger():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return lambda gate, up: LigerSiLUMulFunction.apply(gate, up)


EXAMPLES = {LESSON: cost((3, 5), torch.float32)}
BENCH = dict(
    shapes=SHAPES,
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda gate, up: F.silu(gate) * up,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
)
