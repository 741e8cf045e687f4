"""# A gradient test that can fail

Four kernels should compute the gradient of log-softmax: `dx = dy - exp(y) · sum(dy)`, with the sum over the row.
Three of them are broken: one leaves out the sum, one lets its masked lanes count as 1 in it, one takes the rows of
`dy` to lie side by side. Write `inputs()`, which returns one pair of matrices `(dy, y)` for which all three broken
kernels give a wrong result. The starter's upstream gradient is what `y.mean().backward()` would bring.
"""

# %% solution
from academy.runtime import device

import torch


def inputs():
    # <<<
    y = torch.log_softmax(torch.arange(6.0, device=device.DEVICE).view(2, 3), -1)
    wide = torch.arange(10.0, device=device.DEVICE).view(2, 5).square()
    return wide[:, :3], y
    # ===
    # y = torch.log_softmax(torch.arange(8.0, device=device.DEVICE).view(2, 4), -1)
    # return torch.full((2, 4), 0.125, device=device.DEVICE), y
    # >>>


# %% checks
import triton
import triton.language as tl

PAGE = "learn/own_operation.py"
KIND = "fill in"
ORDER = 5
HINTS = (
    "When are there masked lanes at all? A block has as many lanes as the smallest power of two that holds the row.",
    "When do the rows of a matrix not lie side by side? Cut it out of a wider one, or show one row several times.",
    "If the rows of `dy` were all equal, would the wrong row show?",
)
WHY = """Random numbers in a matrix cut out of a wider one, with an odd width, find all three. So does `expand`, which
is how `.sum()` brings its gradient, as long as the rows aren't equal in memory."""


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, N, stride_dym, stride_ym, OTHER: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    dy = tl.load(dy_ptr + row * stride_dym + columns, mask=mask, other=OTHER)
    y = tl.load(y_ptr + row * stride_ym + columns, mask=mask, other=0.0)
    dx = dy
    if SUM:
        dx = dy - tl.exp(y) * tl.sum(dy, axis=0)
    tl.store(dx_ptr + row * N + columns, dx, mask=mask)


def gradient(dy, y, OTHER=0.0, SUM=True):
    out = torch.empty(y.shape, device=y.device)
    blocks = dict(OTHER=OTHER, SUM=SUM, BLOCK=triton.next_power_of_2(y.shape[1]))
    backward_kernel[(len(y),)](dy, y, out, y.shape[1], dy.stride(0), y.stride(0), **blocks)
    return out


def check(t):
    given = t.call("inputs")
    t.cases += 1
    right = isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(x, torch.Tensor) for x in given)
    t.require(right and all(x.dim() == 2 and x.numel() for x in given), "inputs() has to return two matrices: dy, y")
    dy, y = given
    t.require(dy.shape == y.shape, "dy and y have the same shape")
    t.require(dy.dtype == torch.float32 and y.dtype == torch.float32, "use float32")
    t.require(dy.stride(1) == 1 and y.stride(1) == 1, "the columns of both have to lie side by side")
    t.require(bool(torch.isfinite(dy).all() and torch.isfinite(y).all()), "use finite numbers")
    sums = torch.exp(y).sum(1)
    t.require(bool((sums - 1).abs().amax() < 1e-5), "the exponentials of a row of y have to add up to 1")
    wanted = dy.double() - torch.exp(y.double()) * dy.double().sum(1, keepdim=True)

    def wrong(dx):
        return not (dx.double() - wanted).abs().amax() <= 1e-3 * (1 + wanted.abs().amax())

    t.require(not wrong(gradient(dy, y)), "the right kernel fails, too: use numbers of moderate size")
    for broken, dx in (
        ("the sum is left out", gradient(dy, y, SUM=False)),
        ("masked lanes count as 1", gradient(dy, y, OTHER=1.0)),
        ("rows are taken to lie side by side", gradient(_side_by_side(dy), y)),
    ):
        t.require(wrong(dx), f"with these matrices the kernel in which {broken} is right in every row", broken)


def _side_by_side(dy):
    """What a kernel reads that takes the rows of dy to lie side by side; NaN past its last element."""
    M, N = dy.shape
    read = torch.full((M * N,), float("nan"), device=dy.device)
    there = dy.as_strided((min(M * N, (M - 1) * dy.stride(0) + N),), (1,))
    read[: len(there)] = there
    return read.view(M, N)


WRONG = (
    ("masked lanes count as 1: with these matrices the kernel in which masked lanes count as 1 is right",),
    (
        "the sum is left out: with these matrices",
        "wide = torch.arange(10.0, device=device.DEVICE).view(2, 5).square()",
        "wide = torch.tensor([[1.0, 2, -3, 9, 9], [3, -1, -2, 9, 9]], device=device.DEVICE)",
    ),
    (
        "rows are taken to lie side by side: with these matrices",
        "return wide[:, :3], y",
        "return wide[:, :3].contiguous(), y",
    ),
    (
        "the exponentials of a row of y have to add up to 1",
        "torch.log_softmax(torch.arange(6.0, device=device.DEVICE).view(2, 3), -1)",
        "torch.arange(6.0, device=device.DEVICE).view(2, 3)",
    ),
    (
        "dy and y have the same shape",
        "return wide[:, :3], y",
        "return wide, y",
    ),
)
RIGHT = (
    (
        "return wide[:, :3], y",
        "return wide[:, 1:4], y",
    ),
    ("y = torch.log_softmax(torch.arange(15.0, device=device.DEVICE).view(3, 5), -1)\n"
     "memory = torch.arange(21.0, device=device.DEVICE).view(3, 7)\nreturn memory[:, :5], y",),
)  # fmt: skip
