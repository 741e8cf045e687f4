"""Device functions that several files share."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    # Written with exp(-2|x|), so that nothing overflows.
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
def gelu_erf(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_erf_grad(x):
    cdf = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    return cdf + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def silu_grad(x):
    s = 1.0 / (1.0 + tl.exp(-x))
    return s * (1.0 + x * (1.0 - s))
