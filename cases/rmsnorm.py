"""Which calls of the RMSNorm kernels are compared with the formulas of backprop_math/rmsnorm.md."""

from types import SimpleNamespace

from academy.formulas.cases import case

BOTH = ("classics.rmsnorm", "fast.rmsnorm")
GRADIENTS = {"X": "RMS-X", "gamma": "RMS-gamma"}
RESULTS = ("RMS-add", "RMS-sum")
ADD_GRADIENTS = {"A": "RMS-add-X", "B": "RMS-residual", "eta": "RMS-add-gamma"}


def norm(X, gamma, varepsilon, c):
    import torch

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
    modules="classics.rmsnorm",
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
