"""What is measured of the scaled copy below Triton: the ring, one tile a program, and one without the copy unit."""

import torch

LESSON = "gluon.tile_copy"
FAST = None
FUNCTION = "copy"
AXES = ("rows", "columns")


# The backward pass is the same kernel.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    one = dict(bytes_read=n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=n)
    return {"forward": one, "backward": one}


def inputs(shape, dtype, device):
    return {"x": torch.randn(shape, dtype=dtype, device=device)}


def kernel(name):
    def factory():
        from annotated_examples.gluon import tile_copy

        return getattr(tile_copy, name)

    return factory


EXAMPLES = {"gluon.tile_copy": {"forward": cost((30, 136), torch.float16)["forward"]}}
BENCH = dict(
    shapes=[(1024, 8192), (16384, 8192)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x: x * 1.0,
    compile=False,
    peers={"one tile a program": kernel("copy_tile"), "through registers": kernel("copy_lanes")},
    host_shape=(64, 64),
)
