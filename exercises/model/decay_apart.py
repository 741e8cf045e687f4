"""# The W of AdamW

`step(weight, gradient, average, squares, lr, decay)` should make one step of AdamW: first the average of the gradients
and that of their squares, then `weight * (1 - lr * decay)` minus `lr` times the average divided by the root of the
other. But a weight with large gradients hardly decays. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def step_kernel(weight_ptr, gradient_ptr, average_ptr, squares_ptr, out_ptr, lr, decay, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    gradient = tl.load(gradient_ptr + offsets, mask=mask, other=0.0)
    average = tl.load(average_ptr + offsets, mask=mask, other=0.0)
    squares = tl.load(squares_ptr + offsets, mask=mask, other=0.0)
    # <<<
    average = 0.9 * average + 0.1 * gradient
    squares = 0.99 * squares + 0.01 * gradient * gradient
    weight = (1 - lr * decay) * weight - lr * average / (tl.sqrt(squares) + 1e-8)
    # ===
    # gradient += decay * weight
    # average = 0.9 * average + 0.1 * gradient
    # squares = 0.99 * squares + 0.01 * gradient * gradient
    # weight -= lr * average / (tl.sqrt(squares) + 1e-8)
    # >>>
    tl.store(out_ptr + offsets, weight, mask=mask)


def step(weight, gradient, average, squares, lr, decay, BLOCK=32):
    out, n = torch.empty_like(weight), weight.numel()
    grid = (triton.cdiv(n, BLOCK),)
    step_kernel[grid](weight, gradient, average, squares, out, lr, decay, n, BLOCK=BLOCK)
    return out


# %% checks
PAGE = "kernels/optimizers/adamw.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Which numbers does the decay go through, before it reaches the weight?",
    "What is added to the gradient is divided by the root of the squares, too. Decay the weight itself.",
)
WHY = """Added to the gradient, the decay is *L2 regularisation*. For plain SGD that comes to the same. Adam divides by
the root of the squares, so weights with large gradients would decay least. Loshchilov and Hutter took the decay out of
the gradient, and the W in AdamW stands for that."""


def check(t):
    def want(weight, gradient, average, squares, lr, decay):
        average = 0.9 * average + 0.1 * gradient
        squares = 0.99 * squares + 0.01 * gradient * gradient
        return (1 - lr * decay) * weight - lr * average / (squares.sqrt() + 1e-8)

    def other(decayed=lambda w, lr, decay: w, added=0.0, after=False):
        """`decayed`: what the decay leaves of a weight, before the step or `after` it; `added`: to the gradient."""

        def made(weight, gradient, average, squares, lr, decay):
            gradient = gradient + added * decay * weight
            average, squares = 0.9 * average + 0.1 * gradient, 0.99 * squares + 0.01 * gradient * gradient
            step = lr * average / (squares.sqrt() + 1e-8)
            return decayed(weight - step, lr, decay) if after else decayed(weight, lr, decay) - step

        return made

    def by_lr(w, lr, decay):
        return w * (1 - lr * decay)

    mistakes = {
        other(added=1.0): "The decay has gone through the averages.",
        other(by_lr, added=1.0): "The decay has gone through the averages, too.",
        other(): "Nothing has decayed.",
        other(lambda w, lr, decay: w * (1 - decay)): "The decay is multiplied by the learning rate.",
        other(by_lr, after=True): "What decays is the weight before the step.",
    }
    for n in t.sizes(32):
        lr, decay = t.random.uniform(0.01, 0.3), t.random.uniform(0.3, 2)
        inputs = (t.values(n), t.values(n, scale=3.0), t.values(n), t.positive(n))
        t.compare(f"n = {n}", "step", want, *inputs, lr, decay, name="weight", mistakes=mistakes)
    t.compare("decay = 0", "step", want, t.values(9), t.values(9), t.values(9), t.positive(9), 0.1, 0.0, name="weight")


WRONG = (
    ("The decay has gone through the averages",),
    ("The decay is multiplied by the learning rate", "(1 - lr * decay) * weight", "(1 - decay) * weight"),
    ("Nothing has decayed", "(1 - lr * decay) * weight", "weight"),
    ("n = 1: weight[0] is", "(1 - lr * decay) * weight - lr * average", "weight - lr * (1 + decay) * average"),
    ("n = 1: weight[0] is", "0.01 * gradient * gradient", "0.01 * gradient"),
)
RIGHT = (
    ("(1 - lr * decay) * weight - lr", "weight - lr * decay * weight - lr"),
    ("BLOCK=32", "BLOCK=8"),
)
