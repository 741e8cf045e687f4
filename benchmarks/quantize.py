"""What is measured of quantizing to eight bits, and against whom."""

from functools import partial

import torch

LESSON = "fp8.quantize"
FAST = None
FUNCTION = "quantize_fp8"
AXES = ("rows", "columns")


# An element is read and its code is written, a byte; a row or a block writes a scale of 4 bytes. With one scale for the
# tensor every element is read twice. An element takes about ten operations.
def cost(shape, dtype, granularity="row"):
    rows, columns = shape
    n = rows * columns
    blocks = -(-columns // 128)
    scales = {"tensor": 1, "row": rows, "1x128": rows * blocks, "128x128": -(-rows // 128) * blocks}[granularity]
    reads = 2 if granularity == "tensor" else 1
    return {"forward": dict(bytes_read=reads * n * dtype.itemsize, bytes_written=n + 4 * scales, operations=10 * n)}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


# Codes are compared as bytes: every one has to be the same.
def as_bytes(quantized):
    q, scale = quantized
    return q.view(torch.uint8), scale


def called(granularity):
    return lambda quantize: lambda x: as_bytes(quantize(x, granularity))


def reference(granularity):
    def of(x):
        from annotated_examples.fp8.quantize import quantize_fp8_reference

        return as_bytes(quantize_fp8_reference(x, granularity))

    return of


VARIANTS = {name: dict(cost=partial(cost, granularity=name), call=called(name), eager=reference(name))
            for name in ("1x128", "128x128", "tensor")}  # fmt: skip
EXAMPLES = {"fp8.quantize": cost((5, 6), torch.float32)}
BENCH = dict(
    shapes=[(16384, 8192), (8192, 8192), (4096, 4096), (16384, 4097)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called("row"),
    eager=reference("row"),
    variants=VARIANTS,
)
