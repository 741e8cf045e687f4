"""Quantizing to eight bits: what is compared with formulas, and what is measured.

Codes are compared as the numbers that they stand for. What rounding did is given to the formulas: it is computed here,
in PyTorch, from the same numbers.
"""

from functools import partial

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "fp8.quantize"
FAST = None
FUNCTION = "quantize_fp8"
AXES = ("rows", "columns")
DERIVATION = "fp8"


# ---------------------------------------------------------------- public functions
def decoded(quantize):
    """Codes times scales. A scale holds for whole groups, wherever they lie."""

    def call(x, granularity):
        from annotated_examples.fp8.quantize import dequantize_fp8_reference

        return dequantize_fp8_reference(*quantize(x, granularity))

    return call


def under_one_scale(quantize):
    def call(x):
        q, amax = quantize(x, torch.full((), 0.01, device=x.device))
        return q.float(), amax

    return call


ONE_SCALE = dict(inputs={"scale": lambda: torch.full((), 0.01)}, wrap=None)
PUBLIC = [
    Public(
        "quantize_fp8", {"x": "rows cols", "granularity": ("tensor", "row", "1x128", "128x128")}, at=(6, 300),
        calls=[dict(wrap=None, granularity=each) for each in ("tensor", "row", "1x128", "128x128")],
        more=[dict(wrap=None, dtype=torch.float8_e5m2, power_of_two=True, seed=3)],
        wrap=decoded, differentiable=False,
    ),
    Public(
        "quantize_fp8_delayed", {"x": "rows cols"}, at=(6, 300), calls=[ONE_SCALE],
        more=[ONE_SCALE | dict(dtype=torch.float8_e5m2)], wrap=under_one_scale, differentiable=False,
    ),
]  # fmt: skip
HELPERS = {"dequantize_fp8": "called by the references of others"}

# ---------------------------------------------------------------- what is compared with formulas


def codes(a, b):
    return a.flatten(1).to(torch.float8_e4m3fn), b.flatten(0, 1).to(torch.float8_e5m2)


ALL = ("float32", "float16", "bfloat16")
SIZES = {"G": 5, "n": 37}
LARGEST = 448.0


def rounded(X, granularity="row", **options):
    """rho, r: what rounding did to each code, and to the logarithm of each scale."""
    from annotated_examples.fp8 import quantize

    codes, scale = quantize.quantize_fp8_reference(X, granularity, **options)
    exact = X.double() / X.double().abs().amax(1, keepdim=True).clamp(min=1e-300) * LARGEST
    rho = torch.where(exact == 0, 0.0, codes.double() / torch.where(exact == 0, 1.0, exact) - 1)
    logarithm = (X.double().abs().amax(1) / LARGEST).log2()
    return {"L": LARGEST, "rho": rho, "r": logarithm.ceil() - logarithm}


def given_codes(X):
    return rounded(X)


