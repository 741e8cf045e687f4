"""Which calls of linear cross entropy are compared with the formulas of backprop_math/linear_cross_entropy.md."""

from academy.formulas.cases import case

BOTH = ("classics.linear_cross_entropy", "fast.linear_cross_entropy")
LESSON = "classics.linear_cross_entropy"
FAST = "fast.linear_cross_entropy"
GRADIENTS = {"X": "LCE-X", "W": "LCE-W", "d": "LCE-b"}
CAPPED = {"X": "LCE-capped-X", "W": "LCE-capped-W", "d": "LCE-capped-b"}


def batch(m, V):
    """Of each three rows the second is ignored."""
    import torch

    valid = torch.arange(m) % 3 != 1
    return {"Y": torch.nn.functional.one_hot(torch.arange(m) * 5 % V, V) * valid[:, None], "v": valid.float()}


def counted(m, V):
    """The same, divided by the number of valid rows, which is counted."""
    values = batch(m, V)
    return {**values, "n": values["v"].sum()}


def labels(Y, v, ignored=-100):
    import torch

    return torch.where(v > 0, Y.argmax(1), ignored)


@case(modules=BOTH, returns="LCE", gradients=GRADIENTS, values=batch)
def given_items(module, X, W, d, Y, v, n, V):
    return module.linear_cross_entropy(X, W, labels(Y, v, V), d, n_items=n, ignore_index=V)


@case(modules=BOTH, returns="LCE", gradients=GRADIENTS, values=counted, dtypes=("float32", "bfloat16", "float16"))
def counted_items(module, X, W, d, Y, v):
    return module.linear_cross_entropy(X, W, labels(Y, v), d)


@case(modules=FAST, returns="LCE", gradients=GRADIENTS, values=counted, sizes={"V": 117})
def lean(module, X, W, d, Y, v):
    return module.linear_cross_entropy_lean(X, W, labels(Y, v), d)


@lean.pytorch
def _(module, X, W, d, Y, v):
    return module.linear_cross_entropy_reference(X, W, labels(Y, v), d)


@case(modules=BOTH, returns="LCE-capped", gradients=CAPPED, values=counted, upstream=1.0)
def capped(module, X, W, d, Y, v, s, t):
    return module.linear_cross_entropy(X, W, labels(Y, v), d, logit_softcapping=t, logit_scaling=s)


@case(modules=FAST, returns="LCE-capped", gradients=CAPPED, values=batch, upstream=1.0)
def capped_lean(module, X, W, d, Y, v, n, s, t):
    options = dict(logit_softcapping=t, logit_scaling=s, n_items=n, ignore_index=-7)
    return module.linear_cross_entropy_lean(X, W, labels(Y, v, -7), d, **options)


@capped_lean.pytorch
def _(module, X, W, d, Y, v, n, s, t):
    options = dict(logit_softcapping=t, logit_scaling=s, n_items=n, ignore_index=-7)
    return module.linear_cross_entropy_reference(X, W, labels(Y, v, -7), d, **options)


def reference(module, X, W, d, Y, v):
    return module.linear_cross_entropy_reference(X, W, labels(Y, v), d)


IN_PARTS = dict(returns="LCE", gradients=GRADIENTS, pytorch=reference, sizes={"V": 77})


@case(modules=LESSON, values=counted, **IN_PARTS)
def in_pieces(module, X, W, d, Y, v, nabla_ell):
    loss, saved = module.linear_cross_entropy_forward(X, W, labels(Y, v), d, COLUMNS=20, BLOCK_N=8)
    dloss = X.new_tensor(nabla_ell).float()
    dx, dweight, dbias = module.linear_cross_entropy_backward(dloss, *saved, COLUMNS=30, BLOCK_N=16)
    return loss, {"X": dx, "W": dweight, "d": dbias}


def with_upstream_of_one(m, V):
    return {**counted(m, V), "nabla_ell": 1.0}


@case(modules=FAST, values=with_upstream_of_one, **IN_PARTS)
def kept_in_part(module, X, W, d, Y, v):
    loss, (dx, dweight, dbias) = module.linear_cross_entropy_forward(
        X, W, labels(Y, v), d, KEPT=0.2, STEP=8, BLOCK=16, num_warps=1
    )
    return loss, {"X": dx, "W": dweight, "d": dbias}
