"""Which calls of the running sum are compared with the formulas of backprop_math/cumsum.md."""

from academy.formulas.cases import case

BOTH = ("recurrences.cumsum", "fast.cumsum")


def of_exclusive(nabla_u):
    return nabla_u


def of_reverse(nabla_r):
    return nabla_r


@case(modules=BOTH, returns="CS", gradients={"x": "CS-dx"}, rows=("x", "nabla_y"))
def cumsum(module, x):
    return module.cumsum(x, -1)


@case(modules=BOTH, returns="CS-step", gradients={"x": "CS-dx"}, rows=("x", "nabla_y"))
def in_chunks(module, x, nabla_y):
    y = module.cumsum_forward(x, BLOCK_N=16)
    return y, {"x": module.cumsum_backward(nabla_y, BLOCK_N=16)}


@in_chunks.pytorch
def _(x):
    from annotated_examples.recurrences.cumsum import cumsum_reference

    return cumsum_reference(x)


@case(
    modules=BOTH,
    returns="CS-exclusive",
    gradients={"a": "CS-exclusive-dx"},
    rows=("a", "nabla_u"),
    upstream=of_exclusive,
)
def exclusive(module, a):
    return module.cumsum(a, 1, exclusive=True)


@case(modules=BOTH, returns="CS-reverse", gradients={"c": "CS-reverse-dx"}, rows=("c", "nabla_r"), upstream=of_reverse)
def reverse(module, c):
    return module.cumsum(c, reverse=True)


@case(modules=BOTH, returns="CS-exclusive-dx", rows=("nabla_u",), forward_only=True)
def reverse_exclusive(module, nabla_u):
    return module.cumsum(nabla_u, reverse=True, exclusive=True)


@case(modules=BOTH, returns="CS-chunk", sizes={"q": 16}, forward_only=True)
def carried(module, X):
    return module.cumsum_forward(X.flatten(), BLOCK_N=16).view(X.shape)


@carried.pytorch
def _(X):
    from annotated_examples.recurrences.cumsum import cumsum_reference

    return cumsum_reference(X.flatten()).view(X.shape)


@case(modules="fast.cumsum", returns="CS", gradients={"x": "CS-dx"}, rows=("x", "nabla_y"))
def in_parts(module, x, nabla_y):
    size = dict(BLOCK_M=1, BLOCK_N=16, parts=2)
    return module.cumsum_forward(x, **size), {"x": module.cumsum_backward(nabla_y, **size)}


@in_parts.pytorch
def _(x):
    from annotated_examples.recurrences.cumsum import cumsum_reference

    return cumsum_reference(x)
