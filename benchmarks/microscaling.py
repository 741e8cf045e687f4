"""What is measured of microscaling formats, and against whom."""

from functools import partial

import torch

LESSON = "mx.microscaling"
FAST = None
FUNCTION = "quantize_mx"
AXES = ("rows", "columns")


# An element is read and its code is written: a byte, or half of one; and a byte for every 32 of them. An element takes
# about thirty operations.
def cost(shape, dtype, bits=8, group=32):
    n = shape[0] * shape[1]
    return {"forward": dict(bytes_read=n * dtype.itemsize, bytes_written=n * bits // 8 + n // group, operations=30 * n)}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def called(elem_dtype):
    """Codes and scales are compared as bytes: every one has to be the same."""
    return lambda quantize: lambda x: tuple(part.view(torch.uint8) for part in quantize(x, elem_dtype))


def reference(elem_dtype):
    def of(x):
        from annotated_examples.mx.microscaling import quantize_mx_reference

        return tuple(part.view(torch.uint8) for part in quantize_mx_reference(x, elem_dtype))

    return of


FP4 = torch.float4_e2m1fn_x2
# The first kernel of the example: 2 x 16 float32 numbers become 16 bytes of codes and 4 exponents.
EXAMPLES = {"mx.microscaling": cost((2, 16), torch.float32, bits=4, group=8)}
BENCH = dict(
    shapes=[(16384, 8192), (8192, 8192), (4096, 4096), (16384, 2880)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called(torch.float8_e4m3fn),
    eager=reference(torch.float8_e4m3fn),
    variants={"four bits": dict(cost=partial(cost, bits=4), call=called(FP4), eager=reference(FP4))},
)
