"""What is measured of softmax, and against whom."""

import torch

LESSON = "tutorials.softmax"
FAST = "fast.softmax"
FUNCTION = "softmax"
AXES = ("rows", "columns")


def cost(shape, dtype):
    numel = torch.Size(shape).numel()
    size = dtype.itemsize
    return {
        "forward": dict(bytes_read=numel * size, bytes_written=numel * size, operations=5 * numel),
        "backward": dict(bytes_read=2 * numel * size, bytes_written=numel * size, operations=4 * numel),
    }


def inputs(shape, dtype, device):
    return dict(x=torch.randn(*shape, dtype=dtype, device=device))


def liger():
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda x: LigerSoftmaxFunction.apply(x)


def quack():
    from quack.softmax import softmax

    return lambda x: softmax(x)


EXAMPLES = {
    "tutorials.softmax": cost((3, 6), torch.float32),
    "fast.softmax": cost((3, 6), torch.float32),
}
BENCH = dict(
    shapes=[(8192, 32000), (32768, 4096)]
    + [(16384, N) for N in (768, 1000, 1536, 2880, 4097, 5120, 8192, 12288, 16384, 18432)]
    + [(4096, vocabulary) for vocabulary in (50257, 50304, 128256, 151936, 201088)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x: torch.softmax(x, dim=-1),
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward", "backward"],
    differentiable=["x"],
)
