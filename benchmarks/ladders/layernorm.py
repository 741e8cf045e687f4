"""What is measured of the ladder of LayerNorm's forward pass."""

import torch

from operations.layernorm import AXES, cost, inputs  # noqa: F401  academy reads these

FUNCTION = "layernorm_forward"


# What is judged is what the public function returns. The mean of each row, which is near zero here, is for the backward
# pass: it has to be right beside the row's deviation, and not to all digits of itself.
LADDER = dict(
    shapes=[(32768, 4096)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda layernorm_forward: lambda x, weight, bias: layernorm_forward(x, weight, bias)[0],
    eager=lambda x, weight, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
)
