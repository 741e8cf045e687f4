"""RMSNorm, alone and with the residual added: what is compared with formulas, and what is measured."""

import sys
from types import SimpleNamespace

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.layernorm import applied

LESSON = "classics.rmsnorm"
FAST = "fast.rmsnorm"
FUNCTION = "rmsnorm"
AXES = ("rows", "columns")
DERIVATION = "rmsnorm"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "rmsnorm", {"x": "rows cols", "weight": "cols", "offset": (0.0, 1.0)}, at=(6, 1000),
        more=[dict(inputs={"weight": None}, eps=1e-3)], batch={"rows": ""},
    ),
    Public(
        "add_rmsnorm", {"x": "rows cols", "residual": "rows cols", "weight": "cols"}, at=(6, 1000),
        more=[dict(eps=1e-3, offset=1.0)], batch={"rows": ""},
    ),
    applied(
        "apply_rmsnorm", torch.nn.RMSNorm,
        without={"non-finite": "beside an infinity PyTorch's fused kernel for GPUs may give NaN, its steps give 0"},
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
GRADIENTS = {"X": "RMS-X", "gamma": "RMS-gamma"}
RESULTS = ("RMS-add", "RMS-sum")
ADD_GRADIENTS = {"A": "RMS-add-X", "B": "RMS-residual", "eta": "RMS-add-gamma"}


def norm(X, gamma, varepsilon, c):
    return torch.nn.functional.rms_norm(X, X.shape[1:], c + gamma, varepsilon)


def norm_of_sum(A, B, eta, varepsilon, c):
    return norm(A + B, eta, varepsilon, c), A + B


def reference(X, gamma, varepsilon, c):
    from annotated_examples.classics.rmsnorm import rmsnorm_reference

    return rmsnorm_reference(X, gamma, varepsilon, offset=c)


def of_norm(nabla_Y):
    return nabla_Y


def of_both(nabla_Z, nabla_T):
    return nabla_Z, nabla_T


@case(modules=BOTH, returns="RMS-Y", gradients=GRADIENTS, pytorch=norm, upstream=of_norm)
def rmsnorm(module, X, gamma, varepsilon, c):
    return module.rmsnorm(X, gamma, varepsilon, offset=c)


@case(modules=BOTH, returns="RMS-Y", gradients=GRADIENTS, pytorch=norm, upstream=of_norm, values={"c": 0.0})
def of_a_module(module, X, gamma, varepsilon):
    return module.apply_rmsnorm(SimpleNamespace(weight=gamma, eps=varepsilon), X)


@case(modules=BOTH, returns="RMS-root", forward_only=True)
def saved_for_backward(module, X, varepsilon):
    return 1 / module.rmsnorm_forward(X, eps=varepsilon)[2]


@saved_for_backward.pytorch
def _(X, varepsilon):
    return (X.float().pow(2).mean(1) + varepsilon).sqrt()


@case(modules=BOTH, returns=RESULTS, gradients=ADD_GRADIENTS, pytorch=norm_of_sum, upstream=of_both)
def add_rmsnorm(module, A, B, eta, varepsilon, c):
    return module.add_rmsnorm(A, B, eta, varepsilon, offset=c)


@case(modules=BOTH, returns="RMS-Y", gradients=GRADIENTS, pytorch=norm, upstream=of_norm, sizes={"m": 35, "n": 37})
def small_tiles(module, X, gamma, nabla_Y, varepsilon, c):
    y, s, rstd = module.rmsnorm_forward(X, gamma, varepsilon, c, BLOCK_N=64)
    dX, dgamma = module.rmsnorm_backward(
        nabla_Y, s, gamma, rstd, varepsilon, c, BLOCK_M=2, BLOCK_N=64, COLUMNS=16, num_programs=3
    )
    return y, {"X": dX, "gamma": dgamma}


@case(
    modules=LESSON,
    returns=RESULTS,
    gradients=ADD_GRADIENTS,
    pytorch=norm_of_sum,
    upstream=of_both,
    sizes={"n": 37},
)
def in_chunks(module, A, B, eta, nabla_Z, nabla_T, varepsilon, c):
    y, s, rstd = module.rmsnorm_forward(A, eta, varepsilon, c, B, BLOCK_N=16)
    dA, deta = module.rmsnorm_backward(
        nabla_Z, s, eta, rstd, varepsilon, c, nabla_T, BLOCK_M=4, BLOCK_N=16, COLUMNS=16, num_programs=3
    )
    return (y, s), {"A": dA, "B": dA, "eta": deta}


@case(
    modules=BOTH,
    returns=None,
    gradients={"X": "RMS-eps", "gamma": "RMS-gamma"},
    pytorch=reference,
    upstream=of_norm,
    sizes={"n": 1},
)
def one_column(module, X, gamma, varepsilon, c):
    return module.rmsnorm(X, gamma, varepsilon, offset=c)


# ---------------------------------------------------------------- what is measured
# With a weight of the dtype of `x`; rstd is 4 bytes a row. The partial sums of the backward pass are scratch and not
# counted. With a residual the sum is one tensor more in and out, and its gradient one more in.
def tensors_cost(shape, dtype, added):
    numel, N = torch.Size(shape).numel(), shape[-1]
    statistics, size = 4 * (numel // N), dtype.itemsize
    return {
        "forward": dict(
            bytes_read=((1 + added) * numel + N) * size,
            bytes_written=(1 + added) * numel * size + statistics,
            operations=(4 + added) * numel,
        ),
        "backward": dict(
            bytes_read=((2 + added) * numel + N) * size + statistics,
            bytes_written=(numel + N) * size,
            operations=(9 + added) * numel,
        ),
    }


def cost(shape, dtype):
    return tensors_cost(shape, dtype, added=0)


def added_cost(shape, dtype):
    return tensors_cost(shape, dtype, added=1)


def inputs(shape, dtype, device):
    shapes = dict(x=shape, weight=shape[-1:])
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


def added_inputs(shape, dtype, device):
    return inputs(shape, dtype, device) | dict(residual=torch.randn(shape, dtype=dtype, device=device))


def eager(x, weight):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def added_eager(x, residual, weight):
    s = x + residual
    return eager(s, weight), s


def liger():
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # In its mode "gemma" everything is float32, as here. The last argument keeps dX from being written over the
    # upstream gradient.
    return lambda x, weight: LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "gemma", False)


def added_liger():
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    return lambda x, residual, weight: LigerFusedAddRMSNormFunction.apply(
        x, residual, weight, 1e-6, 0.0, "gemma", False
    )


def quack():
    from quack import rmsnorm

    return lambda x, weight: rmsnorm(x, weight, eps=1e-6)


def added_quack():
    from quack import rmsnorm

    return lambda x, residual, weight: rmsnorm(x, weight, residual=residual, eps=1e-6, prenorm=True)


# What the lesson's kernels write: rows of partial sums in float32, which PyTorch adds up and rounds.
def lesson_cost(shape, dtype, partial_rows):
    costs, N = cost(shape, dtype), shape[-1]
    costs["backward"]["bytes_written"] += N * (4 * partial_rows - dtype.itemsize)
    return costs


EXAMPLES = {
    LESSON: lesson_cost((5, 6), torch.float32, partial_rows=2),
    FAST: cost((7, 6), torch.float32),
}
BENCH = dict(
    shapes=[(32768, 4096), (8192, 8192), (65536, 1024)]  # then widths of models, and two odd ones
    + [(16384, N) for N in (2880, 768, 5120, 12288, 1000, 4097)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward", "backward"],
    differentiable=["x", "weight"],
    variants={
        "": {},
        "with residual": dict(
            shapes=[(32768, 4096), (8192, 8192), (65536, 1024), (16384, 2880)],
            call=lambda rmsnorm: sys.modules[rmsnorm.__module__].add_rmsnorm,
            inputs=added_inputs,
            eager=added_eager,
            peers={"liger-kernel": added_liger, "quack": added_quack},
            differentiable=["x", "residual", "weight"],
            cost=added_cost,
        ),
    },
)