@case(modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def rows(module, X):
    q, scale = module.quantize_fp8(X)
    return q.float(), scale[:, 0]


@rows.pytorch
def _(module, X):
    q, scale = module.quantize_fp8_reference(X)
    return q.float(), scale[:, 0]


@case(modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def rows_in_small_chunks(module, X):
    q, scale = module.quantize_rows_forward(X, torch.float8_e4m3fn, False, BLOCK_K=16)
    return q.float(), scale[:, 0]


rows_in_small_chunks.pytorch(rows.said["pytorch"])


@case(modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def blocks(module, X):
    q, scale = module.quantize_fp8(X, "1x128")
    return q.float(), scale[:, 0]


blocks.pytorch(rows.said["pytorch"])


@case(
    modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 301}, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def one_scale(module, X):
    q, scale = module.quantize_fp8(X, "tensor")
    return q.float(), scale[None]


@case(
    modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 101}, dtypes=ALL,
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
    modules=LESSON, returns=("F8-q", "F8-scale"), values=given_codes, sizes={"G": 1, "n": 301}, dtypes=ALL,
    forward_only=True,
)  # fmt: skip
def one_scale_in_small_blocks(module, X):
    q, scale, _ = module.quantize_tensor_forward(X, torch.float8_e4m3fn, False, BLOCK=16, num_programs=5)
    return q.float(), scale[None]


one_scale_in_small_blocks.pytorch(one_scale.said["pytorch"])


@case(modules=LESSON, returns="F8-pow2", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def powers_of_two(module, X):
    return module.quantize_fp8(X, power_of_two=True)[1][:, 0]


@powers_of_two.pytorch
def _(module, X):
    return module.quantize_fp8_reference(X, power_of_two=True)[1][:, 0]


@case(modules=LESSON, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def there_and_back(module, X):
    q, scale = module.quantize_fp8(X, granularity="row")
    return module.dequantize_fp8(q=q, scale=scale, dtype=X.dtype)


@there_and_back.pytorch
def _(module, X):
    return module.dequantize_fp8_reference(*module.quantize_fp8_reference(X), X.dtype)


@case(modules=LESSON, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def blocks_there_and_back(module, X):
    q, scale = module.quantize_fp8(X, "1x128")
    return module.dequantize_fp8(q, scale, X.dtype)


blocks_there_and_back.pytorch(there_and_back.said["pytorch"])


@case(modules=LESSON, returns="F8-decode", values=given_codes, sizes=SIZES, dtypes=ALL, forward_only=True)
def small_tiles_there_and_back(module, X):
    q, scale = module.quantize_fp8(X)
    apart = q.t().contiguous().t()  # codes that aren't side by side
    return module.dequantize_forward(apart, scale, X.dtype, BLOCK_M=2, BLOCK_K=16)


small_tiles_there_and_back.pytorch(there_and_back.said["pytorch"])


@case(modules=LESSON, returns="F8-amax", sizes={"G": 1, "n": 301}, dtypes=ALL, forward_only=True)
def delayed(module, X):
    return module.quantize_fp8_delayed(X, torch.ones((), device=X.device))[1][None]


@delayed.pytorch
def _(module, X):
    return module.quantize_fp8_delayed_reference(X, torch.ones((), device=X.device))[1][None]


SEED = 2**33 + 5


def drawn(X):
    """How far each number is from the code below, in steps, and the random number that decides."""
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


@case(modules=LESSON, returns="F8-sr", values=drawn, sizes=SIZES, dtypes=("float32", "bfloat16"), forward_only=True)
def stochastic(module, X):
    return module.quantize_fp8(X, seed=SEED)[0].float()


@stochastic.pytorch
def _(X):
    given = drawn(X)
    return (given["d"] * (given["k"] + (given["f"] + given["w"] >= 1))).float()


# ---------------------------------------------------------------- what is measured
# An element is read and its code is written, a byte; a row or a block writes a scale of 4 bytes. With one scale for the
# tensor every element is read twice. An element takes about ten operations.
def cost(shape, dtype, granularity="row"):
    rows, columns = shape
    n = rows * columns
    blocks = -(-columns // 128)
    scales = {"tensor": 1, "row": rows, "1x128": rows * blocks, "128x128": -(-rows // 128) * blocks}[granularity]
    reads = 2 if granularity == "tensor" else 1
    return {"forward": dict(bytes_read=reads * n * dtype.itemsize, bytes_written=n + 4 * scales, operations=10 * n)}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


# Codes are compared as bytes: every one has to be the same.
def as_bytes(quantized):
    q, scale = quantized
    return q.view(torch.uint8), scale


def called(granularity):
    return lambda quantize: lambda x: as_bytes(quantize(x, granularity))


def reference(granularity):
    def of(x):
        from annotated_examples.fp8.quantize import quantize_fp8_reference

        return as_bytes(quantize_fp8_reference(x, granularity))

    return of


VARIANTS = {name: dict(cost=partial(cost, granularity=name), call=called(name), eager=reference(name))
            for name in ("1x128", "128x128", "tensor")}  # fmt: skip
EXAMPLES = {LESSON: cost((5, 6), torch.float32)}
BENCH = dict(
    shapes=[(16384, 8192), (8192, 8192), (4096, 4096), (16384, 4097)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=called("row"),
    eager=reference("row"),
    variants=VARIANTS,
)
