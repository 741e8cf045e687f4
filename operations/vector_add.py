"""The vector addition: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "tutorials.vector_add"
FAST = None
FUNCTION = "vector_add"
AXES = ("elements",)
DERIVATION = "vector_add"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("vector_add", {"x": "n", "y": "n"}, at=(1000,), batch={"n": ""})]

# ---------------------------------------------------------------- what is compared with formulas


@case(modules=LESSON, returns="VA", gradients={"x": "VA-x", "y": "VA-y"}, sizes={"n": 2500})
def vector_add(module, x, y):
    return module.vector_add(x, y)


# ---------------------------------------------------------------- what is measured
# The backward pass launches nothing.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    return {"forward": dict(bytes_read=2 * n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=n)}


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("x", "y")}


EXAMPLES = {LESSON: cost((10,), torch.float32)}
BENCH = dict(
    shapes=[(1 << 20,), (1 << 24,), (1 << 28,)],
    dtypes=[torch.float32, torch.bfloat16],
    inputs=inputs,
    eager=lambda x, y: x + y,
)
