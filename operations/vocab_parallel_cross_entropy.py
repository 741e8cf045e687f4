"""The vocabulary-parallel cross entropy: what is compared with formulas, and what is measured.

The ranks are a list in one process: each makes its numbers, and the stack of them is what the gather would bring.

One rank's kernels, on one card.

What a gather between cards costs is not in these numbers: a machine with several cards is needed for that.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.cross_entropy import CAPS, EACH, LOGITS, USUAL
from operations.linear_cross_entropy import HIDDEN

LESSON = "distributed.vocab_parallel_cross_entropy"
FAST = None
FUNCTION = "vocab_parallel_cross_entropy"
AXES = ("rows", "columns of a rank")
DERIVATION = "vocab_parallel_cross_entropy"

# ---------------------------------------------------------------- public functions
SMOOTHED = dict(label_smoothing=0.1, z_loss=0.01)
PUBLIC = [
    Public(
        "vocab_parallel_cross_entropy", LOGITS | CAPS | SMOOTHED, at=(6, 1000),
        calls=[USUAL, USUAL | SMOOTHED | dict(logit_softcapping=30.0)],
        more=[EACH | dict(reduction="none", logit_scaling=0.5, ignore_index=3), USUAL | dict(n_items=4)],
    ),
    Public(
        "vocab_parallel_linear_cross_entropy", HIDDEN, at=(6, 64, 1000), calls=[USUAL], more=[USUAL | SMOOTHED],
        reference="classics.linear_cross_entropy.linear_cross_entropy_reference",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas


def shards(module, R, n):
    return [module.Shard(rank * n, n, R * n) for rank in range(R)]


def ones(Z):
    return torch.ones(len(Z))


def reference_of_rows(module, Z, d, c, n, varepsilon, zeta):
    options = dict(label_smoothing=varepsilon, z_loss=zeta, reduction="none")
    return module.vocab_parallel_cross_entropy_reference(Z.flatten(-2), d * n + c, **options)


MERGED = dict(
    modules=LESSON,
    returns="VP-merged",
    gradients={"Z": "VP-X"},
    rows=("Z", "d", "c", "nabla_ell"),
    pytorch=reference_of_rows,
)


@case(**MERGED, sizes={"R": 3, "n": 21})
def ranks_as_a_list(module, Z, d, c, varepsilon, zeta, R, n, nabla_ell):
    labels, cut = d * n + c, shards(module, R, n)
    smoothing = float(varepsilon)
    stats = [module.shard_statistics(Z[:, r], labels, cut[r], smoothing, BLOCK_N=8) for r in range(R)]
    losses, *saved = module.merge_shards(torch.stack(stats), labels, R * n, float(zeta), BLOCK_M=2)
    options = dict(smoothing=smoothing, z_loss=float(zeta), BLOCK_N=8)
    gradients = [module.shard_backward(nabla_ell, Z[:, r], labels, *saved, cut[r], **options) for r in range(R)]
    return losses, {"Z": torch.stack(gradients, 1)}


@case(**MERGED)
def one_rank(module, Z, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=float(varepsilon), z_loss=float(zeta), reduction="none")
    return module.vocab_parallel_cross_entropy(Z.flatten(-2), d * n + c, **options)


def ones_of_x(x):
    return ones(x)


LAYER = {"x": "VP-input", "W": "VP-W"}


@case(modules=LESSON, returns="VP-linear", gradients=LAYER, rows=("x", "d", "c"), upstream=ones_of_x)
def with_the_layer_before(module, x, W, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=float(varepsilon), z_loss=float(zeta), reduction="none")
    return module.vocab_parallel_linear_cross_entropy(x, W.flatten(0, 1), d * n + c, **options)


@with_the_layer_before.pytorch
def _(module, x, W, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=varepsilon, z_loss=zeta, reduction="none")
    return module.vocab_parallel_cross_entropy_reference(x @ W.flatten(0, 1).T, d * n + c, **options)


@case(
    modules=LESSON,
    returns=("VP-m", "VP-s", "VP-a", "VP-b"),
    forward_only=True,
    sizes={"R": 2, "n": 13},
    pytorch=None,
    dtypes=("float32",),
)
def what_a_rank_sends(module, Z, d, c, varepsilon, R, n):
    labels = (d * n + c)[None]
    cut = shards(module, R, n)
    stats = [module.shard_statistics(Z[r][None], labels, cut[r], float(varepsilon), BLOCK_N=8) for r in range(R)]
    return torch.cat(stats).unbind(-1)


@what_a_rank_sends.pytorch
def _(Z, d, c, varepsilon, R, n):
    at_label = torch.zeros_like(Z)
    at_label[d, c] = 1
    target = (1 - varepsilon) * at_label + varepsilon / (R * n)
    largest = Z.amax(1, keepdim=True)
    return largest[:, 0], (Z - largest).exp().sum(1), (target * (Z - largest)).sum(1), target.sum(1)


# ---------------------------------------------------------------- what is measured
# The logits are read by both passes. Four numbers a row are written, gathered and read.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=4 * rows, operations=5 * logits),
        "backward": dict(bytes_read=size + 20 * rows, bytes_written=size, operations=4 * logits),
        "forward+backward": dict(bytes_read=size, bytes_written=size, operations=9 * logits),
    }


# The recording counts the first call of each direction: those of rank 0, which has 4 of the 11 columns.
def example(rows, columns):
    size = rows * columns * 4
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=16 * rows, operations=5 * rows * columns),
        "backward": dict(bytes_read=size + 20 * rows, bytes_written=size, operations=4 * rows * columns),
    }


def inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        labels=torch.randint(shape[-1], shape[:-1], device=device),
    )


EXAMPLES = {LESSON: example(3, 4)}
BENCH = dict(
    shapes=[(8192, 16032), (8192, 128256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    passes=["forward+backward"],
    differentiable=["logits"],
)
