"""Which calls of the microscaling kernels are compared with the formulas of backprop_math/microscaling.md.

Codes are compared as the numbers that they stand for. What rounding did is given to the formulas: it is computed here,
in PyTorch, from the same numbers.
"""

from academy.formulas.cases import case

MODULE = "mx.microscaling"
ALL = ("float32", "float16", "bfloat16")
SIZES = {"G": 5, "n": 32}
NV_SIZES = {"G": 5, "n": 16}
FEW = {"M": 5, "N": 9, "G": 3, "n": 32}


def whole(X, group=32):
    """Filled up with zeros to whole groups, which changes neither a scale nor another code. Whole ones stay where they
    are: in memory that is fenced."""
    import torch

    missing = -X.shape[-1] % group
    return torch.nn.functional.pad(X, (0, missing)) if missing else X


def fraction(largest):
    """k, f: exponent and fraction of each number, and what a logarithm loses when it is rounded up."""
    import torch

    mantissa, exponent = torch.frexp(largest.double())
    return {"k": (exponent - 1).double(), "f": 2 * mantissa - 1}


def scaled(X, dtype, p, u):
    """rho, r, k, f: what rounding did to each code and to the logarithm of each scale, and where the largest lies."""
    import torch

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
    import torch

    from annotated_examples.mx import microscaling as mx

    packed = codes.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2)
    return (mx.fp4_reference(codes.view(torch.uint8)) if packed else codes.float())[:, : X.shape[1]]


def powers(byte):
    import torch

    return torch.ldexp(torch.ones(len(byte), device=byte.device), byte.view(torch.uint8)[:, 0].int() - 127)


def in_e4m3(X):
    import torch

    return scaled(X, torch.float8_e4m3fn, 8, 1.75)


def in_e2m1(X):
    import torch

    return scaled(X, torch.float4_e2m1fn_x2, 2, 1.5)


@case(modules=MODULE, returns=("MX-q", "MX-rceil"), values=in_e4m3, sizes=SIZES, dtypes=ALL, forward_only=True)
def eight_bits(module, X):
    q, scale = module.quantize_mx(whole(X))
    return numbers(q, X), powers(scale)


@eight_bits.pytorch
def _(module, X):
    q, scale = module.quantize_mx_reference(whole(X))
    return numbers(q, X), powers(scale)


