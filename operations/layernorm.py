"""LayerNorm: what is compared with formulas, and what is measured."""

import functools
from types import SimpleNamespace

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.layernorm"
FAST = "fast.layernorm"
PARTS = ["gluon.layernorm_backward"]
FUNCTION = "layernorm"
AXES = ("rows", "columns")
DERIVATION = "layernorm"

# ---------------------------------------------------------------- public functions
BARE = {"weight": None, "bias": None}


def of_a_layer(kind):
    """For `apply_…(module, x)`, with a module as wide as x."""
    return lambda apply: lambda x: apply(kind(x.shape[-1], device=x.device, dtype=x.dtype), x)


def of_one_layer(kind):
    """With a module that is there before the call."""

    def wrap(apply):
        from academy.runtime.device import DEVICE

        return functools.partial(apply, kind(1000, device=DEVICE, dtype=torch.bfloat16))

    return wrap


def layer_in_pytorch(module, x):
    return module.to(x.dtype)(x)


def applied(name, kind, **more):
    given = dict(reference=layer_in_pytorch, wrap=of_a_layer(kind))
    return Public(
        name, {"x": "rows cols"}, (6, 1000), calls=[dict(wrap=of_one_layer(kind))], batch={"rows": ""}, **given, **more
    )


PUBLIC = [
    Public(
        "layernorm", {"x": "rows cols", "weight": "cols", "bias": "cols"}, at=(6, 1000),
        calls=[{}, dict(inputs=BARE)], more=[dict(inputs=BARE, eps=1e-3)], batch={"rows": ""},
    ),
    applied("apply_layernorm", torch.nn.LayerNorm),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
GRADIENTS = {"X": "LN-X", "gamma": "LN-gamma", "beta": "LN-beta"}


def layer_norm(X, n, gamma, beta, varepsilon):
    return torch.nn.functional.layer_norm(X, (n,), gamma, beta, varepsilon)


@case(modules=BOTH, returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm)
def layernorm(module, X, gamma, beta, varepsilon):
    return module.layernorm(X, gamma, beta, varepsilon)


@case(modules=BOTH, returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm)
def of_a_module(module, X, gamma, beta, varepsilon):
    return module.apply_layernorm(SimpleNamespace(weight=gamma, bias=beta, eps=varepsilon), X)


@case(modules=BOTH, returns=(None, "LN-mean", "LN-rstd"), forward_only=True)
def saved_for_backward(module, X, varepsilon):
    return module.layernorm_forward(X, eps=varepsilon)


@saved_for_backward.pytorch
def _(X, varepsilon):
    return None, X.float().mean(1), (X.float().var(1, unbiased=False) + varepsilon).rsqrt()


@case(modules=BOTH, returns="LN-shift", forward_only=True)
def variance(module, X, varepsilon):
    return module.layernorm_forward(X, eps=varepsilon)[2] ** -2 - varepsilon


@variance.pytorch
def _(X):
    return X.float().var(1, unbiased=False)


@case(modules=FAST, returns="LN-merge", sizes={"p": 16, "q": 9}, forward_only=True)
def of_two_pieces(module, A, B, p, q, varepsilon):
    rstd = module.layernorm_forward(torch.cat([A, B])[None], eps=varepsilon, BLOCK_N=16)[2][0]
    return (rstd**-2 - varepsilon) * (p + q)


@of_two_pieces.pytorch
def _(A, B, p, q):
    return torch.cat([A, B]).float().var(unbiased=False) * (p + q)


@case(modules=FAST, returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm, sizes={"m": 7, "n": 37})
def two_rows_a_tile(module, X, gamma, beta, nabla_Y, varepsilon):
    tile = dict(BLOCK_M=2, BLOCK_N=64, num_warps=1)
    y, mean, rstd = module.layernorm_forward(X, gamma, beta, varepsilon, **tile)
    dX, dgamma, dbeta = module.layernorm_backward(nabla_Y, X, gamma, beta, mean, rstd, num_programs=2, **tile)
    return y, {"X": dX, "gamma": dgamma, "beta": dbeta}


# Many rows: around 10⁴ the rounding of a single row's mean would decide the comparison of the largest errors.
@case(modules=BOTH, returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm, sizes={"m": 67, "n": 37})
def in_chunks(module, X, gamma, beta, nabla_Y, varepsilon):
    y, mean, rstd = module.layernorm_forward(X, gamma, beta, varepsilon, BLOCK_N=16)
    dX, dgamma, dbeta = module.layernorm_backward(
        nabla_Y, X, gamma, beta, mean, rstd, BLOCK_M=4, BLOCK_N=16, COLUMNS=16, num_programs=3
    )
    return y, {"X": dX, "gamma": dgamma, "beta": dbeta}


@case(
    modules=BOTH, returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm, sizes={"m": 37, "n": 37}, dtypes=("float32",)
)
def more_rows_than_programs(module, X, gamma, beta, nabla_Y, varepsilon):
    y, mean, rstd = module.layernorm_forward(X, gamma, beta, varepsilon)
    dX, dgamma, dbeta = module.layernorm_backward(
        nabla_Y, X, gamma, beta, mean, rstd, BLOCK_M=1, BLOCK_N=64, num_programs=35
    )  # fmt: skip
    return y, {"X": dX, "gamma": dgamma, "beta": dbeta}


@case(
    modules="gluon.layernorm_backward", returns="LN-Y", gradients=GRADIENTS, pytorch=layer_norm,
    sizes={"m": 7, "n": 128}, dtypes=("float16", "bfloat16"),
)  # fmt: skip
def one_trip(module, X, gamma, beta, nabla_Y, varepsilon):
    y, mean, rstd = module.layernorm_forward(X, gamma, beta, varepsilon)
    dX, dgamma, dbeta = module.layernorm_backward(nabla_Y, X, gamma, beta, mean, rstd, num_warps=1)
    return y, {"X": dX, "gamma": dgamma, "beta": dbeta}


def far_from_zero(X):
    """A mean that is rounded once is off by a good part of the deviation."""
    return {"X": 1e4 + X / 64, "varepsilon": 1e-9}


@case(
    modules=FAST,
    returns=("LN-Y", "LN-mean", "LN-rstd"),
    values=far_from_zero,
    dtypes=("float32",),
    forward_only=True,
)
def large_mean(module, X, gamma, beta, varepsilon):
    return module.layernorm_forward(X, gamma, beta, varepsilon)


@large_mean.pytorch
def _(X, n, gamma, beta, varepsilon):
    """PyTorch in float64, rounded once: its own float32 is worse here."""
    x = X.double()
    y = torch.nn.functional.layer_norm(x, (n,), gamma.double(), beta.double(), varepsilon)
    rstd = (x.var(1, unbiased=False) + varepsilon).rsqrt()
    return y.to(X.dtype), x.mean(1).to(X.dtype), rstd.to(X.dtype)


# ---------------------------------------------------------------- what is measured
# With weight and bias of the dtype of `x`. Mean and rstd are 4 bytes each a row. The partial sums of the backward pass
# are scratch and not counted. Operations an element: forward 1 for the mean, 3 for the variance, 4 for the result;
# backward 3 for `dy * weight` and the normalised `x`, 3 for the two means, 4 for `dx`, 3 for the parameters.
def cost(shape, dtype):
    numel, N = torch.Size(shape).numel(), shape[-1]
    statistics = 2 * 4 * (numel // N)
    size = dtype.itemsize
    return {
        "forward": dict(
            bytes_read=(numel + 2 * N) * size, bytes_written=numel * size + statistics, operations=8 * numel
        ),
        "backward": dict(
            bytes_read=(2 * numel + N) * size + statistics, bytes_written=(numel + 2 * N) * size, operations=13 * numel
        ),
    }


def inputs(shape, dtype, device):
    shapes = dict(x=shape, weight=shape[-1:], bias=shape[-1:])
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


def eager(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def liger():
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return lambda x, weight, bias: LigerLayerNormFunction.apply(x, weight, bias, 1e-5)


# What the lesson's kernels write: rows of partial sums in float32, which PyTorch adds up and rounds.
def lesson_cost(shape, dtype, partial_rows):
    costs, N = cost(shape, dtype), shape[-1]
    costs["backward"]["bytes_written"] += 2 * N * (4 * partial_rows - dtype.itemsize)
    return costs


EXAMPLES = {
    LESSON: lesson_cost((5, 6), torch.float32, partial_rows=2),
    FAST: cost((7, 6), torch.float32),
    "gluon.layernorm_backward": {"backward": cost((6, 128), torch.float16)["backward"]},
}
BENCH = dict(
    shapes=[(32768, 4096), (8192, 8192), (65536, 1024)]  # then widths of models, and two odd ones
    + [(16384, N) for N in (768, 1536, 2880, 5120, 12288, 18432, 1000, 4097)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["x", "weight", "bias"],
)
