"""What is measured of GeGLU, and against whom."""

import functools

import torch
import torch.nn.functional as F

from benchmarks._gated import AXES, SHAPES, inputs, unit_cost  # noqa: F401  academy reads AXES

LESSON = "classics.geglu"
FAST = None
FUNCTION = "geglu"


# In the exact form. An exponential and a division count as one operation each, a multiply-add as two.
def cost(shape, dtype):
    return unit_cost(shape, dtype, forward_operations=27, backward_operations=32)


def liger():
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return lambda gate, up: LigerGELUMulFunction.apply(gate, up)


EXAMPLES = {"classics.geglu": cost((3, 5), torch.float32)}
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
