"""What is measured of the product with microscaled weights, and against whom."""

import torch

from benchmarks._products import AXES  # noqa: F401  academy reads it

LESSON = "mx.mx_matmul"
FAST = "fast.mx_matmul"
FUNCTION = "mx_matmul"


# Weights of four bits are read, and a byte for 32 of them.
def cost(shape, dtype):
    M, N, K = shape
    read = M * K * dtype.itemsize + N * K // 2 + N * K // 32
    return {"forward": dict(bytes_read=read, bytes_written=M * N * dtype.itemsize, operations=2 * M * N * K)}


# The library gets the same weights in sixteen bits, `w`, decoded beforehand. Codes and scales are handed over as bytes:
# PyTorch can't take its own dtypes for them to float64, nor compare them.
def inputs(shape, dtype, device):
    from annotated_examples.mx.microscaling import FP4, dequantize_mx, quantize_mx

    M, N, K = shape
    b, scale_b = quantize_mx(torch.randn(N, K, dtype=dtype, device=device), FP4)
    w = dequantize_mx(b, scale_b, dtype)
    b, scale_b = b.view(torch.uint8), scale_b.view(torch.uint8)
    return dict(a=torch.randn(M, K, dtype=dtype, device=device), b=b, scale_b=scale_b, w=w)


def called(mx_matmul):
    return lambda a, b, scale_b, w: mx_matmul(a, b, scale_b, format="e2m1")


def reference(a, b, scale_b, w):
    return a.double() @ w.double().t()


# 4 x 64 numbers of 16 bits, 6 x 64 weights of four bits and their scales; the result is float32.
EXAMPLES = {
    "mx.mx_matmul": {
        "forward": dict(bytes_read=4 * 64 * 2 + 6 * 64 // 2 + 6 * 64 // 32, bytes_written=4 * 6 * 4, operations=0)
    },
    "fast.mx_matmul": {
        "forward": dict(bytes_read=3 * 320 * 2 + 20 * 320 // 2 + 20 * 320 // 32, bytes_written=3 * 20 * 4, operations=0)
    },
}
BENCH = dict(
    shapes=[
        (1, 8192, 8192),
        (16, 8192, 8192),
        (64, 8192, 8192),
        (256, 8192, 8192),
        (16, 5760, 2880),
        (4096, 8192, 8192),
    ],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called,
    eager=lambda a, b, scale_b, w: a @ w.t(),
    eager_name="cuBLAS, sixteen bits",
    reference=reference,
    compile=False,
    timing="graph",
)
