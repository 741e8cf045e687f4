"""What is measured of SwiGLU, and against whom."""

import torch
import torch.nn.functional as F

from benchmarks._gated import AXES, SHAPES, inputs, unit_cost  # noqa: F401  academy reads AXES

LESSON = "classics.swiglu"
FAST = None
FUNCTION = "swiglu"


# An exponential and a division count as one operation each.
def cost(shape, dtype):
    return unit_cost(shape, dtype, forward_operations=6, backward_operations=12)


def liger():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return lambda gate, up: LigerSiLUMulFunction.apply(gate, up)


EXAMPLES = {"classics.swiglu": cost((3, 5), torch.float32)}
BENCH = dict(
    shapes=SHAPES,
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda gate, up: F.silu(gate) * up,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
)
