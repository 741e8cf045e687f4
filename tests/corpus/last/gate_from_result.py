import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "temperature": (1.0, 2.0)}


@triton.jit
def gate_kernel(x_ptr, y_ptr, n, inverse, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, 1.0 / (1.0 + tl.exp(-x * inverse)), mask=at < n)


@triton.jit
def gate_backward_kernel(y_ptr, g_ptr, dx_ptr, n, inverse, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    g = tl.load(g_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + at, g * y * (1.0 - y) * inverse, mask=at < n)


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, temperature):
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.numel():
            gate_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 1.0 / temperature, BLOCK=64)
        ctx.save_for_backward(y)
        ctx.options = x.dtype, temperature
        return y.to(x.dtype, copy=True)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        dtype, temperature = ctx.options
        dx = torch.empty(y.shape, dtype=dtype, device=y.device)
        if y.numel():
            gate_backward_kernel[(triton.cdiv(y.numel(), 64),)](
                y, g.contiguous(), dx, y.numel(), 1.0 / temperature, BLOCK=64
            )
        return dx, None


def gate_from_result(x, temperature=1.0):
    """A sigmoid whose gradient needs only its result."""
    return Gate.apply(x, temperature)


def gate_from_result_reference(x, temperature=1.0):
    return torch.sigmoid(x.float() / temperature).to(x.dtype)
