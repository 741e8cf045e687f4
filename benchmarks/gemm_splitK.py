"""What is measured of the low-bit product that is chosen by shape, and against whom."""

import functools

import torch

from benchmarks._low_bit import AXES, COMMON, cost  # noqa: F401  academy reads AXES

LESSON = "gemlite.gemm_splitK"
FAST = "fast.low_bit"
PARTS = ["fast.low_bit.planes", "fast.low_bit.descriptors", "fast.low_bit.many_rows"]
FUNCTION = "low_bit_matmul"


def gemlite(inputs):
    """gemlite's own kernels with its widest search, on the same integers."""
    from unittest import mock

    import triton
    from gemlite.core import DType, GemLiteLinear, set_autotune

    from annotated_examples.gemlite.gemm import unpack

    set_autotune("max")
    words, (K, N) = inputs["words"], inputs["w"].shape
    q = unpack(words, 4).T.contiguous()
    dtypes = dict(input_dtype=DType.FP16, output_dtype=DType.FP16)
    layer = GemLiteLinear(4, group_size=128, in_features=K, out_features=N, **dtypes)
    layer.pack(q, inputs["scales"].T.contiguous(), inputs["zeros"].T.contiguous(), bias=None)
    # It tries up to 1240 configurations; Triton would time each for 0.1 s.
    with mock.patch("triton.testing.do_bench", functools.partial(triton.testing.do_bench, warmup=2, rep=10)):
        layer(inputs["a"])
    return lambda a, words, scales, zeros, w: layer(a)


EXAMPLES = {
    # Split-K adds into float32, and PyTorch rounds the sums afterwards.
    "gemlite.gemm_splitK": cost((3, 7, 40), torch.float16, group_size=8, c_bytes=4),
    "fast.low_bit.planes": cost((3, 7, 48), torch.float16, group_size=16),
    "fast.low_bit.descriptors": cost((3, 24, 192), torch.float16, group_size=64),
    "fast.low_bit.many_rows": cost((5, 24, 192), torch.float16, group_size=64),
}
BENCH = dict(
    **COMMON,
    shapes=[(M, 8192, 8192) for M in (1, 16, 64, 512, 4096)],
    peers={"gemlite": gemlite},
    host_shape=(1, 128, 128),
)
