"""
# The square: one number in, one out

[[eq: SQ]]

The gradient, [[tag: SQ-x]], needs the input again.

[[figure: hardware/launch]]

**What it costs.** One number is read and one written for a single product: the memory is the limit.

**Contract.** `x` has any shape and any strides, in float32, float16 or bfloat16.
"""

from academy.runtime import autograd, checks, device, script

import torch
import triton
import triton.language as tl


# ## Reference
def square_reference(x):
    return x * x


# ## The kernels
#
# Forward.
@triton.jit
def square_forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # two vectors of n elements
    # `pid=2: mask = [1, 1, 0, 0]`: the last block is half full.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, x * x, mask=mask)


# Backward, by [[tag: SQ-x]].
@triton.jit
def square_backward_kernel(dy_ptr, x_ptr, dx_ptr, n, BLOCK: tl.constexpr):  # three vectors of n elements
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offsets, 2 * x * dy, mask=mask)


# ## The launchers
def square_forward(x, *, BLOCK=1024):
    """BLOCK: elements per program, a power of two."""
    checks.power_of_two(BLOCK=BLOCK)
    x = x.contiguous()
    y = torch.empty_like(x)
    if n := x.numel():
        square_forward_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
    return y


def square_backward(dy, x, *, BLOCK=1024):
    """The gradient of `x`, contiguous. BLOCK: elements per program, a power of two."""
    checks.power_of_two(BLOCK=BLOCK)
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    if n := x.numel():
        square_backward_kernel[(triton.cdiv(n, BLOCK),)](dy, x, dx, n, BLOCK=BLOCK)
    return dx


# ## Checking the argument
def contract(x):
    checks.tensors(x=x)
    checks.dtypes(x=x)


# ## Joining autograd
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return square_forward(x)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return square_backward(dy, *ctx.saved_tensors)


def square(x):
    """`x * x`, differentiable.

    Args:
        x: tensor of any shape, float32, float16 or bfloat16, any strides.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype is not allowed.
        ValueError: `x` is on the wrong device.

    Source: none.
    """
    contract(x)
    if not autograd.needs_frame(x):
        return square_forward(x)
    return Square.apply(x)


# ## A run small enough to watch
#
# Ten elements, in blocks of four.
def EXAMPLE():
    x = torch.arange(10, dtype=torch.float32, device=device.DEVICE)
    square_forward(x, BLOCK=4)
    square_backward(torch.ones_like(x), x, BLOCK=4)


if __name__ == "__main__":
    script.main(square, square_reference)
