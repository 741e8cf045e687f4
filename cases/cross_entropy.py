"""Which calls of the cross-entropy kernels are compared with the formulas of backprop_math/cross_entropy.md."""

from academy.formulas.cases import case

BOTH = ("classics.cross_entropy", "fast.cross_entropy")
LESSON = "classics.cross_entropy"
FAST = "fast.cross_entropy"
CAPPED = dict(returns="CE-capped", gradients={"x": "CE-capped-x"})
MEAN = dict(returns="CE-mean", gradients={"X": "CE-mean-X"})


# ---------------------------------------------------------------- one token: logits x, label c
@case(modules=BOTH, returns="CE", gradients={"x": "CE-x"}, stable={"CE-x": "CE-x-stable"}, upstream=1.0)
def one_token(module, x, c):
    return module.cross_entropy_loss(x[None], c[None])


@case(modules=BOTH, returns="CE", gradients={"x": "CE-x-stable"}, upstream=1.0)
def in_place(module, x, c):
    return module.cross_entropy_loss_(x[None].clone(), c[None])


@in_place.pytorch
def _(module, x, c):
    return module.cross_entropy_loss_reference(x[None], c[None])


@case(modules=BOTH, returns="CE-scaled", gradients={"x": "CE-scaled-x"}, upstream=1.0)
def scaled(module, x, c, s):
    return module.cross_entropy_loss(x[None], c[None], logit_scaling=s)


@case(modules=BOTH, **CAPPED, values={"s": 1.0}, upstream=1.0)
def capped(module, x, c, t):
    return module.cross_entropy_loss(x[None], c[None], logit_softcapping=t)


def reference_of_one_token(module, x, c, s, t):
    return module.cross_entropy_loss_reference(x[None], c[None], logit_softcapping=t, logit_scaling=s)


ONE_TOKEN = dict(pytorch=reference_of_one_token, sizes={"V": 117}, upstream=1.0)


@case(modules=LESSON, **CAPPED, **ONE_TOKEN)
def capped_in_chunks(module, x, c, s, t):
    import torch

    options = dict(softcap=t, scaling=s, BLOCK_N=16)
    loss, saved = module.cross_entropy_forward(x[None], c[None], **options)
    return loss, {"x": module.cross_entropy_backward(x.new_ones((), dtype=torch.float32), *saved, **options)[0]}


@case(modules=FAST, **CAPPED, **ONE_TOKEN)
def capped_in_blocks(module, x, c, s, t):
    loss, (dx,) = module.cross_entropy_forward(x[None], c[None], softcap=t, scaling=s, BLOCK=16, num_warps=1)
    return loss, {"x": dx[0]}


@case(modules=BOTH, **CAPPED, pytorch=reference_of_one_token, upstream=1.0)
def capped_in_place(module, x, c, s, t):
    return module.cross_entropy_loss_(x[None].clone(), c[None], logit_softcapping=t, logit_scaling=s)


# ---------------------------------------------------------------- a batch: logits X, one-hot labels Y, valid rows v
def batch(m, V):
    """Of each three rows the second is ignored."""
    import torch

    valid = torch.arange(m) % 3 != 1
    return {"Y": torch.nn.functional.one_hot(torch.arange(m) * 5 % V, V) * valid[:, None], "v": valid.float()}


def counted(m, V):
    """The same, divided by the number of valid rows, which the kernel counts."""
    values = batch(m, V)
    return {**values, "n": values["v"].sum()}


def labels(Y, v, ignored):
    import torch

    return torch.where(v > 0, Y.argmax(1), ignored)


# The last row is ignored, and its label points behind the logits.
@case(modules=BOTH, **MEAN, values=batch, sizes={"m": 5})
def mean(module, X, Y, v, n, V):
    return module.cross_entropy_loss(X, labels(Y, v, V), n_items=n, ignore_index=V)


@case(modules=BOTH, **MEAN, values=batch)
def mean_in_place(module, X, Y, v, n):
    return module.cross_entropy_loss_(X.clone(), labels(Y, v, -7), n_items=n, ignore_index=-7)


@mean_in_place.pytorch
def _(module, X, Y, v, n):
    return module.cross_entropy_loss_reference(X, labels(Y, v, -7), n_items=n, ignore_index=-7)


@case(modules=BOTH, **MEAN, values=counted)
def mean_of_valid_rows(module, X, Y, v):
    return module.cross_entropy_loss(X, labels(Y, v, -100))


@case(modules=FAST, **MEAN, values=counted, sizes={"V": 3, "m": 30}, dtypes=("float32",))
def counted_label_by_label(module, X, Y, v):
    n = module.count_labels(labels(Y, v, -9), -9, BLOCK=1)[0]
    return module.cross_entropy_loss(X, labels(Y, v, -9), n_items=n, ignore_index=-9)


@counted_label_by_label.pytorch
def _(module, X, Y, v):
    return module.cross_entropy_loss_reference(X, labels(Y, v, -9), ignore_index=-9)


def reference_of_a_batch(module, X, Y, v):
    return module.cross_entropy_loss_reference(X, labels(Y, v, -100))


THREE_ROWS = dict(pytorch=reference_of_a_batch, values=counted, sizes={"V": 117, "m": 3})


@case(modules=LESSON, **MEAN, **THREE_ROWS)
def mean_in_chunks(module, X, Y, v, nabla_ell):
    loss, saved = module.cross_entropy_forward(X, labels(Y, v, -100), BLOCK_N=16)
    return loss, {"X": module.cross_entropy_backward(X.new_tensor(nabla_ell).float(), *saved, BLOCK_N=16)}


@case(
    modules=FAST,
    **MEAN,
    **THREE_ROWS,
    dtypes=("float32",),  # in bfloat16 a gradient made before its factor is known is rounded twice
)
def mean_in_blocks(module, X, Y, v, nabla_ell):
    loss, (gradient,) = module.cross_entropy_forward(X, labels(Y, v, -100), BLOCK=16, num_warps=1)
    return loss, {"X": module.cross_entropy_backward(X.new_tensor(nabla_ell).float(), gradient, BLOCK=16)}


@case(modules=FAST, **MEAN, **THREE_ROWS, dtypes=("float32", "float16"))
def mean_with_a_late_gradient(module, X, Y, v, nabla_ell):
    """As float16 and `torch.compile` make it: in the backward pass."""
    loss, saved = module.cross_entropy_loss_forward(X, labels(Y, v, -100), BLOCK=16, num_warps=1)
    dloss = X.new_tensor(nabla_ell).float()
    return loss, {"X": module.cross_entropy_loss_backward(dloss, *saved, BLOCK=16, num_warps=1)}


def not_whole(m, V):
    return {**batch(m, V), "n": 7.3, "nabla_ell": 2.0}


@case(modules=BOTH, **MEAN, values=not_whole, sizes={"V": 37, "m": 6}, dtypes=("float32", "float16"))
def in_three_dimensions(module, X, Y, v, n, m, V):
    """Logits between rows that are no part of them, a divisor that is a tensor and no whole number."""
    import torch

    shape = (-(-m // 3), min(m, 3))
    x = torch.nn.functional.pad(X.reshape(*shape, V), (0, 0, 0, 1))[:, :-1]
    return module.cross_entropy_loss(x, labels(Y, v, 1).reshape(shape), n_items=torch.tensor(n), ignore_index=1)
