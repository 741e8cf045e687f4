"""Which calls of the eight-bit linear layer are compared with the formulas of backprop_math/float8_linear.md.

What rounding did to each operand is given to the formulas: it is computed here, by the quantizer in PyTorch.
"""

from academy.formulas.cases import case

MODULE = "fp8.linear"
SIZES = {"M": 13, "N": 9, "K": 21}


def errors(x, granularity, gradient=False, tensor=False):
    """What rounding did to each element, relative to itself."""
    import torch

    from annotated_examples.fp8 import quantize

    dtype = torch.float8_e5m2 if gradient and tensor else torch.float8_e4m3fn
    powers = granularity == "row"
    decoded = quantize.dequantize_fp8_reference(
        *quantize.quantize_fp8_reference(x, granularity, dtype=dtype, power_of_two=powers), torch.float32
    )
    x = x.double()
    return torch.where(x == 0, 0.0, decoded.double() / torch.where(x == 0, 1.0, x) - 1)


def of(kinds):
    """The six errors, of which each is that of a matrix whose columns the product sums."""

    def values(X, W, G):
        (a, b), (c, d), (e, f) = kinds
        one = kinds[0][0] == "tensor"
        return {
            "a": errors(X, a), "b": errors(W, b), "c": errors(G, c, True, one), "d": errors(W.t(), d).t(),
            "r": errors(G.t(), e, True, one).t(), "s": errors(X.t(), f).t(),
        }  # fmt: skip

    return values


def given(G):
    return G


COMMON = dict(
    modules=MODULE,
    returns="FL-Y",
    gradients={"X": "FL-dX", "W": "FL-dW", "beta": "FL-db"},
    sizes=SIZES,
    upstream=given,
    pytorch="float8_linear_reference",
    dtypes=("float32", "bfloat16"),
)
TENSOR = of((("tensor", "tensor"),) * 3)
ROW = of((("row", "row"),) * 3)
BLOCK = of((("1x128", "128x128"), ("1x128", "128x128"), ("1x128", "1x128")))


@case(**COMMON, values=TENSOR)
def one_scale_each(module, X, W, beta):
    return module.float8_linear(X, W, beta)


@case(**COMMON, values=ROW)
def scales_of_rows(module, X, W, beta):
    return module.float8_linear(x=X, weight=W, bias=beta, recipe="row", power_of_two=None, grad_seed=None)


@case(**COMMON, values=BLOCK)
def scales_of_blocks(module, X, W, beta):
    return module.float8_linear(X, W, beta, recipe="block")
