"""Microscaling formats: what is compared with formulas, and what is measured.

Codes are compared as the numbers that they stand for. What rounding did is given to the formulas: it is computed here,
in PyTorch, from the same numbers.
"""

from functools import partial

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "mx.microscaling"
FAST = None
FUNCTION = "quantize_mx"
AXES = ("rows", "columns")
DERIVATION = "microscaling"


# ---------------------------------------------------------------- public functions
def numbers_of_codes(quantize):
    """The numbers that codes stand for, under the scales that were found."""

    def call(x, *arguments, **options):
        from annotated_examples.mx import microscaling as mx

        found = quantize(x, *arguments, **options)
        decode = mx.dequantize_mx_reference if len(found) == 2 else mx.dequantize_nvfp4_reference
        return decode(*found, torch.float32)

    return call


PUBLIC = [
    Public(
        "quantize_mx", {"x": "rows cols", "scaling": ("rceil", "floor", "even")}, at=(6, 320),
        calls=[dict(elem_dtype=each) for each in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2)],
        more=[dict(wrap=None, elem_dtype=torch.float4_e2m1fn_x2, scaling="floor", seed=3)],
        sizes={"cols": (32, 96)}, wrap=numbers_of_codes, differentiable=False,
    ),
    Public(
        "quantize_nvfp4", {"x": "rows cols"}, at=(6, 320), sizes={"cols": (32, 96)}, wrap=numbers_of_codes,
        more=[dict(inputs={"per_tensor_scale": lambda: torch.full((), 0.01)}, wrap=None, seed=3)], differentiable=False,
    ),
]  # fmt: skip
HELPERS = dict.fromkeys(("dequantize_mx", "dequantize_nvfp4"), "called by the references of others")

# ---------------------------------------------------------------- what is compared with formulas


def whole(X, group=32):
    """Filled up with zeros to whole groups, which changes neither a scale nor another code. Whole ones stay where they
    are: in memory that is fenced."""
    missing = -X.shape[-1] % group
    return torch.nn.functional.pad(X, (0, missing)) if missing else X


ALL = ("float32", "float16", "bfloat16")
SIZES = {"G": 5, "n": 32}
NV_SIZES = {"G": 5, "n": 16}


def fraction(largest):
    """k, f: exponent and fraction of each number, and what a logarithm loses when it is rounded up."""
    mantissa, exponent = torch.frexp(largest.double())
    return {"k": (exponent - 1).double(), "f": 2 * mantissa - 1}


def scaled(X, dtype, p, u):
    """rho, r, k, f: what rounding did to each code and to the logarithm of each scale, and where the largest lies."""
    from annotated_examples.mx import microscaling as mx

    largest = X.double().abs().amax(1)
    codes, byte = mx.quantize_mx_reference(whole(X), dtype)
    power = 2.0 ** (byte.view(torch.uint8).double() - 127)
    exact = X.double() / power
    rho = torch.where(exact == 0, 0.0, numbers(codes, X).double() / torch.where(exact == 0, 1.0, exact) - 1)
    r = power[:, 0].log2() - (largest / (2.0**p * u)).log2()
    return fraction(largest) | {"rho": rho, "r": r, "p": float(p), "u": u}


def numbers(codes, X):
    """What the codes of X stand for without a scale."""
    from annotated_examples.mx import microscaling as mx

    packed = codes.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2)
    return (mx.fp4_reference(codes.view(torch.uint8)) if packed else codes.float())[:, : X.shape[1]]


def powers(byte):
    return torch.ldexp(torch.ones(len(byte), device=byte.device), byte.view(torch.uint8)[:, 0].int() - 127)


def in_e4m3(X):
    return scaled(X, torch.float8_e4m3fn, 8, 1.75)


def in_e2m1(X):
    return scaled(X, torch.float4_e2m1fn_x2, 2, 1.5)


@case(modules=LESSON, returns=("MX-q", "MX-rceil"), values=in_e4m3, sizes=SIZES, dtypes=ALL, forward_only=True)
def eight_bits(module, X):
    q, scale = module.quantize_mx(whole(X))
    return numbers(q, X), powers(scale)


