"""What is measured of products of scaled codes, and against whom."""

from functools import partial

import torch

from benchmarks._products import AXES  # noqa: F401  academy reads it

LESSON = "fp8.scaled_matmul"
FAST = "fast.scaled_matmul"
PARTS = ["gluon.scaled_matmul"]
FUNCTION = "scaled_matmul"


# A code is a byte, a scale four. The result is written in `dtype`.
def cost(shape, dtype, recipe="row", GROUP=128, bias=False):
    M, N, K = shape
    blocks = -(-K // GROUP)
    scales = {"tensor": 2, "row": M + N, "block": blocks * (M + -(-N // GROUP))}[recipe]
    read = M * K + K * N + 4 * scales + 4 * N * bias
    return {"forward": dict(bytes_read=read, bytes_written=M * N * dtype.itemsize, operations=2 * M * N * K)}


# `b` is the transpose of a contiguous matrix, as the weight of a linear layer is.
def inputs(shape, dtype, device, recipe="row"):
    M, N, K = shape
    blocks, columns = -(-K // 128), -(-N // 128)
    shapes = {"tensor": ((), ()), "row": ((M, 1), (1, N)), "block": ((blocks, M), (blocks, columns))}[recipe]
    scale_a, scale_b = (torch.rand(size, device=device) + 0.5 for size in shapes)
    return dict(
        a=torch.randn(M, K, device=device).to(torch.float8_e4m3fn),
        b=torch.randn(N, K, device=device).to(torch.float8_e4m3fn).t(),
        scale_a=scale_a.t() if recipe == "block" else scale_a,
        scale_b=scale_b,
    )


def called(recipe, use_fast_accum=False):
    options = dict(recipe=recipe, use_fast_accum=use_fast_accum)
    return lambda scaled_matmul: lambda a, b, scale_a, scale_b: scaled_matmul(a, b, scale_a, scale_b, **options)


def cublas(use_fast_accum=False):
    return lambda a, b, scale_a, scale_b: torch._scaled_mm(
        a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=use_fast_accum
    )


# PyTorch wants a block's scales of `b` as its transpose has them.
def cublas_blocks(a, b, scale_a, scale_b):
    from torch.nn.functional import ScalingType, scaled_mm

    by_row, by_block = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    turned = scale_b.t().contiguous().t()
    return scaled_mm(a, b, scale_a, by_row, turned, by_block, output_dtype=torch.bfloat16)


def reference(recipe):
    def of(**tensors):
        from annotated_examples.fp8.scaled_matmul import scaled_matmul_reference

        return scaled_matmul_reference(**tensors, recipe=recipe, out_dtype=torch.float64)

    return of


VARIANTS = {
    "tensor": dict(cost=partial(cost, recipe="tensor"), inputs=partial(inputs, recipe="tensor"), call=called("tensor"),
                   reference=reference("tensor")),
    "block": dict(cost=partial(cost, recipe="block"), inputs=partial(inputs, recipe="block"), call=called("block"),
                  reference=reference("block"), eager=cublas_blocks, compile=False),
    "row": {},
    "row, fast sums": dict(call=called("row", use_fast_accum=True), eager=cublas(use_fast_accum=True)),
}  # fmt: skip
# The example's `scale_a` is one row of three scales, shown for all rows.
EXAMPLES = {
    "fp8.scaled_matmul": {
        "forward": dict(bytes_read=6 * 96 + 96 * 10 + 4 * (3 + 3), bytes_written=6 * 10 * 4, operations=2 * 6 * 10 * 96)
    },
    "fast.scaled_matmul": {
        "forward": dict(bytes_read=70 * 96 + 96 * 24 + 4 * (70 + 24), bytes_written=70 * 24 * 4, operations=0)
    },
    "gluon.scaled_matmul": {
        "forward": dict(bytes_read=70 * 96 + 96 * 24 + 4 * (3 + 6), bytes_written=70 * 24 * 4, operations=0)
    },
}
BENCH = dict(
    shapes=[(8192, 8192, 8192), (4096, 4096, 4096), (16, 8192, 8192), (1000, 3008, 5008)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called("row"),
    eager=cublas(),
    reference=reference("row"),
    variants=VARIANTS,
)
