"""# One number, shown many times

`gradient(dy)` is the backward pass of `y = 3 * x`. With `loss = y.sum()` its result is wrong; with a fresh upstream
gradient it is right. Find the bug. (`.sum().backward()` passes one number, expanded to all elements: `one.expand(6)`.)
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(dy_ptr, dx_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(dx_ptr + offsets, factor * dy, mask=offsets < n)


def gradient(dy):
    dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    # <<<
    rows = dy.contiguous()
    # ===
    # rows = dy
    # >>>
    scale_kernel[(1,)](rows, dx, 3.0, dy.numel(), BLOCK=triton.next_power_of_2(dy.numel()))
    return dx


# %% checks
PAGE = "kernels/classics/layernorm.md"
KIND = "find the bug"
ORDER = 8
HINTS = (
    "What is the stride of `one.expand(6)`? Which stride does the kernel expect?",
    "`dy.contiguous()` is a copy whose elements lie side by side, or `dy` itself if they do already.",
)
WHY = """Every stride of such a gradient is 0: it has one element of memory. It is an exhibit of the [museum of
bugs](../../docs/guides/debugging.md#14-one-number-shown-many-times)."""


def check(t):
    def want(dy):
        return 3 * dy

    n = t.random.randint(7, 12)
    for case, dy in (
        ("a fresh gradient", t.values(6)),
        ("one number, shown 6 times", t.values(1).expand(6)),
        ("a transposed gradient", t.turned(2, 3)),
        ("rows cut out of wider ones", t.cut(2, 3)),
        ("40 x 33", t.values(40, 33)),
        ("one row, shown 20 times", t.values(1, 7).expand(20, 7)),
        ("every second number", t.values(2 * n)[::2]),
        (f"one column, shown {n} times", t.values(3, 1).expand(3, n)),
    ):
        t.compare(case, "gradient", want, dy, name="dx", host=("copies",))


WRONG = (
    (
        "rows cut out of wider ones: ",
        "rows = dy if dy.stride(-1) == 1 else dy.contiguous()",
    ),
    (
        "PyTorch computes the result",
        "    return dx",
        "    return 3 * dy",
    ),
    ("one number, shown 6 times: program 0 of scale_kernel does a load outside a tensor: element 1 of dy_ptr",),
    (
        "a transposed gradient: dx[0, 1] is",
        "rows = dy if dy.stride(0) else dy.contiguous()",
    ),
    (
        "one number, shown 6 times: program 0 of scale_kernel does a load outside a tensor",
        "rows = dy.detach()",
    ),
    (
        "a fresh gradient: dx[0] is",
        "rows = torch.ones_like(dy)",
    ),
    (
        "a transposed gradient: dx[0, 1] is",
        "rows = dy.clone()",
    ),
    (
        "one number, shown 6 times: program 0 of scale_kernel does a load outside a tensor",
        "rows = dy.reshape(-1)",
    ),
)
RIGHT = (
    ("rows = dy if dy.is_contiguous() else dy.contiguous()",),
    ("rows = dy.reshape(-1).contiguous()",),
)
