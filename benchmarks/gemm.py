"""What is measured of the plain low-bit product, and against whom."""

import torch

from benchmarks._low_bit import AXES, COMMON, cost  # noqa: F401  academy reads AXES

LESSON = "gemlite.gemm"
FAST = None
FUNCTION = "gemm"

EXAMPLES = {"gemlite.gemm": cost((3, 7, 24), torch.float16, group_size=8)}
BENCH = dict(**COMMON, shapes=[(M, 8192, 8192) for M in (16, 512)], host_shape=(16, 128, 128))
