"""What is measured of the ladder of the cross entropy: loss and gradient together."""

import torch

from operations.cross_entropy import AXES, cost, inputs  # noqa: F401  academy reads these

FUNCTION = "cross_entropy_loss"
LADDER = dict(
    shapes=[(8192, 128256), (8192, 50257)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    passes=["forward+backward"],
    differentiable=["logits"],
)
