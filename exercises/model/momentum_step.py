"""# A step of the optimizer

`step(weight, gradient, average, lr)` moves weights with momentum: the new average is `0.9 * average + gradient`,
and the new weight is `weight` minus `lr` times the new average. It returns both. Two kernels do that now, and the
second one reads the average again. Make it one kernel that reads each number once.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


# <<<
@triton.jit
def step_kernel(weight_ptr, gradient_ptr, average_ptr, new_weight_ptr, new_average_ptr, lr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gradient = tl.load(gradient_ptr + offsets, mask=mask, other=0.0)
    average = 0.9 * tl.load(average_ptr + offsets, mask=mask, other=0.0) + gradient
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0) - lr * average
    tl.store(new_average_ptr + offsets, average, mask=mask)
    tl.store(new_weight_ptr + offsets, weight, mask=mask)


def step(weight, gradient, average, lr, BLOCK=32):
    new_weight, new_average = torch.empty_like(weight), torch.empty_like(average)
    n = weight.numel()
    grid = (triton.cdiv(n, BLOCK),)
    step_kernel[grid](weight, gradient, average, new_weight, new_average, lr, n, BLOCK=BLOCK)
    return new_weight, new_average


# ===
# @triton.jit
# def average_kernel(gradient_ptr, average_ptr, new_average_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     gradient = tl.load(gradient_ptr + offsets, mask=mask, other=0.0)
#     average = 0.9 * tl.load(average_ptr + offsets, mask=mask, other=0.0) + gradient
#     tl.store(new_average_ptr + offsets, average, mask=mask)
#
#
# @triton.jit
# def weight_kernel(weight_ptr, average_ptr, new_weight_ptr, lr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     average = tl.load(average_ptr + offsets, mask=mask, other=0.0)
#     weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0) - lr * average
#     tl.store(new_weight_ptr + offsets, weight, mask=mask)
#
#
# def step(weight, gradient, average, lr, BLOCK=32):
#     new_weight, new_average = torch.empty_like(weight), torch.empty_like(average)
#     n = weight.numel()
#     grid = (triton.cdiv(n, BLOCK),)
#     average_kernel[grid](gradient, average, new_average, n, BLOCK=BLOCK)
#     weight_kernel[grid](weight, new_average, new_weight, lr, n, BLOCK=BLOCK)
#     return new_weight, new_average
# >>>


# %% checks
PAGE = "kernels/capstone/gpt.md"
KIND = "read fewer bytes"
ORDER = 6
HINTS = (
    "One kernel with three inputs and two outputs is enough.",
    "Keep the new average in a variable: store it, and use it for the weight.",
)
WHY = """24 bytes for each weight become 20, and one launch is saved for each tensor. AdamW has a second average, and
written operation by operation in PyTorch that is a dozen passes through memory: `fused=True`, as in the capstone, makes
it one kernel."""


def check(t):
    def want(weight, gradient, average, lr):
        average = 0.9 * average + gradient
        return weight - lr * average, average

    for n in (1, 50, *t.sizes(32)):
        inputs = (t.values(n) for _ in range(3))
        lr = t.random.choice((t.random.uniform(0.1, 0.9), t.random.uniform(1e-6, 1e-2), t.random.uniform(1, 9)))
        run = t.compare(f"n = {n}", "step", want, *inputs, lr, name="new_weight, new_average")
        t.traffic(f"n = {n}", run, read=12 * n, written=8 * n)


WRONG = (
    ("n = 1: 16 bytes are read, 12 are enough",),
    (
        "n = 1: new_average[0] was never written",
        "    tl.store(new_average_ptr + offsets, average, mask=mask)\n",
        "",
    ),
    (
        "n = 1: new_weight[0] is",
        "- lr * average",
        "- lr * gradient",
    ),
    (
        "n = 1: step changes its argument 1",
        "grid](weight, gradient, average, new_weight,",
        "grid](weight, gradient, average, weight,",
    ),
    (
        "n = 1: 16 bytes are read, 12 are enough (an element is 4 bytes): average_ptr[0] is loaded 2 times",
        "- lr * average",
        "- lr * (0.9 * tl.load(average_ptr + offsets, mask=mask, other=0.0) + gradient)",
    ),
)
RIGHT = (
    (
        "BLOCK=32",
        "BLOCK=8",
    ),
    (
        "    tl.store(new_average_ptr + offsets, average, mask=mask)\n",
        "",
        "    tl.store(new_weight_ptr + offsets, weight, mask=mask)\n",
        "    tl.store(new_weight_ptr + offsets, weight, mask=mask)\n"
        "    tl.store(new_average_ptr + offsets, average, mask=mask)\n",
    ),
)
