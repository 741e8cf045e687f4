"""What is measured of the ladder of the product's gradients, behind a ReLU: the launchers, called forward here."""

import torch

from operations._products import AXES, product_cost  # noqa: F401  academy reads AXES

FUNCTION = "matmul_backward"


def cost(shape, dtype):
    return {"forward": product_cost(shape, dtype, saved=1)["backward"]}


def inputs(shape, dtype, device):
    M, N, K = shape
    a, b, dc, z = (torch.randn(size, dtype=dtype, device=device) for size in ((M, K), (K, N), (M, N), (M, N)))
    return dict(dc=dc, a=a, b=b, saved=torch.relu(z), activation="relu")


def eager(dc, a, b, saved, activation):
    dz = torch.where(saved > 0, dc, 0)
    return dz @ b.T, a.T @ dz


LADDER = dict(shapes=[(4096, 4096, 4096)], dtypes=[torch.bfloat16], inputs=inputs, eager=eager)
