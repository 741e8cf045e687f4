# Exercise: own_operation/two_inputs

from academy import autograd, device

import torch
import triton
import triton.language as tl


@triton.jit
def gate_forward_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, a * b * b, mask=mask)


@triton.jit
def gate_backward_kernel(dy_ptr, a_ptr, b_ptr, da_ptr, db_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0)
    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(da_ptr + offsets, dy * (b * b), mask=mask)
    tl.store(db_ptr + offsets, dy * (2 * a * b), mask=mask)


def gate_forward(a, b):
    y = torch.empty_like(a)
    gate_forward_kernel[(triton.cdiv(a.numel(), 16),)](a, b, y, a.numel(), BLOCK=16)
    return y


def gate_backward(dy, a, b):
    """The gradients of a and of b."""
    da, db = torch.empty_like(a), torch.empty_like(b)
    gate_backward_kernel[(triton.cdiv(a.numel(), 16),)](dy.contiguous(), a, b, da, db, a.numel(), BLOCK=16)
    return da, db


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.a, ctx.b = a, b
        return gate_forward(a, b)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        a, b = ctx.a, ctx.b
        return gate_backward(dy, a, b)


def value_and_gradients(a, b, dy):
    """The result, and what autograd finds for a and b when dy arrives."""
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    y = Gate.apply(a, b)
    if not isinstance(y, torch.Tensor):
        return y
    da, db = torch.autograd.grad(y, (a, b), dy)
    return y.detach(), da, db
