"""Which calls of the eight-bit kernels are compared with the formulas of backprop_math/fp8.md.

Codes are compared as the numbers that they stand for. What rounding did is given to the formulas: it is computed here,
in PyTorch, from the same numbers.
"""

from academy.formulas.cases import case

MODULE = "fp8.quantize"
ALL = ("float32", "float16", "bfloat16")
SIZES = {"G": 5, "n": 37}
LARGEST = 448.0


def rounded(X, granularity="row", **options):
    """rho, r: what rounding did to each code, and to the logarithm of each scale."""
    import torch

    from annotated_examples.fp8 import quantize

    codes, scale = quantize.quantize_fp8_reference(X, granularity, **options)
    exact = X.double() / X.double().abs().amax(1, keepdim=True).clamp(min=1e-300) * LARGEST
    rho = torch.where(exact == 0, 0.0, codes.double() / torch.where(exact == 0, 1.0, exact) - 1)
    logarithm = (X.double().abs().amax(1) / LARGEST).log2()
    return {"L": LARGEST, "rho": rho, "r": logarithm.ceil() - logarithm}


def given_codes(X):
    return rounded(X)


@case(modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def rows(module, X):
    q, scale = module.quantize_fp8(X)
    return q.float(), scale[:, 0]


@rows.pytorch
def _(module, X):
    q, scale = module.quantize_fp8_reference(X)
    return q.float(), scale[:, 0]


@case(modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def rows_in_small_chunks(module, X):
    import torch

    q, scale = module.quantize_rows_forward(X, torch.float8_e4m3fn, False, BLOCK_K=16)
    return q.float(), scale[:, 0]


rows_in_small_chunks.pytorch(rows.said["pytorch"])


@case(modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def blocks(module, X):
    q, scale = module.quantize_fp8(X, "1x128")
    return q.float(), scale[:, 0]


blocks.pytorch(rows.said["pytorch"])


@case(
    modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 301}, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def one_scale(module, X):
    q, scale = module.quantize_fp8(X, "tensor")
    return q.float(), scale[None]


@case(
    modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 101}, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def one_square(module, X):
    q, scale = module.quantize_fp8(X, "128x128")
    return q.float(), scale[:, 0]


one_square.pytorch(rows.said["pytorch"])


@one_scale.pytorch
def _(module, X):
    q, scale = module.quantize_fp8_reference(X, "tensor")
    return q.float(), scale[None]


@case(
    modules=MODULE, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 301}, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def one_scale_in_small_blocks(module, X):
    import torch

    q, scale, _ = module.quantize_tensor_forward(X, torch.float8_e4m3fn, False, BLOCK=16, num_programs=5)
    return q.float(), scale[None]


one_scale_in_small_blocks.pytorch(one_scale.said["pytorch"])


@case(modules=MODULE, returns="F8-pow2", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def powers_of_two(module, X):
    return module.quantize_fp8(X, power_of_two=True)[1][:, 0]


@powers_of_two.pytorch
def _(module, X):
    return module.quantize_fp8_reference(X, power_of_two=True)[1][:, 0]


@case(modules=MODULE, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def there_and_back(module, X):
    q, scale = module.quantize_fp8(X, granularity="row")
    return module.dequantize_fp8(q=q, scale=scale, dtype=X.dtype)


@there_and_back.pytorch
def _(module, X):
    return module.dequantize_fp8_reference(*module.quantize_fp8_reference(X), X.dtype)


@case(modules=MODULE, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def blocks_there_and_back(module, X):
    q, scale = module.quantize_fp8(X, "1x128")
    return module.dequantize_fp8(q, scale, X.dtype)


blocks_there_and_back.pytorch(there_and_back.said["pytorch"])


@case(modules=MODULE, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def small_tiles_there_and_back(module, X):
    q, scale = module.quantize_fp8(X)
    apart = q.t().contiguous().t()  # codes that aren't side by side
    return module.dequantize_forward(apart, scale, X.dtype, BLOCK_M=2, BLOCK_K=16)


small_tiles_there_and_back.pytorch(there_and_back.said["pytorch"])


@case(modules=MODULE, returns="F8-amax", sizes={"G": 1, "n": 301}, dtypes=ALL, forward_only=True)
def delayed(module, X):
    import torch

    return module.quantize_fp8_delayed(X, torch.ones((), device=X.device))[1][None]


@delayed.pytorch
def _(module, X):
    import torch

    return module.quantize_fp8_delayed_reference(X, torch.ones((), device=X.device))[1][None]


SEED = 2**33 + 5


def drawn(X):
    """How far each number is from the code below, in steps, and the random number that decides."""
    import torch

    from annotated_examples.classics import dropout

    scale = (X.float().abs().amax(1) / LARGEST).clamp(min=2.0**-126)
    v = X.float() * (1 / scale)[:, None]
    exponent = torch.frexp(v.abs().clamp(min=2.0**-6))[1] - 1
    step = torch.ldexp(torch.ones_like(v), exponent - 3).double()
    steps = v.abs().double() / step
    words = dropout.random_words_reference(torch.tensor(SEED), torch.arange(X.numel()))[:, 0].view(X.shape).to(X.device)
    w = (words >> 12).double() / 2**20
    # Beyond the largest code there is none.
    k, f = steps.floor(), steps - steps.floor()
    return {"L": LARGEST, "k": k, "f": torch.where(v.abs() >= LARGEST, 0.0, f), "d": step * v.sign().double(), "w": w}


@case(modules=MODULE, returns="F8-sr", values=drawn, sizes=SIZES, dtypes=("float32", "bfloat16"), forward_only=True)
def stochastic(module, X):
    return module.quantize_fp8(X, seed=SEED)[0].float()


@stochastic.pytorch
def _(X):
    given = drawn(X)
    return (given["d"] * (given["k"] + (given["f"] + given["w"] >= 1))).float()


# ---------------------------------------------------------------- products of codes

PRODUCT = ("fp8.scaled_matmul", "fast.scaled_matmul")
FEW = {"M": 5, "N": 9, "G": 3, "n": 8}
TILED = {"M": 5, "N": 5, "G": 2, "n": 64}


def representable(M, G, n, N):
    """a, b: numbers that are codes."""
    import torch

    same = torch.Generator().manual_seed(M + N + G + n)  # at each call: what is remembered of one is compared
    return {
        "a": torch.randn(M, G, n, generator=same).to(torch.float8_e4m3fn).double(),
        "b": torch.randn(G, n, N, generator=same).to(torch.float8_e5m2).double(),
    }


def codes(a, b):
    import torch

    return a.flatten(1).to(torch.float8_e4m3fn), b.flatten(0, 1).to(torch.float8_e5m2)


def decoded(a, b, scale_a, scale_b, bias, recipe, GROUP=128):
    import torch

    from annotated_examples.fp8 import scaled_matmul

    return scaled_matmul.scaled_matmul_reference(
        *codes(a, b), scale_a, scale_b, recipe=recipe, bias=bias, out_dtype=torch.float32, precision=torch.float32,
        GROUP=GROUP,
    )  # fmt: skip


@case(modules=PRODUCT, returns="SM-tensor", values=representable, sizes=FEW, dtypes=("float32",), forward_only=True)
def one_scale_each(module, a, b, sigma, tau, beta):
    import torch

    left, right = codes(a, b)
    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return module.scaled_matmul(
        left, right, *scales, recipe="tensor", bias=beta, out_dtype=torch.float32, use_fast_accum=True
    )


@one_scale_each.pytorch
def _(module, a, b, sigma, tau, beta):
    import torch

    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return decoded(a, b, *scales, beta, "tensor")


@case(modules=PRODUCT, returns="SM-row", values=representable, sizes=FEW, dtypes=("float32",), forward_only=True)
def a_scale_for_each_row(module, a, b, s, t, beta):
    import torch

    left, right = codes(a, b)
    return module.scaled_matmul(
        a=left, b=right, scale_a=s[:, None], scale_b=t[None], recipe="row", bias=beta, out_dtype=torch.float32
    )


@a_scale_for_each_row.pytorch
def _(module, a, b, s, t, beta):
    return decoded(a, b, s[:, None], t[None], beta, "row")


@case(modules=PRODUCT, returns="SM-row", values=representable, sizes=TILED, dtypes=("float32",), forward_only=True)
def rows_in_small_tiles(module, a, b, s, t, beta):
    import torch

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
    import torch

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
    import torch

    left, right = codes(a, b)
    tiles = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=32, GROUP=64, GROUP_M=2)
    return module.block_scaled_matmul_forward(left, right, U, V, beta, torch.float32, **tiles)


@blocks_in_small_tiles.pytorch
def _(module, a, b, U, V, beta):
    return decoded(a, b, U, V, beta, "block", GROUP=64)


# More rows than the kernel for a few of them takes: the one for fast sums, with tails in all directions.
@case(
    modules="fast.scaled_matmul", returns="SM-row", values=representable, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def fast_sums(module, a, b, s, t, beta):
    import torch

    left, right = codes(a, b)
    tiles = dict(BLOCK_M=32, BLOCK_N=8, BLOCK_K=64, GROUP_M=2)
    return module.scaled_matmul_forward(left, right, s[:, None], t[None], beta, torch.float32, **tiles)


fast_sums.pytorch(a_scale_for_each_row.said["pytorch"])


@case(
    modules="fast.scaled_matmul", returns="SM-tensor", values=representable, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def fast_sums_with_one_scale(module, a, b, sigma, tau, beta):
    import torch

    scales = torch.tensor(sigma, device=a.device), torch.tensor(tau, device=a.device)
    return module.scaled_matmul(*codes(a, b), *scales, recipe="tensor", bias=beta, out_dtype=torch.float32)


fast_sums_with_one_scale.pytorch(one_scale_each.said["pytorch"])


# Below Triton: tiles of 128 x 16.
@case(
    modules="gluon.scaled_matmul", returns="SM-row", values=representable, sizes={"M": 70, "N": 12, "G": 3, "n": 40},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def promoted_rows(module, a, b, s, t, beta):
    import torch

    left, right = codes(a, b)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, GROUPS=2, STAGES=2, GROUP_M=2)
    return module.promoted_forward(left, right, s[:, None], t[None], beta, torch.float32, False, **tiles)


promoted_rows.pytorch(a_scale_for_each_row.said["pytorch"])


def one_block_wide(M, G, n, N):
    """V: one scale for all columns."""
    import torch

    scales = torch.rand(G, 1, generator=torch.Generator().manual_seed(G)) + 0.5
    return representable(M, G, n, N) | {"V": scales.double().expand(G, N)}


@case(
    modules="gluon.scaled_matmul", returns="SM-block", values=one_block_wide, sizes={"M": 70, "N": 9, "G": 3, "n": 32},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def promoted_blocks(module, a, b, U, V, beta):
    import torch

    left, right = codes(a, b)
    tiles = dict(BLOCK_N=16, BLOCK_K=32, GROUPS=3, STAGES=2, GROUP_M=2)
    return module.promoted_forward(left, right, U, V[:, :1], beta, torch.float32, True, **tiles)


@promoted_blocks.pytorch
def _(a, b, U, V, beta):
    return decoded(a, b, U, V, beta, "block", GROUP=32)
