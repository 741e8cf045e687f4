"""Linear cross entropy: what is compared with formulas, and what is measured.

`shape` is (rows, hidden, vocab).
"""

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.cross_entropy import CAPS, EACH, USUAL, one_each, one_ignored

LESSON = "classics.linear_cross_entropy"
FAST = "fast.linear_cross_entropy"
FUNCTION = "linear_cross_entropy"
AXES = ("rows", "hidden", "vocabulary")
DERIVATION = "linear_cross_entropy"

# ---------------------------------------------------------------- public functions
HIDDEN = {"x": "rows width", "weight": "classes width", "labels": "rows: int64 below classes"}
NO_BIAS = dict(inputs={"labels": one_ignored, "bias": None})
PUBLIC = [
    Public(
        "linear_cross_entropy", HIDDEN | {"bias": "classes"} | CAPS, at=(6, 64, 1000),
        calls=[NO_BIAS, USUAL | dict(logit_softcapping=30.0, logit_scaling=0.5)],
        more=[EACH | dict(n_items=4, ignore_index=3)],
    ),
    Public(
        "linear_cross_entropy_lean", HIDDEN | {"n_items": 4}, at=(6, 64, 1000), calls=[USUAL | dict(n_items=4)],
        more=[
            dict(
                inputs={"labels": one_each, "bias": "classes"}, logit_softcapping=30.0, logit_scaling=0.5,
                ignore_index=3,
            )
        ],
        modules=(FAST,), reference=f"{LESSON}.linear_cross_entropy_reference",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
GRADIENTS = {"X": "LCE-X", "W": "LCE-W", "d": "LCE-b"}
CAPPED = {"X": "LCE-capped-X", "W": "LCE-capped-W", "d": "LCE-capped-b"}


def batch(m, V):
    """Of each three rows the second is ignored."""
    valid = torch.arange(m) % 3 != 1
    return {"Y": torch.nn.functional.one_hot(torch.arange(m) * 5 % V, V) * valid[:, None], "v": valid.float()}


def counted(m, V):
    """The same, divided by the number of valid rows, which is counted."""
    values = batch(m, V)
    return {**values, "n": values["v"].sum()}


def labels(Y, v, ignored=-100):
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
    # The same pieces: a product of another width may be rounded otherwise, and around ±10⁴ exceed its row's maximum.
    dx, dweight, dbias = module.linear_cross_entropy_backward(dloss, *saved, COLUMNS=20, BLOCK_N=16)
    return loss, {"X": dx, "W": dweight, "d": dbias}


def with_upstream_of_one(m, V):
    return {**counted(m, V), "nabla_ell": 1.0}


@case(modules=FAST, values=with_upstream_of_one, **IN_PARTS)
def kept_in_part(module, X, W, d, Y, v):
    loss, (dx, dweight, dbias) = module.linear_cross_entropy_forward(
        X, W, labels(Y, v), d, KEPT=0.2, STEP=8, BLOCK=16, num_warps=1
    )
    return loss, {"X": dx, "W": dweight, "d": dbias}


# ---------------------------------------------------------------- what is measured
# A training step must read x, weight and labels, write both gradients, and form three products.
def cost(shape, dtype):
    rows, hidden, vocab = shape
    inputs = (rows + vocab) * hidden * dtype.itemsize
    both = dict(bytes_read=inputs + 8 * rows, bytes_written=inputs + 4 * rows, operations=6 * rows * hidden * vocab)
    return {"forward": both, "backward": both, "forward+backward": both}


# What is left of an example when scratch is taken off: the products are PyTorch's, and what a kernel stores is read
# again, by itself for the next piece or by a product. Forward reads the logits of the widest piece and a label for each
# row; backward labels, two numbers of each row, the number of items and the upstream gradient.
def lesson_cost(rows, widest):
    forward = dict(bytes_read=rows * (4 * widest + 8), bytes_written=0, operations=5 * rows * widest)
    return {"forward": forward, "backward": dict(bytes_read=16 * rows + 12, bytes_written=0, operations=4 * rows)}


def fast_cost(rows):
    return {"forward": dict(bytes_read=8 * rows, bytes_written=0, operations=0)}


def inputs(shape, dtype, device):
    rows, hidden, vocab = shape
    return dict(
        x=torch.randn(rows, hidden, dtype=dtype, device=device),
        weight=torch.randn(vocab, hidden, dtype=dtype, device=device) / hidden**0.5,
        labels=torch.randint(vocab, (rows,), device=device),
    )


def lean_form(function):
    from annotated_examples.fast.linear_cross_entropy import linear_cross_entropy_lean

    return linear_cross_entropy_lean if function.__module__.endswith(FAST) else function


def liger():
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    return lambda x, weight, labels: LigerFusedLinearCrossEntropyFunction.apply(x, weight, labels)[0]


EXAMPLES = {
    LESSON: lesson_cost(3, 8),
    FAST: fast_cost(3),
}
BENCH = dict(
    shapes=[(8192, 4096, 128256), (8192, 2048, 32000), (4096, 2048, 50257), (2048, 4096, 151936)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x, weight, labels: F.cross_entropy(F.linear(x, weight), labels),
    peers={"liger-kernel": liger},
    passes=["forward+backward"],
    differentiable=["x", "weight"],
    variants={"": {}, "lean": dict(call=lean_form)},
)
