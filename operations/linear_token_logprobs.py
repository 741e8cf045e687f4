"""Token log-probabilities from hidden states: what is compared with formulas, and what is measured.

`shape` is (rows, hidden, vocab).
"""

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.token_logprobs import ALL, EACH, ONE_TOWERS, USUAL, one_ignored
from operations.token_logprobs import eager as from_logits

LESSON = "classics.linear_token_logprobs"
FAST = None
FUNCTION = "linear_token_logprobs"
AXES = ("rows", "hidden", "vocabulary")
DERIVATION = "linear_token_logprobs"

# ---------------------------------------------------------------- public functions
HIDDEN = {"x": "rows width", "weight": "classes width", "tokens": "rows: int64 below classes", "bias": "classes"}
PUBLIC = [
    Public(
        "linear_token_logprobs", HIDDEN | {"temperature": (1.0, 0.7)}, at=(6, 64, 1000),
        calls=[dict(inputs={"tokens": one_ignored, "bias": None}), USUAL | dict(temperature=0.7)],
        more=[EACH | dict(temperature=2.0, ignore_index=3)], without=ONE_TOWERS,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
RESULTS = dict(
    modules=LESSON,
    returns=("LTL", "LTL-H"),
    gradients={"y": "LTL-y", "W": "LTL-W", "d": "LTL-b"},
    rows=("y", "c", "nabla_ell", "nabla_H"),
)


@case(**RESULTS, dtypes=ALL)
def all_gradients(module, y, W, c, d, tau):
    return module.linear_token_logprobs(y, W, c, d, temperature=tau)


@case(**RESULTS, sizes={"V": 77})
def in_pieces(module, y, W, c, d, tau, nabla_ell, nabla_H):
    logprobs, entropies, state = module.linear_token_logprobs_forward(y, W, c, d, tau, COLUMNS=20, BLOCK_N=8)
    # The same pieces: a product of another width may be rounded otherwise, and exceed its row's maximum.
    upstream = nabla_ell, nabla_H
    dx, dweight, dbias = module.linear_token_logprobs_backward(
        *upstream, y, W, c, d, state, tau, COLUMNS=20, BLOCK_N=16
    )
    return (logprobs, entropies), {"y": dx, "W": dweight, "d": dbias}


@in_pieces.pytorch
def _(module, y, W, c, d, tau):
    return module.linear_token_logprobs_reference(y, W, c, d, temperature=tau)


# ---------------------------------------------------------------- what is measured
# Forward must form one product; a training step must read x, weight and tokens, write both gradients, and form three.
def cost(shape, dtype):
    rows, hidden, vocab = shape
    inputs, product = (rows + vocab) * hidden * dtype.itemsize, 2 * rows * hidden * vocab
    forward = dict(bytes_read=inputs + 8 * rows, bytes_written=8 * rows, operations=product)
    both = dict(bytes_read=inputs + 8 * rows, bytes_written=inputs + 8 * rows, operations=3 * product)
    return {"forward": forward, "backward": both, "forward+backward": both}


# What is left of an example when scratch is taken off: the products are PyTorch's, and what a kernel stores is read
# again, by itself for the next piece or by a product. Forward reads the logits of the widest piece, of the rows that
# count, and a token for each row.
def lesson_cost(rows, ignored, widest):
    counted = 4 * (rows - ignored) * widest
    return {
        "forward": dict(bytes_read=counted + 8 * rows, bytes_written=8 * rows, operations=8 * rows * widest),
        "backward": dict(bytes_read=28 * rows, bytes_written=0, operations=9 * rows),
    }


def inputs(shape, dtype, device):
    rows, hidden, vocab = shape
    return dict(
        x=torch.randn(rows, hidden, dtype=dtype, device=device),
        weight=torch.randn(vocab, hidden, dtype=dtype, device=device) / hidden**0.5,
        tokens=torch.randint(vocab, (rows,), device=device),
    )


# It returns the negative log-probability.
def liger():
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction as Scaled

    def call(x, weight, tokens):
        losses, entropies = Scaled.apply(x, weight, tokens, 1.0, -100, 1, True)
        return -losses, entropies

    return call


EXAMPLES = {LESSON: lesson_cost(3, 1, 8)}
BENCH = dict(
    shapes=[(8192, 4096, 151936), (8192, 2048, 32000), (2048, 4096, 128256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x, weight, tokens: from_logits(F.linear(x, weight), tokens),
    peers={"liger-kernel": liger},
    passes=["forward", "forward+backward"],
    differentiable=["x", "weight"],
)
