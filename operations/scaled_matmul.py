"""Products of scaled codes: what is compared with formulas, and what is measured."""

from functools import partial

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES  # noqa: F401  academy reads it
from operations.quantize import codes

LESSON = "fp8.scaled_matmul"
FAST = "fast.scaled_matmul"
PARTS = ["gluon.scaled_matmul"]
FUNCTION = "scaled_matmul"
DERIVATION = "fp8"


# ---------------------------------------------------------------- public functions
def of_numbers(product):
    """Any numbers as codes, under scales of 1."""

    def call(x, y, recipe):
        a, b = (tensor.float().clamp(-448, 448).to(torch.float8_e4m3fn) for tensor in (x, y))
        (M, K), N = a.shape, b.shape[1]
        shapes = {"tensor": ((), ()), "row": ((M, 1), (1, N)), "block": ((M, -(-K // 128)), (-(-K // 128), N))}[recipe]
        scales = (torch.ones(shape, device=x.device) for shape in shapes)
        out_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        return product(a, b, *scales, recipe=recipe, out_dtype=out_dtype)

    return call


def of_codes(recipe, **options):
    """Codes of 20 x 160 and 160 x 12, their scales, and a bias."""
    shapes = {"tensor": ((), ()), "row": ((20, 1), (1, 12)), "block": ((20, 2), (2, 1))}[recipe]

    def inputs():
        left, right = (torch.randn(rows, 160).to(torch.float8_e4m3fn) for rows in (20, 12))
        scales = (torch.rand(shape) + 0.5 for shape in shapes)
        return dict(zip(("a", "b", "scale_a", "scale_b", "bias"), (left, right.t(), *scales, torch.randn(12))))

    return dict(inputs=inputs, wrap=None, recipe=recipe, **options)


RECIPES = ("tensor", "row", "block")
PUBLIC = [
    Public(
        "scaled_matmul", {"x": "rows inner", "y": "inner cols", "recipe": RECIPES}, at=(20, 160, 12),
        calls=[of_codes(recipe) for recipe in RECIPES],
        more=[of_codes("row", out_dtype=torch.float32, use_fast_accum=True)], wrap=of_numbers, differentiable=False,
        codes=True,
        batch={"rows": {FAST: "up to 64 rows have a kernel of their own"}},
    )
]  # fmt: skip

# ---------------------------------------------------------------- products of codes
PRODUCT = (LESSON, FAST)
FEW = {"M": 5, "N": 9, "G": 3, "n": 8}
TILED = {"M": 5, "N": 5, "G": 2, "n": 64}


def representable(M, G, n, N):
    """a, b: numbers that are codes."""
    same = torch.Generator().manual_seed(M + N + G + n)  # at each call: what is remembered of one is compared
    return {
        "a": torch.randn(M, G, n, generator=same).to(torch.float8_e4m3fn).double(),
        "b": torch.randn(G, n, N, generator=same).to(torch.float8_e5m2).double(),
    }


def decoded(a, b, scale_a, scale_b, bias, recipe, GROUP=128):
    from annotated_examples.fp8 import scaled_matmul

    return scaled_matmul.scaled_matmul_reference(
        *codes(a, b), scale_a, scale_b, recipe=recipe, bias=bias, out_dtype=torch.float32, precision=torch.float32,
        GROUP=GROUP,
    )  # fmt: skip


@case(modules=PRODUCT, returns="SM-tensor", values=representable, sizes=FEW, dtypes=("float32",), forward_only=True)
def one_scale_each(module, a, b, sigma, tau, beta):
    left, right = codes(a, b)
    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return module.scaled_matmul(
        left, right, *scales, recipe="tensor", bias=beta, out_dtype=torch.float32, use_fast_accum=True
    )


@one_scale_each.pytorch
def _(module, a, b, sigma, tau, beta):
    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return decoded(a, b, *scales, beta, "tensor")


@case(modules=PRODUCT, returns="SM-row", values=representable, sizes=FEW, dtypes=("float32",), forward_only=True)
def a_scale_for_each_row(module, a, b, s, t, beta):
    left, right = codes(a, b)
    return module.scaled_matmul(
        a=left, b=right, scale_a=s[:, None], scale_b=t[None], recipe="row", bias=beta, out_dtype=torch.float32
    )


@a_scale_for_each_row.pytorch
def _(module, a, b, s, t, beta):
    return decoded(a, b, s[:, None], t[None], beta, "row")


@case(modules=PRODUCT, returns="SM-row", values=representable, sizes=TILED, dtypes=("float32",), forward_only=True)
def rows_in_small_tiles(module, a, b, s, t, beta):
    left, right = codes(a, b)
    left = left.t().contiguous().t()  # codes that aren't side by side
    tiles = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=32, GROUP_M=2)
    return module.scaled_matmul_forward(left, right, s[:, None], t[None], beta, torch.float32, **tiles)


rows_in_small_tiles.pytorch(a_scale_for_each_row.said["pytorch"])


@case(
    modules=PRODUCT, returns="SM-block", values=representable, sizes={"M": 5, "N": 9, "G": 2, "n": 128},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def a_scale_for_each_block(module, a, b, U, V, beta):
    left, right = codes(a, b)
    return module.scaled_matmul(left, right, U, V, recipe="block", bias=beta, out_dtype=torch.float32)


@a_scale_for_each_block.pytorch
def _(module, a, b, U, V, beta):
    return decoded(a, b, U, V, beta, "block")


# Three columns of tiles, the last of them with two columns.
@case(
    modules=PRODUCT, returns="SM-block", values=representable, sizes=TILED | {"N": 10}, dtypes=("float32",),
    forward_only=True,
)  # fmt: skip
def blocks_in_small_tiles(module, a, b, U, V, beta):
    left, right = codes(a, b)
    tiles = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=32, GROUP=64, GROUP_M=2)
    return module.block_scaled_matmul_forward(left, right, U, V, beta, torch.float32, **tiles)


@blocks_in_small_tiles.pytorch
def _(module, a, b, U, V, beta):
    return decoded(a, b, U, V, beta, "block", GROUP=64)


def small_and_whole(M, G, n, N):
    """Their sums fit into 13 bits, so that a Hopper's fast sums are exact."""
    same = torch.Generator().manual_seed(M + N)
    return {
        name: torch.randint(-2, 3, shape, generator=same).double()
        for name, shape in {"a": (M, G, n), "b": (G, n, N)}.items()
    }


# More rows than the kernel for a few of them takes: the one for fast sums, with tails in all directions.
@case(
    modules=FAST, returns="SM-row", values=small_and_whole, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def fast_sums(module, a, b, s, t, beta):
    left, right = codes(a, b)
    tiles = dict(BLOCK_M=32, BLOCK_N=8, BLOCK_K=64, GROUP_M=2)
    return module.scaled_matmul_forward(left, right, s[:, None], t[None], beta, torch.float32, True, **tiles)


fast_sums.pytorch(a_scale_for_each_row.said["pytorch"])


@case(
    modules=FAST, returns="SM-tensor", values=representable, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def fast_sums_with_one_scale(module, a, b, sigma, tau, beta):
    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return module.scaled_matmul(*codes(a, b), *scales, recipe="tensor", bias=beta, out_dtype=torch.float32)


fast_sums_with_one_scale.pytorch(one_scale_each.said["pytorch"])


# Below Triton: tiles of 128 x 16 and of 256 x 16.
@case(
    modules="gluon.scaled_matmul", returns="SM-row", values=representable, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def promoted_rows(module, a, b, s, t, beta):
    left, right = codes(a, b)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, SUMS=2, STAGES=2, GROUP_M=2)
    return module.promoted_forward(left, right, s[:, None], t[None], beta, torch.float32, False, **tiles)


promoted_rows.pytorch(a_scale_for_each_row.said["pytorch"])


def one_block_wide(M, G, n, N):
    """V: one scale for all columns."""
    scales = torch.rand(G, 1, generator=torch.Generator().manual_seed(G)) + 0.5
    return representable(M, G, n, N) | {"V": scales.double().expand(G, N)}


@case(
    modules="gluon.scaled_matmul", returns="SM-block", values=one_block_wide, sizes={"M": 70, "N": 9, "G": 3, "n": 32},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def promoted_blocks(module, a, b, U, V, beta):
    left, right = codes(a, b)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, SUMS=4, STAGES=2, GROUP_M=2)
    return module.promoted_forward(left, right, U, V[:, :1].to(U), beta, torch.float32, True, **tiles)


@promoted_blocks.pytorch
def _(a, b, U, V, beta):
    return decoded(a, b, U, V, beta, "block", GROUP=32)


# ---------------------------------------------------------------- what is measured
# A code is a byte, a scale four. The result is written in `dtype`.
def cost(shape, dtype, recipe="row", GROUP=128, bias=False):
    M, N, K = shape
    blocks = -(-K // GROUP)
    scales = {"tensor": 2, "row": M + N, "block": blocks * (M + -(-N // GROUP))}[recipe]
    read = M * K + K * N + 4 * scales + 4 * N * bias
    return {"forward": dict(bytes_read=read, bytes_written=M * N * dtype.itemsize, operations=2 * M * N * K)}


# `b` is the transpose of a contiguous matrix, as the weight of a linear layer is.
def inputs(shape, dtype, device, recipe="row"):
    M, N, K = shape
    blocks, columns = -(-K // 128), -(-N // 128)
    shapes = {"tensor": ((), ()), "row": ((M, 1), (1, N)), "block": ((blocks, M), (blocks, columns))}[recipe]
    scale_a, scale_b = (torch.rand(size, device=device) + 0.5 for size in shapes)
    return dict(
        a=torch.randn(M, K, device=device).to(torch.float8_e4m3fn),
        b=torch.randn(N, K, device=device).to(torch.float8_e4m3fn).t(),
        scale_a=scale_a.t() if recipe == "block" else scale_a,
        scale_b=scale_b,
    )


def called(recipe, use_fast_accum=False):
    options = dict(recipe=recipe, use_fast_accum=use_fast_accum)
    return lambda scaled_matmul: lambda a, b, scale_a, scale_b: scaled_matmul(a, b, scale_a, scale_b, **options)


def cublas(use_fast_accum=False):
    return lambda a, b, scale_a, scale_b: torch._scaled_mm(
        a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=use_fast_accum
    )


# PyTorch wants a block's scales of `b` as its transpose has them.
def cublas_blocks(a, b, scale_a, scale_b):
    from torch.nn.functional import ScalingType, scaled_mm

    by_row, by_block = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    turned = scale_b.t().contiguous().t()
    return scaled_mm(a, b, scale_a, by_row, turned, by_block, output_dtype=torch.bfloat16)


def reference(recipe):
    def of(**tensors):
        from annotated_examples.fp8.scaled_matmul import scaled_matmul_reference

        return scaled_matmul_reference(**tensors, recipe=recipe, out_dtype=torch.float64)

    return of


VARIANTS = {
    "tensor": dict(cost=partial(cost, recipe="tensor"), inputs=partial(inputs, recipe="tensor"), call=called("tensor"),
                   reference=reference("tensor")),
    "block": dict(cost=partial(cost, recipe="block"), inputs=partial(inputs, recipe="block"), call=called("block"),
                  reference=reference("block"), eager=cublas_blocks, compile=False),
    "row": {},
    "row, fast sums": dict(call=called("row", use_fast_accum=True), eager=cublas(use_fast_accum=True)),
}  # fmt: skip
# The example's `scale_a` is one row of three scales, shown for all rows.
EXAMPLES = {
    LESSON: {
        "forward": dict(bytes_read=6 * 96 + 96 * 10 + 4 * (3 + 3), bytes_written=6 * 10 * 4, operations=2 * 6 * 10 * 96)
    },
    FAST: {"forward": dict(bytes_read=70 * 96 + 96 * 24 + 4 * (70 + 24), bytes_written=70 * 24 * 4, operations=0)},
    "gluon.scaled_matmul": {
        "forward": dict(bytes_read=70 * 96 + 96 * 24 + 4 * (3 + 6), bytes_written=70 * 24 * 4, operations=0)
    },
}
BENCH = dict(
    shapes=[(8192, 8192, 8192), (4096, 4096, 4096), (16, 8192, 8192), (1000, 3008, 5008)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called("row"),
    eager=cublas(),
    reference=reference("row"),
    variants=VARIANTS,
)
