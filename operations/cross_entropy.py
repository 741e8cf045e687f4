"""The cross entropy: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.cross_entropy"
FAST = "fast.cross_entropy"
FUNCTION = "cross_entropy_loss"
AXES = ("rows", "vocabulary")
DERIVATION = "cross_entropy"


# ---------------------------------------------------------------- public functions
def one_ignored(rows, classes):
    found = torch.randint(0, classes, (rows,))
    found[1] = -100
    return found


def one_each(rows):
    """Every label is a column; the fourth one is ignored where `ignore_index` is 3."""
    return torch.arange(rows)


def on_a_copy(loss):
    """The loss may overwrite its logits, and a leaf must not be overwritten."""
    return lambda logits, labels, **options: loss(logits * 1.0, labels, **options)


LOGITS = {"logits": "rows classes", "labels": "rows: int64 below classes"}
CAPS = {"logit_softcapping": (0.0, 30.0), "logit_scaling": (0.0, 0.5)}
USUAL, EACH = dict(inputs={"labels": one_ignored}), dict(inputs={"labels": one_each})
PUBLIC = [
    Public(
        "cross_entropy_loss", LOGITS | CAPS, at=(6, 1000),
        calls=[USUAL, USUAL | dict(logit_softcapping=30.0, logit_scaling=0.5), USUAL | dict(n_items=4)],
        more=[dict(inputs={"labels": one_each, "n_items": lambda: torch.tensor(4)}, ignore_index=3)],
    ),
    Public(
        "cross_entropy_loss_", LOGITS, at=(6, 1000), calls=[USUAL], wrap=on_a_copy,
        more=[EACH | dict(wrap=lambda loss: lambda logits, labels: loss(logits * 1.0, labels, 30.0, 0.5, 4, 3))],
        reference=f"{LESSON}.cross_entropy_loss_reference",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
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
    valid = torch.arange(m) % 3 != 1
    return {"Y": torch.nn.functional.one_hot(torch.arange(m) * 5 % V, V) * valid[:, None], "v": valid.float()}


def counted(m, V):
    """The same, divided by the number of valid rows, which the kernel counts."""
    values = batch(m, V)
    return {**values, "n": values["v"].sum()}


def labels(Y, v, ignored):
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
    shape = (-(-m // 3), min(m, 3))
    x = torch.nn.functional.pad(X.reshape(*shape, V), (0, 0, 0, 1))[:, :-1]
    return module.cross_entropy_loss(x, labels(Y, v, 1).reshape(shape), n_items=torch.tensor(n), ignore_index=1)


# ---------------------------------------------------------------- what is measured
# A training step must read logits and labels and write the gradient and a loss for each row; that is all, because the
# gradient can be made on the way. A backward pass with an upstream gradient other than 1 reads and writes it once more.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    forward = dict(
        bytes_read=logits * dtype.itemsize + rows * 8,
        bytes_written=logits * dtype.itemsize + rows * 4,
        operations=8 * logits,
    )
    backward = dict(bytes_read=logits * dtype.itemsize + 4, bytes_written=logits * dtype.itemsize, operations=logits)
    return {"forward": forward, "backward": backward, "forward+backward": forward}


# The lesson leaves the gradient to the backward pass, which reads the logits again. A row has a label of 8 bytes, and a
# loss and two saved numbers of 4. Single numbers are the count of labels, which forward writes and reads again, and
# what backward is multiplied by.
def lesson_cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=12 * rows, operations=5 * logits),
        "backward": dict(bytes_read=size + 16 * rows + 12, bytes_written=size, operations=4 * logits),
    }


def inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        labels=torch.randint(shape[-1], shape[:-1], device=device),
    )


def liger():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return lambda logits, labels: LigerCrossEntropyFunction.apply(logits, labels, None)[0]


def quack():
    from quack.cross_entropy import cross_entropy

    return lambda logits, labels: cross_entropy(logits, labels, reduction="mean")


EXAMPLES = {
    LESSON: lesson_cost((3, 11), torch.float32),
    FAST: cost((2, 2, 21), torch.float32),
}
BENCH = dict(
    shapes=[*((8192, vocab) for vocab in (32000, 128256, 50257, 151936, 201088, 1000, 4097)), (4096, 262144)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward+backward"],
    differentiable=["logits"],
)
