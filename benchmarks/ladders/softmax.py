"""What is measured of the ladder of softmax: rows of GPT-2's vocabulary, whose length is odd, and even ones."""

import torch

from operations.softmax import AXES, cost, inputs  # noqa: F401  academy reads these

FUNCTION = "softmax_forward"
LADDER = dict(
    shapes=[(4096, 50257), (8192, 32000)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x: torch.softmax(x, dim=-1),
)