@eight_bits.pytorch
def _(module, X):
    q, scale = module.quantize_mx_reference(whole(X))
    return numbers(q, X), powers(scale)


@case(modules=LESSON, returns=("MX-q", "MX-rceil"), values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def four_bits(module, X):
    q, scale = module.quantize_mx(whole(X), elem_dtype=module.FP4, scaling="rceil", seed=None)
    return numbers(q, X), powers(scale)


@four_bits.pytorch
def _(module, X):
    q, scale = module.quantize_mx_reference(whole(X), module.FP4)
    return numbers(q, X), powers(scale)


@case(modules=LESSON, returns=("MX-q", "MX-rceil"), values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def wider_tiles_than_rows(module, X):
    q, scale = module.quantize_mx_forward(whole(X), module.FP4, "rceil", BLOCK_M=2, BLOCK_K=128)
    return numbers(q, X), powers(scale)


wider_tiles_than_rows.pytorch(four_bits.said["pytorch"])


@case(modules=LESSON, returns="MX-floor", values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def rounded_down(module, X):
    return powers(module.quantize_mx(whole(X), module.FP4, scaling="floor")[1])


@rounded_down.pytorch
def _(module, X):
    return powers(module.quantize_mx_reference(whole(X), module.FP4, scaling="floor")[1])


@case(modules=LESSON, returns="MX-decode", values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def there_and_back(module, X):
    q, scale = module.quantize_mx(x=whole(X), elem_dtype=module.FP4)
    return module.dequantize_mx(q=q, scale=scale, dtype=X.dtype)[:, : X.shape[1]]


@there_and_back.pytorch
def _(module, X):
    return module.dequantize_mx_reference(*module.quantize_mx_reference(whole(X), module.FP4), X.dtype)[:, : X.shape[1]]


def two_scales(X):
    """sigma, rho, t, k, f: what rounding did to each group's scale and to each code."""
    from annotated_examples.mx import microscaling as mx

    codes, block, t = mx.quantize_nvfp4_reference(whole(X, 16))
    largest, t = X.double().abs().amax(1), t.double()
    sigma = block[:, 0].double() * 6 * t / largest - 1
    exact = X.double() / (block.double() * t)
    rho = torch.where(exact == 0, 0.0, numbers(codes, X).double() / torch.where(exact == 0, 1.0, exact) - 1)
    return fraction(largest) | {"rho": rho, "sigma": sigma, "t": t}


@case(
    modules=LESSON, returns=("NV-q", "NV-scale", "NV-tensor"), values=two_scales, sizes=NV_SIZES, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def nvfp4(module, X):
    q, scale, per_tensor = module.quantize_nvfp4(whole(X, 16), seed=None)
    return numbers(q, X), scale[:, 0].float(), per_tensor


@nvfp4.pytorch
def _(module, X):
    q, scale, per_tensor = module.quantize_nvfp4_reference(whole(X, 16))
    return numbers(q, X), scale[:, 0].float(), per_tensor


@case(modules=LESSON, returns="NV-decode", values=two_scales, sizes=NV_SIZES, dtypes=ALL, forward_only=True)
def nvfp4_there_and_back(module, X, t):
    q, scale, per_tensor = module.quantize_nvfp4(x=whole(X, 16), per_tensor_scale=t.float())
    return module.dequantize_nvfp4(q=q, block_scale=scale, per_tensor_scale=per_tensor, dtype=X.dtype)[:, : X.shape[1]]


@nvfp4_there_and_back.pytorch
def _(module, X):
    return module.dequantize_nvfp4_reference(*module.quantize_nvfp4_reference(whole(X, 16)), X.dtype)[:, : X.shape[1]]


# ---------------------------------------------------------------- what is measured
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
EXAMPLES = {LESSON: cost((2, 16), torch.float32, bits=4, group=8)}
BENCH = dict(
    shapes=[(16384, 8192), (8192, 8192), (4096, 4096), (16384, 2880)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called(torch.float8_e4m3fn),
    eager=reference(torch.float8_e4m3fn),
    variants={"four bits": dict(cost=partial(cost, bits=4), call=called(FP4), eager=reference(FP4))},
)
