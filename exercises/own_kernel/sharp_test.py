"""# A test that can fail

Three kernels should give the largest number of each row. Two of them are broken: one lets its masked lanes read 0, the
other ignores the row's stride. Write `inputs()`, which returns **one** matrix for which both broken kernels give a
wrong result.
"""

# %% solution
from academy.runtime import device

import torch


def inputs():
    # <<<
    wide = -torch.arange(1.0, 16.0, device=device.DEVICE).view(3, 5)
    return wide[:, :3]
    # ===
    # return torch.arange(8.0, device=device.DEVICE).view(2, 4)
    # >>>


# %% checks
import triton
import triton.language as tl

PAGE = "learn/your_own_kernel.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "When does a 0 that should not be there win a maximum? And when are there masked lanes at all?",
    "When is the stride of a row not its length?",
    "Negative numbers, a width that isn't a power of two, cut out of wider rows whose other numbers are "
    "larger or smaller.",
)
WHY = """A test is only worth something if it can fail: first find out which inputs expose each mistake. One input may
expose several."""


@triton.jit
def row_max_kernel(x_ptr, out_ptr, N, stride, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + columns, mask=columns < N, other=OTHER)
    tl.store(out_ptr + tl.program_id(0), tl.max(x, axis=0))


def row_max(x, OTHER=-float("inf"), stride=None):
    out = torch.empty(len(x), device=x.device)
    stride = x.stride(0) if stride is None else stride
    row_max_kernel[(len(x),)](x, out, x.shape[1], stride, OTHER=OTHER, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def check(t):
    x = t.call("inputs")
    t.cases += 1
    t.require(isinstance(x, torch.Tensor) and x.dim() == 2 and x.numel() > 0, "inputs() has to return a matrix")
    t.require(x.stride(1) == 1 and x.stride(0) >= x.shape[1], "the columns of the matrix have to lie side by side")
    t.require(x.dtype == torch.float32, "the right kernel fails, too: use float32, without NaN")
    wanted = x.amax(1)
    t.require(torch.equal(row_max(x), wanted), "the right kernel fails, too: use float32, without NaN")
    for broken, out in (
        ("masked lanes read 0", row_max(x, OTHER=0.0)),
        ("the stride is ignored", row_max(x, stride=x.shape[1])),
    ):
        t.require(
            not torch.equal(out, wanted), f"with this matrix the kernel in which {broken} is right in every row", broken
        )


WRONG = (
    ("masked lanes read 0: with this matrix the kernel in which masked lanes read 0 is right in every row",),
    (
        "the kernel in which the stride is ignored is right in every row",
        "return wide[:, :3]",
        "return wide[:, :3].contiguous()",
    ),
    (
        "the kernel in which masked lanes read 0 is right",
        "return wide[:, :3]",
        "return wide[:, :4]",
    ),
    (
        "the columns of the matrix have to lie side by side",
        "return wide[:, :3]",
        "return wide.T",
    ),
    (
        "inputs() has to return a matrix",
        "return wide[:, :3]",
        "return wide[0]",
    ),
    (
        "masked lanes read 0",
        "    wide = -torch.arange(1.0, 16.0, device=device.DEVICE).view(3, 5)",
        "    wide = -torch.arange(1.0, 16.0, device=device.DEVICE).view(3, 5)\n    wide[:, :3] += 100",
    ),
)
RIGHT = (
    ("return (-1.0 - torch.arange(12.0, device=device.DEVICE).view(2, 6))[:, 1:4]",),
    ("wide = torch.full((2, 4), -1.0, device=device.DEVICE)\nwide[0], wide[1] = -3.0, -5.0\nreturn wide[:, :3]",),
)
