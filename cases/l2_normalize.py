"""Which calls of the kernels are compared with the formulas of backprop_math/l2_normalize.md."""

from academy.formulas.cases import case

LESSON = "recurrences.l2_normalize"


def reference(X, varepsilon):
    return X * (X.pow(2).sum(1, keepdim=True) + varepsilon).rsqrt()


def of_rows(nabla_Y):
    return nabla_Y


@case(modules=LESSON, returns="L2-Y", gradients={"X": "L2-X"}, pytorch=reference, upstream=of_rows)
def l2_normalize(module, X, varepsilon):
    return module.l2_normalize(X, varepsilon)


@case(modules=LESSON, returns="L2-Y", gradients={"X": "L2-X"}, pytorch=reference, upstream=of_rows)
def in_chunks(module, X, varepsilon, nabla_Y):
    size = dict(BLOCK_M=2, BLOCK_N=4)
    y, inv_norm = module.l2_normalize_forward(X, varepsilon, **size)
    return y, {"X": module.l2_normalize_backward(nabla_Y.to(X.dtype), X, inv_norm, varepsilon, **size)}


@case(modules=LESSON, returns=None, gradients={"X": "L2-one"}, pytorch=reference, upstream=of_rows, sizes={"n": 1})
def one_number(module, X, varepsilon):
    return module.l2_normalize(X, varepsilon)


@case(modules=LESSON, returns="L2-norm", dtypes=("float32",), forward_only=True)
def saved_for_backward(module, X, varepsilon):
    return module.l2_normalize_forward(X, varepsilon)[1]


@saved_for_backward.pytorch
def _(X, varepsilon):
    return (X.pow(2).sum(1) + varepsilon).rsqrt()
