"""# The gradient of a clamped gate

The experts of gpt-oss have another activation. Gate and up alternate in a row, and both are limited, the gate from
above and up on both sides:

`y = (u + 1) · g · σ(1.702 · g)` with `g = min(gate, limit)` and `u = min(max(up, −limit), limit)`

Forward is done, and in the gradient's kernel `g`, `u` and the sigmoid `s` are at hand. Write `dgate` and `dup`. What
was limited has no gradient. A number that equals its limit was not limited.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(dy_ptr, x_ptr, dx_ptr, N, limit, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, BLOCK)
    mask = n < N
    gate = tl.load(x_ptr + row * stride + 2 * n, mask=mask, other=0.0)
    up = tl.load(x_ptr + row * stride + 2 * n + 1, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * N + n, mask=mask, other=0.0)
    g = tl.minimum(gate, limit)
    u = tl.minimum(tl.maximum(up, -limit), limit)
    s = tl.sigmoid(1.702 * g)
    # <<<
    dgate = tl.where(gate <= limit, dy * (u + 1.0) * s * (1.0 + 1.702 * g * (1.0 - s)), 0.0)
    dup = tl.where(tl.abs(up) <= limit, dy * g * s, 0.0)
    # >>>
    tl.store(dx_ptr + row * 2 * N + 2 * n, dgate, mask=mask)
    tl.store(dx_ptr + row * 2 * N + 2 * n + 1, dup, mask=mask)


def gradient(dy, x, limit):
    rows, N = dy.shape
    dx = torch.empty(rows, 2 * N, device=device.DEVICE)
    gradient_kernel[(rows,)](dy, x, dx, N, limit, x.stride(0), BLOCK=triton.next_power_of_2(N))
    return dx


# %% checks
PAGE = "kernels/moe/moe_mlp.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Begin as if nothing were limited. y is a product of u + 1 and of g · σ(1.702 · g), and `dup` is dy times the "
    "second factor.",
    "The derivative of g · σ(1.702 · g) is σ + 1.702 · g · σ · (1 − σ): the product rule, and the chain rule inside.",
    "min(gate, limit) has the derivative 1 where `gate <= limit`, and 0 elsewhere: `tl.where`. For up there are two "
    "limits.",
)
WHY = """A limit is a function as well, with the derivative 1 inside and 0 outside, and the chain rule multiplies by it.
It is `gate` that decides, not `g`: after the limit was applied, nothing exceeds it any more."""


def check(t):
    def want(dy, x, limit):
        gate, up = x[:, 0::2], x[:, 1::2]
        g, u = torch.clamp(gate, max=limit), torch.clamp(up, min=-limit, max=limit)
        s = torch.sigmoid(1.702 * g)
        dgate = dy * (u + 1) * (s + 1.702 * g * s * (1 - s))
        dup = dy * g * s
        out = torch.zeros(len(x), x.shape[1], dtype=x.dtype, device=x.device)
        out[:, 0::2] = torch.where(gate <= limit, dgate, 0.0)
        out[:, 1::2] = torch.where((up <= limit) & (up >= -limit), dup, 0.0)
        return out

    def case(rows, N, limit, scale):
        x = t.cut(rows, 2 * N, scale=scale)
        if limit < 10:  # what is just at its limit is not limited yet
            x[0, 0], x[0, 2], x[0, 3], x[0, 5] = limit, 0.5, limit, -limit
            above = limit * (1 + 2.0**-22) + 1e-30  # the least that is beyond it
            x[1, 0], x[1, 1], x[1, 3], x[1, 2] = above, above, -above, limit * (1 - 2.0**-22)
        t.compare(f"limit {limit:g}, {rows} x {N}", "gradient", want, t.values(rows, N), x, limit, note=note, spare=few)

    note = "Even columns of x are gates, odd ones up, and only what lies beyond a limit has no gradient."
    # A limit takes a NaN for itself, and what is beyond one has no gradient, whatever arrives.
    few = ("a NaN in x", "an infinity in dy", "minus infinity in dy")
    case(2, 3, 1e6, 1.0)
    case(3, 8, 1.0, 2.0)
    case(t.random.randint(2, 4), t.random.randint(5, 7), 1.5, 3.0)
    case(3, 33, 0.25, 1.0)
    case(20, 3, 7.0, 9.0)
    case(2, 3, 0.0, 1.0)


WRONG = (
    ("NameError: name 'dgate' is not defined",),
    ("limit 1, 3 x 8: out[", "tl.where(tl.abs(up) <= limit, dy * g * s, 0.0)", "dy * g * s"),
    ("limit 1, 3 x 8: out[", "tl.where(gate <= limit,", "tl.where(g <= limit,"),
    ("limit 1e+06, 2 x 3: out[", "1.0 + 1.702 * g * (1.0 - s)", "1.0 + g * (1.0 - s)"),
    ("limit 1, 3 x 8: out[", "tl.abs(up) <= limit", "up <= limit"),
    ("out[1, 0]", "gate <= limit", "gate <= limit * (1.0 + 1e-5)"),
)
RIGHT = (
    (
        "slope = s + 1.702 * g * s * (1.0 - s)\n"
        "dgate = tl.where(gate > limit, 0.0, dy * (u + 1.0) * slope)\n"
        "dup = tl.where((up >= -limit) & (up <= limit), dy * g * s, 0.0)",
    ),
    (
        "dgate = dy * (u + 1.0) * s * (1.0 + 1.702 * g * (1.0 - s)) * (gate <= limit).to(tl.float32)\n"
        "dup = dy * g * s * (tl.abs(up) <= limit).to(tl.float32)",
    ),
)