@case(modules=MODULE, returns=("MX-q", "MX-rceil"), values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def four_bits(module, X):
    q, scale = module.quantize_mx(whole(X), elem_dtype=module.FP4, scaling="rceil", seed=None)
    return numbers(q, X), powers(scale)


@four_bits.pytorch
def _(module, X):
    q, scale = module.quantize_mx_reference(whole(X), module.FP4)
    return numbers(q, X), powers(scale)


@case(modules=MODULE, returns=("MX-q", "MX-rceil"), values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def wider_tiles_than_rows(module, X):
    q, scale = module.quantize_mx_forward(whole(X), module.FP4, "rceil", BLOCK_M=2, BLOCK_K=128)
    return numbers(q, X), powers(scale)


wider_tiles_than_rows.pytorch(four_bits.said["pytorch"])


@case(modules=MODULE, returns="MX-floor", values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def rounded_down(module, X):
    return powers(module.quantize_mx(whole(X), module.FP4, scaling="floor")[1])


@rounded_down.pytorch
def _(module, X):
    return powers(module.quantize_mx_reference(whole(X), module.FP4, scaling="floor")[1])


@case(modules=MODULE, returns="MX-decode", values=in_e2m1, sizes=SIZES, dtypes=ALL, forward_only=True)
def there_and_back(module, X):
    q, scale = module.quantize_mx(x=whole(X), elem_dtype=module.FP4)
    return module.dequantize_mx(q=q, scale=scale, dtype=X.dtype)[:, : X.shape[1]]


@there_and_back.pytorch
def _(module, X):
    return module.dequantize_mx_reference(*module.quantize_mx_reference(whole(X), module.FP4), X.dtype)[:, : X.shape[1]]


def two_scales(X):
    """sigma, rho, t, k, f: what rounding did to each group's scale and to each code."""
    import torch

    from annotated_examples.mx import microscaling as mx

    codes, block, t = mx.quantize_nvfp4_reference(whole(X, 16))
    largest, t = X.double().abs().amax(1), t.double()
    sigma = block[:, 0].double() * 6 * t / largest - 1
    exact = X.double() / (block.double() * t)
    rho = torch.where(exact == 0, 0.0, numbers(codes, X).double() / torch.where(exact == 0, 1.0, exact) - 1)
    return fraction(largest) | {"rho": rho, "sigma": sigma, "t": float(t)}


@case(
    modules=MODULE, returns=("NV-q", "NV-scale", "NV-tensor"), values=two_scales, sizes=NV_SIZES, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def nvfp4(module, X):
    q, scale, per_tensor = module.quantize_nvfp4(whole(X, 16), seed=None)
    return numbers(q, X), scale[:, 0].float(), per_tensor


@nvfp4.pytorch
def _(module, X):
    q, scale, per_tensor = module.quantize_nvfp4_reference(whole(X, 16))
    return numbers(q, X), scale[:, 0].float(), per_tensor


@case(modules=MODULE, returns="NV-decode", values=two_scales, sizes=NV_SIZES, dtypes=ALL, forward_only=True)
def nvfp4_there_and_back(module, X, t):
    import torch

    given = torch.tensor(t, dtype=torch.float32, device=X.device)
    q, scale, per_tensor = module.quantize_nvfp4(x=whole(X, 16), per_tensor_scale=given)
    return module.dequantize_nvfp4(q=q, block_scale=scale, per_tensor_scale=per_tensor, dtype=X.dtype)[:, : X.shape[1]]


@nvfp4_there_and_back.pytorch
def _(module, X):
    return module.dequantize_nvfp4_reference(*module.quantize_nvfp4_reference(whole(X, 16)), X.dtype)[:, : X.shape[1]]


# ---------------------------------------------------------------- a product with such weights

PRODUCT = ("mx.mx_matmul", "fast.mx_matmul")


def representable(M, N, G, n):
    """b: codes of four bits; P: powers of two."""
    import torch

    same = torch.Generator().manual_seed(M + N + G + n)  # at each call: what is remembered of one is compared
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[torch.randint(0, 8, (N, G, n), generator=same)]
    codes *= 1 - 2 * torch.randint(0, 2, codes.shape, generator=same)
    return {"b": codes.double(), "P": 2.0 ** torch.randint(-4, 4, (N, G), generator=same).double()}


def coded(b, P):
    """b and P as they are stored."""
    import torch

    from annotated_examples.mx.microscaling import fp4_codes_reference, pack_reference

    packed = pack_reference(fp4_codes_reference(whole(b).float().flatten(1)))
    return packed.view(torch.float4_e2m1fn_x2), (P.float().log2() + 127).to(torch.uint8).view(torch.float8_e8m0fnu)


@case(
    modules=PRODUCT, returns="MX-product", values=representable, sizes=FEW, dtypes=("float16", "bfloat16"),
    forward_only=True,
)  # fmt: skip
def four_bit_weights(module, a, b, P, beta):
    q, scale = coded(b, P)
    return module.mx_matmul(a=whole(a).flatten(1), b=q, scale_b=scale, bias=beta, out_dtype=a.dtype)


@four_bit_weights.pytorch
def _(module, a, b, P, beta):
    q, scale = coded(b, P)
    return module.mx_matmul_reference(whole(a).flatten(1), q, scale, bias=beta)


# Three rows and three columns of tiles, in groups of two rows; codes that aren't side by side in memory.
@case(
    modules="mx.mx_matmul", returns="MX-product", values=representable, sizes=FEW | {"M": 10},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def weights_in_small_tiles(module, a, b, P, beta):
    import torch

    q, scale = coded(b, P)
    bytes_of_b, bytes_of_scale = q.view(torch.uint8).t().contiguous().t(), scale.view(torch.uint8)
    tiles = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=32, GROUP_M=2)
    return module.mx_matmul_forward(whole(a).flatten(1), bytes_of_b, bytes_of_scale, beta, a.dtype, **tiles)


weights_in_small_tiles.pytorch(four_bit_weights.said["pytorch"])


@case(
    modules=PRODUCT, returns="MX-product", values=representable, sizes=FEW, dtypes=("float16", "bfloat16"),
    forward_only=True,
)  # fmt: skip
def eight_bit_weights(module, a, b, P, beta):
    import torch

    q, scale = coded(b, P)
    codes = whole(b).float().flatten(1).to(torch.float8_e5m2).view(torch.uint8)
    return module.mx_matmul(whole(a).flatten(1), codes, scale.view(torch.uint8), bias=beta, format="e5m2")


eight_bit_weights.pytorch(four_bit_weights.said["pytorch"])


# Two parts of three steps, with tails in all directions; columns of `a` put in order in each program, or beforehand.
@case(
    modules="fast.mx_matmul", returns="MX-product", values=representable, sizes={"M": 5, "N": 19, "G": 9, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def in_parts(module, a, b, P, beta):
    import torch

    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    apart = scale.t().contiguous().t()  # scales that aren't side by side
    tiles = dict(split_k=2, BLOCK_M=4, BLOCK_N=16)
    return module.parts_forward(whole(a).flatten(1), q, apart, beta, a.dtype, **tiles)


@case(
    modules="fast.mx_matmul", returns="MX-product", values=representable, sizes={"M": 18, "N": 19, "G": 8, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def in_order_beforehand(module, a, b, P, beta):
    import torch

    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    wide = torch.stack([whole(a).flatten(1)] * 2, -1)[..., 0]  # columns that aren't side by side
    return module.parts_forward(wide, q, scale, beta, a.dtype, split_k=3, ordered=True, BLOCK_M=16, BLOCK_N=16)


@case(
    modules="fast.mx_matmul", returns="MX-product", values=representable, sizes={"M": 18, "N": 9, "G": 2, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def decoded_once(module, a, b, P, beta):
    import torch

    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    return module.by_library(whole(a).flatten(1), q, scale, beta)


in_parts.pytorch(four_bit_weights.said["pytorch"])
in_order_beforehand.pytorch(four_bit_weights.said["pytorch"])
decoded_once.pytorch(four_bit_weights.said["pytorch"])
