"""The product with microscaled weights: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES  # noqa: F401  academy reads it
from operations.microscaling import whole

LESSON = "mx.mx_matmul"
FAST = "fast.mx_matmul"
FUNCTION = "mx_matmul"
DERIVATION = "microscaling"


# ---------------------------------------------------------------- public functions
def microscaled_weights(rows, columns):
    """Codes and scales of 24 rows of weights, in bytes."""
    from annotated_examples.mx.microscaling import FP4, quantize_mx_reference

    q, scale = quantize_mx_reference(torch.randn(24, columns), FP4)
    return {"a": torch.randn(rows, columns), "b": q.view(torch.uint8), "scale_b": scale.view(torch.uint8)}


BIAS = dict(inputs={"bias": "24"}, format="e2m1")
PUBLIC = [
    Public(
        "mx_matmul", microscaled_weights, at=(20, 160), options={"format": "e2m1"}, calls=[BIAS],
        more=[BIAS | dict(out_dtype=torch.float32)], sizes={"columns": (32, 96)}, dtypes=("float16", "bfloat16"),
        differentiable=False,
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
FEW = {"M": 5, "N": 9, "G": 3, "n": 32}

# ---------------------------------------------------------------- a product with such weights
PRODUCT = (LESSON, FAST)


def representable(M, N, G, n):
    """b: codes of four bits; P: powers of two."""
    same = torch.Generator().manual_seed(M + N + G + n)  # at each call: what is remembered of one is compared
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[torch.randint(0, 8, (N, G, n), generator=same)]
    codes *= 1 - 2 * torch.randint(0, 2, codes.shape, generator=same)
    return {"b": codes.double(), "P": 2.0 ** torch.randint(-4, 4, (N, G), generator=same).double()}


def coded(b, P):
    """b and P as they are stored."""
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
    modules=LESSON, returns="MX-product", values=representable, sizes=FEW | {"M": 10},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def weights_in_small_tiles(module, a, b, P, beta):
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
    q, scale = coded(b, P)
    codes = whole(b).float().flatten(1).to(torch.float8_e5m2).view(torch.uint8)
    return module.mx_matmul(whole(a).flatten(1), codes, scale.view(torch.uint8), bias=beta, format="e5m2")


eight_bit_weights.pytorch(four_bit_weights.said["pytorch"])


# Two parts of three steps, with tails in all directions; columns of `a` put in order in each program, or beforehand.
@case(
    modules=FAST, returns="MX-product", values=representable, sizes={"M": 5, "N": 19, "G": 9, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def in_parts(module, a, b, P, beta):
    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    apart = scale.t().contiguous().t()  # scales that aren't side by side
    tiles = dict(split_k=2, BLOCK_M=4, BLOCK_N=16)
    return module.parts_forward(whole(a).flatten(1), q, apart, beta, a.dtype, **tiles)


@case(
    modules=FAST, returns="MX-product", values=representable, sizes={"M": 18, "N": 19, "G": 8, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def in_order_beforehand(module, a, b, P, beta):
    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    wide = torch.stack([whole(a).flatten(1)] * 2, -1)[..., 0]  # columns that aren't side by side
    return module.parts_forward(wide, q, scale, beta, a.dtype, split_k=3, ordered=True, BLOCK_M=16, BLOCK_N=16)


@case(
    modules=FAST, returns="MX-product", values=representable, sizes={"M": 18, "N": 9, "G": 2, "n": 32},
    dtypes=("float16", "bfloat16"), forward_only=True,
)  # fmt: skip
def decoded_once(module, a, b, P, beta):
    q, scale = (x.view(torch.uint8) for x in coded(b, P))
    return module.by_library(whole(a).flatten(1), q, scale, beta)


in_parts.pytorch(four_bit_weights.said["pytorch"])
in_order_beforehand.pytorch(four_bit_weights.said["pytorch"])
decoded_once.pytorch(four_bit_weights.said["pytorch"])


# ---------------------------------------------------------------- what is measured
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
    LESSON: {
        "forward": dict(bytes_read=4 * 64 * 2 + 6 * 64 // 2 + 6 * 64 // 32, bytes_written=4 * 6 * 4, operations=0)
    },
    FAST: {
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
