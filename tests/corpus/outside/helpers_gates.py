"""Device functions for gated units."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def swish(x, beta):
    return x * sigmoid(beta * x)


@triton.jit
def swish_grad(x, beta):
    s = sigmoid(beta * x)
    return s + x * s * (1.0 - s)
