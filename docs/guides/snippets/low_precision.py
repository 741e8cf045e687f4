"""What eight and four bits keep of a number, and what a scale does: for the guide "Low precision"."""

# --8<-- [start:imports]
from academy.runtime import device

import torch

from annotated_examples.fp8.quantize import dequantize_fp8, quantize_fp8
from annotated_examples.mx.microscaling import (
    FP4,
    dequantize_mx,
    dequantize_nvfp4,
    quantize_mx,
    quantize_nvfp4,
)

torch.manual_seed(0)


def lost(decoded, x):
    """The size of what is missing, relative to x: the norm of the difference over the norm."""
    return float((decoded - x).norm() / x.norm())


# --8<-- [end:imports]

# --8<-- [start:scale]
x = torch.tensor([[0.002, -0.0007, 0.001, 0.00001]], device=device.DEVICE)
print((x.to(torch.float8_e4m3fn).float() * 1000).tolist()[0])  # → [1.953125, -0.0, 1.953125, 0.0]
q, scale = quantize_fp8(x)
print(q.float().tolist()[0])  # → [448.0, -160.0, 224.0, 2.25]
print([round(v * 1000, 4) for v in dequantize_fp8(q, scale).tolist()[0]])  # → [2.0, -0.7143, 1.0, 0.01]
# --8<-- [end:scale]

# --8<-- [start:granularity]
x = torch.randn(256, 1024).to(device.DEVICE)
x[::50, 7] *= 1e5  # six outliers, in six rows
typical = torch.ones_like(x, dtype=torch.bool)
typical[::50, 7] = False
for granularity in ("tensor", "row", "1x128", "128x128"):
    decoded = dequantize_fp8(*quantize_fp8(x, granularity))
    zeros = int((decoded[typical] == 0).sum())
    print(f"{granularity:8} {lost(decoded[typical], x[typical]):.3f} {zeros}")
# → tensor   0.266 93198
# → row      0.035 959
# → 1x128    0.027 112
# → 128x128  0.086 10142
# --8<-- [end:granularity]

# --8<-- [start:four]
x = torch.randn(256, 1024).to(device.DEVICE)
print(f"e4m3, rows   {lost(dequantize_fp8(*quantize_fp8(x)), x):.3f}")  # → e4m3, rows   0.026
print(f"MXFP8        {lost(dequantize_mx(*quantize_mx(x), torch.float32), x):.3f}")  # → MXFP8        0.027
print(f"MXFP4        {lost(dequantize_mx(*quantize_mx(x, FP4), torch.float32), x):.3f}")  # → MXFP4        0.115
print(f"NVFP4        {lost(dequantize_nvfp4(*quantize_nvfp4(x)), x):.3f}")  # → NVFP4        0.095
# --8<-- [end:four]
