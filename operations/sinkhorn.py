"""Sinkhorn's rounds: what is compared with formulas, and what is measured.

`shape` is (tokens, streams, streams).
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "model.sinkhorn"
FAST = None
FUNCTION = "sinkhorn"
AXES = ("tokens", "streams", "streams")
DERIVATION = "hyper_connections"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "sinkhorn", {"logits": "tokens streams streams", "iterations": (20, 1, 3)}, at=(37, 4),
        sizes={"streams": (1, 3, 4, 7, 8)}, batch={"tokens": ""}, calls=[{}, dict(iterations=5)],
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def near_zero(Z):
    """The printed exponentials have nothing subtracted. (The judge tries logits of 10⁴, with the reference.)"""
    return {"Z": Z - 4 * torch.round(Z / 4)}


WHOLE = dict(modules=LESSON, rows=("Z", "nabla_H"), returns="HC-H", gradients={"Z": "HC-Z"}, values=near_zero)


@case(**WHOLE, sizes={"n": 4})
def sinkhorn(module, Z, T):
    return module.sinkhorn(Z, T)


with_lanes_to_spare = sinkhorn.again(sizes={"n": 3})


@case(**WHOLE, sizes={"n": 3, "rows": 5})
def in_small_blocks(module, Z, T, nabla_H):
    """Three programs, the last of them with one matrix."""
    h, rows = module.sinkhorn_forward(Z, T, keep_rows=True, BLOCK_M=2)
    return h, {"Z": module.sinkhorn_backward(nabla_H, Z, h, rows, BLOCK_M=2)}


@in_small_blocks.pytorch
def _(module, Z, T):
    return module.sinkhorn_reference(Z, T)


@sinkhorn.upstream
@with_lanes_to_spare.upstream
@in_small_blocks.upstream
def _(nabla_H):
    return nabla_H


@case(
    modules=LESSON,
    rows=("Z",),
    returns="HC-r",
    values=near_zero,
    sizes={"n": 3},
    dtypes=("float32",),
    forward_only=True,
)
def rounds_begin_with(module, Z, T):
    """The formula has one more: what the last round leaves."""
    rows = module.sinkhorn_forward(Z, T + 1, keep_rows=True)[1]
    return rows.transpose(0, 1)


@rounds_begin_with.pytorch
def _(Z, T):
    r, seen = torch.zeros_like(Z[..., 0]), []
    for _ in range(T + 1):
        seen.append(r)
        r = torch.logsumexp(Z - torch.logsumexp(Z - r[..., None], -2, keepdim=True), -1)
    return torch.stack(seen, 1)


# ---------------------------------------------------------------- what is measured
ROUNDS = 20


# Each round multiplies and adds for each entry, twice, and divides for each row and column. For backward forward also
# writes what each round began with; that isn't counted.
def cost(shape, dtype, rounds=ROUNDS):
    matrices, n, _ = shape
    entries = matrices * n * n
    saved = 4 * rounds * matrices * n
    return {
        "forward": dict(
            bytes_read=entries * dtype.itemsize, bytes_written=4 * entries, operations=rounds * 2 * 3 * entries
        ),
        "backward": dict(
            bytes_read=entries * (dtype.itemsize + 8) + saved, bytes_written=entries * dtype.itemsize,
            operations=rounds * 12 * entries,
        ),
    }  # fmt: skip


def inputs(shape, dtype, device):
    return dict(logits=torch.randn(shape, dtype=dtype, device=device))


def eager(logits):
    from annotated_examples.model.sinkhorn import sinkhorn_reference

    return sinkhorn_reference(logits)


def example():
    costs = cost((3, 3, 3), torch.float32, rounds=2)
    costs["forward"]["bytes_written"] += 4 * 2 * 3 * 3
    return costs


EXAMPLES = {LESSON: example()}
BENCH = dict(
    shapes=[(8192, 4, 4), (65536, 4, 4)],
    dtypes=[torch.float32],
    inputs=inputs,
    eager=eager,
    passes=["forward", "backward"],
    differentiable=["logits"],
)
