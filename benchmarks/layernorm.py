"""What is measured of LayerNorm, and against whom."""

import torch

LESSON = "classics.layernorm"
FAST = "fast.layernorm"
FUNCTION = "layernorm"
AXES = ("rows", "columns")


# With weight and bias of the dtype of `x`. Mean and rstd are 4 bytes each a row. The partial sums of the backward pass
# are scratch and not counted. Operations an element: forward 1 for the mean, 3 for the variance, 4 for the result;
# backward 3 for `dy * weight` and the normalised `x`, 3 for the two means, 4 for `dx`, 3 for the parameters.
def cost(shape, dtype):
    numel, N = torch.Size(shape).numel(), shape[-1]
    statistics = 2 * 4 * (numel // N)
    size = dtype.itemsize
    return {
        "forward": dict(
            bytes_read=(numel + 2 * N) * size, bytes_written=numel * size + statistics, operations=8 * numel
        ),
        "backward": dict(
            bytes_read=(2 * numel + N) * size + statistics, bytes_written=(numel + 2 * N) * size, operations=13 * numel
        ),
    }


def inputs(shape, dtype, device):
    shapes = dict(x=shape, weight=shape[-1:], bias=shape[-1:])
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


def eager(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def liger():
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return lambda x, weight, bias: LigerLayerNormFunction.apply(x, weight, bias, 1e-5)


# What the lesson's kernels write: rows of partial sums in float32, which PyTorch adds up and rounds.
def lesson_cost(shape, dtype, partial_rows):
    costs, N = cost(shape, dtype), shape[-1]
    costs["backward"]["bytes_written"] += 2 * N * (4 * partial_rows - dtype.itemsize)
    return costs


EXAMPLES = {
    "classics.layernorm": lesson_cost((5, 6), torch.float32, partial_rows=2),
    "fast.layernorm": cost((7, 6), torch.float32),
}
BENCH = dict(
    shapes=[(32768, 4096), (8192, 8192), (65536, 1024)]  # then widths of models, and two odd ones
    + [(16384, N) for N in (768, 1536, 2880, 5120, 12288, 18432, 1000, 4097)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["x", "weight", "bias"],
)
