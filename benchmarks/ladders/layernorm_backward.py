"""What is measured of the ladder of LayerNorm's backward pass: the launchers, so the pass is called forward here."""

import torch

from operations import layernorm
from operations.layernorm import AXES  # noqa: F401  academy reads it

FUNCTION = "layernorm_backward"


def cost(shape, dtype):
    return {"forward": layernorm.cost(shape, dtype)["backward"]}


def inputs(shape, dtype, device):
    found = dict(dy=torch.randn(shape, dtype=dtype, device=device), **layernorm.inputs(shape, dtype, device))
    x = found["x"].double()
    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + 1e-5).rsqrt()
    return found | dict(mean=mean.float(), rstd=rstd.float())


def eager(dy, x, weight, bias, mean, rstd):
    arguments = [dy, x, mean[:, None], rstd[:, None], weight, bias]
    if x.device.type == "cpu" and x.dtype != torch.float64:  # where all must have one dtype: rounded once, as on a GPU
        arguments = [each.float() for each in arguments]
    dy, x, mean, rstd, weight, bias = arguments
    return torch.ops.aten.native_layer_norm_backward(dy, x, x.shape[-1:], mean, rstd, weight, bias, [True, True, True])


LADDER = dict(shapes=[(32768, 4096)], dtypes=[torch.bfloat16], inputs=inputs, eager=eager)
