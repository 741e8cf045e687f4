"""Which calls of the softmax kernels are compared with the formulas of backprop_math/softmax.md."""

from academy.formulas.cases import case

BOTH = ("tutorials.softmax", "fast.softmax")
ROWS = ("x", "nabla_y")


@case(modules=BOTH, returns="SM", gradients={"x": "SM-x"}, rows=ROWS)
def softmax(module, x):
    return module.softmax(x)


@case(modules=BOTH, returns="SM-shift", gradients={"x": "SM-x"}, rows=ROWS, stable={"SM-shift": "SM"})
def shifted(module, x):
    return module.softmax(x)


def greatest(A, B):
    """The number that is subtracted from both pieces."""
    import torch

    return {"s": torch.maximum(A.max(), B.max())}


@case(modules=BOTH, returns="SM-online", values=greatest, sizes={"p": 16, "q": 9}, forward_only=True)
def in_two_pieces(module, A, B):
    import torch

    return 1 / module.softmax_forward(torch.cat([A, B])[None], BLOCK_N=16).max()


@in_two_pieces.pytorch
def _(A, B, s):
    import torch

    return torch.exp(A - s).sum() + torch.exp(B - s).sum()


@case(modules="fast.softmax", returns="SM", gradients={"x": "SM-x"}, rows=ROWS)
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
    import torch

    return torch.softmax(x, -1)
