"""What is measured of the ladder of LayerNorm's forward pass."""

import torch

from benchmarks.layernorm import cost, inputs  # noqa: F401  academy reads `cost` here

FUNCTION = "layernorm_forward"


def eager(x, weight, bias):
    y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], weight, bias, 1e-5)
    return y, mean.flatten(), rstd.flatten()


LADDER = dict(shapes=[(32768, 4096)], dtypes=[torch.bfloat16], inputs=inputs, eager=eager)
