"""# One kernel for SwiGLU

`swiglu(gate, up)` computes `gate * sigmoid(gate) * up` with two kernels: the first writes `gate *
sigmoid(gate)`, the second reads it again. Make it one kernel that reads each number once.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


# <<<
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=mask)


def swiglu(gate, up, BLOCK=32):
    out = torch.empty_like(gate)
    n = gate.numel()
    swiglu_kernel[(triton.cdiv(n, BLOCK),)](gate, up, out, n, BLOCK=BLOCK)
    return out


# ===
# @triton.jit
# def silu_kernel(gate_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, gate * tl.sigmoid(gate), mask=mask)
#
#
# @triton.jit
# def multiply_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offsets < n
#     x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
#     y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
#     tl.store(out_ptr + offsets, x * y, mask=mask)
#
#
# def swiglu(gate, up, BLOCK=32):
#     part, out = torch.empty_like(gate), torch.empty_like(gate)
#     n = gate.numel()
#     silu_kernel[(triton.cdiv(n, BLOCK),)](gate, part, n, BLOCK=BLOCK)
#     multiply_kernel[(triton.cdiv(n, BLOCK),)](part, up, out, n, BLOCK=BLOCK)
#     return out
# >>>


# %% checks
PAGE = "kernels/classics/swiglu.md"
KIND = "read fewer bytes"
ORDER = 11
HINTS = (
    "One kernel with two inputs and one output is enough.",
    "Keep `gate * tl.sigmoid(gate)` in a variable and multiply it by the block of `up` before the store.",
)
WHY = "20 bytes for each float32 element become 12: the gated half is neither written nor read again."


def check(t):
    def want(gate, up):
        return gate * gate.sigmoid() * up

    for n in (1, 50, *t.sizes(32)):
        run = t.compare(f"n = {n}", "swiglu", want, t.values(n), t.values(n))
        t.traffic(f"n = {n}", run, read=8 * n, written=4 * n)
    t.compare("large numbers", "swiglu", want, t.values(4, scale=30.0), t.values(4))


WRONG = (
    ("n = 1: 12 bytes are read, 8 are enough",),
    (
        "n = 1: 12 bytes are read, 8 are enough (an element is 4 bytes): gate_ptr[0] is loaded 2 times",
        "gate * tl.sigmoid(gate) * up",
        "gate * tl.sigmoid(tl.load(gate_ptr + offsets, mask=mask, other=0.0)) * up",
    ),
    (
        "n = 1: out[0] is",
        "gate * tl.sigmoid(gate) * up",
        "tl.sigmoid(gate) * up",
    ),
    (
        "n = 1: out[0] is",
        "tl.sigmoid(gate)",
        "tl.sigmoid(up)",
    ),
    (
        "n = 1: PyTorch computes what the kernel loads as gate_ptr. Here the kernel must do all of the work",
        "gate * tl.sigmoid(gate) * up",
        "gate * up",
        "(gate, up, out, n",
        "(torch.nn.functional.silu(gate), up, out, n",
    ),
)
RIGHT = (
    (
        "gate * tl.sigmoid(gate) * up",
        "gate / (1 + tl.exp(-gate)) * up",
    ),
    (
        "up = tl.load(up_ptr + offsets, mask=mask, other=0.0)",
        "silu = gate * tl.sigmoid(gate)\n    up = tl.load(up_ptr + offsets, mask=mask, other=0.0)",
        "gate * tl.sigmoid(gate) * up",
        "silu * up",
    ),
)
