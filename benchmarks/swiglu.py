"""What is measured of SwiGLU, and against whom."""

import torch
import torch.nn.functional as F

LESSON = "classics.swiglu"
FAST = None
FUNCTION = "swiglu"


# For `gate` of this shape. An exponential and a division
# count as one operation each.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    size = n * dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * size, bytes_written=size, operations=6 * n),
        "backward": dict(bytes_read=3 * size, bytes_written=2 * size, operations=12 * n),
    }


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("gate", "up")}


def liger():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return lambda gate, up: LigerSiLUMulFunction.apply(gate, up)


EXAMPLES = {"classics.swiglu": cost((3, 5), torch.float32)}
BENCH = dict(
    shapes=[(8192, 14336), (4096, 11008), (16384, 18432)]
    + [(32768, 768), (16384, 1000), (32768, 1536), (16384, 2880), (16384, 4097), (16384, 5120), (8192, 12288)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda gate, up: F.silu(gate) * up,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
)
