"""The running sum: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "recurrences.cumsum"
FAST = "fast.cumsum"
FUNCTION = "cumsum"
AXES = ("rows", "columns")
DERIVATION = "cumsum"

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "cumsum", {"x": "rows cols", "dim": (-1, 0), "reverse": (False, True), "exclusive": (False, True)},
        at=(6, 1000), calls=[{}, dict(inputs={"x": "2 9000 2"}, dim=1, reverse=True, exclusive=True)],
        batch={"rows": {FAST: "long rows are cut into parts where there are few of them, and summed part by part"}},
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)


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


@case(modules=FAST, returns="CS", gradients={"x": "CS-dx"}, rows=("x", "nabla_y"))
def in_parts(module, x, nabla_y):
    size = dict(BLOCK_M=1, BLOCK_N=16, parts=2)
    return module.cumsum_forward(x, **size), {"x": module.cumsum_backward(nabla_y, **size)}


@in_parts.pytorch
def _(x):
    from annotated_examples.recurrences.cumsum import cumsum_reference

    return cumsum_reference(x)


# ---------------------------------------------------------------- what is measured
# Every element is read once and written once; a scan of a chunk takes about ten rounds.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    each = dict(bytes_read=n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=10 * n)
    return {"forward": each, "backward": each}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def eager(x):
    return torch.cumsum(x, -1)


EXAMPLES = {LESSON: cost((2, 6), torch.float32), FAST: cost((1, 11), torch.float32)}
BENCH = dict(
    shapes=[(4096, 16384), (65536, 128), (8192, 32000), (1, 1 << 26)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward", "backward"],
    differentiable=["x"],
)
