"""What is measured of the eight-bit linear layer, and against whom."""

import functools

import torch

from benchmarks._products import AXES  # noqa: F401  academy reads it

LESSON = "fp8.linear"
FAST = None
FUNCTION = "float8_linear"


# Three products. Each operand is read once and its codes are written, then the product reads these; the result is
# written in the layer's dtype. Scales are left out: there are at least a hundred elements for each.
def cost(shape, dtype):
    M, N, K = shape
    x, weight, y, size = M * K, N * K, M * N, dtype.itemsize
    forward = dict(bytes_read=(x + weight) * (size + 1), bytes_written=x + weight + y * size, operations=2 * M * N * K)
    backward = dict(
        bytes_read=2 * y * (size + 1) + (x + weight) * (size + 1),
        bytes_written=2 * y + (x + weight) * (1 + size),
        operations=4 * M * N * K,
    )
    return {"forward": forward, "backward": backward}


def inputs(shape, dtype, device):
    M, N, K = shape
    return dict(x=torch.randn(M, K, dtype=dtype, device=device), weight=torch.randn(N, K, dtype=dtype, device=device))


def reference(recipe):
    def of(x, weight):
        from annotated_examples.fp8.linear import float8_linear_reference

        return float8_linear_reference(x, weight, recipe=recipe)

    return of


# The example's one kernel: 6 x 7 float32 numbers, their codes and scales along rows and along columns, in squares of 4.
EXAMPLES = {
    "fp8.linear": {"forward": dict(bytes_read=6 * 7 * 4, bytes_written=2 * 6 * 7 + 4 * (6 * 2 + 7 * 2), operations=0)}
}
BENCH = dict(
    shapes=[(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (1000, 3000, 5000)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x, weight: torch.nn.functional.linear(x, weight),
    eager_name="bfloat16",
    reference=reference("tensor"),
    passes=["forward+backward"],
    differentiable=["x", "weight"],
    variants={
        name: dict(call=lambda linear, name=name: functools.partial(linear, recipe=name), reference=reference(name))
        for name in ("row", "block")
    },
)
