"""GeGLU: what is compared with formulas, and what is measured."""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._gated import AXES, SHAPES, inputs, unit_cost  # noqa: F401  academy reads AXES

LESSON = "classics.geglu"
FAST = None
FUNCTION = "geglu"
DERIVATION = "geglu"
WITHOUT_ROUNDING = {"atoms": {"classics.geglu.weight_exact": "normcdf normpdf"}}

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "geglu",
        {"gate": "rows cols", "up": "rows cols", "approximate": ("none", "tanh")},
        at=(5, 300),
        batch={"rows": ""},
    ),
    Public("geglu_packed", {"x": "rows 2*cols"}, at=(5, 300), more=[dict(approximate="tanh")], batch={"rows": ""}),
]

# ---------------------------------------------------------------- what is compared with formulas
ROWS = ("g", "u", "nabla_y")
EXACT = {"g": "GeGLU-gate", "u": "GeGLU-up"}
TANH = {"g": "GeGLU-tanh-gate", "u": "GeGLU-tanh-up"}
ALL = ("float32", "bfloat16", "float16")


def ones(x):
    return torch.ones_like(x)


# ---------------------------------------------------------------- exact, with the error function
@case(modules=LESSON, returns="GeGLU", gradients=EXACT, rows=ROWS, dtypes=ALL)
def geglu(module, g, u):
    return module.geglu(g, u)


@case(modules=LESSON, returns="GeGLU", gradients=EXACT, rows=ROWS)
def packed(module, g, u):
    return module.geglu_packed(torch.cat([g, u]))


@case(modules=LESSON, returns="GeGLU", gradients=EXACT, rows=ROWS, sizes={"rows": 150}, dtypes=("float32",))
def packed_in_rows(module, g, u):
    return module.geglu_packed(torch.stack([g, u], 1))[:, 0]


@case(modules=LESSON, returns="GeGLU", gradients=EXACT, rows=ROWS, sizes={"rows": (3, 150)})
def several_tiles(module, g, u, nabla_y):
    y = module.geglu_forward(g, u, BLOCK_N=16)
    dg, du = module.geglu_backward(nabla_y, g, u, BLOCK_N=16)
    return y, {"g": dg, "u": du}


@several_tiles.pytorch
def _(g, u):
    return torch.nn.functional.gelu(g, approximate="none") * u


@case(modules=LESSON, returns="GELU-weight", rows=("x",), forward_only=True)
def weight(module, x):
    return module.geglu(x, 1 / x)


@case(modules=LESSON, returns=None, gradients={"x": "GELU"}, rows=("x",), upstream=ones)
def as_a_gradient(module, x):
    """d y / d u is gelu(g): here u stands beside x, as a product of ones that x is multiplied with."""
    return module.geglu(x, ones(x))


# ---------------------------------------------------------------- with the hyperbolic tangent
@case(modules=LESSON, returns="GeGLU-tanh", gradients=TANH, rows=ROWS)
def tanh(module, g, u):
    return module.geglu(g, u, approximate="tanh")


@case(modules=LESSON, returns="GeGLU-tanh", gradients=TANH, rows=ROWS)
def tanh_packed(module, g, u):
    return module.geglu_packed(torch.cat([g, u]), approximate="tanh")


@case(modules=LESSON, returns="GeGLU-tanh", gradients=TANH, rows=ROWS, sizes={"rows": (3, 150)})
def tanh_several_tiles(module, g, u, nabla_y):
    y = module.geglu_forward(g, u, "tanh", BLOCK_N=16)
    dg, du = module.geglu_backward(nabla_y, g, u, "tanh", BLOCK_N=16)
    return y, {"g": dg, "u": du}


@tanh_several_tiles.pytorch
def _(g, u):
    return torch.nn.functional.gelu(g, approximate="tanh") * u


@case(modules=LESSON, returns="GELU-tanh-weight", rows=("x",), forward_only=True)
def tanh_weight(module, x):
    return module.geglu(x, 1 / x, approximate="tanh")


@case(modules=LESSON, returns=None, gradients={"x": "GELU-tanh"}, rows=("x",), upstream=ones)
def tanh_as_a_gradient(module, x):
    return module.geglu(x, ones(x), approximate="tanh")


# ---------------------------------------------------------------- what is measured
# In the exact form. An exponential and a division count as one operation each, a multiply-add as two.
def cost(shape, dtype):
    return unit_cost(shape, dtype, forward_operations=27, backward_operations=32)


def liger():
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return lambda gate, up: LigerGELUMulFunction.apply(gate, up)


EXAMPLES = {LESSON: cost((3, 5), torch.float32)}
BENCH = dict(
    shapes=SHAPES,
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda gate, up: F.gelu(gate) * up,
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
    variants={
        "exact": {},
        "tanh": dict(
            call=lambda geglu: functools.partial(geglu, approximate="tanh"),
            eager=lambda gate, up: F.gelu(gate, approximate="tanh") * up,
            peers={"liger-kernel": liger},  # it has the tanh form only
        ),
    },
)
