"""What is measured of the ladder of the product."""

import torch

from operations._products import AXES, matrices  # noqa: F401  academy reads AXES
from operations._products import forward_cost as cost  # noqa: F401  academy reads it here

FUNCTION = "matmul_forward"
LADDER = dict(
    shapes=[(4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=matrices("a", "b"),
    eager=lambda a, b: a @ b,
)
