"""The vocabulary-parallel entropy: what is compared with formulas, and what is measured.

One rank's kernels, on one card.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.vocab_parallel_cross_entropy import ones, shards

LESSON = "distributed.vocab_parallel_entropy"
FAST = None
FUNCTION = "vocab_parallel_entropy"
AXES = ("rows", "columns of a rank")
DERIVATION = "vocab_parallel_cross_entropy"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "vocab_parallel_entropy", {"logits": "batch 3 classes"}, at=(2, 1000), more=[dict(logit_scaling=0.5)],
        dtypes=("float32",),
        without={"magnitudes": "where one logit towers above all, PyTorch's gradient is float64's rounding, or 0"},
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas


def undecided(Z):
    """Where one logit towers above all others, the gradient is 0, and what PyTorch has of it in float64 is rounding."""
    return {"Z": Z / 1000} if Z.max() - Z.min() > 1000 else {}


GRADIENT = {"Z": "VP-H-Z"}


@case(
    modules=LESSON,
    returns="VP-H",
    gradients=GRADIENT,
    rows="Z",
    upstream=ones,
    values=undecided,
    sizes={"R": 3, "n": 21},
)
def entropy_over_a_list(module, Z, R, n):
    cut = shards(module, R, n)
    stats = [module.shard_moments(Z[:, r], cut[r], BLOCK_N=8) for r in range(R)]
    entropies, *saved = module.merge_moments(torch.stack(stats), BLOCK_M=2)
    upstream = torch.ones_like(entropies)
    gradients = [module.entropy_backward(upstream, Z[:, r], *saved, cut[r], BLOCK_N=8) for r in range(R)]
    return entropies, {"Z": torch.stack(gradients, 1)}


@entropy_over_a_list.pytorch
def _(module, Z):
    return module.vocab_parallel_entropy_reference(Z.flatten(-2))


@case(modules=LESSON, returns="VP-H", gradients=GRADIENT, rows="Z", upstream=ones, values=undecided)
def entropy_of_one_rank(module, Z):
    return module.vocab_parallel_entropy(Z.flatten(-2))


@entropy_of_one_rank.pytorch
def _(module, Z):
    return module.vocab_parallel_entropy_reference(Z.flatten(-2))


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size, bytes_written=4 * rows, operations=7 * logits),
        "backward": dict(bytes_read=size + 16 * rows, bytes_written=size, operations=6 * logits),
        "forward+backward": dict(bytes_read=size, bytes_written=size, operations=13 * logits),
    }


# The recording counts the first call of each direction: those of rank 0, which has 4 of the 11 columns.
def example(rows, columns):
    size = rows * columns * 4
    return {
        "forward": dict(bytes_read=size, bytes_written=12 * rows, operations=7 * rows * columns),
        "backward": dict(bytes_read=size + 16 * rows, bytes_written=size, operations=6 * rows * columns),
    }


def inputs(shape, dtype, device):
    return {"logits": torch.randn(shape, dtype=dtype, device=device)}


def eager(logits):
    log_p = torch.log_softmax(logits, -1, dtype=torch.float32)
    return -(log_p.exp() * log_p).sum(-1)


EXAMPLES = {LESSON: example(2, 4)}
BENCH = dict(
    shapes=[(8192, 16032), (8192, 128256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward+backward"],
    differentiable=["logits"],
)
