"""What the benchmarks of both gated units share. `shape` is that of `gate`."""

import torch

#: The axes of `shape`.
AXES = ("rows", "columns")
SHAPES = [(8192, 14336), (4096, 11008), (16384, 18432)]
SHAPES += [(32768, 768), (16384, 1000), (32768, 1536), (16384, 2880), (16384, 4097), (16384, 5120), (8192, 12288)]


def unit_cost(shape, dtype, forward_operations, backward_operations):
    """Forward reads gate and up, backward the upstream gradient as well. Operations are those of one element."""
    n = torch.Size(shape).numel()
    size = n * dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * size, bytes_written=size, operations=forward_operations * n),
        "backward": dict(bytes_read=3 * size, bytes_written=2 * size, operations=backward_operations * n),
    }


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("gate", "up")}
