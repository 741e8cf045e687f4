"""# The recycled gradient

`gradient(dy)` is the backward pass of `y = 3 * x`. Alone it passes its gradient check. In a residual block,
`f(x) + x`, the gradient is wrong, because the other branch needed `dy` as well. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, factor * x, mask=offsets < n)


def gradient(dy):
    # <<<
    dx = torch.empty_like(dy)
    # ===
    # dx = dy
    # >>>
    scale_kernel[(1,)](dy, dx, 3.0, dy.numel(), BLOCK=triton.next_power_of_2(dy.numel()))
    return dx


# %% checks
PAGE = "kernels/classics/layernorm.md"
KIND = "find the bug"
ORDER = 9
HINTS = (
    "Which memory does the result lie in?",
    "Saving an allocation is not worth it here: another operation may still read the upstream gradient.",
)
WHY = """Compare inputs and upstream gradients before and after a call, and test inside a residual block. It is an
exhibit of the [museum of bugs](../../docs/guides/debugging.md#13-the-recycled-gradient)."""


def check(t):
    for n in (1, 6, t.random.randint(7, 20), *t.sizes(32)):
        t.compare(f"n = {n}", "gradient", lambda dy: 3 * dy, t.values(n), name="dx")


WRONG = (
    ("n = 1: gradient changes its argument 1: it[0] is",),
    (
        "n = 1: gradient changes its argument 1",
        "dx = dy.view(-1)",
    ),
    (
        "n = 1: dx[0] is",
        "dx = torch.empty_like(dy)",
        "dx = torch.empty_like(dy)",
        "return dx",
        "return dy.clone()",
    ),
    (
        "n = 1: gradient changes its argument 1",
        "dx, dy = dy, dy.clone()",
    ),
    (
        "n = 1: gradient changes its argument 1",
        "dx = dy.contiguous()",
    ),
)
RIGHT = (
    ("dx = dy.clone()",),
    ("dx = torch.zeros(dy.shape, dtype=dy.dtype, device=dy.device)",),
)
