"""What is measured of GeGLU, and against whom."""

import functools

import torch
import torch.nn.functional as F

LESSON = "classics.geglu"
FAST = None
FUNCTION = "geglu"


# For `gate` of this shape. In the exact form; an
# exponential and a division count as one operation each, a multiply-add as two.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    size = n * dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * size, bytes_written=size, operations=27 * n),
        "backward": dict(bytes_read=3 * size, bytes_written=2 * size, operations=32 * n),
    }


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("gate", "up")}


def liger():
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return lambda gate, up: LigerGELUMulFunction.apply(gate, up)


EXAMPLES = {"classics.geglu": cost((3, 5), torch.float32)}
BENCH = dict(
    shapes=[(8192, 14336), (4096, 11008), (16384, 18432)]
    + [(32768, 768), (16384, 1000), (32768, 1536), (16384, 2880), (16384, 4097), (16384, 5120), (8192, 12288)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda gate, up: F.gelu(gate) * up,
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
    variants={
        "exact": {},
        "tanh": dict(
            call=lambda geglu: functools.partial(geglu, approximate="tanh"),
            eager=lambda gate, up: F.gelu(gate, approximate="tanh") * up,
            peers={"liger-kernel": liger},  # it has the tanh form only
        ),
    },
)
