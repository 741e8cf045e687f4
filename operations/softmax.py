"""Softmax: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "tutorials.softmax"
FAST = "fast.softmax"
FUNCTION = "softmax"
AXES = ("rows", "columns")
DERIVATION = "softmax"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("softmax", {"x": "rows cols"}, at=(6, 1000), batch={"rows": ""})]

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
ROWS = ("x", "nabla_y")


@case(modules=BOTH, returns="SM", gradients={"x": "SM-x"}, rows=ROWS)
def softmax(module, x):
    return module.softmax(x)


@case(modules=BOTH, returns="SM-shift", gradients={"x": "SM-x"}, rows=ROWS, stable={"SM-shift": "SM"})
def shifted(module, x):
    return module.softmax(x)


def greatest(A, B):
    """The number that is subtracted from both pieces."""
    return {"s": torch.maximum(A.max(), B.max())}


@case(modules=BOTH, returns="SM-online", values=greatest, sizes={"p": 16, "q": 9}, forward_only=True)
def in_two_pieces(module, A, B):
    return 1 / module.softmax_forward(torch.cat([A, B])[None], BLOCK_N=16).max()


@in_two_pieces.pytorch
def _(A, B, s):
    return torch.exp(A - s).sum() + torch.exp(B - s).sum()


@case(modules=FAST, returns="SM", gradients={"x": "SM-x"}, rows=ROWS)
def two_rows_in_a_block(module, x, nabla_y):
    y = module.softmax_forward(x, BLOCK_M=2, BLOCK_N=64)
    return y, {"x": module.softmax_backward(nabla_y, y, BLOCK_M=2, BLOCK_N=64)}


@case(modules=BOTH, returns="SM", gradients={"x": "SM-x"}, rows=ROWS)
def in_chunks(module, x, nabla_y):
    y = module.softmax_forward(x, BLOCK_N=16)
    return y, {"x": module.softmax_backward(nabla_y, y, BLOCK_N=16)}


@two_rows_in_a_block.pytorch
@in_chunks.pytorch
def _(x):
    return torch.softmax(x, -1)


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    numel = torch.Size(shape).numel()
    size = dtype.itemsize
    return {
        "forward": dict(bytes_read=numel * size, bytes_written=numel * size, operations=5 * numel),
        "backward": dict(bytes_read=2 * numel * size, bytes_written=numel * size, operations=4 * numel),
    }


def inputs(shape, dtype, device):
    return dict(x=torch.randn(*shape, dtype=dtype, device=device))


def liger():
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda x: LigerSoftmaxFunction.apply(x)


def quack():
    from quack.softmax import softmax

    return lambda x: softmax(x)


EXAMPLES = {
    LESSON: cost((3, 6), torch.float32),
    FAST: cost((3, 6), torch.float32),
}
BENCH = dict(
    shapes=[(8192, 32000), (32768, 4096)]
    + [(16384, N) for N in (768, 1000, 1536, 2880, 4097, 5120, 8192, 12288, 16384, 18432)]
    + [(4096, vocabulary) for vocabulary in (50257, 50304, 128256, 151936, 201088)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x: torch.softmax(x, dim=-1),
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward", "backward"],
    differentiable=["x"],
)
