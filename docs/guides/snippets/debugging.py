"""A test of a kernel of one's own, whole: for the guide "Debugging"."""

# --8<-- [start:test]
from academy.judge import accuracy
from academy.runtime import device

import torch

from annotated_examples.tutorials.softmax import softmax as mine  # put your function here


def pytorch(x):  # the same operation in PyTorch
    return torch.softmax(x, dim=-1)


def gradient(function, x, dy):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, dy)[0]


def views(x):
    """The same numbers as a slice of wider rows, with NaN between them, and as the transpose of another matrix."""
    wide = torch.full((x.shape[0], x.shape[1] + 5), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, : x.shape[1]] = x
    return {"contiguous": x, "sliced": wide[:, : x.shape[1]], "transposed": x.T.contiguous().T}


def test(x):
    dy = torch.randn_like(x)  # random: the gradient of `y.sum()` is zero here, and any small numbers would pass
    exact, exact_dx = pytorch(x.double()), gradient(pytorch, x.double(), dy.double())
    theirs, their_dx = pytorch(x), gradient(pytorch, x, dy)
    for (name, x_view), dy_view in zip(views(x).items(), views(dy).values()):
        accuracy.check(f"y, {name}", mine(x_view), theirs, exact)
        accuracy.check(f"dx, {name}", gradient(mine, x_view, dy_view), their_dx, exact_dx)


torch.manual_seed(0)
for shape in ((1, 1), (3, 5), (2, 64), (5, 127), (2, 5000)):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(shape, device=device.DEVICE).to(dtype)
        for values in (x, x - 100, 300 * x):
            test(values)
    print(shape, "right")
# → (1, 1) right
# → (3, 5) right
# → (2, 64) right
# → (5, 127) right
# → (2, 5000) right
# --8<-- [end:test]
