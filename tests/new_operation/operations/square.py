"""The square: what is said of it."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.square"
FAST = None
FUNCTION = "square"
AXES = ("elements",)
DERIVATION = "square"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("square", {"x": "rows cols"}, at=(6, 100))]


# ---------------------------------------------------------------- what is compared with formulas
@case(modules=LESSON, returns="SQ", gradients={"x": "SQ-x"})
def square(module, x):
    return module.square(x)


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    n, size = torch.Size(shape).numel(), dtype.itemsize
    return {
        "forward": dict(bytes_read=n * size, bytes_written=n * size, operations=n),
        "backward": dict(bytes_read=2 * n * size, bytes_written=n * size, operations=2 * n),
    }


EXAMPLES = {LESSON: cost((10,), torch.float32)}
BENCH = dict(
    shapes=[(1 << 24,)],
    dtypes=[torch.bfloat16],
    inputs=lambda shape, dtype, device: {"x": torch.randn(shape, dtype=dtype, device=device)},
    eager=lambda x: x * x,
    passes=["forward", "backward"],
    differentiable=["x"],
)
